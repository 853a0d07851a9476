"""Choose objects of annotated catalogues for a human look: the least certain of those flagged, and a drawn sample.

The highest mutual information alone collects outliers and noise; a draw in proportion to it, whose inclusion
probability is written down as a weight, stands for the whole catalogue.  Shapes: n rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from blr.decisions import Flag
from catalogs.arrays.values import batch_values, is_text
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError, nearest
from catalogs.sky.positions import PositionUnit, find_position_columns, positions, unit_of_position
from flows.errors import UsageError
from flows.inputs.table_choice import annotated_table
from flows.labels.reader import label_texts
from flows.labels.source import require_exact
from flows.reviews._files import Chosen, write_lists
from flows.reviews.request import ReviewRequest
from flows.runs.allowed_roots import check_output
from flows.runs.manifest import Manifest, ObjectColumns

__all__ = ["ReviewResult", "review"]

Floats = NDArray[np.float64]

WORTH_A_LOOK = int(
    Flag.LOW_CONFIDENCE | Flag.CLOSE_CALL | Flag.FLIPPED | Flag.OUT_OF_DOMAIN | Flag.UNCERTAIN_INPUT
)
ID_NAMES = ("id", "name", "objid", "object_id", "source_id", "objectid")
SCORES = ("class", "p_max", "mutual_info", "flags")


@dataclass(frozen=True, kw_only=True)
class ReviewResult:
    """Which objects were chosen for a human look, and where the lists are.

    `id` is the column that names an object, None where there are no catalogues.  `top` counts the flagged objects,
    `drawn` those drawn of all `n_classified`.  `files` is empty where nothing was written.
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
class _Columns:
    """Names of the columns of one catalogue."""

    identifier: str
    place: tuple[str, str] | None
    prefix: str
    unit: PositionUnit = "deg"
    remark: str = ""

    @property
    def read(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys([self.identifier, *(self.place or ()), *(self.prefix + name for name in SCORES)])
        )


@dataclass(frozen=True)
class _Rows:
    """Classified rows of a batch: texts and numbers, (n,) each."""

    names: NDArray[Any]
    classes: NDArray[Any]
    ra: Floats
    dec: Floats
    p_max: Floats
    information: Floats
    flags: NDArray[np.int64]

    def chosen(self, i: int, how: str, probability: float) -> Chosen:
        return Chosen(
            str(self.names[i]),
            float(self.ra[i]),
            float(self.dec[i]),
            str(self.classes[i]),
            float(self.p_max[i]),
            float(self.information[i]),
            int(self.flags[i]),
            how,
            1.0 / probability,
        )


def review(request: ReviewRequest, *, dry_run: bool = False) -> ReviewResult:
    """Write the review list of a folder that `classify` has written; return what was done.

    The `top` flagged objects, the least certain first, then `draw` of all that are classified, in proportion to their
    mutual information.
    """
    folder = check_output(request.out, key="out")
    manifest = Manifest.read(folder)
    if manifest is None or manifest.prefix is None:
        raise UsageError(
            f"{folder}: got a folder without a manifest, expected one of annotated catalogues; run `blr classify` "
            "with --out first"
        )
    # The margins of a HATS catalogue repeat objects of the other files.
    once = [output for output in manifest.outputs if not (output.summary and output.summary.repeats_rows)]
    opened = [annotated_table(manifest.prefix).open(folder / output.name) for output in once]
    known = manifest.details.position or ObjectColumns()
    columns = [_columns(c, manifest.prefix, request.identifier, known) for c in opened]
    pairs = list(zip(opened, columns, strict=True))
    best, largest, n, total = _survey(pairs, request.top, request.draw)
    scale = _scale(largest, total, request.draw)
    drawn = [*_drawn(pairs, scale, request.seed)] if request.draw else []
    # With their weight, top or not: without it the drawn ones stand for nothing.
    weighted = {c.name for c in drawn}
    chosen = [*(c for c in best if c.name not in weighted), *drawn]
    label = f"Review of {manifest.model}"
    identity = columns[0].identifier if columns else None
    return ReviewResult(
        status="planned" if dry_run else "done",
        model=manifest.model,
        out=folder,
        id=identity,
        n_classified=n,
        top=sum(c.how == "top" for c in chosen),
        drawn=sum(c.how == "drawn" for c in chosen),
        remarks=tuple(c.remark for c in columns if c.remark),
        files=() if dry_run else tuple(write_lists(chosen, folder, identity or "id", label)),
    )


