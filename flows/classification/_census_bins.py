"""The census by bins of an expression over features: class counts, purity and completeness of each bin.

Labelled rows and rows of the target are kept with their features, so that any such expression can be used later.
Shapes: n rows, F features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from blr.census.bin_selections import bin_selection, bin_taken, bin_threshold, joined_selection
from blr.census.bins import BinnedRows, BinShares, bin_shares
from blr.census.counts import Counted
from blr.census.purity import Selection
from blr.census.results import (
    BinCensus,
    BinCount,
    BinnedSelection,
    CensusBins,
    SelectionCensus,
    SelectionQuality,
)
from blr.census.rows import LabelledRows, TargetRows
from catalogs.expressions.expression import parse
from flows.classification._bins import Bins, bin_values
from flows.classification._census_wish import CensusWish
from flows.classification._selections import row_thresholds

__all__ = ["THRESHOLDS", "census_bins", "said_selection"]

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

THRESHOLDS = (0.5, 0.8, 0.95)
"""Probabilities at which purity and completeness of every class are given."""
REASON = (
    "under the same assumption as the whole; each bin is shrunk towards the value that the whole predicts for it, so "
    "the intervals hold in 95 % of all bins on average, but not in each bin; the bins add up to the whole"
)


def census_bins(
    features: Sequence[str], labelled: LabelledRows, target: TargetRows, counted: Counted, wish: CensusWish
) -> CensusBins | None:
    """Return the census of each bin; None where no bins were asked for."""
    if wish.by is None:
        return None
    by = parse(wish.by)
    if counted.of_labels:
        why = "nearly all objects have labels of the training: count those of each bin"
        return CensusBins(by=by.text, reason=why, bins=())
    of_target, of_labelled = (bin_values(by, features, rows.X) for rows in (target, labelled))
    bins = Bins.of(by.text, of_target, bins=wish.bins, edges=wish.edges)
    if len(bins.names) < 2:
        return CensusBins(
            by=by.text, reason=f"'{by.text}' has the same value in all rows, so there are no bins", bins=()
        )
    places = BinnedRows(bins.places(of_labelled), bins.places(of_target), len(bins.names))
    shares = bin_shares(labelled, target, counted, places)
    wish = wish if counted.assumes != "features" else replace(wish, purity={}, completeness={}, selected={})
    stated = {c: list(_stated(shares, k, c, wish, features)) for k, c in enumerate(wish.classes)}
    return CensusBins(
        by=by.text,
        reason=REASON,
        bins=tuple(
            _bin(shares, b, name, stated, counted)
            for b, name in enumerate(bins.names)
            if shares.n_objects[b] or shares.n_labelled[b]
        ),
        selections={
            c: tuple(_joined(shares, k, bins.names, one) for one in own)
            for k, c in enumerate(wish.classes)
            if (own := [one for one in stated[c] if not one.column])  # a column has its own bins
        },
    )


@dataclass(frozen=True, eq=False)
class _Stated:
    """Thresholds and selections by bin, for one that is stated, or for a column of the copies (None: of its bins)."""

    stated: str
    column: str
    by_bin: Mapping[int, tuple[float | None, Selection]]


def _stated(
    shares: BinShares, k: int, name: str, wish: CensusWish, features: Sequence[str]
) -> Iterator[_Stated]:
    """Yield the columns of class k, then the thresholds of the bins for stated values."""
    every = range(shares.places.n_bins)
    for key, column in wish.selected.items():
        if column.class_name == name:
            taken = [
                rows.probability[:, k] >= row_thresholds(column, features, rows.X)
                for rows in (shares.target, shares.labelled)
            ]
            found = {b: (column.threshold, bin_taken(shares, b, k, *taken)) for b in every}
            yield _Stated(column.stated, key, found)
    for what, by_class in (("purity", wish.purity), ("completeness", wish.completeness)):
        if name in by_class:
            tried = {b: bin_threshold(shares, b, k, **{what: by_class[name]}) for b in every}
            reached = {b: one for b, one in tried.items() if one is not None}
            yield _Stated(f"{what} {by_class[name]:g}", "", reached)


def _bin(
    shares: BinShares, b: int, name: str, stated: Mapping[str, Sequence[_Stated]], counted: Counted
) -> BinCensus:
    n = float(shares.n_objects[b])
    (low, high), mean = shares.interval(), shares.draws.mean(axis=0)
    return BinCensus(
        name=name,
        objects=round(n),
        labelled=int(shares.n_labelled[b]),
        classes={
            c: BinCount(
                count=float(mean[b, k] * n),
                low=float(low[b, k] * n),
                high=float(high[b, k] * n),
                selections=()
                if counted.assumes == "features"  # as in the census of all bins together
                else tuple(_selections(shares, b, k, of_class)),
            )
            for k, (c, of_class) in enumerate(stated.items())
        },
    )


def _selections(shares: BinShares, b: int, k: int, stated: Sequence[_Stated]) -> Iterator[SelectionCensus]:
    """Yield purity and completeness of class k in a bin at each threshold, then at its threshold for a stated value."""
    for threshold in THRESHOLDS:
        found = bin_selection(shares, b, k, threshold)
        if found.n_selected:
            yield said_selection(found, threshold)
    for one in stated:
        if b in one.by_bin and one.by_bin[b][1].n_selected:
            least, found = one.by_bin[b]
            yield said_selection(found, least, one.stated, one.column)


def _joined(shares: BinShares, k: int, names: Sequence[str], one: _Stated) -> BinnedSelection:
    chosen = {b: found for b, (_, found) in one.by_bin.items()}
    return BinnedSelection(
        stated=one.stated,
        thresholds={names[b]: t for b, (t, _) in one.by_bin.items() if t is not None},
        **vars(_quality(joined_selection(shares, k, chosen))),
    )


def said_selection(
    found: Selection, threshold: float | None, stated: str = "", column: str = ""
) -> SelectionCensus:
    """Return what is said of a selection."""
    return SelectionCensus(threshold=threshold, stated=stated, column=column, **vars(_quality(found)))


def _quality(found: Selection) -> SelectionQuality:
    purity, completeness = found.interval(found.purity), found.interval(found.completeness)
    return SelectionQuality(
        objects=found.n_selected,
        purity=float(found.purity.mean()),
        purity_low=purity[0],
        purity_high=purity[1],
        completeness=float(found.completeness.mean()),
        completeness_low=completeness[0],
        completeness_high=completeness[1],
    )
