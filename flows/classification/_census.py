"""The census of a release: class counts, purity and completeness of its rows, in bins where these are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.census.bin_selections import bin_selection, bin_taken, bin_threshold, joined_selection
from blr.census.bins import BinnedRows, BinShares, bin_shares
from blr.census.counts import Counted
from blr.census.known import count_with_labels
from blr.census.purity import Selection, n_selected, selection, threshold_for
from blr.census.results import (
    Assumption,
    BinCensus,
    BinCount,
    BinnedSelection,
    Census,
    CensusBins,
    ClassCensus,
    SelectionCensus,
    SelectionQuality,
)
from blr.census.rows import LabelledRows, TargetRows
from blr.census.shares import LEVEL, Alternative
from catalogs.expressions.expression import parse
from flows.classification._census_rows import CensusRows, joined
from flows.classification._census_wish import CensusWish
from flows.classification._selections import Bins, bin_values, known_labels, row_thresholds
from flows.errors import ModelError
from flows.models.model import Model
from flows.models.row_files import UnseenRows

__all__ = ["THRESHOLDS", "census_bins", "census_of", "said_selection", "unsaid"]

# The census by bins of an expression over features: class counts, purity and completeness of each bin.
#
# Labelled rows and rows of the target are kept with their features, so that any such expression can be used later.
# Shapes: n rows, F features.

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
                else tuple(_bin_selections(shares, b, k, of_class)),
            )
            for k, (c, of_class) in enumerate(stated.items())
        },
    )


def _bin_selections(
    shares: BinShares, b: int, k: int, stated: Sequence[_Stated]
) -> Iterator[SelectionCensus]:
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


# The census of an output folder: class counts, purity and completeness, under an assumption that is named.
#
# Where no count is reliable, the census has none, and states the reason.  Shapes: n rows, K classes.


def census_of(
    model: Model,
    folder: Path,
    rows: Sequence[CensusRows | None],
    *,
    n_objects: int,
    wish: CensusWish = CensusWish(),  # noqa: B008  it is frozen
) -> Census:
    """Return the census of `n_objects` classified objects; `rows` are a sample of them, a part for each file.

    `folder` is that of the model, with its unseen rows.  A file has no rows (None) if an earlier version annotated it.
    """
    assumes = wish.assumes
    parts = [part for part in rows if part is not None]
    if len(parts) < len(rows):
        return unsaid(
            model,
            n_objects,
            assumes,
            f"{len(rows) - len(parts)} of {len(rows)} files were classified by an earlier version, which "
            "kept no rows for a census; classify them again, with --overwrite",
        )
    try:
        unseen = UnseenRows.read(folder, classes=len(model.classes), features=len(model.features))
    except ModelError as error:
        return unsaid(model, n_objects, assumes, str(error))
    lacking = _lacking(model, unseen)
    if unseen is None or lacking or not parts:
        return unsaid(model, n_objects, assumes, lacking or "no object was classified")
    labelled, (target, known) = known_labels(unseen), _target(joined(parts), n_objects)
    counted = count_with_labels(labelled, target, known, assumes=assumes)
    if counted.shares is None:
        said = unsaid(model, n_objects, counted.assumes, counted.reason)
        return replace(said, contradicted=counted.contradicted)
    return _census(model, counted, labelled, target, wish)


def unsaid(model: Model, n_objects: int, assumes: Assumption | None, reason: str) -> Census:
    """Return a census without counts, with the reason."""
    said = ClassCensus(
        count=None, low=None, high=None, source="cannot be said", assumes=assumes, reason=reason
    )
    return Census(
        n_rows=n_objects,
        level=LEVEL,
        classes=dict.fromkeys(model.classes, said),
        other_labels=model.training.other_labels,
    )


def _lacking(model: Model, unseen: UnseenRows | None) -> str:
    """Return why no census is possible with this model; '' where it can."""
    label = model.specification.label
    if label.votes is not None:
        return "the model was trained on votes, which do not state the class of any object; audit the output"
    if label.noise is not None:
        return "the model's labels may be wrong, so they cannot calibrate counts; audit the output"
    if unseen is None:
        return f"{model.label} was trained by an earlier version, which kept no unseen rows; train it again"
    return ""


def _target(rows: CensusRows, n_objects: int) -> tuple[TargetRows, NDArray[np.intp]]:
    """Return the rows of the target, and their classes (N,) by label, -1 without one."""
    p, X, weight = (np.asarray(a, dtype=np.float64) for a in (rows.probability, rows.X, rows.weight))
    known = np.isfinite(p).all(axis=1) & (weight > 0)
    p = np.maximum(p[known], 0.0)
    target = TargetRows(p / p.sum(axis=1, keepdims=True), weight[known], X[known], n_objects)
    return target, rows.known[known].astype(np.intp)


def _census(
    model: Model, counted: Counted, labelled: LabelledRows, target: TargetRows, wish: CensusWish
) -> Census:
    shares = counted.shares
    assert shares is not None  # noqa: S101
    n = target.n_objects
    low, high = shares.interval()
    return Census(
        n_rows=n,
        level=LEVEL,
        contradicted=counted.contradicted,
        other_labels=model.training.other_labels,
        classes={
            name: ClassCensus(
                count=float(shares.mean[k] * n),
                low=float(low[k] * n),
                high=float(high[k] * n),
                source="labels" if counted.of_labels else "model",
                assumes=counted.assumes,
                reason=counted.reason,
                selections=()
                if counted.assumes
                == "features"  # The completeness among biased labels is not that of the target.
                else tuple(_selections(k, name, counted.parts(labelled), target, wish, model.features)),
                labelled=0 if counted.counted is None else int(counted.counted[k]),
            )
            for k, name in enumerate(model.classes)
        },
        bins=census_bins(model.features, labelled, target, counted, wish),
    )


def _selections(
    k: int,
    name: str,
    parts: Sequence[Alternative],
    target: TargetRows,
    asked: CensusWish,
    features: Sequence[str],
) -> Iterator[SelectionCensus]:
    """Yield purity and completeness of class k: at each threshold, in its column, and for stated values."""
    labelled, draws, others = parts[0].labelled, parts[0].shares.draws, parts[1:]

    def found(chosen: np.ndarray, n: int) -> Selection:
        return selection(
            labelled,
            chosen,
            k,
            draws,
            n_selected=n,
            n_objects=target.n_objects,
            n_seen=target.n_effective,
            others=others,
        )

    for threshold in THRESHOLDS:
        n = n_selected(target, k, threshold)
        if n:
            yield said_selection(found(labelled.probability[:, k] >= threshold, n), threshold)
    for key, column in asked.selected.items():
        if column.class_name == name:
            n = n_selected(target, k, row_thresholds(column, features, target.X))
            chosen = labelled.probability[:, k] >= row_thresholds(column, features, labelled.X)
            if n:
                yield said_selection(found(chosen, n), column.threshold, column.stated, key)
    for what, stated in (("purity", asked.purity), ("completeness", asked.completeness)):
        if name in stated:
            pure, complete = (stated[name] if what == of else None for of in ("purity", "completeness"))
            best = threshold_for(
                labelled, target, k, draws, purity=pure, completeness=complete, others=others
            )
            if best is not None:
                yield said_selection(best[1], best[0], f"{what} {stated[name]:g}")
