"""Thresholds by bin that are learnt beforehand: their purity and completeness in a sample that they have not seen."""

from __future__ import annotations

import numpy as np
import pytest

from blr.census.bins import learnt_thresholds
from blr.census.purity import learnt_threshold
from blr.census.shares import LabelledRows
from tests.blr.census.test_bins import BINS, survey


def rows(n: int, seed: int) -> tuple[LabelledRows, np.ndarray]:
    p, y, X = survey(n, 0.5, seed, blind=False)
    return LabelledRows(p, y, np.ones(n), X), (X[:, 0] * BINS).astype(np.intp)


@pytest.mark.parametrize("shares", [np.array([0.5, 0.5]), np.array([0.8, 0.2])])
@pytest.mark.parametrize("asked", [{"purity": 0.8}, {"completeness": 0.85}])
def test_each_bin_has_what_is_stated(shares: np.ndarray, asked: dict[str, float]) -> None:
    """By the slow way: counted in each bin of many other objects, each class at its share."""
    learnt, place = rows(8000, 1)
    found = learnt_thresholds(learnt, place, BINS, 1, shares, **asked)
    assert found is not None
    other, elsewhere = rows(40_000, 2)
    weight = (shares / other.shares)[other.y]
    for b, threshold in found[0].items():
        inside = elsewhere == b
        taken = inside & (other.probability[:, 1] >= threshold)
        of_class = inside & (other.y == 1)
        among = taken if "purity" in asked else of_class
        reached = weight[among & taken & of_class].sum() / weight[among].sum()
        ours = (place == b) & (learnt.probability[:, 1] >= threshold if "purity" in asked else learnt.y == 1)
        counts = (shares / learnt.shares)[learnt.y[ours]]
        error = 4 * np.sqrt(0.25 * (counts**2).sum()) / counts.sum()
        assert reached == pytest.approx(next(iter(asked.values())), abs=error)
        assert np.float32(threshold) == threshold
    if "purity" in asked:  # the class is most frequent in the last bin, so it is selected by less there
        assert min(found[0], key=found[0].__getitem__) == BINS - 1


def test_one_bin_is_the_whole() -> None:
    learnt, place = rows(3000, 3)
    shares = np.array([0.6, 0.4])
    found = learnt_thresholds(learnt, np.zeros_like(place), 1, 1, shares, purity=0.85)
    whole = learnt_threshold(learnt, 1, shares, purity=0.85)
    assert found is not None
    assert whole is not None
    assert found[0][0] == pytest.approx(whole[0], abs=0.05)
    assert found[1].purity.mean() == pytest.approx(whole[1].purity.mean(), abs=0.02)
    assert found[1].completeness.mean() == pytest.approx(whole[1].completeness.mean(), abs=0.05)


def test_a_bin_without_labelled_rows_and_one_out_of_reach_are_left_out() -> None:
    learnt, place = rows(1000, 4)
    shares = np.array([0.5, 0.5])
    found = learnt_thresholds(learnt, place, BINS + 1, 1, shares, completeness=0.5)
    assert found is not None
    assert set(found[0]) == set(range(BINS))
    assert learnt_thresholds(learnt, place, BINS, 1, shares, purity=0.999999) is None
