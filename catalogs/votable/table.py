"""VOTable: any serialisation in, BINARY2 out (TABLEDATA where a field is one bit, which STILTS reads there only).

Rows are read a piece at a time, whatever the size; all else is read by astropy, and kept: other tables, resources,
parameters, groups, coordinate systems.
https://www.ivoa.net/documents/VOTable/
"""

from __future__ import annotations

import codecs
import contextlib
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from astropy.io.votable.tree import Field, TableElement, VOTableFile

from catalogs.catalog.catalog import BATCH_ROWS, Annotation, Catalog, Column, exactly
from catalogs.catalog.computing import each_batch
from catalogs.errors import CatalogError, ColumnNotFoundError, DamagedFileError, FormatError, nearest
from catalogs.files.atomic import atomic_path
from catalogs.files.compressed import first_bytes, writing_like
from catalogs.files.stamp import Stamp, check_unchanged, stamp
from catalogs.votable._binary import arrow_type, memory_bytes, memory_type
from catalogs.votable._document import (
    LONGEST_ROW,
    Data,
    Originals,
    add_columns,
    check_own_fields,
    column_names,
    drop_columns,
    drop_other_tables,
    own_infos,
    parse_document,
    replace_provenance,
    says_more,
)
from catalogs.votable._rows import BinaryRows, FitsRows, Rows
from catalogs.votable._tabledata import TextRows
from catalogs.votable._write import Content, NewRows, prepare_bits, prepare_texts, write

__all__ = ["FORMAT", "VOTablePartition", "open", "sniff"]

FORMAT = "votable"
WAITING_BYTES = 1 << 23
"""Of rows that `compute` gets at a time, of which several wait to be written."""

TAKING = Lock()
"""Held while a document is taken from the cache, so that two threads never change the same one."""

DIMENSIONLESS = "---"
"""What astropy writes for a unit that is empty."""


def sniff(path: Path, head: bytes) -> bool:  # noqa: ARG001 -- compressed files are inflated first
    """Say whether a file is XML with a VOTABLE element."""
    if path.is_dir():
        return False
    text = first_bytes(path, 4096)
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = text.decode("utf-16", "ignore").encode()
    return (
        text.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith(b"<")
        and re.search(rb"<(\w+:)?VOTABLE\b", text) is not None
    )


@dataclass(frozen=True, eq=False)
class Document:
    """A parsed file, the rows of its tables, in their order, and what goes into a copy as it was."""

    file: VOTableFile
    rows: tuple[Rows, ...]
    originals: Originals

    def table(self, index: int) -> TableElement:
        """Return astropy's table, whose array is empty."""
        return list(self.file.iter_tables())[index]


@lru_cache(maxsize=1)
def document(path: Path, expected: Stamp) -> Document:
    """Return a parsed file; the last one is kept, since parsing takes long."""
    check_unchanged(path, expected)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of units and older editions, which are passed on as they are
            file, data, originals = parse_document(path)
    except CatalogError:
        raise
    except Exception as error:  # A damaged document makes astropy raise many kinds of exceptions.
        size = path.stat().st_size
        raise DamagedFileError(
            f"{path} ({size} bytes) is damaged: {str(error).strip()}; expected a whole VOTable: fetch it again"
        ) from error
    return Document(file, tuple(rows_of(path, t, data.get(t)) for t in file.iter_tables()), originals)


def taken(path: Path, expected: Stamp) -> Document:
    """Return a parsed file that nobody else has, nor will be given: it is going to be changed."""
    with TAKING:
        parsed = document(path, expected)
        document.cache_clear()
        return parsed


