"""Expectations under a Gaussian activation, against quadrature and against each other's derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.integrate import quad
from scipy.special import logsumexp

import blr.predictive.expectations
from blr.arrays import Matrix, Vector
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import LINKS, Bernoulli, Categorical, unpack
from blr.predictive import expectations
from blr.predictive._cubature import normal_nodes
from blr.predictive.expectations import expected_derivatives, expected_terms
from blr.sums import Rows
from tests.blr.conftest import Twin


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


@pytest.mark.parametrize("name", ["probit", "cauchit", "cloglog"])
@pytest.mark.parametrize(("m", "sd"), [(0.0, 3000.0), (-900.0, 300.0), (1200.0, 400.0)])
def test_very_wide_activations_take_few_nodes(
    name: str, m: float, sd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a rule of equal steps, for analytic functions exact: nodes grow with the logarithm of the sd."""
    likelihood, t = Bernoulli(LINKS[name]), np.ones(1)
    step = 0.2 / sd
    z = step * np.arange(-9 // step, 9 // step + 1)
    w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    exact = [float(x.ravel() @ w) for x in likelihood.derivatives((m + sd * z)[:, None], np.ones(len(z)))]
    seen = []
    monkeypatch.setattr(
        Bernoulli,
        "derivatives",
        lambda self, a, t, given=Bernoulli.derivatives: (seen.append(len(a)), given(self, a, t))[1],
    )
    found = expected_derivatives(likelihood, *cell(m, sd), t)
    assert sum(seen) < 250
    for x, y in zip(found, exact, strict=True):
        assert float(x.ravel()[0]) == pytest.approx(y, rel=2e-6)


@pytest.mark.parametrize("name", ["probit", "cauchit"])
def test_links_far_and_wide_are_finite(name: str) -> None:
    m = np.array([-30.0, 0.0, 30.0])[:, None]
    V = np.full((3, 1, 1), 50.0**2)
    for x in expected_derivatives(Bernoulli(LINKS[name]), m, V, np.array([0.0, 1.0, 0.5])):
        assert np.all(np.isfinite(x))


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
def test_softmax_by_product_rules(dense: Twin, K: int, spread: float, tolerance: float) -> None:
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
def test_all_activations_agree_with_contrasts(dense: Twin, K: int) -> None:
    """The common shift, however uncertain, says nothing."""
    full, contrasts = Categorical(K, contrasts=False), Categorical(K)
    rng = np.random.default_rng(0)
    m, S = rng.standard_normal((4, K)), dense.covariance(rng, K)
    t = rng.dirichlet(np.ones(K), 4)
    T = contrasts.transform
    ours = expected_derivatives(full, m + 5.0, np.repeat(S[None], 4, 0) + 9.0, t)
    theirs = expected_derivatives(contrasts, m @ T, np.repeat((T.T @ S @ T)[None], 4, 0), t)
    assert ours[0] == pytest.approx(theirs[0], abs=1e-9)
    assert ours[1] == pytest.approx(theirs[1] @ T.T, abs=1e-9)
    assert unpack(ours[2], K) == pytest.approx(T @ unpack(theirs[2], K - 1) @ T.T, abs=1e-9)


def test_sums_are_over_rows(dense: Twin) -> None:
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
def test_sums_of_many_classes_are_those_of_nodes(dense: Twin, spread: float, tolerance: float) -> None:
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


def test_blocks_change_nothing(dense: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    m, V = rng.standard_normal((70, 3)), np.stack([dense.covariance(rng, 3) for _ in range(70)])
    t = rng.dirichlet(np.ones(4), 70)
    whole = expected_derivatives(Categorical(4), m, V, t)
    monkeypatch.setattr(blr.predictive.expectations, "_NUMBERS", 5000)
    for x, y in zip(expected_derivatives(Categorical(4), m, V, t), whole, strict=True):
        assert x == pytest.approx(y, abs=1e-13)


def test_many_nodes_in_single_precision_are_those_of_double() -> None:
    """Wide rows: activations of some hundreds and sd of some tens, summed at 4,096 nodes in either precision."""
    rng = np.random.default_rng(3)
    m, B = 60 * rng.normal(size=(40, 5)), 8 * rng.normal(size=(40, 5, 4))
    z, w = expectations._sobol(4096, 4)
    found = expectations._at_many_nodes(m, B, z, w)
    a = m[:, :, None] + B @ z.T
    log_sum = logsumexp(a, axis=1)
    y = np.exp(a - log_sum[:, None])
    np.testing.assert_allclose(found[0], log_sum @ w, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[1], y @ w, rtol=0, atol=2e-6)
    products = np.einsum("nks,nls->nkl", y, y) / 4096
    np.testing.assert_allclose(found[2], np.einsum("nk,kl->nkl", y @ w, np.eye(5)) - products, atol=2e-6)
