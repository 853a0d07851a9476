"""Rows unlike the training set are found, and missing features integrated, whatever is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2, norm

import blr
from blr.arrays import Matrix
from blr.classifier import Classifier
from blr.member import Member
from blr.missing import moments as moments_of
from blr.missing.moments import ActiveSubspace, Domain, FeatureMoments, excess_spread, wilson_hilferty
from blr.predictive.mixture import Prediction, mix, mix_nodes, spread

COVARIANCE = np.array([[1, 0.9, 0, 0.2], [0.9, 1, 0, 0.1], [0, 0, 1e-6, 0], [0.2, 0.1, 0, 100]])
MEAN = np.array([1.0, 2.0, 3.0, -400.0])


def galaxies(n: int = 5000, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).multivariate_normal(MEAN, COVARIANCE, size=n, method="cholesky")


def holes(n: int = 5000, seed: int = 1, fraction: float = 0.2) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 4)) < fraction


def none(X: Matrix) -> np.ndarray:
    return np.zeros(X.shape, dtype=bool)


def trained(X: Matrix | None = None, missing: np.ndarray | None = None) -> Domain:
    X = galaxies() if X is None else X
    missing = holes(len(X)) if missing is None else missing
    return Domain.estimate(X, missing, FeatureMoments.estimate(X, missing))


@pytest.mark.parametrize("k", [1, 2, 6, 30])
def test_cube_root_of_chi_squared_is_normal(k: int) -> None:
    """Within 0.15 up to the limit that matters, one in a thousand; within 0.3 up to one in a million."""
    for level, tolerance in ((0.5, 0.15), (0.9, 0.15), (0.999, 0.15), (1 - 1e-6, 0.3)):
        assert abs(wilson_hilferty(chi2.ppf(level, k), k) - norm.ppf(level)) < tolerance


def test_distance_is_its_definition_row_by_row() -> None:
    domain, X, missing = trained(), galaxies(60, seed=5), holes(60, fraction=0.4)
    z = domain.distance(np.where(missing, np.nan, X), missing)
    for x, m, found in zip(X, missing, z, strict=True):
        d, C = (x - domain.moments.mean)[~m], domain.moments.covariance[np.ix_(~m, ~m)]
        k = len(d)
        expected = wilson_hilferty(d @ np.linalg.inv(C) @ d, k) if k else 0.0
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_feature_that_follows_from_others_does_not_count() -> None:
    """Two colours and their sum are as far out as the two colours, and a wrong sum is far."""
    two = galaxies()[:, :2]
    X = np.column_stack([two, two.sum(axis=1)])
    domain = trained(X, none(X))
    z = domain.distance(X, none(X))
    np.testing.assert_allclose(z, trained(two, none(two)).distance(two, none(two)), atol=1e-3)
    assert np.all(domain.outside(X + np.array([0, 0, 0.1]), none(X)))


def test_one_training_row_in_a_thousand_is_outside() -> None:
    X, missing = galaxies(), holes()
    X = np.exp(X / np.sqrt(np.diag(COVARIANCE)) - MEAN / np.sqrt(np.diag(COVARIANCE)))  # far from normal
    domain = trained(X, missing)
    assert domain.outside(X, missing).sum() == 5
    assert domain.limit > 5


@pytest.mark.parametrize(("n", "features"), [(60, 50), (200, 10), (60, 80)])
def test_a_training_row_is_as_far_from_the_others_as_a_new_row(n: int, features: int) -> None:
    """The slow twin takes the moments of the others; a few new rows in a hundred, and not all, are outside."""
    rng = np.random.default_rng(2)
    X, new = rng.standard_normal((n, features)), rng.standard_normal((2000, features))
    domain = trained(X, none(X))
    if features < n:
        others = [FeatureMoments.estimate(np.delete(X, i, 0), none(X[1:])) for i in range(n)]
        alone = [Domain(m, np.inf).distance(X[[i]], none(X[[i]]))[0] for i, m in enumerate(others)]
        assert domain.limit == pytest.approx(np.quantile(alone, 0.999), rel=1e-6)
    assert domain.outside(new, none(new)).mean() < 0.03


def test_rows_of_which_nothing_is_known_are_not_outside_and_absurd_values_are() -> None:
    domain = trained()
    missing = np.ones((3, 4), dtype=bool)
    assert domain.distance(np.full((3, 4), np.nan), missing).tolist() == [0, 0, 0]
    assert not domain.outside(np.full((3, 4), np.nan), missing).any()
    assert domain.distance(np.empty((0, 4)), np.empty((0, 4), dtype=bool)).shape == (0,)
    X = np.array([[1e300, -1e300, 1.7e308, 0], [0, 0, 0, -1.7e308]])
    assert np.all(np.isfinite(domain.distance(X, none(X))))
    assert np.all(domain.outside(X, none(X)))


@pytest.mark.parametrize(
    "X",
    [
        galaxies(1),
        np.tile(galaxies(1), (20, 1)),
        galaxies(3),
        galaxies(100)[:, [0, 0, 1, 1]],
        np.eye(4)[[0, 1] * 9],
    ],
    ids=["one row", "one place", "fewer rows than features", "twice the same", "two places"],
)
def test_degenerate_training_sets_hold_their_own_rows(X: Matrix) -> None:
    domain = trained(X, none(X))
    assert domain.outside(X, none(X)).sum() <= 1
    far = X + 30 * np.maximum(X.std(axis=0), 1) + 1e6
    assert np.all(domain.outside(far, none(X)))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(N, 4\), got \(5, 3\)"):
        trained().distance(np.zeros((5, 3)), np.zeros((5, 3), dtype=bool))


F = 5
SLOPE = np.array([1.0, 0.5, 0.0, 0.0, -0.7])


def linear(classes: int = 2, *, size: float = 1.0) -> tuple[Classifier, np.ndarray]:
    """Return a stack of five members, whose logits rise along `SLOPE`, and its training rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, F))
    activation = size * np.outer(X @ SLOPE, np.arange(classes))
    y = (activation + rng.gumbel(size=activation.shape)).argmax(axis=1)
    members = []
    for kind, share in (
        ("linear", 0.4),
        ("polynomial", 0.3),
        ("sigmoid", 0.1),
        ("rbf", 0.1),
        ("linear", 0.1),
    ):
        basis = blr.fit_basis(kind, X, rng=np.random.default_rng(1))
        q = blr.fit_evidence(basis(X), y, "logistic" if classes == 2 else "softmax", classes=range(classes))
        members.append(Member(basis, q, tuple(range(F)), share))
    missing = np.zeros(X.shape, dtype=bool)
    missing[::3, 1] = True
    names = [f"x{j}" for j in range(F)]
    return Classifier.build(members, X, missing, features=names, classes=list("abc")[:classes]), X


