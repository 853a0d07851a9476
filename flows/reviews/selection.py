"""Choose objects of annotated catalogues for a human look: the least certain of those flagged, and a drawn sample.

The highest mutual information alone collects outliers and noise; a draw in proportion to it, whose inclusion
probability is written down as a weight, stands for the whole catalogue.  Shapes: n rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from blr.decisions import FLAG_MEANINGS, Flag
from catalogs.arrays.values import batch_values
from catalogs.catalog.new_columns import safe_name
from catalogs.sky.positions import positions
from flows.labels.reader import label_texts
from flows.labels.source import require_exact
from flows.reviews._files import Chosen, write_lists
from flows.reviews._objects import ObjectTable, annotated_manifest, object_tables
from flows.reviews.request import ReviewRequest
from flows.runs.allowed_roots import check_output
from flows.runs.labelled import LabelledNames, read_labelled_names

__all__ = ["ReviewResult", "review"]

Floats = NDArray[np.float64]

WORTH_A_LOOK = int(
    Flag.LOW_CONFIDENCE | Flag.CLOSE_CALL | Flag.FLIPPED | Flag.OUT_OF_DOMAIN | Flag.UNCERTAIN_INPUT
)
SCORES = ("class", "p_max", "mutual_info", "flags")
UNKNOWN = (
    "objects that have a label may be among them: the folder has no names of labelled objects; train and classify "
    "again with [catalog] id"
)


@dataclass(frozen=True, kw_only=True)
class ReviewResult:
    """Which objects were chosen for a human look, and where the lists are.

    `id` is the column that names an object, None where there are no catalogues.  `top` counts the flagged objects,
    `drawn` those drawn of all `n_classified` that have no label.  `files` is empty where nothing was written.
    """

    status: Literal["planned", "done"]
    model: str
    out: Path
    id: str | None
    n_classified: int
    top: int
    drawn: int
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


@dataclass(frozen=True)
class _Rows:
    """Classified rows of a batch: texts and numbers, (n,) each."""

    names: NDArray[Any]
    classes: NDArray[Any]
    ra: Floats
    dec: Floats
    p_max: Floats
    runner_up: NDArray[Any]
    p_runner_up: Floats
    information: Floats
    flags: NDArray[np.int64]

    def chosen(self, i: int, how: str, probability: float) -> Chosen:
        return Chosen(
            str(self.names[i]),
            float(self.ra[i]),
            float(self.dec[i]),
            str(self.classes[i]),
            float(self.p_max[i]),
            str(self.runner_up[i]),
            float(self.p_runner_up[i]),
            float(self.information[i]),
            int(self.flags[i]),
            ", ".join(str(flag.name) for flag in FLAG_MEANINGS if int(self.flags[i]) & int(flag.value)),
            how,
            1.0 / probability,
        )


def review(request: ReviewRequest, *, dry_run: bool = False) -> ReviewResult:
    """Write the review list of a folder that `classify` has written; return what was done.

    The `top` flagged objects, the least certain first, then `draw` of all that are classified, in proportion to their
    mutual information.  Objects that the model was trained on are in neither.
    """
    folder = check_output(request.out, key="out")
    manifest, prefix = annotated_manifest(folder)
    tables = object_tables(folder, manifest, prefix, request.identifier)
    labelled, classes = read_labelled_names(folder), tuple(manifest.details.classes)
    sources = [_Source(table, classes, labelled) for table in tables]
    best, largest, n, total = _survey(sources, request.top, request.draw)
    scale = _scale(largest, total, request.draw)
    drawn = [*_drawn(sources, scale, request.seed)] if request.draw else []
    # With their weight, top or not: without it the drawn ones stand for nothing.
    weighted = {c.name for c in drawn}
    chosen = [*(c for c in best if c.name not in weighted), *drawn]
    label = f"Review of {manifest.model}"
    identity = tables[0].identifier if tables else None
    return ReviewResult(
        status="planned" if dry_run else "done",
        model=manifest.model,
        out=folder,
        id=identity,
        n_classified=n,
        top=sum(c.how == "top" for c in chosen),
        drawn=sum(c.how == "drawn" for c in chosen),
        remarks=(*(t.remark for t in tables if t.remark), *([] if labelled else [UNKNOWN])),
        files=() if dry_run else tuple(write_lists(chosen, folder, identity or "id", classes, label)),
    )


@dataclass(frozen=True)
class _Source:
    """A catalogue to choose from, the classes of its model, and the objects that have a label."""

    table: ObjectTable
    classes: tuple[str, ...]
    labelled: LabelledNames | None

    def rows(self) -> Iterator[_Rows]:
        """Yield the classified rows of objects without a label, batch by batch."""
        table, prefix = self.table, self.table.prefix
        chances = [f"{prefix}p_{safe_name(name)}" for name in self.classes]
        read = table.read(*(prefix + name for name in SCORES), *chances)
        for batch in table.catalog.batches(read):
            values = batch_values(batch, read)
            require_exact(values[table.identifier], f"{table.catalog.path}: --id", table.identifier)
            name, p, information, flags = (values[prefix + key] for key in SCORES)
            nowhere = np.full(batch.num_rows, np.nan)
            ra, dec = table.place or (table.identifier,) * 2
            place = positions(values[ra], values[dec], table.unit) if table.place else None
            names = label_texts(values[table.identifier])
            kept = np.isfinite(p) if self.labelled is None else np.isfinite(p) & ~self.labelled.among(names)
            runner_up, p_runner_up = self._second(
                [values[column][kept] for column in chances], int(kept.sum())
            )
            yield _Rows(
                names[kept],
                label_texts(name)[kept],
                (place.ra if place else nowhere)[kept],
                (place.dec if place else nowhere)[kept],
                np.asarray(p, dtype=np.float64)[kept],
                runner_up,
                p_runner_up,
                np.maximum(np.asarray(information, dtype=np.float64)[kept], 0.0),
                np.asarray(flags, dtype=np.int64)[kept],
            )

    def _second(self, chances: Sequence[Floats], n: int) -> tuple[NDArray[Any], Floats]:
        """Return the second most probable class (n,) and its probability (n,); of classes that are not known, none."""
        if len(chances) < 2:
            return np.full(n, "", dtype=object), np.full(n, np.nan)
        p = np.stack([np.asarray(values, dtype=np.float64) for values in chances], axis=1)
        second = np.argsort(p, axis=1, kind="stable")[:, -2]
        return np.array(self.classes, dtype=object)[second], np.take_along_axis(p, second[:, None], axis=1)[
            :, 0
        ]


def _survey(sources: Sequence[_Source], top: int, draw: int) -> tuple[list[Chosen], list[float], int, float]:
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


def _drawn(sources: Sequence[_Source], scale: float, seed: int) -> Iterator[Chosen]:
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
