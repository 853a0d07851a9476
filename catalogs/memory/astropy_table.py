"""Astropy tables as Arrow tables, and back with new columns; what changes on the way is said."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from astropy.table import Column, MaskedColumn, Table
from astropy.table.meta import get_yaml_from_table
from astropy.table.serialize import represent_mixins_as_columns
from astropy.utils.data_info import serialize_context_as
from yaml import YAMLError

from catalogs.catalog.catalog import NewValues
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import FormatError
from catalogs.metadata.astropy_header import (
    ASTROPY,
    ASTROPY_LENGTH,
    SERIALIZED,
    arrow_array,
    change,
    pairs_in,
)
from catalogs.metadata.fits_cards import meta_provenance, with_provenance, without_provenance
from catalogs.parquet.metadata import SHAPE


@dataclass(frozen=True)
class Stored:
    """A table as Parquet holds it.

    `changed` says what columns become, `left_behind` what is not kept at all, `read_back` of which columns the table's
    own library makes others when it reads the file.
    """

    table: pa.Table
    changed: Mapping[str, str] = field(default_factory=dict)
    left_behind: tuple[str, ...] = ()
    read_back: Mapping[str, str] = field(default_factory=dict)


REMEDY = "catalogs.annotate_table keeps masks"


@dataclass(frozen=True)
class AstropyTable:
    """A table of astropy's; times, coordinates and quantities are the columns that astropy stores them in."""

    table: Table

    @cached_property
    def plain(self) -> Table:
        """The table with columns of arrays only; its `meta` says how the others are made of them again.

        Masks of times and quantities are columns too, as in astropy's own Parquet, which could not do without.
        """
        structured = any(c.info.dtype is not None and c.info.dtype.names for c in self.table.itercols())
        try:
            with serialize_context_as(None if structured else "parquet"):
                return represent_mixins_as_columns(self.table, () if structured else (MaskedColumn,))
        except (TypeError, ValueError) as error:
            raise FormatError(
                f"got an astropy table that astropy cannot write to a file: {' '.join(str(error).split())}; "
                "expected columns that `Table.write` takes: rename or convert them"
            ) from error

    @cached_property
    def masks(self) -> dict[str, str]:
        """The parts of times and quantities that have masks, and the columns that these are."""
        serialized = self.plain.meta.get(SERIALIZED, {})
        return {data: mask for column in serialized.values() for data, mask in pairs_in(column)}

    def values(self, column: Column) -> np.ma.MaskedArray[Any, Any]:
        """Return the values of a column of arrays, masked."""
        if is_blank_filled(column):
            return np.ma.asanyarray(column.filled().data)
        if column.name in self.masks:
            return np.ma.MaskedArray(column.data, self.plain[self.masks[column.name]].data)
        return np.ma.asanyarray(column.data)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self.plain.colnames)

    @property
    def provenance(self) -> dict[str, str]:
        """What earlier annotations left in `meta`."""
        return meta_provenance(self.table.meta)

    def arrow(self, names: Sequence[str]) -> pa.Table:
        """Return those columns: units, UCDs and descriptions as field metadata."""
        columns = [self.plain[name] for name in names]
        arrays = [flattened(as_arrow(c, self.values(c))) for c in columns]
        fields = [arrow_field(c, array) for c, array in zip(columns, arrays, strict=True)]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def stored(self) -> Stored:
        """Return all columns, with astropy's own words on the table, from which it makes times and the like again."""
        left = [
            f"the index of {', '.join(index.id)} is left out: `Table.add_index` makes it again"
            for index in self.table.indices
        ]
        described = Table(self.plain, copy=False)
        described.meta = keepable(without_provenance(self.plain.meta), left, "the table's metadata")
        for c in described.itercols():
            c.meta = keepable(c.meta, left, f"'{c.name}': its metadata")
        table = self.arrow(self.names)
        pairs = {ASTROPY: "\n".join(get_yaml_from_table(described)), **self.provenance}
        pairs |= {
            # Where it is told and texts are null, astropy reads 'None'; where it is not, astropy refuses them.
            ASTROPY_LENGTH + c.name: str(width(c.dtype))
            for c in described.itercols()
            if c.dtype.kind in "SU" and not table[c.name].null_count
        }
        changed = {c.name: what for c in self.plain.itercols() if (what := change(np.ma.asanyarray(c.data)))}
        read_back = dict(self.read_back(table.schema))
        return Stored(table.replace_schema_metadata(pairs), changed, tuple(left), read_back)

    def read_back(self, stored: pa.Schema) -> Iterator[tuple[str, str]]:
        """Yield the columns of which astropy's reader of Parquet makes others, and which."""
        mixins = {c.info.name for c in self.table.itercols() if type(c) not in {Column, MaskedColumn}}
        for c in self.plain.itercols():
            if what := as_read_back(c, stored.field(c.name), part=c.name.partition(".")[0] in mixins):
                yield c.name, what

    def annotated(
        self,
        columns: Sequence[NewColumn],
        values: NewValues,
        replaced: Collection[str],
        provenance: Mapping[str, str],
    ) -> Table:
        """Return a copy of the table without the columns `replaced`, with the new ones behind the others."""
        table = self.table.copy()
        table.remove_columns([name for name in table.colnames if name in replaced])
        for c in columns:
            about = {"unit": c.unit, "description": c.description, "meta": {"ucd": c.ucd} if c.ucd else None}
            table[c.name] = Column(values[c.name], **about)
        table.meta = with_provenance(table.meta, provenance)
        return table


