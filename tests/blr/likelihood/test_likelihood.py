"""Likelihoods against finite differences of their values, and against SciPy's distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.differentiate import derivative

from blr.arrays import Matrix, Vector
from blr.gaussian import helmert
from blr.likelihood.likelihoods import LINKS, Bernoulli, Categorical, make_likelihood, pairs, unpack
from tests.blr.conftest import Twin

LIKELIHOODS = {
    **{name: Bernoulli(link) for name, link in LINKS.items()},
    "softmax, 2 classes": Categorical(2),
    "softmax, 3 classes": Categorical(3),
    "softmax, 5 classes": Categorical(5),
    "softmax, all 4 activations": Categorical(4, contrasts=False),
}

each = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)


def example(
    likelihood: Bernoulli | Categorical, n: int = 7, scale: float = 2.0, seed: int = 0
) -> tuple[Any, ...]:
    """Return activations (n, C) and soft targets."""
    rng = np.random.default_rng(seed)
    a = scale * rng.standard_normal((n, likelihood.n_outputs))
    if isinstance(likelihood, Bernoulli):
        t = rng.random(n)
        t[:2] = 0.0, 1.0
        return a, t
    t = rng.dirichlet(np.ones(likelihood.n_classes), size=n)
    t[0] = np.eye(likelihood.n_classes)[1]
    return a, t


def metric(n: int, C: int) -> np.ndarray:
    """Return positive definite matrices (n, C, C)."""
    B = np.random.default_rng(1).standard_normal((n, C, C))
    return B @ B.transpose(0, 2, 1) + 0.1 * np.eye(C)


def moved(a: Matrix, c: int, h: float) -> Matrix:
    b = a.copy()
    b[:, c] += h
    return b


def difference(function: Callable[..., Any], a: Matrix, c: int, h: float = 1e-4) -> np.ndarray:
    """Return d function/da_c by differences of fourth order."""
    f = [function(moved(a, c, k * h)) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)


@each
def test_gradient_is_that_of_the_value(likelihood: Bernoulli | Categorical) -> None:
    a, t = example(likelihood)
    value, gradient, _ = likelihood.derivatives(a, t)
    assert value == pytest.approx(likelihood.log_likelihood(a, t), rel=1e-14)
    for c in range(likelihood.n_outputs):
        numeric = difference(lambda b: likelihood.log_likelihood(b, t), a, c)
        assert gradient[:, c] == pytest.approx(numeric, rel=1e-8, abs=1e-8)


@each
def test_curvature_is_minus_the_gradients_derivative(likelihood: Bernoulli | Categorical) -> None:
    a, t = example(likelihood)
    R = unpack(likelihood.derivatives(a, t)[2], likelihood.n_outputs)
    for c in range(likelihood.n_outputs):
        numeric = difference(lambda b: likelihood.derivatives(b, t)[1], a, c)
        assert -R[:, :, c] == pytest.approx(numeric, rel=1e-8, abs=1e-8)


@each
def test_hessian_of_minus_ln_p_is_positive_semidefinite(likelihood: Bernoulli | Categorical) -> None:
    """The sign that PRML (4.110) misprints."""
    a, t = example(likelihood, n=50, scale=5.0)
    R = unpack(likelihood.derivatives(a, t)[2], likelihood.n_outputs)
    smallest = np.linalg.eigvalsh(R)[:, 0].min()
    assert (smallest > -1e-15) == likelihood.log_concave


@each
def test_curvature_gradient_is_the_third_derivative(likelihood: Bernoulli | Categorical) -> None:
    a, t = example(likelihood)
    C = likelihood.n_outputs
    V = metric(len(a), C)

    def trace(b: Matrix) -> Vector:
        return np.einsum("ncd,ndc->n", unpack(likelihood.derivatives(b, t)[2], C), V)

    found = likelihood.curvature_gradient(a, t, V)
    for c in range(C):
        assert found[:, c] == pytest.approx(difference(trace, a, c), rel=1e-7, abs=1e-7)


@each
def test_curvature_along_directions(likelihood: Bernoulli | Categorical) -> None:
    a, t = example(likelihood)
    C = likelihood.n_outputs
    b = np.random.default_rng(2).standard_normal((len(a), C, 3))
    found = likelihood.curvature_along(a, t, b)
    for i in range(3):
        numeric = difference(
            lambda h, i=i: likelihood.derivatives(a + h * b[:, :, i], t)[2], np.zeros((1, 1)), 0
        )
        assert found[:, :, i] == pytest.approx(numeric, rel=1e-7, abs=1e-7)


@each
def test_third_squared_is_the_length_of_all_its_slices(likelihood: Bernoulli | Categorical) -> None:
    a, t = example(likelihood)
    C = likelihood.n_outputs
    V = metric(len(a), C)
    S = np.linalg.cholesky(V)
    slices = likelihood.curvature_along(a, t, S)
    expected = sum(
        np.sum((S.transpose(0, 2, 1) @ unpack(slices[:, :, i], C) @ S) ** 2, axis=(1, 2)) for i in range(C)
    )
    assert likelihood.third_squared(a, t, V) == pytest.approx(expected, rel=1e-10)


@each
def test_fourth_is_the_derivative_of_the_third(likelihood: Bernoulli | Categorical) -> None:
    a, t = example(likelihood)
    V = metric(len(a), likelihood.n_outputs)
    slopes = [difference(lambda b: likelihood.curvature_gradient(b, t, V), a, c) for c in range(len(V[0]))]
    expected = np.einsum("dnc,ncd->n", np.array(slopes), V)
    assert likelihood.fourth_on(a, t, V) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", LINKS)
def test_third_and_fourth_derivative_of_a_link(name: str) -> None:
    likelihood = Bernoulli(LINKS[name])
    a, t = example(likelihood, n=20)
    third, fourth = likelihood.higher(a[:, 0], t)
    numeric = difference(lambda b: -likelihood.derivatives(b, t)[2][:, 0], a, 0)
    assert third == pytest.approx(numeric, rel=1e-7, abs=1e-7)
    numeric = difference(lambda b: likelihood.higher(b[:, 0], t)[0], a, 0)
    assert fourth == pytest.approx(numeric, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", LINKS)
def test_links_are_scipys_distributions(name: str, dense: Twin) -> None:
    a = np.linspace(-12, 6, 61)
    for t in (0.0, 1.0):
        ours = Bernoulli(LINKS[name]).log_likelihood(a[:, None], np.full(len(a), t))
        theirs = [dense.log_likelihood(np.ones((1, 1)), np.array([t]), np.array([x]), name) for x in a]
        assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("name", LINKS)
def test_links_are_finite_far_out(name: str) -> None:
    """Up to |a| = 1e4 every derivative is finite and, up to the fourth, of the sign that the tail has."""
    likelihood = Bernoulli(LINKS[name])
    a = np.array([-1e4, -700.0, -50.0, 50.0, 600.0])[:, None]
    for t in (np.zeros(5), np.ones(5), np.full(5, 0.5)):
        with np.errstate(all="raise", under="ignore"):
            value, gradient, curvature = likelihood.derivatives(a, t)
            third, fourth = likelihood.higher(a[:, 0], t)
        for x in (value, gradient, curvature, third, fourth):
            assert np.all(np.isfinite(x))
        assert np.all(value <= 0)


@pytest.mark.parametrize("a", [-12.0, -29.9, -30.1, -100.0, -300.0])
def test_probit_third_and_fourth_derivative_in_the_left_tail(a: float) -> None:
    """Where the closed forms cancel: against wide differences of the first two derivatives, which do not."""
    derivatives = LINKS["probit"].log_cdf_derivatives
    h = -a / 30
    x = a + h * np.arange(-3, 4)
    fifth = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60  # first difference of sixth order
    _, second, third, _ = derivatives(x)
    found = derivatives(np.array([a]))
    assert found[2][0] == pytest.approx(fifth @ (second + 1) / h, rel=1e-3)
    assert found[3][0] == pytest.approx(fifth @ third / h, rel=1e-3)


def test_logistic_value_keeps_its_digits() -> None:
    """Ln σ(40) is -e^-40, not 0; ln σ(-40) is -40."""
    value = Bernoulli().log_likelihood(np.array([[40.0], [-40.0]]), np.ones(2))
    assert value[0] == pytest.approx(-np.exp(-40.0), rel=1e-12)
    assert value[1] == pytest.approx(-40.0, rel=1e-15)


@pytest.mark.parametrize("K", [2, 3, 7])
def test_helmert_contrasts_are_orthonormal_and_sum_to_zero(K: int) -> None:
    T = helmert(K)
    gram = T.T @ T
    assert gram == pytest.approx(np.eye(K - 1), abs=1e-15)
    assert T.sum(axis=0) == pytest.approx(np.zeros(K - 1), abs=1e-15)


def test_unpack_follows_pairs() -> None:
    packed = np.arange(6.0)[None]
    full = unpack(packed, 3)[0]
    assert [full[c, d] for c, d in pairs(3)] == list(range(6))
    assert np.array_equal(full, full.T)


def test_probit_density_by_scipys_own_differentiation() -> None:
    x = np.linspace(-5, 5, 21)
    found = derivative(LINKS["probit"].log_cdf, x)
    assert LINKS["probit"].log_cdf_derivatives(x)[0] == pytest.approx(found.df, rel=1e-8)


def test_says_what_likelihoods_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"unknown likelihood 'logit'; expected 'softmax' or one of logistic"
    ):
        make_likelihood("logit", 2)
    with pytest.raises(ValueError, match=r"'probit' is for two classes, got 3; use 'softmax'"):
        make_likelihood("probit", 3)
