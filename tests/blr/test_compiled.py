"""The loops in C against their twins in NumPy, of shapes that fill a vector, leave a rest, or are empty."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy

from blr import compiled, covariances, sums
from blr.arrays import Matrix
from blr.basis._kernels import city_block
from blr.basis._polynomial import Polynomial
from blr.basis.base import Standardisation
from blr.likelihood.likelihoods import Bernoulli, Categorical
from blr.predictive import expectations
from blr.predictive._cubature import principal_axes, product_rule, sobol_rule
from blr.predictive.binary import binary_integrals
from blr.predictive.softmax import (
    InnerPoints,
    add_logits,
    add_nodes,
    inner_points,
    logit_points,
    no_logits,
    no_moments,
    softmax_series,
)
from blr.trust import verdict

pytestmark = pytest.mark.skipif(compiled.loops is None, reason="the loops in C were not built here")

SHAPES = [(1, 1), (3, 2), (4, 4), (7, 3), (64, 8), (100, 13), (129, 50), (5, 130)]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that calls another with the loops and without."""

    def call(function: Callable[..., Any]) -> tuple[Any, ...]:
        quick = function()
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "loops", None)
            return quick, function()

    return call


def close(quick: Sequence[Any], slow: Sequence[Any], tolerance: float = 1e-12) -> None:
    for a, b in zip(quick, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1, np.abs(b).max(initial=0)))


@pytest.mark.parametrize(("n", "M"), SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [0.3, 40.0])
def test_sums_of_two_classes(
    n: int, M: int, *, weighted: bool, scale: float, both: Callable[..., Any]
) -> None:
    rng = np.random.default_rng([n, M])
    Phi, w, t = rng.normal(size=(n, M)), scale * rng.normal(size=M), rng.choice([0.0, 0.25, 1.0], n)
    weight = rng.uniform(0.1, 3, n) if weighted else None
    for hessian in (True, False):
        terms = sums.likelihood_terms(Bernoulli(), w, hessian=hessian)
        quick, slow = both(lambda terms=terms: terms(Phi, t, weight))
        close(quick, slow)


def test_sums_keep_their_relative_accuracy_where_all_rows_are_certain(both: Callable[..., Any]) -> None:
    Phi, t = np.full((50, 1), 30.0), np.ones(50)
    quick, slow = both(lambda: sums.likelihood_terms(Bernoulli(), np.ones(1))(Phi, t, None))
    for a, b in zip(quick, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(("n", "M"), SHAPES)
@pytest.mark.parametrize("K", [3, 5])
def test_sums_of_many_classes(n: int, M: int, K: int, both: Callable[..., Any]) -> None:
    rng = np.random.default_rng([n, M, K])
    likelihood = Categorical(K)
    Phi, t = rng.normal(size=(n, M)), rng.dirichlet(np.ones(K), n)
    theta = rng.normal(size=(K - 1) * M)
    close(*both(lambda: sums.likelihood_terms(likelihood, theta)(Phi, t, None)))


@pytest.mark.parametrize(("n", "M"), SHAPES)
@pytest.mark.parametrize("C", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 3e-5)])
def test_output_covariances(
    n: int, M: int, C: int, dtype: type[Any], tolerance: float, both: Callable[..., Any]
) -> None:
    rng = np.random.default_rng([n, M, C])
    Phi, U = (rng.normal(size=(n, M)).astype(dtype), np.tril(rng.normal(size=(C * M, C * M))).astype(dtype))
    (quick, slow) = both(lambda: covariances.output_covariances(Phi, U, C))
    close([quick], [slow], tolerance)


def test_no_row_depends_on_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    Phi, U = rng.normal(size=(37, 11)), np.tril(rng.normal(size=(22, 22)))
    V = covariances.output_covariances(Phi, U, 2)
    for i in (0, 5, 36):
        assert (covariances.output_covariances(Phi[i : i + 1], U, 2)[0] == V[i]).all()


@pytest.mark.parametrize("K", [3, 4, 5, 7])
@pytest.mark.parametrize("n_nodes", [5, 64, 1024])
@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
def test_softmax_at_nodes(K: int, n_nodes: int, spread: float, both: Callable[..., Any]) -> None:
    rng = np.random.default_rng([K, n_nodes])
    m, B = 3 * rng.normal(size=(9, K)), spread * rng.normal(size=(9, K, K - 1)) / K
    z, w = rng.normal(size=(n_nodes, K - 1)), rng.dirichlet(np.ones(n_nodes))
    close(*both(lambda: expectations._at_nodes(m, B, z, w)), 1e-11)
    equal = np.full(n_nodes, 1 / n_nodes)
    close(*both(lambda: expectations._at_many_nodes(m, B, z, equal)), 2e-5)