def width(dtype: np.dtype[Any]) -> int:
    """Return how many characters a text has room for."""
    return dtype.itemsize // (4 if dtype.kind == "U" else 1)


def as_read_back(column: Column, stored: pa.Field, *, part: bool) -> str | None:
    """Return what `Table.read` makes of a column in Parquet, which may be part of another; None if what it was."""
    if np.any(np.ma.getmaskarray(column)):
        if is_blank_filled(column):
            return f"astropy's Table.read returns it with empty texts in place of masked values; {REMEDY}"
        if part or column.dtype.kind in "SUO":
            return f"astropy's Table.read cannot read a copy with masked values in it; {REMEDY}"
        kind = {"f": "", "b": "as objects, "}.get(column.dtype.kind, "as floats, ")
        return f"astropy's Table.read returns it {kind}with NaN in place of masked values; {REMEDY}"
    if column.ndim > 2:
        return "astropy's Table.read returns it with its elements in one row"
    if column.dtype.kind == "O" and not is_list(stored.type):
        return f"astropy's Table.read returns it as {stored.type}, or cannot read it"
    return None


def as_arrow(column: Column, values: np.ma.MaskedArray[Any, Any]) -> pa.Array:
    """Return a column's values as Arrow."""
    try:
        return arrow_array(values)
    except (pa.ArrowException, ValueError, TypeError, RecursionError) as error:
        raise FormatError(
            f"'{column.name}', of {column.dtype}, has no single type that Arrow knows: "
            f"{' '.join(str(error).split())}; expected numbers, texts, or arrays of one kind: convert or "
            "remove the column"
        ) from error


def is_blank_filled(column: Column) -> bool:
    """Say whether empty text stands for what is masked, as in FITS, whose file then gives the same."""
    texts = column.dtype.kind in "SU" and isinstance(column, MaskedColumn)
    return texts and column.fill_value in {"", b""}


def is_list(datatype: pa.DataType) -> bool:
    """Say whether cells are lists of plain values."""
    return bool(pa.types.is_list(datatype) and not pa.types.is_nested(datatype.value_type))


def flattened(array: pa.Array) -> pa.Array:
    """Return vectors of several dimensions as flat ones, as astropy's own Parquet has them."""
    if not pa.types.is_fixed_size_list(array.type) or not pa.types.is_fixed_size_list(array.type.value_type):
        return array
    inner, size = array, 1
    while pa.types.is_fixed_size_list(inner.type):
        size *= inner.type.list_size
        inner = inner.values
    return pa.FixedSizeListArray.from_arrays(inner, size)


def arrow_field(column: Column, array: pa.Array) -> pa.Field:
    """Return an Arrow field with what is known of a column."""
    shape = (*column.shape[1:], *([2] if column.dtype.kind == "c" else []))
    known = {
        "unit": str(column.unit or ""),
        "ucd": str(column.meta.get("ucd") or ""),
        "description": column.description or "",
        SHAPE: ",".join(map(str, shape)) if len(shape) > 1 else "",
    }
    return pa.field(column.name, array.type, metadata={k: v for k, v in known.items() if v})


def keepable(meta: Mapping[str, Any], left: list[str], what: str) -> dict[str, Any]:
    """Return the metadata that YAML can hold; tell of the others."""
    kept = {}
    for key, value in meta.items():
        try:
            get_yaml_from_table(Table(meta={key: value}))
        except (YAMLError, TypeError, ValueError):
            left.append(
                f"{what} '{key}', of type {type(value).__name__}, are left out, since YAML cannot hold them"
            )
        else:
            kept[key] = value
    return kept
