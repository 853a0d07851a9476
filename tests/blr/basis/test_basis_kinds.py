"""Each kind of basis against a slow, simple implementation, and against other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.interpolate import BSpline as ScipyBSpline
from sklearn.decomposition import PCA
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeRegressor

from blr import compiled
from blr.arrays import Matrix
from blr.basis._kernels import spread_centres, squared_distances
from blr.basis._polynomial import clamped_knots, spline_slopes, spline_values
from blr.basis.kinds import basis_from_dict, fit_basis


def features(n: int = 200, F: int = 3, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).normal(size=(n, F)) * np.arange(1, F + 1) + 5


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("F", [1, 2, 4])
def test_polynomial_is_that_of_scikit_learn(degree: int, F: int) -> None:
    basis = fit_basis("polynomial", features(F=F), degree=degree)
    X = features(30, F, seed=4)
    twin = PolynomialFeatures(degree).fit(X)
    Z = (X - basis.standardisation.mean) / basis.standardisation.scale
    np.testing.assert_allclose(basis(X), twin.transform(Z), rtol=1e-13)
    names = [f"f{i}" for i in range(F)]
    assert list(basis.names(names)) == list(twin.get_feature_names_out(names))


def test_linear_is_the_polynomial_of_degree_one() -> None:
    X = features()
    linear, polynomial = fit_basis("linear", X), fit_basis("polynomial", X, degree=1)
    np.testing.assert_array_equal(linear(X), polynomial(X))
    np.testing.assert_array_equal(linear.jacobian(X), polynomial.jacobian(X))
    assert linear.names("abc") == polynomial.names("abc") == ("1", "a", "b", "c")


@pytest.mark.parametrize("kind", ["rbf", "laplacian"])
@pytest.mark.parametrize("width", [None, 0.5, 1.5, 0.01])
def test_local_functions_are_their_definition(kind: str, width: float | None) -> None:
    X = features()
    basis = fit_basis(kind, X, rng=rng(), centres=8, width=width, linear=True)
    new = np.vstack([X[:20], basis.centres * basis.standardisation.scale + basis.standardisation.mean])
    Z = basis.standardisation(new)
    away = Z[:, None] - basis.centres
    gaussian = np.exp(-np.sum(away**2, axis=2) / (2 * basis.width**2))
    twin = gaussian if kind == "rbf" else np.exp(-np.abs(away).sum(axis=2) / basis.width)
    np.testing.assert_allclose(basis(new), np.hstack([np.ones((28, 1)), twin, Z]), atol=1e-10)


def test_draws_of_weights_of_nystroem_functions_vary_as_the_kernel_says() -> None:
    basis = fit_basis("nystroem", features(), rng=rng(), centres=6, width=2.0)
    places = basis.centres * basis.standardisation.scale + basis.standardisation.mean
    logits = basis(places)[:, 1:] @ rng().normal(size=(6, 200_000))
    i, j = np.indices((6, 6))
    kernel = np.exp(-np.abs(basis.centres[i] - basis.centres[j]).sum(axis=-1) / 2.0)
    np.testing.assert_allclose(np.cov(logits), kernel, atol=0.01)


def test_directions_of_rounding_errors_are_no_nystroem_functions() -> None:
    """A very wide kernel makes few functions; a centre twice makes no second one."""
    X = features()
    wide = fit_basis("nystroem", X, rng=rng(), centres=60, width=1e6)
    assert 10 < wide.n_functions < 50
    np.testing.assert_allclose(np.sum(wide(X)[:, 1:] ** 2, axis=1), 1, atol=1e-5)
    assert fit_basis("nystroem", np.ones((9, 2)), rng=rng()).n_functions == 2


def test_rbf_centres_cover_the_clusters() -> None:
    """Each of four clusters gets one of four centres, whatever the seed."""
    places = np.array([[0, 0], [10, 0], [0, 10], [10, 10.0]])
    X = np.repeat(places, 50, axis=0) + 0.1 * rng().normal(size=(200, 2))
    for seed in range(5):
        centres = spread_centres(X, 4, rng(seed))
        assert set(squared_distances(places, centres).argmin(axis=1)) == {0, 1, 2, 3}
        assert squared_distances(places, centres).min(axis=1).max() < 0.01


@pytest.mark.parametrize("distinct", [1, 2, 5])
def test_fewer_distinct_rows_give_fewer_centres(distinct: int) -> None:
    X = np.repeat(features(distinct), 7, axis=0)
    assert fit_basis("rbf", X, rng=rng(), centres=40).n_functions == 1 + distinct
    np.testing.assert_allclose(np.sort(spread_centres(X, 40, rng()), axis=0), np.sort(X[::7], axis=0))


def test_default_width_follows_the_data() -> None:
    """Half the median distance: 0.5 * sqrt(2 * 0.4549) * sqrt(2) sd in one dimension, for a normal feature."""
    basis = fit_basis("rbf", rng().normal(size=(4000, 1)), rng=rng())
    np.testing.assert_allclose(basis.width, 0.4769, rtol=0.05)
    assert fit_basis("rbf", np.ones((9, 2)), rng=rng()).width == 0.5


def test_sigmoid_is_its_definition() -> None:
    X = features()
    basis = fit_basis("sigmoid", X, centres=4)
    Z = basis.standardisation(X[:9])
    twin = np.ones((9, basis.n_functions))
    for k, (f, mu, s) in enumerate(zip(basis.feature, basis.location, basis.width, strict=True), start=1):
        twin[:, k] = 1 / (1 + np.exp(-(Z[:, f] - mu) / s))
    np.testing.assert_allclose(basis(X[:9]), twin, rtol=1e-13)
    assert basis.n_functions == 1 + 3 * 4
    assert basis.names("abc")[1:6] == tuple(f"sigmoid({n})" for n in ("a, 1", "a, 2", "a, 3", "a, 4", "b, 1"))


def test_sigmoids_rise_at_the_quantiles() -> None:
    x = np.arange(1001.0)[:, None]
    basis = fit_basis("sigmoid", x, centres=5)
    at = basis.location * basis.standardisation.scale + basis.standardisation.mean
    np.testing.assert_allclose(at, [100, 300, 500, 700, 900])


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_bsplines_are_those_of_scipy(degree: int) -> None:
    points = np.array([-1.5, -0.2, 0.1, 0.9, 2.0])
    knots = clamped_knots(points, degree)
    x = np.concatenate([points[:-1], rng().uniform(-1.5, 2, size=50)])
    count = len(knots) - degree - 1
    splines = [ScipyBSpline(knots, unit, degree) for unit in np.eye(count)]
    values, slopes = (np.stack([s(x, order) for s in splines], axis=1) for order in (0, 1))
    np.testing.assert_allclose(spline_values(x, knots, degree), values, atol=1e-14)
    np.testing.assert_allclose(spline_slopes(x, knots, degree), slopes, atol=1e-12)
    # SciPy's half-open support leaves out the last knot; the closed interval is the limit from the left.
    np.testing.assert_allclose(spline_values(points[-1:], knots, degree), np.eye(count)[-1:], atol=1e-15)


def test_bspline_leaves_one_out_of_each_feature() -> None:
    """So the design matrix has full column rank."""
    X = features(400)
    basis = fit_basis("bspline", X, knots=4)
    assert basis.n_functions == 1 + 3 * (4 + 3)
    assert np.linalg.matrix_rank(basis(X)) == basis.n_functions


def test_bspline_outside_is_the_tangent() -> None:
    X = features(300, F=1)
    low, high = X.min(), X.max()
    outside = np.array([[low - 2], [low], [high], [high + 3]])
    straight = fit_basis("bspline", X)(outside)
    slopes = fit_basis("bspline", X).jacobian(outside)[:, :, 0]
    np.testing.assert_allclose(straight[3], straight[2] + 3 * slopes[2], atol=1e-12)
    np.testing.assert_allclose(straight[0], straight[1] - 2 * slopes[1], atol=1e-12)


def test_equal_quantiles_make_one_knot() -> None:
    X = np.concatenate([np.zeros(90), np.linspace(0, 1, 30)])[:, None]
    basis = fit_basis("bspline", X, knots=9)
    assert basis.n_functions < 1 + 9 + 3
    assert np.all(np.isfinite(basis.jacobian(X)))


def test_fourier_is_its_definition() -> None:
    X = features()
    basis = fit_basis("fourier", X, rng=rng(), frequencies=5, lengthscale=1.3)
    Z = basis.standardisation(X[:6])
    phase = Z @ basis.directions.T / 1.3
    twin = np.column_stack([np.ones(6), np.cos(phase), np.sin(phase)])
    np.testing.assert_allclose(basis(X[:6]) * np.array([1, *[5**0.5] * 10]), twin, atol=1e-12)


def test_fourier_frequencies_are_normal_and_orthogonal() -> None:
    directions = fit_basis("fourier", features(F=4), rng=rng(), frequencies=4002).directions
    assert directions.shape == (4002, 4)
    np.testing.assert_allclose(np.cov(directions.T), np.eye(4), atol=0.1)
    gram = directions[:4] @ directions[:4].T
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-12)


def correlated(rows: int = 60, seed: int = 0) -> np.ndarray:
    """Return four features that vary along two directions for the most part."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(rows, 4))


