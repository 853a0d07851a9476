"""The objects of annotated files, and the population that an audit draws from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.values import batch_values, is_text
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import safe_name
from catalogs.errors import CatalogError, ColumnNotFoundError
from catalogs.expressions.expression import Expression, even_edges, names_between, places_between
from catalogs.formats import annotated_table
from catalogs.sky.positions import PositionUnit, find_position_columns, positions, unit_of_position
from flows.errors import UsageError
from flows.labels.reader import label_texts, require_exact
from flows.runs.manifest import Manifest, ObjectColumns
from flows.runs.object_names import identifier_column

__all__ = [
    "MISSING",
    "Bins",
    "ClassifiedRows",
    "ObjectTable",
    "ValueSample",
    "annotated_manifest",
    "check_expression",
    "classified_rows",
    "object_tables",
]

# The annotated catalogues of an output folder, and their columns of identifier and position.


def annotated_manifest(folder: Path) -> tuple[Manifest, str]:
    """Return the manifest of a folder and the prefix of its new columns; UsageError where nothing was classified."""
    manifest = Manifest.read(folder)
    if manifest is None or manifest.prefix is None:
        raise UsageError(
            f"{folder}: got a folder without a manifest, expected a folder of annotated catalogues; run `blr "
            "classify` with --out first"
        )
    return manifest, manifest.prefix


@dataclass(frozen=True)
class ObjectTable:
    """An annotated catalogue, with the names of the columns that say which object a row is of, and where it is.

    `remark` says why there are no positions.
    """

    catalog: Catalog
    identifier: str
    place: tuple[str, str] | None
    prefix: str
    unit: PositionUnit = "deg"
    remark: str = ""

    def read(self, *columns: str) -> tuple[str, ...]:
        """Return the names of the columns of objects, and of those besides."""
        return tuple(dict.fromkeys([self.identifier, *(self.place or ()), *columns]))


def object_tables(folder: Path, manifest: Manifest, prefix: str, identifier: str | None) -> list[ObjectTable]:
    """Return the catalogues of a folder, each row once; UsageError where no column names an object."""
    # The margins of a HATS catalogue repeat objects of the other files.
    once = [output for output in manifest.outputs if not (output.summary and output.summary.repeats_rows)]
    known = manifest.position or ObjectColumns()
    opened = [annotated_table(prefix).open(folder / output.name) for output in once]
    return [_object_table(catalog, prefix, identifier, known) for catalog in opened]


def _object_table(catalog: Catalog, prefix: str, identifier: str | None, known: ObjectColumns) -> ObjectTable:
    """Return the columns of a catalogue; `known` is what the specification says of identifier and position."""
    column = identifier_column(catalog, asked=identifier, stated=known.id, option="--id")
    stated = (known.ra or "", known.dec or "")
    place = stated if {*stated} <= {*catalog.names} else find_position_columns(catalog)
    if place is None:
        return ObjectTable(
            catalog, column, None, prefix, remark=f"{catalog.path}: no columns of positions, so no links"
        )
    unit = _unit(catalog, place, known.unit)
    if unit is not None:
        return ObjectTable(catalog, column, place, prefix, unit)
    # A list without links is useful; a link to the wrong place is not.
    ra, dec = (f"'{name}' in '{catalog.column(name).unit or 'no unit'}'" for name in place)
    remark = (
        f"no links: {catalog.path}: got {ra} and {dec}, expected both in degrees, radians or sexagesimal text; "
        "correct their units, or train and classify with position_unit under [catalog]"
    )
    return ObjectTable(catalog, column, None, prefix, remark=remark)


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


# The classified rows of annotated catalogues as an audit draws from them: class, probabilities, and a bin.
#
# Shapes: n rows, K classes.

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

MISSING = "missing"
"""The bin of the rows where the expression has no value."""
MOST_KINDS = 20
"""Most bins of an expression whose values are texts or conditions."""
SAMPLED = 100_000
"""Values from which the edges between bins of as many objects are estimated."""


@dataclass(frozen=True, eq=False)
class ClassifiedRows:
    """Rows of a batch: names and place, the class given (n,), probabilities (n, K), values of the expression (n,)."""

    names: NDArray[Any]
    ra: Floats
    dec: Floats
    given: Places
    probability: Floats
    by: NDArray[Any] | None


def classified_rows(
    table: ObjectTable, classes: Sequence[str], by: Expression | None
) -> Iterator[ClassifiedRows]:
    """Yield the rows that have a class, batch by batch; UsageError where a column of the expression is not there."""
    catalog, prefix = table.catalog, table.prefix
    if by is not None:
        check_expression(by, catalog)
    columns = [f"{prefix}p_{safe_name(name)}" for name in classes]
    index = {name: k for k, name in enumerate(classes)}
    read = table.read(f"{prefix}class", *columns, *(by.names if by else ()))
    for batch in catalog.batches(read):
        values = batch_values(batch, read)
        require_exact(values[table.identifier], f"{catalog.path}: --id", table.identifier)
        p = np.column_stack([np.asarray(values[name], dtype=np.float64) for name in columns])
        nowhere = np.full(batch.num_rows, np.nan)
        ra, dec = table.place or (table.identifier,) * 2
        place = positions(values[ra], values[dec], table.unit) if table.place else None
        kept = np.isfinite(p).all(axis=1)
        given = [index.get(name, -1) for name in label_texts(values[f"{prefix}class"])[kept].tolist()]
        yield ClassifiedRows(
            label_texts(values[table.identifier])[kept],
            (place.ra if place else nowhere)[kept],
            (place.dec if place else nowhere)[kept],
            np.where(np.array(given, dtype=np.intp) < 0, p[kept].argmax(axis=1), given),
            p[kept],
            by.evaluate_batch(batch)[kept] if by else None,
        )


def check_expression(by: Expression, catalog: Catalog) -> None:
    """Raise `UsageError` where a catalogue lacks a column of the expression."""
    try:
        by.check_names(catalog.names)
    except ColumnNotFoundError as error:
        raise UsageError(
            f"--by: {catalog.path}: {error}; slim copies have identifier, position and new columns only; "
            'write full copies with mode = "annotated" under [output]'
        ) from error


@dataclass
class ValueSample:
    """Values of an expression that went by: how often each text, or a random sample of the numbers."""

    rng: np.random.Generator
    keys: Floats
    numbers: Floats
    kinds: Counter[str]
    n_missing: int = 0

    @classmethod
    def empty(cls, rng: np.random.Generator) -> ValueSample:
        """Return a sample of nothing."""
        return cls(rng, np.empty(0), np.empty(0), Counter())

    def add(self, values: NDArray[Any]) -> None:
        """Take the values of a batch (n,)."""
        if values.dtype.kind in "fiu":
            numbers = np.asarray(values, dtype=np.float64)
            known = np.isfinite(numbers)
            self.n_missing += int(np.count_nonzero(~known))
            keys = np.concatenate([self.keys, self.rng.random(int(known.sum()))])
            both = np.concatenate([self.numbers, numbers[known]])
            kept = np.argsort(keys, kind="stable")[:SAMPLED]
            self.keys, self.numbers = keys[kept], both[kept]
            return
        texts = label_texts(values).tolist()
        self.kinds.update(text or MISSING for text in texts)
        if len(self.kinds) > MOST_KINDS:
            raise UsageError(
                f"--by: got an expression with more than {MOST_KINDS} different texts, expected a number, a "
                "condition, or a few texts; group them in a condition such as field in ['A', 'B']"
            )


@dataclass(frozen=True)
class Bins:
    """The bins of an expression: by `edges` between numbers, or one for each of the `kinds`; `names` in order."""

    names: tuple[str, ...] = ("",)
    edges: tuple[float, ...] = ()
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, sample: ValueSample, n: int, edges: Sequence[float] | None) -> Bins:
        """Return `n` bins of about as many objects each, or those between the edges; UsageError where there is one."""
        if sample.kinds:
            kinds = tuple(sorted(sample.kinds))
            return cls(tuple(f"{text}: {kind}" for kind in kinds), (), kinds)
        edges = even_edges(sample.numbers, n) if edges is None else tuple(edges)
        names = names_between(edges, text)
        if len(set(names)) < 2:
            raise UsageError(
                f"--by: got '{text}', which has the same value in all rows, expected an expression that "
                "varies; leave --by out"
            )
        return cls((*names, *([f"{text}: {MISSING}"] if sample.n_missing else [])), edges)

    def places(self, values: NDArray[Any] | None, n: int) -> Places:
        """Return the bin (n,) of each value."""
        if values is None:
            return np.zeros(n, dtype=np.intp)
        if self.kinds:
            index = {kind: i for i, kind in enumerate(self.kinds)}
            return np.array([index[text or MISSING] for text in label_texts(values).tolist()], dtype=np.intp)
        numbers = np.asarray(values, dtype=np.float64)
        return places_between(self.edges, numbers, missing=len(self.names) - 1)