def rows_of(path: Path, table: TableElement, data: Data | None) -> Rows:
    """Return the rows of a table."""
    fields = tuple(table.fields)
    if data is None or not fields:
        return Rows(fields)
    types = [memory_type(f) for f in fields]
    if sum(t.itemsize for t in types) > LONGEST_ROW or not all(t.itemsize for t in types):
        raise FormatError(
            f"{path} has fields of {min(t.itemsize for t in types)} to {max(t.itemsize for t in types)} bytes, "
            f"expected at least 1 byte in each and at most {LONGEST_ROW >> 20} MB in all; correct their arraysize"
        )
    if data.serialisation != "TABLEDATA":
        return (FitsRows if data.serialisation == "FITS" else BinaryRows)(fields, data)
    if data.n_rows and data.width != len(fields):
        raise DamagedFileError(
            f"{path} is damaged: it has {len(fields)} fields but {data.width} cells in each row, expected "
            "the same number; fetch it again"
        )
    return TextRows(fields, data)


@dataclass(frozen=True)
class VOTablePartition:
    """One table of a VOTable file: that of number `index`, counted from 0.

    `kept` are the columns that an annotated copy keeps, all where it is None; a `slim` one has no other table.
    """

    path: Path
    key: str
    n_rows: int
    index: int
    stamp: Stamp
    names: tuple[str, ...]
    kept: frozenset[str] | None = None
    slim: bool = False

    counted: ClassVar[bool] = True
    """Rows of a VOTable are their own."""

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, `rows` rows at a time."""
        table_rows = document(self.path, self.stamp).rows[self.index]
        check_unchanged(self.path, self.stamp)
        return self.record_batches(table_rows.arrow(self.numbers(columns)), columns, rows)

    def record_batches(
        self, arrays: Iterator[list[pa.Array]], columns: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield arrays of the named columns in batches of so many rows."""
        names = list(columns or self.names[:1])
        for batch in exactly((pa.record_batch(some, names=names) for some in arrays), rows):
            yield batch.select(list(columns))

    def numbers(self, columns: Sequence[str]) -> list[int]:
        """Return the numbers of the fields of those names; of none, that by which rows are counted."""
        numbers = {name: number for number, name in enumerate(self.names)}
        times = Counter(self.names)
        for name in columns:
            if name not in numbers:
                raise ColumnNotFoundError(f"{self.path} has no column '{name}'; {nearest(name, self.names)}")
            if times[name] > 1:
                raise FormatError(f"{self.path} has several columns called '{name}'; rename them")
        return [numbers[name] for name in columns or self.names[:1]]

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return no texts, and what is left behind, and what becomes of columns in another format."""
        parsed = document(self.path, self.stamp)
        fields = parsed.table(self.index).fields
        beside = [
            f"everything in the VOTable except the rows ({more}) is left out"
            for more in says_more(parsed.file)
        ]
        return {}, beside + [
            f"'{name}': each complex number becomes a pair of its real and imaginary parts"
            for name, field in zip(self.names, fields, strict=True)
            if field.datatype in {"floatComplex", "doubleComplex"}
        ]

    def keeping(self, columns: Sequence[str], *, slim: bool = False) -> VOTablePartition:
        """Return the partition of which annotated copies keep only those columns and, if `slim`, no other table."""
        return replace(self, kept=frozenset(columns), slim=slim)

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy with the new columns to `out`, streamed and atomic."""
        read_from = taken(self.path, self.stamp)
        file, table = read_from.file, read_from.table(self.index)
        check_own_fields(self.path, file, table)
        contents = prepared(read_from)
        stay, dropped = drop_columns(table, self.kept)
        add_columns(file, table, annotation.columns)
        replace_provenance(table, annotation.provenance, dropped)
        if self.slim:
            drop_other_tables(file, table)
        source, numbers = read_from.rows[self.index], self.numbers(annotation.read)
        needed = list(dict.fromkeys([*stay, *numbers]))
        new = NewRows(source.blocks(needed), [c.name for c in annotation.columns])
        places = {number: place for place, number in enumerate(needed)}
        arrays = source.arrow(numbers, ([block[places[i]] for i in numbers] for block in new.read()))
        at_once = min(annotation.rows, rows_within(WAITING_BYTES, source))
        batches = self.record_batches(arrays, annotation.read, at_once)
        computed = each_batch(batches, lambda batch: (batch, annotation.compute(batch)), annotation)
        completed = new.completed(computed, len(stay))
        contents[table] = replace(contents[table], blocks=completed)
        with (
            contextlib.closing(computed),
            atomic_path(out) as temporary,
            writing_like(temporary, self.path) as stream,
        ):
            write(file, stream, contents, read_from.originals)
            check_unchanged(self.path, self.stamp)