@pytest.mark.parametrize("power", [0.0, 0.25, 1.0])
def test_components_are_those_of_scikit_learn(power: float) -> None:
    X = correlated()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    peer = PCA().fit(Z)
    variance = peer.explained_variance_ * (len(X) - 1) / len(X)
    expected = peer.transform(Z) * variance**power
    expected /= np.sqrt(np.mean(expected.var(axis=0)))
    Phi = fit_basis("principal", X, power=power)(X)[:, 1:]
    np.testing.assert_allclose(np.abs(Phi), np.abs(expected), atol=1e-10)
    assert np.mean(Phi.var(axis=0)) == pytest.approx(1)


def test_weights_are_counts_of_rows() -> None:
    X = correlated(20)
    twice = fit_basis("principal", np.vstack([X, X[:5]]))
    weighted = fit_basis("principal", X, weight=np.r_[np.full(5, 2.0), np.ones(15)])
    np.testing.assert_allclose(weighted.components, twice.components, atol=1e-10)
    doubled = fit_basis("principal", np.hstack([X, X[:, :1]]))  # a direction without variance is left out
    assert doubled.n_functions == 1 + 4


def rows(n: int = 300, K: int = 3, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    return rng.normal(size=(n, 4)) * [1, 50, 0.01, 1] + y[:, None] * [1, 10, 0, 0], y


def forest(X: Any, y: Any, **options: Any) -> Any:
    return fit_basis("forest", X, labels=y, rng=np.random.default_rng(1), **{"trees": 12, **options})


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("K", [2, 3])
def test_a_tree_that_nothing_is_drawn_for_is_scikit_learns(
    K: int, monkeypatch: pytest.MonkeyPatch, *, loops: bool
) -> None:
    """One group is in each bag, and of one feature the best threshold is the same in all trees."""
    if not loops:
        monkeypatch.setattr(compiled, "loops", None)
    X, y = rows(K=K)
    weight = np.random.default_rng(2).uniform(0.5, 2, size=len(y))
    own = {"split": "best", "leaf": 5, "trees": 2, "group": np.zeros(len(y)), "weight": weight}
    basis = forest(X[:, :1], y, **own)
    Z, new = (basis.standardisation(x[:, :1]) for x in (X, rows(1003, K, seed=5)[0]))
    tree = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
    expected = tree.fit(Z.astype(np.float32), np.eye(K)[y], sample_weight=weight).predict(new)
    np.testing.assert_allclose(basis.leaf_means(new), expected, atol=1e-7)


@pytest.mark.parametrize("options", [{"split": "best"}, {"boosted": True}, {"leaf": 1}, {"leaf": 40}])
@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("varying", [[], [1], [0, 2], [0, 1, 2]])
def test_rows_of_sets_go_down_the_trees_as_each_does_alone(
    K: int, varying: list[int], options: dict[str, Any]
) -> None:
    """Trees have up to 64 leaves, or more, and sets are of few and of many points."""
    X, y = rows(700, K)
    basis = forest(X, y, **options)
    rng = np.random.default_rng(7)
    for S, n in [(1, 5), (2, 37), (7, 3), (26, 33), (64, 2), (70, 40)]:
        Z = np.tile(rng.normal(size=(n, X.shape[1])), (S, 1))
        Z[:, varying] = rng.normal(size=(S * n, len(varying)))
        alone = basis.leaf_means(Z)
        np.testing.assert_allclose(basis.leaf_means(Z, S), alone, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            basis.of_standardised(Z, S), basis.of_standardised(Z), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("options", [{"split": "best"}, {"boosted": True}, {"leaf": 40}])
@pytest.mark.parametrize("K", [2, 3, 5])
def test_points_that_rise_along_one_feature_have_the_leaves_that_each_has_alone(
    K: int, options: dict[str, Any]
) -> None:
    """As nodes of one missing feature do: rows of one feature lie together, and some points are equal."""
    X, y = rows(700, K)
    basis = forest(X, y, **options)
    rng = np.random.default_rng(7)
    for S, n in [(5, 1), (8, 37), (12, 40), (26, 9), (64, 3), (65, 2)]:
        points = np.tile(rng.normal(size=(n, X.shape[1])), (S, 1, 1))
        feature = np.sort(rng.integers(X.shape[1], size=n))
        points[:, np.arange(n), feature] = np.sort(rng.normal(size=(S, n)).round(1), axis=0)
        Z = points.reshape(S * n, -1)
        np.testing.assert_allclose(basis.leaf_means(Z, S), basis.leaf_means(Z), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"split": "best"}, {"boosted": True}])
