"""Class shares, purity and completeness in bins: invariants, and by repeated simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from blr.census.bins import BinnedRows, bin_selection, bin_shares, joined_selection
from blr.census.counts import Counted, count_classes
from blr.census.shares import LabelledRows, TargetRows

BINS = 3


def survey(n: int, share: float, seed: int, *, blind: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities, classes, and features (n, 2): the bin's and one that tells the classes apart.

    Class 1 is more frequent where the first feature is large, which a `blind` model does not know.
    """
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(np.intp)
    place = rng.beta(1 + y, 2 - y)
    x = rng.normal(size=n) + 2.0 * (y - 0.5)
    known = 2.0 * x + (0 if blind else np.log(place / (1 - place)))
    p = expit(known)
    return np.column_stack([1 - p, p]), y, np.column_stack([place, x])


def case(seed: int, *, blind: bool, share: float, n: int = 300, N: int = 1500) -> tuple[Any, ...]:
    p, y, X = survey(n, 0.5, seed, blind=blind)
    q, truth, Z = survey(N, share, seed + 10_000, blind=blind)
    labelled, target = LabelledRows(p, y, np.ones(n), X), TargetRows(q, np.ones(N), Z, N)
    places = BinnedRows(*((values[:, 0] * BINS).astype(np.intp) for values in (X, Z)), BINS)
    return labelled, target, count_classes(labelled, target, assumes="shares"), places, truth


def test_bins_hold_the_truth_on_average_also_where_the_model_is_blind_to_them() -> None:
    for blind in (False, True):
        held, seen = [], []
        for seed in range(8):
            labelled, target, counted, places, truth = case(seed, blind=blind, share=0.25)
            shares = bin_shares(labelled, target, counted, places)
            low, high = shares.interval()
            real = np.array([truth[places.target == b].mean() for b in range(BINS)])
            held.append((low[:, 1] <= real) & (real <= high[:, 1]))
            seen.append(shares.draws.mean(axis=0)[:, 1] - real)
        assert np.mean(held) > 0.85
        assert np.abs(np.mean(seen, axis=0)).max() < 0.06


def test_bins_add_up_to_the_whole() -> None:
    labelled, target, counted, places, _ = case(1, blind=False, share=0.4)
    shares = bin_shares(labelled, target, counted, places)
    assert shares.n_objects.sum() == pytest.approx(target.n_objects)
    np.testing.assert_allclose(shares.draws.sum(axis=2), 1)
    whole = np.einsum("b,sbk->sk", shares.n_objects / target.n_objects, shares.draws)
    assert whole[:, 1].mean() == pytest.approx(counted.shares.mean[1], abs=0.005)
    assert whole[:, 1].std() == pytest.approx(counted.shares.draws[:, 1].std(), rel=0.15)


def test_a_bin_without_labels_is_what_the_model_expects_and_wider() -> None:
    labelled, target, counted, places, _ = case(2, blind=False, share=0.5)
    moved = replace(places, labelled=np.minimum(places.labelled, 1))
    shares, other = (bin_shares(labelled, target, counted, p) for p in (moved, places))
    assert shares.n_labelled[2] == 0
    expected = shares.probability[places.target == 2].mean(axis=0)
    np.testing.assert_allclose(shares.draws[:, 2].mean(axis=0), expected, atol=0.05)
    assert shares.draws[:, 2, 1].std() > other.draws[:, 2, 1].std()


def test_selections_of_all_bins_are_joined() -> None:
    """One threshold in all bins is the selection of the whole; a bin left out loses its objects."""
    labelled, target, counted, places, truth = case(5, blind=False, share=0.4, n=2000, N=4000)
    shares = bin_shares(labelled, target, counted, places)
    chosen = {b: bin_selection(shares, b, 1, 0.6) for b in range(BINS)}
    whole = joined_selection(shares, 1, chosen)
    taken = target.probability[:, 1] >= 0.6
    assert whole.n_selected == taken.sum()
    for draws, real in ((whole.purity, truth[taken].mean()), (whole.completeness, taken[truth == 1].mean())):
        assert draws.mean() == pytest.approx(real, abs=4 * draws.std())
    del chosen[2]
    less = joined_selection(shares, 1, chosen)
    assert less.completeness.mean() < 0.6 * whole.completeness.mean()
    assert joined_selection(shares, 1, {}).completeness.max() == 0


def test_counts_that_cannot_be_said_have_no_bins() -> None:
    labelled, target, _, places, _ = case(3, blind=False, share=0.4)
    with pytest.raises(ValueError, match="census without counts"):
        bin_shares(labelled, target, Counted(None, None, "no"), places)
