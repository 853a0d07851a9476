"""Choose objects of annotated catalogues for a human look: a budget, or the least certain of those flagged.

The highest mutual information alone collects outliers and noise; a draw in proportion to it, whose inclusion
probability is written down as a weight, stands for the whole catalogue.  Shapes: n rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from blr.decisions import Flag
from flows.reviews._budget import BudgetDraw, draw_budget
from flows.reviews._files import (
    NAME,
    OUTLIERS_NAME,
    Chosen,
    check_unanswered,
    write_lists,
    write_outlier_lists,
)
from flows.reviews._objects import annotated_manifest, object_tables
from flows.reviews._rows import ReviewSource, Space
from flows.reviews.request import ReviewRequest
from flows.runs.labelled import read_labelled_names
from flows.runs.release_store import output_folder

__all__ = ["ReviewResult", "review"]

Floats = NDArray[np.float64]

WORTH_A_LOOK = int(
    Flag.LOW_CONFIDENCE | Flag.CLOSE_CALL | Flag.FLIPPED | Flag.OUT_OF_DOMAIN | Flag.UNCERTAIN_INPUT
)
UNKNOWN = (
    "the list may contain objects that have a label, since the folder has no names of labelled objects; "
    "train and classify again with id under [catalog]"
)


@dataclass(frozen=True, kw_only=True)
class ReviewResult:
    """Which objects were chosen for a human look, and where the lists are.

    `id` is the column that names an object, None where there are no catalogues.  `top` counts those chosen by their
    flags and `drawn` those drawn, of all `n_classified` that have no label; `outliers` counts those of a list of their
    own.  `files` is empty where nothing was written.
    """

    status: Literal["planned", "done"]
    model: str
    out: Path
    id: str | None
    n_classified: int
    top: int
    drawn: int
    outliers: int
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


def review(request: ReviewRequest, *, space: Space | None = None, dry_run: bool = False) -> ReviewResult:
    """Write the review list of a folder that `classify` has written; return what was done.

    With a budget, its objects are drawn where labels help most and spread over `space`, and the outliers there are
    listed besides.  Without, the `top` flagged objects, the least certain first, then `draw` of all that are
    classified, in proportion to their mutual information.  Objects that the model was trained on are in no list.

    Raises
    ------
    UsageError
        If the folder has no annotated catalogues, a list has answers already, or the options exclude each other.
    """
    request.check()
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        return _reviewed(request, folder, space=space, dry_run=dry_run)


def _reviewed(request: ReviewRequest, folder: Path, *, space: Space | None, dry_run: bool) -> ReviewResult:
    """Write the review list of a folder of this machine."""
    for name in (NAME, OUTLIERS_NAME) if request.budget is not None else (NAME,):
        check_unanswered(folder, name)
    manifest, prefix = annotated_manifest(folder)
    tables = object_tables(folder, manifest, prefix, request.identifier)
    labelled, classes = read_labelled_names(folder), tuple(manifest.details.classes)
    sources = [ReviewSource(table, classes, labelled) for table in tables]
    drawn = (
        _chosen(sources, request) if request.budget is None else draw_budget(sources, classes, request, space)
    )
    identity = tables[0].identifier if tables else None
    files: list[Path] = []
    if not dry_run:
        key = identity or "id"
        files = write_lists(drawn.chosen, folder, key, classes, f"Review of {manifest.model}")
        if request.budget is not None:
            files += write_outlier_lists(
                drawn.outliers, folder, key, classes, f"Outliers of {manifest.model}"
            )
    return ReviewResult(
        status="planned" if dry_run else "done",
        model=manifest.model,
        out=folder,
        id=identity,
        n_classified=drawn.n_rows,
        top=sum(c.how == "top" for c in drawn.chosen),
        drawn=sum(c.how == "drawn" for c in drawn.chosen),
        outliers=len(drawn.outliers),
        remarks=(
            *(t.remark for t in tables if t.remark),
            *drawn.remarks,
            *_short_of_budget(drawn, request, sum(t.catalog.n_rows for t in tables)),
            *([] if labelled else [UNKNOWN]),
        ),
        files=tuple(files),
    )


def _short_of_budget(drawn: BudgetDraw, request: ReviewRequest, n_rows: int) -> list[str]:
    """Return why the list has fewer objects than were asked for, of `n_rows` in the folder; nothing if it has all."""
    if request.budget is None or len(drawn.chosen) >= request.budget:
        return []
    why = f"{n_rows - drawn.n_rows:,} of {n_rows:,} objects are left out, since the model was trained on them"
    if drawn.n_rows > len(drawn.chosen):
        why += "; of repeats and near-duplicates one is listed"
    return [f"the list has {len(drawn.chosen):,} objects, fewer than the budget of {request.budget:,}: {why}"]


def _chosen(sources: Sequence[ReviewSource], request: ReviewRequest) -> BudgetDraw:
    """Return the flagged objects and the drawn ones; no outliers."""
    best, largest, n, total = _survey(sources, request.n_top, request.draw)
    scale = _scale(largest, total, request.draw)
    drawn = [*_drawn(sources, scale, request.seed)] if request.draw else []
    # With their weight, top or not: without it the drawn ones stand for nothing.
    weighted = {c.name for c in drawn}
    return BudgetDraw([*(c for c in best if c.name not in weighted), *drawn], [], n, ())


def _survey(
    sources: Sequence[ReviewSource], top: int, draw: int
) -> tuple[list[Chosen], list[float], int, float]:
    """Return the least certain flagged objects, the largest values of the information, rows, and its sum."""
    heap: list[tuple[float, int, Chosen]] = []
    largest: list[float] = []
    n, total = 0, 0.0
    for source in sources:
        for rows in source.rows():
            total += float(rows.information.sum())
            largest = heapq.nlargest(draw, [*largest, *rows.information.tolist()])
            flagged = np.flatnonzero(rows.flags & WORTH_A_LOOK)
            order = flagged[np.argsort(rows.p_max[flagged], kind="stable")]
            first = _first_of_each(rows.names[order], top)
            entries = [
                (float(rows.p_max[i]), n + int(i), rows.chosen(int(i), "top", 1.0)) for i in order[first]
            ]
            heap = sorted([*heap, *entries], key=lambda entry: entry[:2])
            heap = [heap[i] for i in _first_of_each([entry[2].name for entry in heap], top)]
            n += len(rows.p_max)
    return [c for _, _, c in heap], largest, n, total


def _first_of_each(names: Iterable[str], most: int) -> list[int]:
    """Return where the first `most` different names are: what was observed twice is looked at once."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if len(first) == most:
            break
        first.setdefault(name, i)
    return [*first.values()]


def _scale(largest: Sequence[float], total: float, draw: int) -> float:
    """Return c of the inclusion probabilities min(1, m/c), which sum to the number to be drawn.

    What would be drawn more than once is drawn for certain, and shares no more.
    """
    for k, value in enumerate(largest):
        if total <= 0 or value * (draw - k) < total:
            return total / (draw - k)
        total -= value
    return 0.0


def _drawn(sources: Sequence[ReviewSource], scale: float, seed: int) -> Iterator[Chosen]:
    """Yield a systematic sample with those inclusion probabilities: one pass, and the number that was asked for."""
    passed = float(np.random.default_rng(seed).random())
    for source in sources:
        for rows in source.rows():
            m = rows.information
            share = np.minimum(1.0, m / scale) if scale > 0 else (m > 0).astype(float)
            marks = np.concatenate([[passed], passed + np.cumsum(share)])
            for i in np.flatnonzero(np.floor(marks[1:]) > np.floor(marks[:-1])):
                yield rows.chosen(int(i), "drawn", float(share[i]))
            passed = float(marks[-1] % 1.0)
