"""The data of a map: classified rows with positions and quantities, and objects whose class is known.

Shapes: n rows, F quantities.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import catalogs
from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import safe_name
from catalogs.errors import CatalogError, nearest
from catalogs.expressions.expression import Expression, parse
from catalogs.fits.healpix import Frame, HealpixMap, nested_pixels, read_healpix
from catalogs.sky.positions import PositionUnit, find_position_columns, positions, unit_of_position
from flows.errors import UsageError
from flows.runs.manifest import ObjectColumns

__all__ = [
    "KnownObjects",
    "MapColumns",
    "MapRows",
    "map_columns",
    "map_rows",
    "read_known",
    "sky_maps",
]

Array = np.ndarray[Any, Any]
Floats = NDArray[np.float64]

OPTIONAL = ("weight", "inclusion_probability", "how")
"""Columns of lists of objects that say how an object came into it."""
OTHER = "other"
"""The answer for an object that is of no class of the model."""
UNDECIDED = ("", "?")

SKY_MAP = re.compile(
    r"(?P<name>[A-Za-z_]\w*)=(?P<path>[^#@]+?)(?:#(?P<column>[^@]+))?(?:@(?P<frame>\w+))?", re.ASCII
)


def sky_maps(texts: Sequence[str]) -> dict[str, HealpixMap]:
    """Return the maps that NAME=FILE#COLUMN@FRAME name; UsageError where a text says something else."""
    maps = {}
    for text in texts:
        match = SKY_MAP.fullmatch(text)
        frames = get_args(Frame)
        if match is None or match["frame"] not in (None, *frames):
            raise UsageError(
                f"--sky-map: got '{text}', expected NAME=FILE, NAME=FILE#COLUMN or NAME=FILE@FRAME, the frame one of "
                f"{', '.join(frames)}"
            )
        if match["name"] in maps:
            raise UsageError(
                f"--sky-map: got the name '{match['name']}' twice, expected each name once; rename one map"
            )
        frame = next((f for f in frames if f == match["frame"]), None)
        maps[match["name"]] = read_healpix(Path(match["path"]), column=match["column"], frame=frame)
    return maps


@dataclass(frozen=True)
class MapColumns:
    """The columns that are read from one annotated catalogue."""

    identifier: str | None
    ra: str
    dec: str
    unit: PositionUnit
    p: str
    assigned: str
    over: tuple[Expression, ...]
    maps: Mapping[str, HealpixMap]

    @property
    def read(self) -> tuple[str, ...]:
        """The names of the columns."""
        own = {name for e in self.over for name in e.names}.difference(self.maps)
        named = [self.identifier] if self.identifier else []
        return tuple(dict.fromkeys([*named, self.ra, self.dec, self.p, self.assigned, *sorted(own)]))


def map_columns(
    catalog: Catalog,
    *,
    prefix: str,
    class_name: str,
    identifier: str | None,
    known: ObjectColumns,
    over: Sequence[str],
    maps: Mapping[str, HealpixMap],
) -> MapColumns:
    """Return the columns of a catalogue; UsageError where there is no position, or an expression names no column."""
    stated = (known.ra or "", known.dec or "")
    place = stated if {*stated} <= {*catalog.names} else find_position_columns(catalog)
    if place is None:
        raise UsageError(
            f"{catalog.path}: got no columns of positions, expected right ascension and declination; state "
            "'catalog.ra' and 'catalog.dec' in the specification, and classify again"
        )
    ra, dec = place
    stated_unit = next((u for u in get_args(PositionUnit) if u == known.unit), None)
    try:
        unit = unit_of_position(catalog, ra, dec)
    except CatalogError:
        if stated_unit is None:
            raise
        unit = stated_unit
    expressions = tuple(parse(text) for text in over)
    for expression in expressions:
        expression.check_names([*catalog.names, *maps])
    if clash := sorted({*maps} & {*catalog.names}):
        raise UsageError(
            f"--sky-map: got '{clash[0]}', which is a column of {catalog.path}; choose another name"
        )
    name = identifier or known.id
    if identifier is not None and identifier not in catalog.names:
        raise UsageError(
            f"--id: got '{identifier}', expected a column of {catalog.path}; {nearest(identifier, catalog.names)}"
        )
    return MapColumns(
        identifier=name if name in catalog.names else None,
        ra=ra,
        dec=dec,
        unit=unit,
        p=f"{prefix}p_{safe_name(class_name)}",
        assigned=f"{prefix}class",
        over=expressions,
        maps=maps,
    )


@dataclass(frozen=True, eq=False)
class MapRows:
    """Classified rows with a position.

    Nested pixel (n,), probability of the class (n,), whether it is selected (n,), quantities (n, F), NaN for missing,
    and identifiers (n,), None where the copies have none.
    """

    pixel: NDArray[np.int64]
    p: Floats
    selected: NDArray[np.bool_]
    X: Floats
    names: Array | None

    def __getitem__(self, chosen: Any) -> MapRows:
        names = None if self.names is None else self.names[chosen]
        return MapRows(self.pixel[chosen], self.p[chosen], self.selected[chosen], self.X[chosen], names)

    def __len__(self) -> int:
        return len(self.p)


