"""A forest's logits are those of scikit-learn's trees; rows are judged by the trees that have not seen their group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from blr import compiled
from blr.basis._forest import Forest, _stacked
from blr.basis.kinds import basis_from_dict, fit_basis


def rows(n: int = 300, K: int = 3, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    return rng.normal(size=(n, 4)) * [1, 50, 0.01, 1] + y[:, None] * [1, 10, 0, 0], y


def forest(X: Any, y: Any, **options: Any) -> Any:
    return fit_basis("forest", X, labels=y, rng=np.random.default_rng(1), **{"trees": 12, **options})


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("K", [2, 3])
def test_leaves_are_those_of_scikit_learn(K: int, monkeypatch: pytest.MonkeyPatch, *, loops: bool) -> None:
    if not loops:
        monkeypatch.setattr(compiled, "loops", None)
    X, y = rows(K=K)
    trees = [DecisionTreeRegressor(max_depth=d, random_state=d).fit(X, np.eye(K)[y]) for d in (1, 3, None)]
    basis = forest(X, y)
    arrays = _stacked([(tree.tree_, tree.tree_.value[:, :, 0]) for tree in trees])
    same = Forest(basis.standardisation, *arrays, basis.centre, basis.spread)
    Z, _ = rows(1003, K, seed=5)
    expected = np.mean([tree.predict(Z.astype(np.float32)) for tree in trees], axis=0)
    np.testing.assert_allclose(same.leaf_means(Z), expected, atol=1e-7)


def test_compiled_loops_equal_their_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    basis, (X, _) = forest(*rows(), linear=True), rows(77, seed=2)
    own = basis(X)
    monkeypatch.setattr(compiled, "loops", None)
    np.testing.assert_allclose(basis(X), own, rtol=1e-12)


@pytest.mark.parametrize("boosted", [False, True])
def test_a_row_is_judged_by_trees_that_have_not_seen_its_group(*, boosted: bool) -> None:
    """Labels at random, each twice: trees that have seen one of both know the other."""
    rng = np.random.default_rng(3)
    X, y = np.repeat(rng.normal(size=(200, 3)), 2, axis=0), np.repeat(rng.integers(2, size=200), 2)
    options = {"trees": 64, "boosted": boosted}
    together = forest(X, y, group=np.arange(400) // 2, **options).training_design(X)[:, -1]
    apart = forest(X, y, **options).training_design(X)[:, -1]
    assert abs(np.corrcoef(together, y)[0, 1]) < 0.25
    assert np.corrcoef(apart, y)[0, 1] > 0.5


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
    for name, wrong in (("child", stored["child"][::-1]), ("value", stored["value"][1:]), ("root", [10**6])):
        with pytest.raises(ValueError, match="do not fit together"):
            basis_from_dict({**stored, name: wrong})
