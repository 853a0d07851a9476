"""How pure and how complete selections by probability are in bins of the target, and thresholds of each bin.

Shapes: n labelled rows, N target rows, K classes, S draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Vector
from blr.census.bins import BinnedRows, BinShares, bin_shares
from blr.census.counts import Counted
from blr.census.purity import MANY_OBJECTS, Selection, rounded_threshold
from blr.census.rows import LabelledRows, TargetRows
from blr.census.shares import ShareDraws

_SEED = 20_100_002
_EXPECTED_ROWS = 5.0
"""Labelled rows of each class that the model's expectation counts as in each bin."""
_PSEUDO = 0.5
_STEPS = np.concatenate([np.linspace(0, 0.95, 20), [0.97, 0.98, 0.99, 0.995]])
"""Quantiles of a bin's probability that are tried as thresholds."""
_FINE = 8
"""Thresholds between two of those that are tried next."""


def bin_selection(shares: BinShares, b: int, k: int, threshold: float) -> Selection:
    """Return how pure and how complete the objects of a bin are whose probability of class `k` is so large."""
    rows = (shares.target.probability[:, k] >= threshold, shares.labelled.probability[:, k] >= threshold)
    return bin_taken(shares, b, k, *rows)


def bin_taken(
    shares: BinShares, b: int, k: int, of_target: NDArray[np.bool_], of_labelled: NDArray[np.bool_]
) -> Selection:
    """Return how pure and how complete a selection of class `k` is in a bin, of rows of the target (N,), and labelled.

    The fraction of each class that is taken has a Beta posterior: of the labelled rows in the bin, and a few that are
    as the model expects.  Where the shares span several assumptions, the draws under all are pooled.
    """
    if shares.alternatives:
        return Selection.pooled([bin_taken(one, b, k, of_target, of_labelled) for one in shares.alternatives])
    labelled, target, places = shares.labelled, shares.target, shares.places
    inside, ours = places.target == b, places.labelled == b
    chosen = of_target[inside]
    weight, p = target.weight[inside], shares.probability[inside]
    taken_expected = (weight * chosen) @ p / np.maximum(weight @ p, 1e-300)
    K = labelled.n_classes
    own = np.bincount(labelled.y[ours], labelled.weight[ours], minlength=K)
    squares = np.bincount(labelled.y[ours], labelled.weight[ours] ** 2, minlength=K)
    rows = own**2 / np.maximum(squares, 1e-300)
    hits = labelled.weight[ours] * of_labelled[ours]
    taken = np.bincount(labelled.y[ours], hits, minlength=K) / np.maximum(own, 1e-300)
    before = np.where(np.arange(K) == k, _PSEUDO, _PSEUDO / (K - 1))
    a = before + taken * rows + taken_expected * _EXPECTED_ROWS
    c = _PSEUDO + (1 - taken) * rows + (1 - taken_expected) * _EXPECTED_ROWS
    rng = np.random.default_rng([_SEED, b])  # bins are drawn independently, and may be added up
    drawn = rng.beta(a, c, size=(len(shares.draws), K))
    of_class = shares.draws[:, b] * drawn
    purity = of_class[:, k] / np.maximum(of_class.sum(axis=1), 1e-300)
    n = shares.n_objects[b]
    n_selected = round(float(weight @ chosen / max(weight.sum(), 1e-300)) * n)
    n_class = np.maximum(np.rint(shares.draws[:, b, k] * n).astype(np.int64), 1)
    return Selection(
        n_selected,
        rng.binomial(max(n_selected, 1), purity) / max(n_selected, 1),
        rng.binomial(n_class, drawn[:, k]) / n_class,
    )


def bin_threshold(
    shares: BinShares, b: int, k: int, *, purity: float | None = None, completeness: float | None = None
) -> tuple[float, Selection] | None:
    """Return the threshold with a stated purity or completeness in a bin; None where none has it, or no row is there.

    As `blr.census.purity.threshold_for` does for the whole: the lowest for a purity, the highest for a completeness.
    """
    inside = shares.places.target == b
    if not inside.any():
        return None
    p = np.sort(shares.target.probability[inside, k])
    up = purity is not None

    def first(tried: Vector) -> tuple[float, float, Selection] | None:
        """Return the first threshold that has what is stated, the one tried before it, and its selection."""
        ordered = (np.unique(tried) if up else np.unique(tried)[::-1]).tolist()
        for before, threshold in zip([ordered[0], *ordered], ordered, strict=False):
            found = bin_selection(shares, b, k, threshold)
            if (found.completeness if purity is None else found.purity).mean() >= (
                purity or completeness or 0.0
            ):
                return threshold, before, found
        return None

    coarse = first(np.quantile(p, _STEPS))
    if coarse is None:
        return None
    low, high = np.searchsorted(p, sorted(coarse[:2]))
    threshold, _, found = (
        first(p[np.linspace(low, high, _FINE).astype(np.intp).clip(0, len(p) - 1)]) or coarse
    )
    return threshold, found


def joined_selection(shares: BinShares, k: int, chosen: Mapping[int, Selection]) -> Selection:
    """Return how pure and how complete selections of class `k`, one of each bin, are together.

    Bins without a selection select nothing: what they have of the class is lost.
    """
    n_selected = sum(one.n_selected for one in chosen.values())
    n_class = shares.draws[:, :, k] * shares.n_objects
    right = sum((one.n_selected * one.purity for one in chosen.values()), start=np.zeros(len(n_class)))
    found = sum((n_class[:, b] * one.completeness for b, one in chosen.items()), start=np.zeros(len(n_class)))
    return Selection(n_selected, right / max(n_selected, 1), found / np.maximum(n_class.sum(axis=1), 1e-300))


_DRAWS = 300


@dataclass(frozen=True, eq=False)
class BinThresholds:
    """Thresholds by the bin's place, and the selection that they make together.

    A bin in which no threshold has what is stated is left out: it selects nothing.
    """

    thresholds: Mapping[int, float]
    expected: Selection


def learnt_thresholds(
    labelled: LabelledRows,
    places: NDArray[np.intp],
    n_bins: int,
    k: int,
    shares: Vector,
    *,
    purity: float | None = None,
    completeness: float | None = None,
) -> BinThresholds | None:
    """Return the threshold of class `k` in each bin that has a stated purity or completeness; None if none has.

    `places` (n,) are the bins of the labelled rows, `shares` (K,) those of the classes in the whole target.  As in
    `blr.census.purity.learnt_threshold`, thresholds are rounded: up for a purity, down for a completeness.
    """
    weight = labelled.weight * (shares / labelled.shares)[labelled.y]
    target = TargetRows(labelled.probability, weight, labelled.X, MANY_OBJECTS)
    known = ShareDraws(np.broadcast_to(shares, (_DRAWS, len(shares))), labelled.scaling)
    found = bin_shares(
        labelled, target, Counted(known, "shares", "as given"), BinnedRows(places, places, n_bins)
    )
    thresholds = {}
    for b in range(n_bins):
        best = bin_threshold(found, b, k, purity=purity, completeness=completeness)
        if best is not None:
            thresholds[b] = rounded_threshold(best[0], up=purity is not None)
    if not thresholds:
        return None
    chosen = {b: bin_selection(found, b, k, t) for b, t in thresholds.items()}
    return BinThresholds(thresholds, joined_selection(found, k, chosen))