@pytest.mark.parametrize(("n", "M"), SHAPES)
def test_city_blocks(n: int, M: int, both: Callable[..., Any]) -> None:
    rng = np.random.default_rng([n, M])
    Z, centres = rng.normal(size=(n, 3)), rng.normal(size=(M, 3))
    quick, slow = both(lambda: city_block(Z, centres))
    np.testing.assert_allclose(quick, slow, rtol=1e-14)
    np.testing.assert_allclose(quick, scipy.spatial.distance.cdist(Z, centres, "cityblock"), rtol=1e-14)


@pytest.mark.parametrize(("F", "degree"), [(1, 5), (3, 1), (5, 2), (4, 3)])
def test_monomials(F: int, degree: int, both: Callable[..., Any]) -> None:
    basis = Polynomial(Standardisation(np.zeros(F), np.ones(F)), degree)
    close(*both(lambda: [basis(np.random.default_rng(F).normal(size=(29, F)))]), 1e-14)


@pytest.mark.parametrize(("n", "M"), SHAPES)
def test_exponentials_and_arcsinhs(n: int, M: int, both: Callable[..., Any]) -> None:
    x = np.random.default_rng([n, M]).normal(size=(n, M)) * 10.0 ** np.random.default_rng(n).integers(
        -9, 3, M
    )
    x.flat[0] = 0.0
    for function, y in ((compiled.exponentials, np.clip(x, -700, 700)), (compiled.arcsinhs, x)):

        def called(function: Callable[[Matrix], None] = function, y: Matrix = y) -> Matrix:
            z = y.copy()
            function(z)
            return z

        quick, slow = both(called)
        np.testing.assert_allclose(quick, slow, rtol=2e-15)
    far = np.array([[-1e300, -1e9, 1e-300, 1e7, 9e8, 1e300]])
    quick = far.copy()
    compiled.arcsinhs(quick)
    np.testing.assert_allclose(quick, np.arcsinh(far), rtol=2e-15)


@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
def test_mixtures_of_logits_at_nodes(spread: float, both: Callable[..., Any]) -> None:
    rng = np.random.default_rng(7)
    mean, sd = 3 * rng.normal(size=(9, 21)), spread * rng.random((9, 21))
    share, inner = rng.dirichlet(np.ones(9), 21).T.copy(), logit_points(16)

    def added() -> tuple[Matrix, ...]:
        sums = no_logits(21)
        add_logits(sums, mean, sd, inner, share)
        return sums

    quick, slow = both(added)
    close(quick, slow, 2e-6 * max(spread, 1.0))
    p, entropy = (x.reshape(9, 21) for x in binary_integrals(mean.ravel(), sd.ravel() ** 2))
    exact = (share * [1 - p, p, entropy, mean, mean**2 + sd**2]).sum(axis=1)
    np.testing.assert_allclose(np.column_stack(quick).T, exact, rtol=1e-7, atol=1e-3)  # sds up to 8 by points