def _columns(catalog: Catalog, prefix: str, identifier: str | None, known: ObjectColumns) -> _Columns:
    """Return the columns of a catalogue; `known` is what the specification says of identifier and position."""
    stated_id = [name for name in [known.id] if name in catalog.names]
    by_ucd = [c.name for c in catalog.columns if (c.ucd or "").lower().startswith("meta.id")]
    by_name = [c.name for c in catalog.columns if c.name.lower() in ID_NAMES]
    column = identifier or next(iter((*stated_id, *by_ucd, *by_name)), None)
    if column is None or column not in catalog.names:
        raise UsageError(
            f"{catalog.path}: got {'no column that names an object' if column is None else repr(column)}, expected "
            f"the column of the identifier; name it with --id; {nearest(column or 'id', catalog.names)}"
        )
    stated = (known.ra or "", known.dec or "")
    place = stated if {*stated} <= {*catalog.names} else find_position_columns(catalog)
    if place is None:
        return _Columns(column, None, prefix, remark=f"{catalog.path}: no columns of positions, so no links")
    unit = _unit(catalog, place, known.unit)
    if unit is not None:
        return _Columns(column, place, prefix, unit)
    # The list is of use without links, and a link to the wrong place of none.
    ra, dec = (f"'{name}' in '{catalog.column(name).unit or 'no unit'}'" for name in place)
    remark = (
        f"no links: {catalog.path}: got {ra} and {dec}, expected both in degrees, radians or sexagesimal text; "
        "correct their units, or train and classify with position_unit under [catalog]"
    )
    return _Columns(column, None, prefix, remark=remark)


def _unit(catalog: Catalog, place: tuple[str, str], stated: str | None) -> PositionUnit | None:
    """Return the unit that the columns state, else the specification's; None where neither can be read."""
    known = next((unit for unit in get_args(PositionUnit) if unit == stated), None)
    columns = [catalog.column(name) for name in place]
    if known is not None and not all(c.unit or is_text(c.datatype) for c in columns):
        return known
    try:
        return unit_of_position(catalog, *place)
    except CatalogError:
        return known


def _rows(catalog: Catalog, columns: _Columns) -> Iterator[_Rows]:
    """Yield the classified rows, batch by batch."""
    for batch in catalog.batches(columns.read):
        values = batch_values(batch, columns.read)
        require_exact(values[columns.identifier], f"{catalog.path}: --id", columns.identifier)
        name, p, information, flags = (values[columns.prefix + key] for key in SCORES)
        nowhere = np.full(batch.num_rows, np.nan)
        ra, dec = columns.place or (columns.identifier,) * 2
        place = positions(values[ra], values[dec], columns.unit) if columns.place else None
        kept = np.isfinite(p)
        yield _Rows(
            label_texts(values[columns.identifier])[kept],
            label_texts(name)[kept],
            (place.ra if place else nowhere)[kept],
            (place.dec if place else nowhere)[kept],
            np.asarray(p, dtype=np.float64)[kept],
            np.maximum(np.asarray(information, dtype=np.float64)[kept], 0.0),
            np.asarray(flags, dtype=np.int64)[kept],
        )


def _survey(
    pairs: Sequence[tuple[Catalog, _Columns]], top: int, draw: int
) -> tuple[list[Chosen], list[float], int, float]:
    """Return the least certain flagged objects, the largest values of the information, rows, and its sum."""
    heap: list[tuple[float, int, Chosen]] = []
    largest: list[float] = []
    n, total = 0, 0.0
    for catalog, columns in pairs:
        for rows in _rows(catalog, columns):
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


def _drawn(pairs: Sequence[tuple[Catalog, _Columns]], scale: float, seed: int) -> Iterator[Chosen]:
    """Yield a systematic sample with those inclusion probabilities: one pass, and the number that was asked for."""
    passed = float(np.random.default_rng(seed).random())
    for catalog, columns in pairs:
        for rows in _rows(catalog, columns):
            m = rows.information
            share = np.minimum(1.0, m / scale) if scale > 0 else (m > 0).astype(float)
            marks = np.concatenate([[passed], passed + np.cumsum(share)])
            for i in np.flatnonzero(np.floor(marks[1:]) > np.floor(marks[:-1])):
                yield rows.chosen(int(i), "drawn", float(share[i]))
            passed = float(marks[-1] % 1.0)
