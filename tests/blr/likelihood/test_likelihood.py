"""Likelihoods and priors against finite differences and SciPy's distributions; targets and nodes in all their forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from blr.arrays import Matrix, Vector
from blr.gaussian import GaussianPrior, class_cholesky, class_precision, exchangeable, helmert
from blr.likelihood.likelihoods import (
    LINKS,
    Bernoulli,
    Categorical,
    MislabelledBernoulli,
    MislabelledCategorical,
    make_likelihood,
    unpack,
)
from blr.likelihood.targets import graded_nodes, resolve_targets
from tests.blr import dense

LIKELIHOODS = {
    **{name: Bernoulli(link) for name, link in LINKS.items()},
    "softmax, 2 classes": Categorical(2),
    "softmax, 3 classes": Categorical(3),
    "softmax, 5 classes": Categorical(5),
    "softmax, all 4 activations": Categorical(4, contrasts=False),
    "logistic, mislabelled": MislabelledBernoulli(),
    "softmax, mislabelled": MislabelledCategorical(4),
    "softmax, mislabelled, all 3 activations": MislabelledCategorical(3, contrasts=False),
}

each = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)


def example(
    likelihood: Bernoulli | Categorical, n: int = 7, scale: float = 2.0, seed: int = 0
) -> tuple[Any, ...]:
    """Return activations (n, C) and soft targets, or the likelihoods (n, K) of records that may be wrong."""
    rng = np.random.default_rng(seed)
    a = scale * rng.standard_normal((n, likelihood.n_outputs))
    if isinstance(likelihood, MislabelledBernoulli | MislabelledCategorical):
        K = 2 if isinstance(likelihood, Bernoulli) else likelihood.n_classes
        t = 0.02 + 0.96 * rng.random((n, K))
        t[:2] = np.eye(K)[:2]  # without noise
        return a, t
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
def test_links_are_scipys_distributions(name: str) -> None:
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


def test_says_what_likelihoods_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"unknown likelihood 'logit'; expected 'softmax' or one of logistic"
    ):
        make_likelihood("logit", 2)
    with pytest.raises(ValueError, match=r"'probit' is for two classes, got 3; use 'softmax'"):
        make_likelihood("probit", 3)


MEAN, SD = (
    x.ravel() for x in np.meshgrid([-3e3, -20.0, -0.3, 0.0, 1.0, 500.0], [0.0, 0.2, 0.9, 1.7, 3.0, 40.0, 1e4])
)


def test_a_step_is_averaged_as_its_closed_form_says_however_wide_the_gaussian() -> None:
    seen = np.zeros(len(MEAN), dtype=int)
    for rows, a, w in graded_nodes(MEAN, SD):
        seen[rows] += 1
        exact = ndtr(MEAN[rows] / np.sqrt(1 + SD[rows] ** 2))
        assert np.abs(np.einsum("ns,ns->n", ndtr(a), w) - exact).max() < 1e-10
    assert np.all(seen == 1)


@pytest.mark.parametrize("covariance", [2.0, np.full(3, 2.0), 2.0 * np.eye(3)])
def test_forms_of_the_same_prior(covariance: float | np.ndarray) -> None:
    prior = GaussianPrior(0.5, covariance)
    mean, _ = prior.resized(3)
    assert mean.tolist() == [0.5, 0.5, 0.5]
    assert prior.precision(3) == pytest.approx(np.eye(3) / 2, rel=1e-14)


def test_isotropic_sets_the_intercept_apart() -> None:
    prior = GaussianPrior.isotropic(3, precision=4.0)
    assert prior.covariance.tolist() == [1e4, 0.25, 0.25]
    assert GaussianPrior.isotropic(3, 4.0, None).covariance.tolist() == [0.25] * 3
    assert GaussianPrior.isotropic(3, 4.0, 2, 9.0).covariance.tolist() == [0.25, 0.25, 9.0]


def test_full_precision_is_the_inverse_whatever_the_scales() -> None:
    S = dense.covariance(np.random.default_rng(0), 3)
    scale = np.array([1e-9, 1.0, 1e9])
    P = GaussianPrior(0.0, S * np.outer(scale, scale)).precision(3)
    assert pytest.approx(np.linalg.inv(S), rel=1e-10) == P * np.outer(scale, scale)


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        (np.zeros((2, 2)), 1.0, r"mean must be a scalar or a vector, got shape \(2, 2\)"),
        (0.0, np.ones((2, 3)), r"scalar, \(M,\) or \(M, M\), got shape \(2, 3\)"),
        (np.zeros(2), np.ones(3), r"mean has 2 weights but its covariance has 3"),
        ([0.0, np.nan], 1.0, r"prior mean holds 1 value\(s\)"),
        (0.0, [1.0, np.nan], r"prior covariance holds 1 value\(s\)"),
        (0.0, [1.0, np.inf], r"prior covariance holds 1 value\(s\)"),
        (0.0, [1.0, 1e-300], r"variances must lie between 1e-100 and 1e\+100, got 1e-300; .*another unit"),
        (0.0, [], r"prior covariance is empty; give a scalar, or one number for each weight"),
        ("broad", 1.0, r"prior mean must be numbers, got 'broad'"),
        (0.0, 0.0, r"variances must be positive, got 0.0; to fix a weight, leave its column out"),
        (0.0, [[1.0, 0.5], [0.4, 1.0]], r"not symmetric; if it should be symmetric, give \(S \+ S.T\) / 2"),
        (0.0, [[1.0, 2.0], [2.0, 1.0]], r"not positive definite \(smallest eigenvalue -1\)"),
    ],
)
def test_refuses_what_is_no_prior(
    mean: Any, covariance: float | list[Any] | np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianPrior(mean, covariance)


def test_isotropic_refuses_a_precision_that_is_not_positive() -> None:
    with pytest.raises(ValueError, match=r"precision must be positive and finite, got 0"):
        GaussianPrior.isotropic(3, 0)
    with pytest.raises(
        ValueError, match=r"intercept is column 7 of a prior of 3 weights; give a column from 0"
    ):
        GaussianPrior.isotropic(3, intercept=7)
    for wrong in (True, 0.5):
        with pytest.raises(ValueError, match=f"intercept is column {wrong}"):
            GaussianPrior.isotropic(3, intercept=wrong)


def test_knows_a_prior_that_treats_classes_alike() -> None:
    S = dense.covariance(np.random.default_rng(0), 2)
    assert exchangeable(GaussianPrior(0.0, S), 3, 2) is not None
    assert exchangeable(GaussianPrior(0.0, np.kron(np.eye(3), S)), 3, 2) is not None
    assert exchangeable(GaussianPrior(np.arange(6.0), np.kron(np.eye(3), S)), 3, 2) is not None
    assert exchangeable(GaussianPrior(0.0, np.arange(1.0, 7.0)), 3, 2) is None
    assert exchangeable(GaussianPrior(0.0, dense.covariance(np.random.default_rng(1), 6)), 3, 2) is None


@pytest.mark.parametrize("broad", [1.0, 1e10])
def test_factor_of_the_class_precision(broad: float) -> None:
    """Its determinant is that of contrasts and prior, however broad the latter beside the former."""
    rng = np.random.default_rng(0)
    A, S = (
        100 * dense.covariance(rng, 6),
        dense.covariance(rng, 2) * np.outer([1, broad**0.5], [1, broad**0.5]),
    )
    T, prior = helmert(4), GaussianPrior(0.0, S)
    L = class_cholesky(np.linalg.cholesky(A), T, np.linalg.cholesky(prior.precision(2)))
    assert np.all(np.diag(L) > 0)
    assert np.array_equal(L, np.tril(L))
    full = class_precision(A, T, prior.precision(2))
    np.testing.assert_allclose(L @ L.T, full, rtol=1e-9, atol=1e-9 * np.abs(full).max())
    log_det = np.linalg.slogdet(A)[1] - np.linalg.slogdet(S)[1]
    assert 2 * np.log(np.diag(L)).sum() == pytest.approx(log_det, abs=1e-7)


@pytest.mark.parametrize(
    ("t", "options"),
    [
        (["late", "early", "late"], {}),
        (["late", "early", "late"], {"classes": ("early", "late")}),
        (np.array([True, False, True]), {"classes": (False, True)}),
        ([2, 1, 2], {"classes": (1, 2)}),
        ([7.0, 0.0, 3.0], {"trials": [7.0, 3.0, 3.0]}),
        ([[0.0, 7.0], [3.0, 0.0], [0.0, 3.0]], {}),
        ([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], {}),
    ],
)
def test_two_classes_in_other_words(t: list[Any] | np.ndarray, options: dict[str, Any]) -> None:
    (fraction, _, _), _ = resolve_targets(t, binary=True, **options)
    assert fraction.tolist() == [1, 0, 1]
    assert fraction.flags.c_contiguous


@pytest.mark.parametrize(
    ("t", "classes"),
    [
        (["late", "early"], ("late", "early")),
        ([1, 0], [1, 0]),
        ([True, False], [True, False]),
        ([2, 1], [2.0, 1.0]),
        ([True, False], np.array([1, 0])),
    ],
)
def test_classes_turn_the_sides(t: list[Any], classes: list[Any] | np.ndarray) -> None:
    assert resolve_targets(t, binary=True, classes=classes)[0][0].tolist() == [0, 1]


def test_soft_labels_and_successes() -> None:
    (fraction, weight, names), _ = resolve_targets([0.25, 1.0], binary=True)
    assert fraction.tolist() == [0.25, 1.0]
    assert (names, weight) == ((0, 1), None)
    (fraction, weight, _), _ = resolve_targets([1, 0, 0], binary=True, trials=[4, 2, 0])
    assert fraction.tolist() == [0.25, 0, 0]
    assert weight.tolist() == [4, 2, 0]
    (fraction, _, _), _ = resolve_targets([1, 2], binary=True, trials=[4, 4], classes=(1, 2))
    assert fraction.tolist() == [0.25, 0.5]  # counts, even where they look like classes
    (_, weight, _), _ = resolve_targets([1, 0], binary=True, trials=[4, 2], sample_weight=[0.5, 3])
    assert weight.tolist() == [2, 6]


def test_labels_of_k_classes_are_one_hot_in_the_order_given() -> None:
    (fraction, _, names), _ = resolve_targets(["b", "c", "a"], binary=False)
    assert names == ("a", "b", "c")
    assert fraction.argmax(axis=1).tolist() == [1, 2, 0]
    (fraction, _, _), _ = resolve_targets(["b", "a"], binary=False, classes=("c", "b", "a"))
    assert fraction.argmax(axis=1).tolist() == [1, 2]


def test_vote_counts_are_fractions_with_a_weight() -> None:
    (fraction, weight, _), _ = resolve_targets([[3, 1, 0], [0, 0, 0], [1, 1, 2]], binary=False)
    assert fraction[0].tolist() == [0.75, 0.25, 0]
    assert weight.tolist() == [4, 0, 4]
    assert fraction.sum(axis=1).tolist() == [1, 1, 1]
    assert resolve_targets([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]], binary=False)[0][1] is None


@pytest.mark.parametrize(
    ("t", "binary", "options", "message"),
    [
        ([-1, 1], True, {"trials": [2, 1]}, r"between 0 and the trials, got -1.0 of 2.0 at row 0"),
        ([1, 1], True, {"trials": [2, -1]}, r"trials must not be negative, got -1.0 at row 1"),
        ([1, 1], True, {"trials": [2]}, r"trials have 1 rows but the targets have 2"),
        (np.ma.masked_equal([0, 1, 1], 0), True, {}, r"masked values in 1 row\(s\), the first of them row 0"),
        ([1 + 2j, 0, 1], True, {"trials": [1, 1, 1]}, r"targets must be real numbers, got complex128"),
        (np.array([None, "a"]), True, {}, r"got NoneType, str; expected all strings, all numbers"),
        ([0, 1], True, {"sample_weight": [1e300, 1]}, r"holds 1e\+300 at row 0; expected .* below 1e\+100"),
        ([1, 0], True, {"sample_weight": [1, np.inf]}, r"sample_weight holds 1 value\(s\)"),
        ([0, 1], True, {"classes": ("a", "b", "c")}, r"two classes, got 3.*use 'softmax'"),
        ([0, 1], True, {"classes": ("a",)}, r"at least two classes, got \['a'\]"),
        ([[1, 0, 0]], True, {}, r"must be \(N,\) or \(N, 2\), got \(1, 3\); use 'softmax'"),
        ([0, 1], True, {"classes": (0, 2)}, r"labels \[1\] are not among the classes \[0, 2\]"),
        ([1.0, 0.0], True, {"classes": [1, 0]}, "the label of the first class or a share of the second"),
        ([0, 1], True, {"classes": (1, 1)}, r"classes are \[1, 1\], expected each once"),
        (["a", "x"], False, {"classes": ("a", "b")}, r"labels \['x'\] are not among the classes"),
        (["a", "a"], False, {}, r"at least two classes, got \['a'\]"),
        ([[1], [2]], False, {}, r"at least two classes, got targets of one column"),
        ([[1, 0], [2, 1]], False, {"classes": ("a", "b", "c")}, r"2 columns but there are 3 classes"),
        ([[1, np.nan]], False, {}, r"targets holds 1 value\(s\).*row 0, column 1"),
        ([1.0, np.nan, 2.0], False, {}, r"labels holds 1 value\(s\).*row 1"),
        ([1, 2, 3], False, {"trials": [1, 1, 1]}, r"only be used with the successes of two classes"),
    ],
)
def test_says_what_is_wrong_and_where(t: Any, *, binary: bool, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_targets(t, binary=binary, **options)