def pattern(*columns: int) -> np.ndarray:
    """Return the pattern (F,) that misses some columns."""
    return np.isin(np.arange(F), columns)


def test_axes_are_orthonormal_and_the_first_lies_along_the_slope() -> None:
    c, _ = linear()
    _, axes, _ = c._subspace.rule(pattern(0, 4))
    np.testing.assert_allclose(axes.T @ axes, np.eye(axes.shape[1]), atol=1e-12)
    _, L = c.moments.conditional(pattern(0, 4))
    along = (SLOPE[[0, 4]] * c.moments.spread[[0, 4]]) @ L
    assert abs(along @ axes[:, 0]) / np.linalg.norm(along) > 0.98


def test_directions_that_say_nothing_get_no_nodes_and_their_variance_stays() -> None:
    moments = FeatureMoments(np.zeros(3), np.eye(3))
    slopes = np.zeros((2, 3, 2, 3))
    for size, j in ((0.8, 0), (0.03, 1), (0.0, 2)):
        slopes[:, j, :, j] = size**2 * np.array([[0.25, -0.25], [-0.25, 0.25]])
    subspace, gone = ActiveSubspace(moments, slopes), np.ones((1, 3), dtype=bool)
    n, axes, _ = subspace.rule(gone[0])
    assert n == 9
    np.testing.assert_allclose(np.abs(axes), [[1], [0], [0]], atol=1e-12)
    q = Prediction(np.full((1, 2), 0.5), np.zeros(1), np.zeros(1), np.array([0.64]))
    whole = spread(q, np.array([0]), subspace.left_out(np.zeros((1, 3)), gone, np.array([0])))
    np.testing.assert_allclose(whole.covariance, [0.64 + 0.03**2])


def test_rows_outside_the_support_have_nodes_along_all_directions_and_nothing_is_left_out() -> None:
    moments = FeatureMoments(np.zeros(3), np.eye(3))
    slopes = np.zeros((2, 3, 2, 3))
    slopes[:, 0, :, 0] = np.array([[0.25, -0.25], [-0.25, 0.25]])
    slopes[:, 1, :, 1] = 0.03**2 * slopes[:, 0, :, 0]
    subspace = ActiveSubspace(moments, slopes, np.array([[-2.0] * 3, [2.0] * 3]))
    X, missing = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]]), np.array([[True, True, False]] * 2)
    both = np.array([0, 1])
    dimension = {
        row: d for rows, _, _, d in subspace.nodes(X, missing, both, most=1000) for row in rows.tolist()
    }
    assert dimension == {0: 1, 1: 2}
    left_out = subspace.left_out(X, missing, both)
    np.testing.assert_allclose(left_out[0], 0.03**2 * slopes[:, 0, :, 0])
    np.testing.assert_array_equal(left_out[1], 0)