@pytest.mark.parametrize("K", [2, 5])
def test_compiled_growth_equals_its_twin(
    K: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows(K=K)
    X[:, 2] = np.round(100 * X[:, 2])
    weight = np.random.default_rng(2).uniform(0.5, 2, size=len(y))
    own = forest(X, y, weight=weight, **options)
    monkeypatch.setattr(compiled, "loops", None)
    twin = forest(X, y, weight=weight, **options)
    for name in ("feature", "threshold", "child", "root"):
        np.testing.assert_array_equal(getattr(own, name), getattr(twin, name))
    np.testing.assert_allclose(own.value, twin.value, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(own.training_design(X), twin.training_design(X), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n", [5, 77])
@pytest.mark.parametrize(
    ("options", "least", "most"),
    [({"leaf": 1}, 65, 300), ({"linear": True, "split": "best"}, 33, 64), ({"boosted": True}, 2, 32)],
)
def test_compiled_loops_equal_their_twin(
    options: dict[str, Any], least: int, most: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees of at most 32 and 64 leaves take all tests at once, larger ones go down; so do rows left over of 32."""
    basis, (X, _) = forest(*rows(), **options), rows(n, seed=2)
    own, leaves = basis(X), np.diff([*basis.root, len(basis.child)]) // 2 + 1
    assert leaves.min() >= least
    assert leaves.max() <= most
    monkeypatch.setattr(compiled, "loops", None)
    np.testing.assert_allclose(basis(X), own, rtol=1e-12)


@pytest.mark.parametrize("boosted", [False, True])
def test_a_row_is_judged_by_trees_that_have_not_seen_its_group(*, boosted: bool) -> None:
    """Labels at random, each twice: trees that have seen one of both know the other."""
    rng = np.random.default_rng(3)
    X, y = np.repeat(rng.normal(size=(200, 3)), 2, axis=0), np.repeat(rng.integers(2, size=200), 2)
    options = {"trees": 320 if boosted else 64, "boosted": boosted}
    together = forest(X, y, group=np.arange(400) // 2, **options).training_design(X)[:, -1]
    apart = forest(X, y, **options).training_design(X)[:, -1]
    assert abs(np.corrcoef(together, y)[0, 1]) < 0.25
    assert np.corrcoef(apart, y)[0, 1] > 0.5


@pytest.mark.parametrize("boosted", [False, True])
def test_one_group_or_few_rows_of_weight_have_trees_that_have_seen_them(*, boosted: bool) -> None:
    X, y = rows(30)
    one = forest(X, y, group=np.zeros(30), boosted=boosted)
    assert np.isfinite(one(X)).all()
    np.testing.assert_allclose(one.out_of_bag, one.out_of_bag[:1].repeat(30, axis=0), atol=1e-12)
    few = forest(X, y, weight=np.eye(30)[3] + np.eye(30)[4], boosted=boosted)
    assert np.isfinite(few.training_design(X)).all()


def test_logits_of_new_rows_are_of_all_trees() -> None:
    X, y = rows()
    basis = forest(X, y)
    assert basis.learnt_from_labels
    assert not np.allclose(basis(X), basis.training_design(X))
    far = basis(X * 1e6)
    assert np.abs(far).max() < 20
    linear = forest(X, y, linear=True)
    np.testing.assert_array_equal(basis(4 * X), basis(np.clip(4 * X, X.min(axis=0), X.max(axis=0))))
    np.testing.assert_allclose(linear(X)[:, 1:5], linear.standardisation(X))
    assert linear.names(["a", "b", "c", "d"])[:6] == ("1", "a", "b", "c", "d", "trees for class 1")


@pytest.mark.parametrize("K", [2, 3])
def test_boosted_trees_know_what_a_forest_of_as_many_does_not(K: int) -> None:
    """Classes in squares of a chess board; the weights of the logits are near one another."""
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 3, size=(3000, 2))
    y = np.floor(X).astype(int).sum(axis=1) % K
    new, truth = X[2000:], y[2000:]
    basis = forest(X[:2000], y[:2000], boosted=True, trees=100)
    assert basis(new).shape == (1000, 2 if K == 2 else 1 + K)
    a = basis.logits(basis.standardisation(new))
    said = a[:, 0] > 0 if K == 2 else a.argmax(axis=1)
    assert np.mean(said == truth) > 0.97
    unseen = basis.training_design(X[:2000])[:, 1:] * basis.spread + basis.centre
    said = unseen[:, 0] > 0 if K == 2 else unseen.argmax(axis=1)
    assert 0.95 < np.mean(said == y[:2000]) < 1


@pytest.mark.parametrize("boosted", [False, True])
def test_what_is_stored_gives_the_same_functions_but_not_those_of_a_fit(*, boosted: bool) -> None:
    X, y = rows()
    basis = forest(X, y, split="best", soften=True, boosted=boosted)
    stored = basis_from_dict(basis.to_dict())
    np.testing.assert_array_equal(stored(X), basis(X))
    np.testing.assert_array_equal(stored.jacobian(X[:3]), basis.jacobian(X[:3]))
    with pytest.raises(RuntimeError, match="until it is stored"):
        stored.training_design(X)
    with pytest.raises(RuntimeError, match="got 7 rows"):
        basis.training_design(X[:7])


def test_slopes_are_differences_over_half_a_standard_deviation() -> None:
    X, y = rows()
    basis = forest(X, y, linear=True)
    step = np.zeros(4)
    step[1] = 0.25 * basis.standardisation.scale[1]
    expected = (basis(X[:9] + step) - basis(X[:9] - step)) / (2 * step[1])
    np.testing.assert_allclose(basis.jacobian(X[:9])[:, :, 1], expected, rtol=1e-6, atol=1e-9)


def test_votes_are_shares_of_the_classes() -> None:
    X, y = rows(K=2)
    votes = np.eye(2)[y] * 3
    np.testing.assert_allclose(forest(X, votes)(X), forest(X, y)(X), atol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"split": "worst"}, "split must be one of random, best"),
        ({"labels": np.zeros(3)}, "got 3 labels of 300 rows"),
        ({"trees": 0}, "trees must be a whole number"),
    ],
)
def test_what_cannot_be_grown_is_refused(change: dict[str, Any], words: str) -> None:
    X, y = rows()
    with pytest.raises(ValueError, match=words):
        fit_basis("forest", X, **{"labels": y, "rng": np.random.default_rng(0), **change})


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    stored = forest(*rows()).to_dict()
    finite = np.zeros_like(stored["threshold"])
    child, value = stored["child"][::-1], stored["value"][1:]
    for wrong in ({"child": child}, {"threshold": finite}, {"value": value}, {"root": [10**6]}):
        with pytest.raises(ValueError, match="do not fit together"):
            basis_from_dict(stored | wrong)