@pytest.mark.parametrize(("K", "C"), [(3, 2), (4, 3), (5, 4), (7, 6)])
@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
def test_mixtures_of_softmaxes_at_nodes(K: int, C: int, spread: float, both: Callable[..., Any]) -> None:
    rng = np.random.default_rng([K, C])
    S, n, T = 6, 11, 3
    m, few = 3 * rng.normal(size=(S, n, K)), spread * rng.normal(size=(T, n, K, C)) / K
    to_all, share = rng.dirichlet(np.ones(T), S), rng.dirichlet(np.ones(S), n).T
    for inner in inner_points(S, (C, C), (16, 40), (False, True)):

        def added(inner: InnerPoints = inner) -> tuple[Matrix, ...]:
            sums = no_moments(n, K)
            add_nodes(sums, m, few, to_all, inner, share)
            return sums

        quick, slow = both(added)
        close(quick, slow, 2e-5)
        np.testing.assert_allclose(quick[0].sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("K", [3, 4, 5, 8])
@pytest.mark.parametrize("n", [1, 4, 11])
@pytest.mark.parametrize("sd", [0.0, 0.3, 1.5, 6.0])
def test_expected_softmax(K: int, n: int, sd: float, both: Callable[..., Any]) -> None:
    rng = np.random.default_rng([K, n])
    mean, root = 3 * rng.normal(size=(n, K)), sd * rng.normal(size=(n, K, K)) / np.sqrt(2 * K)
    V = root @ root.transpose(0, 2, 1)
    quick, slow = both(lambda: softmax_series(mean, V))
    close([quick[0], quick[1]], [slow[0], slow[1]], 1e-10)
    np.testing.assert_allclose(quick[3], slow[3], rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(quick[2], slow[2], rtol=1e-6, atol=1e-12)
    axes = principal_axes(V)
    close(*both(lambda: sobol_rule(mean, axes, 256, spread=sd)), 2e-5)
    close(*both(lambda: sobol_rule(mean, axes, 256, spread=50.0)), 1e-10)
    if K < 5:
        close(*both(lambda: product_rule(mean, axes, (2, 4, 6)[: K - 1])), 1e-10)


@pytest.mark.parametrize("n", [1, 4, 7, 1000])
@pytest.mark.parametrize("sd", [0.0, 0.1, 0.4, 0.9, 1.9])
def test_integrals_of_two_classes(n: int, sd: float, both: Callable[..., Any]) -> None:
    mean = np.concatenate([[-700.0, 0.0], 5 * np.random.default_rng(n).normal(size=n)])[-n:]
    quick, slow = both(lambda: binary_integrals(mean, np.full(n, sd**2)))
    for a, b in zip(quick, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-9, atol=1e-15)  # NumPy has no series


@pytest.mark.parametrize("n", [1, 8, 29])
def test_rows_of_draws_of_two_classes(n: int, both: Callable[..., Any]) -> None:
    rng = np.random.default_rng(n)
    a = np.concatenate([[0.0, 90.0, -90.0], 20 * rng.normal(size=5 * n - 3)])[: 5 * n]
    a, t = a.reshape(5, 1, n), rng.choice([0.0, 0.3, 1.0], n)
    close(*both(lambda: verdict._by_rows(Bernoulli(), a.copy(), t)), 1e-12)


def test_values_and_derivatives_of_a_likelihood(both: Callable[..., Any]) -> None:
    rng = np.random.default_rng(5)
    a, t = 30 * rng.normal(size=(50, 1)), rng.choice([0.0, 0.3, 1.0], 50)
    close(*both(lambda: Bernoulli().derivatives(a, t)))
    close(*both(lambda: [Bernoulli().log_likelihood(a, t)]))
    a, t = 30 * rng.normal(size=(50, 3)), rng.dirichlet(np.ones(4), 50)
    close(*both(lambda: [Categorical(4).log_likelihood(a, t)]))


@pytest.mark.parametrize("K", [2, 3, 6])
@pytest.mark.parametrize("n", [1, 8, 29])
def test_rows_of_draws(K: int, n: int, both: Callable[..., Any]) -> None:
    rng = np.random.default_rng([K, n])
    a, t = 20 * rng.normal(size=(6, K, n)), np.ascontiguousarray(rng.dirichlet(np.ones(K), n).T)
    close(*both(lambda: verdict._softmax_rows(a.copy(), t)), 1e-12)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.weighted_grams(np.ones((3, 2)), np.ones((4, 1)), np.ones((1, 2, 2))), "do not fit"),
        (lambda c: c.weighted_grams(np.ones((3, 2), "f4"), np.ones((3, 1)), np.ones((1, 2, 2))), "expected"),
        (lambda c: c.add_squares(np.ones((3, 2)), np.ones((2, 2)), np.ones((1, 4))), "do not fit"),
        (lambda c: c.add_squares(np.ones((3, 2)), np.ones((34, 34)), np.ones((153, 3))), "1 to 16"),
        (lambda c: c.softmax_rows(np.ones((2, 3, 4)), np.ones((3, 5)), np.ones((2, 4))), "do not fit"),
        (lambda c: c.monomials(np.ones((3, 2)), np.ones((3, 5))), "as many columns of out as"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call: Callable[..., Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(compiled.loops)


def test_an_array_that_may_not_be_written_is_refused() -> None:
    with pytest.raises((ValueError, BufferError)):
        compiled.loops.weighted_grams(
            np.ones((3, 2)), np.ones((3, 1)), np.frombuffer(bytes(32)).reshape(1, 2, 2)
        )


def test_an_environment_variable_leaves_the_work_to_numpy() -> None:
    code = "from blr import compiled; assert compiled.loops is None"
    subprocess.run([sys.executable, "-c", code], env={"BLR_COMPILED": "0", "PATH": ""}, check=True)