def test_the_wider_the_logit_the_more_nodes() -> None:
    moments = FeatureMoments(np.zeros(2), np.eye(2))
    for one in (pattern(0)[:2], np.ones(2, dtype=bool)):
        sizes = []
        for size in (0.1, 0.7, 1.3, 5.0):
            logit = np.einsum("k,l,f,g->kflg", [-0.5, 0.5], [-0.5, 0.5], [size, size], [size, size])
            sizes.append(ActiveSubspace(moments, logit).rule(one)[0])
        assert sizes == sorted(sizes)
        assert sizes[-1] >= 2 * sizes[0]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "missing",
    [
        (0,),
        pytest.param((0, 1), marks=pytest.mark.long),
        pytest.param((1, 2, 4), marks=pytest.mark.long),
        (0, 1, 3, 4),
    ],
)
def test_a_stack_is_integrated_as_by_very_many_nodes(classes: int, missing: tuple[int, ...]) -> None:
    c, X = linear(classes)
    gone, rows = pattern(*missing), X[:40]
    scores = c.score(rows, np.broadcast_to(gone, rows.shape))
    nodes, weight = c.moments.nodes(rows, gone, 64 if len(missing) == 1 else 2048)
    flat = nodes.reshape(-1, F)
    slow = mix_nodes(weight, mix((m.weight, m.posterior.prediction(m.design(flat))) for m in c.members))
    error = np.abs(scores.probability - slow.probability).max(axis=1)
    assert error.mean() < (3e-4 if len(missing) == 1 else 1.5e-3)
    assert error.max() < (1e-3 if len(missing) == 1 else 4e-3)
    np.testing.assert_allclose(scores.logit_std, slow.logit_std, rtol=0.03)
    assert np.abs(scores.mutual_information - slow.mutual_information).mean() < 4e-3


@pytest.mark.parametrize("missing", [(0,), (0, 1), (0, 1, 4)])
@pytest.mark.parametrize("width", [1.0, 2.0])
def test_what_is_missing_lies_within_the_range(missing: tuple[int, ...], width: float) -> None:
    c, X = linear(3)
    support = np.array([[-width] * F, [width] * F])
    c = replace(c, support=support)
    gone, rows = pattern(*missing), X[(np.abs(X) < width).all(axis=1)][:40]
    nodes, weight = c.moments.nodes(rows, gone, 64 if len(missing) == 1 else 2048, limits=support)
    flat = nodes.reshape(-1, F)
    slow = mix_nodes(weight, mix((m.weight, m.posterior.prediction(m.design(flat))) for m in c.members))
    found = c.score(rows, np.broadcast_to(gone, rows.shape)).probability
    error = np.abs(found - slow.probability).max(axis=1)
    assert error.mean() < 2e-3
    assert error.max() < 4e-3


def test_a_shift_of_class_priors_is_taken_into_the_integral_of_two_classes() -> None:
    c, X = linear()
    shift = np.log([0.3, 2.0])
    gone, rows = pattern(0), X[:20]
    scores = replace(c, log_prior_shift=shift).score(rows, np.broadcast_to(gone, rows.shape))
    nodes, weight = c.moments.nodes(rows, gone, 64)
    flat = nodes.reshape(-1, F)
    parts = ((m.weight, m.posterior.prediction(m.design(flat), shift=shift)) for m in c.members)
    np.testing.assert_allclose(scores.probability, mix_nodes(weight, mix(parts)).probability, atol=1e-3)


N_ROWS, N_FEATURES = 4000, 3
CORRELATED = np.array([[1.0, 0.6, 0.2], [0.6, 1.0, -0.3], [0.2, -0.3, 1.0]])


def rows(seed: int, *, lacking: float) -> tuple[np.ndarray, np.ndarray]:
    """Return normal features (N, F), of which the second is missing in a share of the rows."""
    rng = np.random.default_rng(seed)
    missing = np.zeros((N_ROWS, N_FEATURES), dtype=bool)
    missing[:, 1] = rng.random(N_ROWS) < lacking
    return rng.multivariate_normal(np.zeros(N_FEATURES), CORRELATED, N_ROWS), missing


