"""The census of an output folder: class counts, purity and completeness, under an assumption that is named.

Where no count is reliable, the census has none, and states the reason.  Shapes: n rows, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.census.counts import Counted
from blr.census.known import count_with_labels
from blr.census.purity import Selection, n_selected, selection, threshold_for
from blr.census.results import Assumption, Census, ClassCensus, SelectionCensus
from blr.census.rows import LabelledRows, TargetRows
from blr.census.shares import LEVEL, Alternative
from flows.classification._census_bins import THRESHOLDS, census_bins, said_selection
from flows.classification._census_rows import CensusRows, joined
from flows.classification._census_wish import CensusWish
from flows.classification._selections import known_labels, row_thresholds
from flows.errors import ModelError
from flows.models.model import Model
from flows.models.unseen_rows import UnseenRows, read_unseen_rows

__all__ = ["census_of", "unsaid"]


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
        unseen = read_unseen_rows(folder, classes=len(model.classes), features=len(model.features))
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