def map_rows(
    catalog: Catalog, columns: MapColumns, *, class_name: str, order: int, threshold: float | None
) -> Iterator[MapRows]:
    """Yield the rows of a catalogue, batch by batch."""
    for batch in catalog.batches(columns.read):
        values = batch_values(batch, columns.read)
        place = positions(values[columns.ra], values[columns.dec], columns.unit)
        p = np.asarray(np.ma.filled(values[columns.p].astype(np.float64), np.nan))
        pixel = nested_pixels(place.ra, place.dec, order)
        kept = np.isfinite(p) & (pixel >= 0)
        seen = {**values, **{name: sky.at(place.ra, place.dec) for name, sky in columns.maps.items()}}
        X = [np.asarray(e.evaluate(seen), dtype=np.float64) for e in columns.over]
        wanted = _texts(values[columns.assigned]) == class_name if threshold is None else p >= threshold
        names = None if columns.identifier is None else _texts(values[columns.identifier])[kept]
        matrix = np.column_stack(X) if X else np.empty((batch.num_rows, 0))
        yield MapRows(
            pixel[kept], p[kept], wanted[kept], np.where(np.isfinite(matrix), matrix, np.nan)[kept], names
        )


def _texts(values: Array) -> Array:
    """Return values (n,) as texts, '' where one is missing; an identifier is the same text whatever its type."""
    if isinstance(values, np.ma.MaskedArray):
        gone, plain = np.ma.getmaskarray(values), np.ma.getdata(values)
    else:
        gone, plain = np.zeros(len(values), dtype=bool), values
    texts = np.array(["" if v is None else str(v).strip() for v in plain.tolist()], dtype=object)
    texts[gone] = ""
    return texts


@dataclass(frozen=True)
class KnownObjects:
    """Objects whose class is known: by their identifier, the class and how many objects each stands for.

    `unanswered` rows of the table have no class; `chosen` ones were picked and not drawn, so that they stand for
    nobody else.
    """

    classes: Mapping[str, str]
    weights: Mapping[str, float]
    unanswered: int
    chosen: int


def read_known(path: Path, *, label: str, identifier: str, classes: Sequence[str]) -> KnownObjects:
    """Return the objects of a table; UsageError where a column or a class is unknown, or two answers differ."""
    catalog = catalogs.open(path)
    for flag, name in (("--label", label), ("--id", identifier)):
        if name not in catalog.names:
            raise UsageError(
                f"{flag}: got '{name}', expected a column of {path}; {nearest(name, catalog.names)}"
            )
    optional = [name for name in OPTIONAL if name in catalog.names and name not in (label, identifier)]
    found: dict[str, str] = {}
    weights: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for batch in catalog.batches([identifier, label, *optional]):
        for name, said, weight, how in _answers(batch, identifier, label, optional):
            if said in UNDECIDED:
                counts["unanswered"] += 1
                continue
            if how == "top":
                counts["chosen"] += 1
                continue
            if said not in (*classes, OTHER):
                raise UsageError(
                    f"{path}: got the class '{said}' of {name}, expected '{OTHER}' or one of the model's: "
                    f"{', '.join(classes)}; {nearest(said, classes)}"
                )
            if found.setdefault(name, said) != said:
                raise UsageError(
                    f"{path}: got '{found[name]}' and '{said}' for {name}, expected one class for each "
                    "object; correct the table"
                )
            weights[name] = weight
    return KnownObjects(found, weights, counts["unanswered"], counts["chosen"])


def _answers(
    batch: pa.RecordBatch, identifier: str, label: str, optional: Sequence[str]
) -> Iterator[tuple[str, str, float, str]]:
    values = batch_values(batch, [identifier, label, *optional])
    n = batch.num_rows
    weight = np.ones(n)
    for name in [n for n in optional if n != "how"][:1]:
        weight = np.asarray(np.ma.filled(values[name].astype(np.float64), np.nan))
        weight = weight if name == "weight" else 1 / np.where(weight > 0, weight, np.nan)
    if np.any(~(weight > 0) | np.isinf(weight)):
        raise UsageError(
            f"got {int(np.sum(~(weight > 0) | np.isinf(weight)))} weights that are not positive and finite, expected "
            "1 / (probability of being drawn); correct the column of weights or probabilities, or leave it out"
        )
    how = _texts(values["how"]) if "how" in optional else np.full(n, "")
    rows = zip(_texts(values[identifier]), _texts(values[label]), weight.tolist(), how, strict=True)
    yield from ((str(a), str(b), c, str(d)) for a, b, c, d in rows)
