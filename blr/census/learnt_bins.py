"""Thresholds by bin for a stated purity or completeness, known before any row of the target is seen.

Labelled rows that the model has not seen represent the target, with the class shares of the target.  Each bin is
shrunk to what the model expects of it, as `blr.census.bins` does.  Shapes: n labelled rows, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Vector
from blr.census.bin_selections import bin_selection, bin_threshold, joined_selection
from blr.census.bins import BinnedRows, bin_shares
from blr.census.counts import Counted
from blr.census.purity import MANY_OBJECTS, Selection, rounded_threshold
from blr.census.rows import LabelledRows, TargetRows
from blr.census.shares import ShareDraws

__all__ = ["BinThresholds", "learnt_thresholds"]

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
