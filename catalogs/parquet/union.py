"""Parquet files that are unlike, as one catalogue: its columns, their types, and what a file lacks of them.

Releases are written file by file, and drift: a column that a file lacks is null in it, types widen, the order is the
first file's.  What files say of columns is compared once for all files that say the same, so that there may be many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.types as pt

from catalogs.arrays.common_types import common_type
from catalogs.catalog.catalog import Column
from catalogs.catalog.earlier_columns import annotated_names
from catalogs.catalog.same_units import require_same_units
from catalogs.errors import FormatError
from catalogs.parquet.metadata import DESCRIPTIONS, columns_of
from catalogs.remote.remote_file import RemoteFile

__all__ = ["Union", "View"]

Place = Path | RemoteFile

REMEDY = "open the files one by one, or use a pattern that matches fewer files"


@dataclass(frozen=True)
class View:
    """How a file is read as part of a catalogue: columns of another type there, and those that it lacks."""

    types: Mapping[str, pa.DataType]
    absent: frozenset[str]


@dataclass
class Known:
    """A column, as far as the files have told, the files that told its type and its unit, and whether they had rows."""

    column: Column
    typed: Place
    stated: Place
    empty: bool


@dataclass
class Kind:
    """Files that say the same of their columns: the first of them, and how many there are."""

    first: Place
    types: Mapping[str, pa.DataType]
    n_files: int = 0


@dataclass
class Union:
    """What files are together, told one after another; `pairs` are the first one's key-value metadata."""

    pairs: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    kinds: list[Kind] = field(default_factory=list)
    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    def add(self, place: Place, schema: pa.Schema, pairs: Mapping[str, str], *, empty: bool = False) -> int:
        """Return the number of the kind that a file is of; FormatError where it goes with none before it.

        The types of an `empty` file, which are a guess of its writer's, give way to those of others.
        """
        # Equal schemas may tell different units, the bytes of them do not.
        fields = schema.remove_metadata().serialize().to_pybytes()
        kind_key = (empty, fields, *(pairs.get(key) for key in DESCRIPTIONS), annotated_names(pairs))
        number = self.numbers.get(kind_key)
        if number is None:
            if not self.kinds:
                self.pairs = pairs
            elif annotated_names(pairs) != annotated_names(self.pairs):
                raise FormatError(
                    f"{self.kinds[0].first} and {place} cannot be read as one catalogue: both have the new "
                    f"columns of an annotation, but only one of them records that it was annotated; {REMEDY}"
                )
            number = self.numbers[kind_key] = len(self.kinds)
            columns = columns_of(schema, pairs)
            for column in columns:
                self.join(place, column, empty=empty)
            self.kinds.append(Kind(place, {c.name: c.datatype for c in columns}))
        self.kinds[number].n_files += 1
        return number

    def join(self, place: Place, column: Column, *, empty: bool) -> None:
        """Add what a file tells of a column."""
        known = self.known.get(column.name)
        if known is None:
            self.known[column.name] = Known(column, place, place, empty)
            return
        require_same_units(known.stated, [known.column], place, [column])
        if known.column.unit is None and column.unit is not None:
            known.stated = place
        datatype: pa.DataType | None
        if known.empty != empty:
            datatype = known.column.datatype if empty else column.datatype
        else:
            datatype = common_type(known.column.datatype, column.datatype)
        if datatype is None or is_reshaped(known.column, column):
            raise FormatError(
                f"{known.typed} and {place} cannot be read as one catalogue: '{column.name}' is {shown(known.column)} "
                f"in the first and {shown(column)} in the second; write it with one type in all files, or {REMEDY}"
            )
        if not datatype.equals(known.column.datatype):
            known.typed = place
        known.empty = known.empty and empty
        known.column = replace(
            known.column,
            datatype=datatype,
            unit=known.column.unit or column.unit,
            ucd=known.column.ucd or column.ucd,
            description=known.column.description or column.description,
            null=column.null if known.column.null is None else known.column.null,
            shape=(known.column.shape or column.shape) if pt.is_fixed_size_list(datatype) else (),
        )

    def columns(self) -> tuple[Column, ...]:
        """Return the columns, the first file's first; FormatError where a file is of another table."""
        usual = max(self.kinds, key=lambda kind: kind.n_files)
        for kind in self.kinds:
            shared = len(kind.types.keys() & usual.types.keys())
            if 2 * shared < max(len(kind.types), len(usual.types)):
                raise FormatError(
                    f"{usual.first} and {kind.first} cannot be read as one catalogue: of their {len(usual.types)} and "
                    f"{len(kind.types)} columns, {shared} have the same name, expected half of them or more; {REMEDY}"
                )
        return tuple(
            replace(k.column, absent=sum(kind.n_files for kind in self.kinds if name not in kind.types))
            for name, k in self.known.items()
        )

    def views(self) -> Sequence[View]:
        """Return how the files of each kind are read."""
        types = {name: known.column.datatype for name, known in self.known.items()}
        return [
            View(
                {name: t for name, t in types.items() if not t.equals(kind.types.get(name, pa.null()))},
                frozenset(types.keys() - kind.types.keys()),
            )
            for kind in self.kinds
        ]


def is_reshaped(one: Column, other: Column) -> bool:
    """Say whether two columns are of arrays that differ in shape though not in length."""
    return bool(one.shape and other.shape and one.shape != other.shape) and one.datatype.equals(
        other.datatype
    )


def shown(column: Column) -> str:
    """Return a column's type, with the shape of arrays."""
    return str(column.datatype) + (f" of shape {column.shape}" if len(column.shape) > 1 else "")