def prepared(read_from: Document) -> dict[TableElement, Content]:
    """Return what is written of each table, once its fields are such that they hold it."""
    contents = {}
    for table, rows in zip(read_from.file.iter_tables(), read_from.rows, strict=True):
        if not (as_text := prepare_bits(table, rows)):
            prepare_texts(table, rows)
        contents[table] = Content(rows.n_rows, rows.blocks(range(len(table.fields))), as_text)
    return contents


def rows_within(size: int, rows: Rows) -> int:
    """Return how many rows are of about so many bytes."""
    return max(1, size // sum(memory_bytes(field) for field in rows.table_fields))


def open(  # noqa: A001 -- every format's verb
    path: Path, table: str | int | None = None, *, columns: Sequence[str] = ()
) -> Catalog:
    """Open the table of that name, ID or number (from 0); else the only one, or the only one with those columns."""
    seen = stamp(path)
    parsed = document(path, seen)
    tables = list(parsed.file.iter_tables())
    index = chosen(path, tables, table, columns)
    element, rows = tables[index], parsed.rows[index]
    names = column_names(element)
    known = tuple(
        column(element.fields[i], name, arrow_type(element.fields[i])) for i, name in enumerate(names)
    )
    partition = VOTablePartition(path, path.name, rows.n_rows, index, seen, tuple(names))
    metadata = {"version": str(parsed.file.version), "table": element.name or element.ID or str(index)}
    metadata |= own_infos(element)
    return Catalog(FORMAT, path, known, (partition,), metadata)


def chosen(
    path: Path, tables: Sequence[TableElement], wanted: str | int | None, columns: Sequence[str]
) -> int:
    """Return the number of the table that is meant."""
    names = [t.name or t.ID or "" for t in tables]
    if wanted is not None:
        exact = [i for i, t in enumerate(tables) if wanted in {t.name, t.ID}]
        folded = [i for i, t in enumerate(tables) if str(wanted).casefold() in folded_names(t)]
        numbers = exact or folded or [i for i in range(len(tables)) if str(wanted) == str(i)]
    else:
        some = [i for i, t in enumerate(tables) if t.fields]
        having = [i for i in some if set(columns) <= set(column_names(tables[i]))]
        # If there is only one table, the reader of the columns names those that are missing.
        numbers = having or (some if len(some) == 1 else [])
    if len(numbers) == 1:
        return numbers[0]
    listed = ", ".join(f"{i} '{name}'" for i, name in enumerate(names)) or "none"
    got = (
        f"table {wanted!r}"
        if wanted is not None
        else f"{len(numbers)} tables" + (f" with {list(columns)}" if columns else "")
    )
    raise FormatError(f"{path}: got {got}, expected one; name one, or give its number: {listed}")


def folded_names(table: TableElement) -> set[str]:
    """Return a table's name and ID in small letters."""
    return {name.casefold() for name in (table.name, table.ID) if name}


def column(element: Field, name: str, datatype: pa.DataType) -> Column:
    """Return a field as a column."""
    shape, inner = [], datatype
    while pt.is_fixed_size_list(inner):
        shape.append(inner.list_size)
        inner = inner.value_type
    null = element.values.null if isinstance(element.values.null, int | np.integer) else None
    return Column(
        name,
        datatype,
        unit if (unit := str(element.unit or "")) not in {"", DIMENSIONLESS} else None,
        element.ucd,
        " ".join(str(element.description or "").split()) or None,  # lines are broken anew by every writer
        None if null is None else int(null),
        tuple(shape),
    )
