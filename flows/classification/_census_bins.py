"""The census by bins of an expression over features: class counts, purity and completeness of each bin.

Labelled rows and the target's are kept with their features, so any such expression can be asked for afterwards.
Shapes: n rows, F features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.census.bins import BinnedRows, BinShares, bin_selection, bin_shares, bin_threshold, joined_selection
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
from catalogs.expressions.bins import even_edges, names_between, places_between
from catalogs.expressions.expression import Expression, parse
from flows.classification._census_wish import CensusWish

__all__ = ["THRESHOLDS", "census_bins", "said_selection"]

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

THRESHOLDS = (0.5, 0.8, 0.95)
"""Probabilities at which purity and completeness of every class are given."""
MISSING = "missing"
"""The bin of rows where the expression has no value."""
REASON = (
    "under the assumption of the whole; each bin is shrunk to what the whole leads to expect of it, so that the "
    "intervals hold 95 % on average over bins, not in each one; the bins add up to the whole"
)


@dataclass(frozen=True)
class _Bins:
    """Bins between `edges`, or of a condition (no edges); the last one is of rows without a value."""

    names: tuple[str, ...]
    edges: tuple[float, ...]

    def places(self, values: NDArray[Any]) -> Places:
        """Return the bin (n,) of each value."""
        if values.dtype.kind == "b":
            return values.astype(np.intp)
        return places_between(self.edges, values, missing=len(self.names) - 1)


def census_bins(
    features: Sequence[str], labelled: LabelledRows, target: TargetRows, counted: Counted, wish: CensusWish
) -> CensusBins | None:
    """Return the census of each bin; None where none were asked for."""
    if wish.by is None:
        return None
    by = parse(wish.by)
    of_target, of_labelled = (_values(by, features, rows.X) for rows in (target, labelled))
    bins = _bins(by.text, of_target, wish)
    if len(bins.names) < 2:
        return CensusBins(by=by.text, reason=f"'{by.text}' has one value, so there are no bins", bins=())
    places = BinnedRows(bins.places(of_labelled), bins.places(of_target), len(bins.names))
    shares = bin_shares(labelled, target, counted, places)
    wish = wish if counted.assumes != "features" else replace(wish, purity={}, completeness={}, selected={})
    stated = {c: list(_stated(shares, k, c, wish)) for k, c in enumerate(wish.classes)}
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
            if (own := [one for one in stated[c] if not one.column])  # a column has one threshold
        },
    )


@dataclass(frozen=True, eq=False)
class _Stated:
    """Thresholds and selections by bin, for one that is stated, or for a column of the copies."""

    stated: str
    column: str
    by_bin: Mapping[int, tuple[float, Selection]]


def _stated(shares: BinShares, k: int, name: str, wish: CensusWish) -> Iterator[_Stated]:
    """Yield the columns of class k, each of one threshold, then the bins' own thresholds of what is stated."""
    every = range(shares.places.n_bins)
    for key, column in wish.selected.items():
        if column.class_name == name:
            t = column.threshold
            yield _Stated(column.stated, key, {b: (t, bin_selection(shares, b, k, t)) for b in every})
    for what, by_class in (("purity", wish.purity), ("completeness", wish.completeness)):
        if name in by_class:
            found = {b: bin_threshold(shares, b, k, **{what: by_class[name]}) for b in every}
            reached = {b: one for b, one in found.items() if one is not None}
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
                if counted.assumes == "features"  # as for the whole
                else tuple(_selections(shares, b, k, of_class)),
            )
            for k, (c, of_class) in enumerate(stated.items())
        },
    )


def _selections(shares: BinShares, b: int, k: int, stated: Sequence[_Stated]) -> Iterator[SelectionCensus]:
    """Yield purity and completeness of class k in a bin at each threshold, then where the bin has those stated."""
    for threshold in THRESHOLDS:
        found = bin_selection(shares, b, k, threshold)
        if found.n_selected:
            yield said_selection(found, threshold)
    for one in stated:
        if b in one.by_bin and one.by_bin[b][1].n_selected:
            threshold, found = one.by_bin[b]
            yield said_selection(found, threshold, one.stated, one.column)


def _joined(shares: BinShares, k: int, names: Sequence[str], one: _Stated) -> BinnedSelection:
    chosen = {b: found for b, (_, found) in one.by_bin.items()}
    return BinnedSelection(
        stated=one.stated,
        thresholds={names[b]: threshold for b, (threshold, _) in one.by_bin.items()},
        **vars(_quality(joined_selection(shares, k, chosen))),
    )


def _values(by: Expression, features: Sequence[str], X: Floats) -> NDArray[Any]:
    """Return what the expression gives for rows (n, F)."""
    columns = {name: X[:, j] for j, name in enumerate(features) if name in by.names}
    with np.errstate(all="ignore"):
        values = np.broadcast_to(by.evaluate(columns), (len(X),))
    return values if values.dtype.kind == "b" else np.asarray(values, dtype=np.float64)


def _bins(text: str, values: NDArray[Any], wish: CensusWish) -> _Bins:
    if values.dtype.kind == "b":
        return _Bins((f"not {text}", text), ())
    edges = even_edges(values, wish.bins) if wish.edges is None else wish.edges
    if not edges:
        return _Bins((text,), ())
    return _Bins((*names_between(edges, text), f"{text}: {MISSING}"), edges)


def said_selection(found: Selection, threshold: float, stated: str = "", column: str = "") -> SelectionCensus:
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