def estimated(X: np.ndarray, missing: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    return excess_spread(FeatureMoments.estimate(X, missing, weight=weight), X, missing, weight)


@pytest.mark.parametrize("lacking", [0.0, 0.3, 0.9])
def test_of_normal_features_it_is_the_share_of_rows_that_have_them(lacking: float) -> None:
    X, missing = rows(1, lacking=lacking)
    np.testing.assert_allclose(estimated(X, missing) ** 2, [1.0, 1 - missing[:, 1].mean(), 1.0], rtol=0.08)


def test_weights_are_copies_of_rows() -> None:
    X, missing = rows(2, lacking=0.5)
    X, missing = X[:300], missing[:300]
    count = np.random.default_rng(3).integers(1, 4, 300)
    copied = estimated(np.repeat(X, count, axis=0), np.repeat(missing, count, axis=0))
    np.testing.assert_allclose(estimated(X, missing, count.astype(float)), copied, rtol=1e-6)


def test_values_far_out_do_not_widen_it() -> None:
    """A twentieth of the rows has ten times the spread: their variance is six times that of the rest."""
    X, missing = rows(4, lacking=0.0)
    wide = np.random.default_rng(5).random(N_ROWS) < 0.05
    X[wide, 2] *= 10
    moments = FeatureMoments.estimate(X, missing)
    _, L = moments.conditional(np.array([False, False, True]))
    rest = np.std(X[~wide, 2] - X[~wide, :2] @ np.linalg.lstsq(X[~wide, :2], X[~wide, 2], rcond=None)[0])
    assert L[0, 0] > 2 * rest
    assert rest < estimated(X, missing)[2] * L[0, 0] < 1.7 * rest


def test_nodes_have_the_excess_and_the_same_mean() -> None:
    moments = FeatureMoments(np.zeros(N_FEATURES), CORRELATED)
    pattern = np.array([False, True, True])
    narrow = replace(moments, spread=np.array([1.0, 0.5, 0.25]))
    X = np.array([[1.0, 0.0, 0.0]])
    whole, weight = moments.nodes(X, pattern, 64)
    some, same = narrow.nodes(X, pattern, 64)
    assert (weight == same).all()
    mean = np.einsum("s,snf->nf", weight, whole)
    np.testing.assert_allclose(np.einsum("s,snf->nf", weight, some), mean, atol=1e-12)
    np.testing.assert_allclose(some - mean, (whole - mean) * [1.0, 0.5, 0.25], atol=1e-12)


def test_of_many_features_one_may_follow_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments_of, "_PSEUDO_ROWS", 0.0)
    rng, n = np.random.default_rng(4), 80
    X = rng.normal(size=(300, 6)) @ rng.normal(size=(6, n)) + rng.normal(size=(300, n))
    X = np.column_stack([X, X[:, 3] - X[:, 5]])
    missing = rng.random(X.shape) < 0.02
    moments = FeatureMoments.estimate(X, missing)
    known = missing[:, n] & ~missing[:, [3, 5]].any(axis=1)
    assert known.sum() > 2
    np.testing.assert_allclose(moments.impute(X, missing)[known, n], X[known, n], atol=1e-4)
    z, limits = Domain(moments, np.inf).distance(X, missing), []
    for i in range(40):
        d, S = (X[i] - moments.mean)[~missing[i]], moments.covariance[np.ix_(~missing[i], ~missing[i])]
        inverse, rank = np.linalg.pinv(S, rcond=1e-7), np.linalg.matrix_rank(S, tol=1e-6)
        limits.append(wilson_hilferty(np.array([d @ inverse @ d]), rank)[0])
    np.testing.assert_allclose(z[:40], limits, atol=1e-3)


def test_many_features_have_the_moments_and_distances_of_their_definition() -> None:
    """By the precision of all features."""
    rng, n = np.random.default_rng(4), 80
    unit = 10.0 ** rng.integers(-3, 3, n)
    X = (rng.normal(size=(300, 6)) @ rng.normal(size=(6, n)) + rng.normal(size=(300, n))) * unit
    missing = rng.random(X.shape) < 0.02
    missing[0], missing[1, 5:] = True, True
    moments = FeatureMoments.estimate(X, missing)
    S, mu, z = moments.covariance, moments.mean, Domain(moments, np.inf).distance(X, missing)
    assert z[0] == 0
    absolute, total = np.zeros((2, n))
    for i in range(1, 40):
        m, d = missing[i], (X[i] - mu)[~missing[i]]
        inverse = np.linalg.inv(S[np.ix_(~m, ~m)])
        B, L = moments.conditional(m)
        np.testing.assert_allclose(
            B, S[np.ix_(m, ~m)] @ inverse, rtol=1e-5, atol=1e-7 * np.abs(B).max(initial=1)
        )
        left = S[np.ix_(m, m)] - B @ S[np.ix_(~m, m)]
        np.testing.assert_allclose(L @ L.T, left, rtol=1e-5, atol=1e-7 * np.abs(left).max(initial=0))
        assert z[i] == pytest.approx(wilson_hilferty(d @ inverse @ d, len(d)), abs=1e-7)
        absolute[~m] += np.abs(d @ inverse / np.sqrt(np.diag(inverse)))
        total[~m] += 1
    ordinary = np.minimum(np.sqrt(np.pi / 2) * absolute / total, 1)
    found = excess_spread(moments, X[1:40], missing[1:40])
    np.testing.assert_allclose(found, np.sqrt(total / 39) * ordinary, rtol=1e-6)
