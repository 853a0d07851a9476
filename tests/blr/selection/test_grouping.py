"""Groups of classes: each merge loses what the formula says, and the least of all."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.special import softmax

from blr.selection.grouping import APART, group_classes


def information(p: np.ndarray, t: np.ndarray, w: np.ndarray) -> float:
    """Return what probabilities gain over the shares of the classes, row by row."""
    share = np.array([w[t == k].sum() for k in range(p.shape[1])]) / w.sum()
    return float(sum(w_n * np.log(p_n[k] / share[k]) for p_n, k, w_n in zip(p, t, w, strict=True)))


def joined(p: np.ndarray, t: np.ndarray, groups: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    number = {k: g for g, group in enumerate(groups) for k in group}
    return np.stack([p[:, group].sum(axis=1) for group in groups], axis=1), np.array([number[k] for k in t])


def twin(p: np.ndarray, t: np.ndarray, w: np.ndarray) -> list[list[int]]:
    """Return the groups by trying every merge, each judged by all rows."""
    groups = [[k] for k in range(p.shape[1])]
    while len(groups) > 2:
        before, found = information(*joined(p, t, groups), w), []
        for i, j in combinations(range(len(groups)), 2):
            tried = [g for m, g in enumerate(groups) if m not in (i, j)] + [sorted(groups[i] + groups[j])]
            loss = before - information(*joined(p, t, tried), w)
            n = np.array([w[np.isin(t, groups[m])].sum() for m in (i, j)])
            if loss < APART * -(n @ np.log(n / n.sum())):
                found.append((loss, tried))
        if not found:
            break
        groups = min(found)[1]
    return sorted(groups)


@pytest.fixture(params=[0, 1, 2])
def rows(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities of seven classes in three heaps, classes drawn by them, and weights."""
    rng = np.random.default_rng(request.param)
    heap = rng.normal(size=(300, 3)) * 3
    a = heap[:, [0, 0, 1, 1, 1, 2, 2]] + 0.3 * rng.normal(size=(300, 7)) + np.linspace(-1, 1, 7)
    p = softmax(a, axis=1)
    t = (p.cumsum(axis=1) > rng.random((300, 1))).argmax(axis=1)
    return p, t, rng.uniform(0.5, 2, 300)


def test_groups_are_those_of_every_merge_tried(rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    p, t, w = rows
    found = group_classes(p, t, weight=w)
    assert [list(g) for g in found.groups] == twin(p, t, w)
    assert len(found.groups) < 7
    groups = [list(g) for g in found.groups]
    assert found.kept == pytest.approx(
        information(*joined(p, t, groups), w) / information(p, t, w), rel=1e-10
    )


def test_pairs_are_taken_for_each_other(rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    p, t, w = rows
    found = group_classes(p, t, weight=w)
    assert {frozenset(m[:2]) for m in found.mistaken} == {
        frozenset(pair) for g in found.groups for pair in combinations(g, 2)
    }
    j, k, a, b = found.mistaken[0]
    assert a == pytest.approx(np.average((p[:, k] > p[:, j])[t == j], weights=w[t == j]))
    assert b == pytest.approx(np.average((p[:, j] > p[:, k])[t == k], weights=w[t == k]))


def test_classes_that_are_told_apart_stay_and_so_do_those_without_rows() -> None:
    t = np.repeat([0, 1, 3], 20)
    assert group_classes(np.full((60, 4), 0.02) + 0.92 * np.eye(4)[t], t).groups == ((0,), (1,), (2,), (3,))
    assert group_classes(np.full((60, 4), 0.25), t).groups == ((0, 1), (2,), (3,))
