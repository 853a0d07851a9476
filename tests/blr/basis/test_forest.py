"""Where nothing is drawn trees are those of scikit-learn; trees judge the rows of groups that they have not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeRegressor

from blr import compiled
from blr.basis.kinds import basis_from_dict, fit_basis


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


@pytest.mark.parametrize("split", ["random", "best"])
def test_forests_predict_as_well_as_scikit_learns(split: str) -> None:
    X, y = rows(2000, 3, seed=8)
    X, y, new, truth = X[:1000], y[:1000], X[1000:], y[1000:]
    grown = ExtraTreesClassifier if split == "random" else RandomForestClassifier
    options = {"max_features": None} if split == "random" else {}
    theirs = grown(64, min_samples_leaf=2, bootstrap=True, random_state=0, **options).fit(X, y)
    basis = forest(X, y, split=split, trees=64)
    own = basis.leaf_means(basis.standardisation(new))
    loss, their_loss = (
        -np.log(np.maximum(p[np.arange(len(truth)), truth], 1e-3)).mean()
        for p in (own, theirs.predict_proba(new))
    )
    assert abs(loss - their_loss) < 0.03


@pytest.mark.parametrize("n", [5, 77])
@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({"leaf": 1}, 65, 300),
        ({"linear": True, "split": "best"}, 33, 64),
        ({"boosted": True}, 2, 32),
    ],
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


def test_logits_of_new_rows_are_of_all_trees_and_bounded() -> None:
    X, y = rows()
    basis = forest(X, y)
    assert basis.bounded
    assert basis.learnt_from_labels
    assert not np.allclose(basis(X), basis.training_design(X))
    far = basis(X * 1e6)
    assert np.abs(far).max() < 20
    linear = forest(X, y, linear=True)
    assert not linear.bounded
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
    for name, wrong in (
        ("child", stored["child"][::-1]),
        ("threshold", finite),
        ("value", stored["value"][1:]),
        ("root", [10**6]),
    ):
        with pytest.raises(ValueError, match="do not fit together"):
            basis_from_dict({**stored, name: wrong})
