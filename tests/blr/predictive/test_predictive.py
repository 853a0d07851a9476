"""Binary predictive integrals, expectations and nodes against quadrature, closed forms and symmetries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.integrate import quad
from scipy.special import expit, log_expit, ndtr
from scipy.stats import qmc

from blr.arrays import Matrix, Vector
from blr.decisions import entropy
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import LINKS, Bernoulli, Categorical, unpack
from blr.predictive import binary as predictive
from blr.predictive._cubature import (
    RULES,
    axis_rule,
    normal_nodes,
    sobol_points,
)
from blr.predictive.binary import (
    binary_exact,
    binary_expected_entropy,
    binary_integrals,
    binary_probit,
)
from blr.predictive.expectations import expected_derivatives, expected_terms
from blr.sums import Rows
from tests.blr import dense

SDS = (0.0, 1e-6, 0.1, 0.4999, 0.5001, 0.9999, 1.0001, 1.9999, 2.0001, 3.0, 5.0, 10.0, 20.0, 50.0)
MEANS = np.concatenate([np.linspace(-60, 60, 81), [-1e-9, 1e-9]])


def expectation(f: Callable[..., Any], mean: float, sd: float) -> float:
    """Return E[f(a)] by adaptive quadrature, split where the Gaussian, σ and their product may bend."""
    if sd == 0:
        return f(mean)
    cuts = sorted({-12.0, 12.0, *np.clip([-mean / sd, -4.0, 0.0, 4.0, np.clip(sd, 0, 11)], -12, 12)})
    parts = [
        quad(
            lambda z: f(mean + sd * z) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi),
            *ends,
            epsabs=1e-13,
            epsrel=1e-11,
            limit=200,
        )[0]
        for ends in itertools.pairwise(cuts)
    ]
    return sum(parts)


@pytest.mark.parametrize("sd", SDS)
def test_exact_logistic_and_expected_entropy_against_quadrature(sd: float) -> None:
    for average, f, error in (
        (binary_exact, expit, 3e-9),
        (binary_expected_entropy, lambda a: -log_expit(abs(a)) + abs(a) * expit(-abs(a)), 5e-8),
    ):
        found = average(MEANS, np.full(MEANS.shape, sd**2))
        truth = [expectation(f, m, sd) for m in MEANS]
        np.testing.assert_allclose(found, truth, rtol=0, atol=error)


@pytest.mark.parametrize("sd", SDS)
def test_the_lower_tail_keeps_its_relative_accuracy(sd: float) -> None:
    means = np.linspace(-60, -5, 12)
    found = binary_exact(means, np.full(means.shape, sd**2))
    # σ(a) = e^a σ(-a): after the shift of the mean the integrand is of order one.
    truth = [
        np.exp(m + sd**2 / 2) * expectation(expit, -m - sd**2, sd) if m < -(sd**2) else np.nan for m in means
    ]
    shifted = ~np.isnan(truth)
    np.testing.assert_allclose(found[shifted], np.array(truth)[shifted], rtol=1e-5)
    unshifted = [expectation(expit, m, sd) for m in means[~shifted]]
    np.testing.assert_allclose(found[~shifted], unshifted, rtol=5e-3)


@pytest.mark.parametrize("sd", [1e-3, 0.03, 0.3, 1.0, 1.9])
def test_mutual_information_keeps_its_relative_accuracy_when_small(sd: float) -> None:
    means = np.array([-12.0, -6.0, -3.0, 0.0, 1.0, 9.0])
    p = binary_exact(means, np.full(6, sd**2))
    found = entropy(np.stack([1 - p, p], axis=1)) - binary_expected_entropy(means, np.full(6, sd**2))

    def divergence(a: float, q: float) -> float:
        y, x = expit(a), expit(-a)
        return y * (log_expit(a) - np.log(q)) + x * (log_expit(-a) - np.log1p(-q))

    truth = np.array(
        [expectation(lambda a, q=q: divergence(a, q), m, sd) for m, q in zip(means, p, strict=True)]
    )
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=3e-15)


def test_probit_formula_errs_by_as_much_as_stated() -> None:
    mean, sd = (x.ravel() for x in np.meshgrid(np.linspace(0, 40, 161), np.geomspace(0.1, 50, 40)))
    error = np.abs(binary_probit(mean, sd**2) - binary_exact(mean, sd**2))
    assert 0.017 < error.max() < 0.0185
    formula = 1 / (1 + np.exp(-mean / np.sqrt(1 + np.pi * sd**2 / 8)))
    np.testing.assert_allclose(binary_probit(mean, sd**2), formula, rtol=1e-12)


def test_probit_link_is_a_closed_form() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(0, 5, 50), rng.gamma(1, 5, 50)
    found = binary_exact(mean, variance, link="probit")
    np.testing.assert_allclose(found, ndtr(mean / np.sqrt(1 + variance)), rtol=1e-14)
    by_nodes = predictive._quadrature(mean, variance, ndtr)
    np.testing.assert_allclose(by_nodes, found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("link", ["cauchit", "cloglog"])
@pytest.mark.parametrize("sd", [0.0, 0.3, 1.0, 4.1, 50.0])
def test_other_links_against_quadrature(link: str, sd: float) -> None:
    means = np.array([-30.0, -4.0, -0.3, 0.0, 1.0, 6.0, 900.0])
    found = binary_exact(means, np.full(means.shape, sd**2), link=link)
    f = LINKS[link].log_cdf
    truth = [expectation(lambda a: float(np.exp(f(a))), m, sd) for m in means]
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-8)


@pytest.mark.parametrize("link", ["probit", "cauchit", "cloglog"])
def test_expected_entropy_of_other_links(link: str) -> None:
    means, sd = np.array([-900.0, -2.0, 0.0, 0.7, 5.0]), 1.3

    def h(a: float) -> float:
        p, q = np.exp(LINKS[link].log_cdf(a)), np.exp(LINKS[link].log_sf(a))
        return -(p * np.log(max(p, 1e-300)) + q * np.log(max(q, 1e-300)))

    found = binary_expected_entropy(means, np.full(5, sd**2), link=link)
    np.testing.assert_allclose(found, [expectation(h, m, sd) for m in means], rtol=0, atol=1e-7)


@pytest.mark.parametrize("link", ["logistic", "probit", "cloglog"])
def test_both_integrals_at_once_are_each_by_itself(link: str) -> None:
    mean, sd = (x.ravel() for x in np.meshgrid([-40.0, -2.0, 0.0, 0.3, 9.0], [0.0, 0.4, 0.9, 1.8, 6.0]))
    p, h = binary_integrals(mean, sd**2, link=link)
    np.testing.assert_allclose(p, binary_exact(mean, sd**2, link=link), rtol=1e-15)
    np.testing.assert_allclose(h, binary_expected_entropy(mean, sd**2, link=link), rtol=1e-15)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(0, 4, 20_000), rng.gamma(0.5, 3, 20_000)
    together = binary_exact(mean, variance)
    order = rng.permutation(20_000)
    np.testing.assert_allclose(binary_exact(mean[order], variance[order]), together[order], rtol=1e-15)


def test_empty_batches() -> None:
    none = np.zeros(0)
    for f in (binary_exact, binary_probit, binary_expected_entropy):
        assert f(none, none).shape == (0,)
    assert binary_exact(none, none, link="cauchit").shape == (0,)


def test_a_mean_that_is_not_a_number_is_told() -> None:
    with pytest.raises(ValueError, match="mean holds 1 value"):
        binary_exact(np.array([np.nan]), np.ones(1))


def test_a_variance_below_zero_by_rounding_is_zero() -> None:
    zero = binary_exact(np.ones(2), np.array([-1e-12, 4.0]))[0]
    assert zero == pytest.approx(expit(1), rel=1e-15)


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize(("m", "sd"), [(0.3, 0.0), (-2.0, 1.5), (1.0, 4.0)])
def test_links_by_adaptive_quadrature(name: str, m: float, sd: float) -> None:
    if name == "cloglog" and sd == 4.0:
        sd = 2.0  # e^a has no expectation worth a quadrature beyond
    likelihood = Bernoulli(LINKS[name])
    for t in (np.zeros(1), np.ones(1), np.full(1, 0.3)):
        found = [float(x.ravel()[0]) for x in expected_derivatives(likelihood, *cell(m, sd), t)]
        for i, tolerance in enumerate((2e-7, 2e-7, 1e-6)):

            def integrand(z: float, i: int = i, t: Vector = t) -> float:
                x = likelihood.derivatives(np.array([[m + sd * z]]), t)[i]
                return float(x.ravel()[0]) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)

            exact = quad(integrand, -12, 12, points=[0.0], epsabs=1e-12, epsrel=1e-12, limit=400)[0]
            assert found[i] == pytest.approx(exact, rel=tolerance, abs=tolerance)


def cell(m: float, sd: float) -> tuple[Matrix, np.ndarray]:
    return np.array([[m]]), np.array([[[sd**2]]])


@pytest.mark.parametrize("sd", [0.1, 3.0, 30.0])
def test_logistic_expectations_are_each_others_derivatives(sd: float) -> None:
    """To rounding, so that a line search on the lower bound never sees a false slope."""
    likelihood, h = Bernoulli(), 1e-5 * sd
    m = np.linspace(-40, 40, 33)
    t = np.full(33, 0.4)
    V = np.full((33, 1, 1), sd**2)
    up, down = (expected_derivatives(likelihood, (m + d)[:, None], V, t) for d in (h, -h))
    _, gradient, curvature = expected_derivatives(likelihood, m[:, None], V, t)
    assert (up[0] - down[0]) / (2 * h) == pytest.approx(gradient[:, 0], abs=1e-8)
    assert (down[1] - up[1]) / (2 * h) == pytest.approx(curvature, abs=1e-7)


def reference(likelihood: Categorical, m: Vector, V: Matrix, t: Vector) -> tuple[float, Vector, Matrix]:
    """Return the expectations by a Gauss-Hermite product rule along the Cholesky axes."""
    C = likelihood.n_outputs
    n = {1: 99, 2: 99, 3: 33, 4: 13}[C]
    x, w = hermegauss(n)
    z = np.stack([g.ravel() for g in np.meshgrid(*[x] * C, indexing="ij")], axis=1)
    w = np.prod(np.stack([g.ravel() for g in np.meshgrid(*[w / w.sum()] * C, indexing="ij")]), axis=0)
    a = m + z @ np.linalg.cholesky(V).T
    value, gradient, curvature = likelihood.derivatives(a, np.repeat(t[None], len(z), axis=0))
    return w @ value, w @ gradient, unpack((w @ curvature)[None], C)[0]


@pytest.mark.parametrize("K", [2, 3, 4, 5])
@pytest.mark.parametrize(("spread", "tolerance"), [(0.1, 1e-5), (0.4, 2e-4), (1.0, 1e-3), (2.5, 4e-3)])
def test_softmax_by_product_rules(K: int, spread: float, tolerance: float) -> None:
    likelihood = Categorical(K)
    rng = np.random.default_rng(K)
    m = 2 * rng.standard_normal((5, K - 1))
    S = np.stack([dense.covariance(rng, K - 1) for _ in range(5)])
    S *= spread**2 / np.linalg.eigvalsh(S)[:, -1][:, None, None]
    t = rng.dirichlet(np.ones(K), 5)
    value, gradient, curvature = expected_derivatives(likelihood, m, S, t)
    for n in range(5):
        exact = reference(likelihood, m[n], S[n], t[n])
        assert value[n] == pytest.approx(exact[0], abs=2 * tolerance)
        assert gradient[n] == pytest.approx(exact[1], abs=tolerance)
        assert unpack(curvature, K - 1)[n] == pytest.approx(exact[2], abs=2 * tolerance)


@pytest.mark.parametrize("K", [2, 3, 12])
def test_all_activations_agree_with_contrasts(K: int) -> None:
    """The common shift, however uncertain, says nothing."""
    full, contrasts = Categorical(K, contrasts=False), Categorical(K)
    rng = np.random.default_rng(0)
    m, S = rng.standard_normal((4, K)), dense.covariance(rng, K)
    t = rng.dirichlet(np.ones(K), 4)
    T = contrasts.transform
    ours = expected_derivatives(full, m + 5.0, np.repeat(S[None], 4, 0) + 9.0, t)
    theirs = expected_derivatives(contrasts, m @ T, np.repeat((T.T @ S @ T)[None], 4, 0), t)
    assert ours[0] == pytest.approx(theirs[0], abs=1e-8)  # many axes have points in single precision
    assert ours[1] == pytest.approx(theirs[1] @ T.T, abs=1e-8)
    assert unpack(ours[2], K) == pytest.approx(T @ unpack(theirs[2], K - 1) @ T.T, abs=1e-8)


def test_sums_are_over_rows() -> None:
    Phi, t = dense.softmax(0, N=50, M=3, K=3)
    likelihood, rng = Categorical(3), np.random.default_rng(0)
    theta, w = rng.standard_normal(6), rng.gamma(2.0, size=50)
    A = np.linalg.inv(dense.covariance(rng, 6))
    U = Gaussian(theta, A).inverse_cholesky
    value, gradient, H = Rows(Phi, t, w).accumulate(expected_terms(likelihood, theta, U))
    expected = [0.0, np.zeros(6), np.zeros((6, 6))]
    for n in range(50):
        J = np.kron(np.eye(2), Phi[n])
        v, g, R = expected_derivatives(
            likelihood, (J @ theta)[None], (J @ np.linalg.inv(A) @ J.T)[None], t[n][None]
        )
        expected[0] += w[n] * v[0]
        expected[1] += w[n] * J.T @ g[0]
        expected[2] += w[n] * J.T @ unpack(R, 2)[0] @ J
    assert value == pytest.approx(expected[0], rel=1e-10)
    assert gradient == pytest.approx(expected[1], rel=1e-9, abs=1e-9)
    assert pytest.approx(expected[2], rel=1e-9, abs=1e-9) == H


@pytest.mark.parametrize(
    ("spread", "tolerance"), [(0.3, 1e-4), pytest.param(1.0, 1e-3, marks=pytest.mark.long), (3.0, 1e-2)]
)
def test_sums_of_many_classes_are_those_of_nodes(spread: float, tolerance: float) -> None:
    """Rows that are known well take an expansion, the others nodes: both near what very many nodes give each row."""
    K, M, N = 12, 3, 20
    Phi, t = dense.softmax(0, N=N, M=M, K=K)
    likelihood, rng = Categorical(K), np.random.default_rng(0)
    theta, w = rng.standard_normal((K - 1) * M), rng.gamma(2.0, size=N)
    S = spread**2 / 6 * dense.covariance(rng, (K - 1) * M)
    U = Gaussian(theta, np.linalg.inv(S)).inverse_cholesky
    value, gradient, H = Rows(Phi, t, w).accumulate(expected_terms(likelihood, theta, U))
    draws = np.linalg.cholesky(S) @ normal_nodes(2**13, (K - 1) * M).T
    draws = (np.concatenate([draws, -draws], axis=1).T + theta).reshape(-1, K - 1, M)
    expected = [0.0, np.zeros((K - 1, M)), np.zeros((K - 1, M, K - 1, M))]
    for n in range(N):
        v, g, R = (
            x.mean(axis=0) for x in likelihood.derivatives(draws @ Phi[n], np.tile(t[n], (len(draws), 1)))
        )
        expected[0] += w[n] * v
        expected[1] += w[n] * np.outer(g, Phi[n])
        expected[2] += w[n] * np.einsum("cd,m,l->cmdl", unpack(R[None], K - 1)[0], Phi[n], Phi[n])
    total = w.sum()
    assert abs(value - expected[0]) < tolerance * total
    assert np.abs(gradient - expected[1].ravel()).max() < tolerance * total
    assert np.abs(H - expected[2].reshape(H.shape)).max() < tolerance * total


rule_sizes = pytest.mark.parametrize(("n", "step", "reach"), RULES, ids=[str(n) for n, _, _ in RULES])


@rule_sizes
def test_rules_reach_as_far_as_stated(n: int, step: float, reach: float) -> None:
    z, weight = axis_rule(n, step)
    for r in np.linspace(0.05, 1, 12) * reach:
        mean = np.linspace(-5 * r - 4, 5 * r + 4, 201)
        found = expit(mean[:, None] + r * z) @ weight
        error = np.abs(found - binary_exact(mean, np.full(mean.shape, r**2))).max()
        assert error < (2.6e-5 if n < 21 else 1.05e-4)


def test_sobol_points_are_those_of_scipy() -> None:
    theirs = qmc.Sobol(21, scramble=False).random(512)
    np.testing.assert_array_equal(sobol_points(512, 21) / 2**30, theirs)


@pytest.mark.parametrize(("n", "d"), [(128, 2), (1024, 9), (256, 30)])
def test_normal_nodes_have_the_normal_moments(n: int, d: int) -> None:
    z = normal_nodes(n, d)
    assert z.shape == (n, d)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(z.T @ z / n, np.eye(d), atol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        z[0] = 0
