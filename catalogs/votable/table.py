"""VOTables: sniff, open, read in batches, write annotated."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from astropy.io.votable.tree import Field, Resource, TableElement, VOTableFile

from catalogs.catalog.catalog import (
    BATCH_ROWS,
    Annotation,
    Catalog,
    Column,
    Computed,
    NewValues,
    Partition,
    each_batch,
    exactly,
)
from catalogs.errors import CatalogError, DamagedFileError, FormatError, require_columns
from catalogs.files import Stamp, atomic_path, check_unchanged, first_bytes, stamp, writing_like
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
from catalogs.votable._rows import (
    Array,
    BinaryRows,
    Cells,
    FitsRows,
    Rows,
    arrow_type,
    encoded,
    memory_bytes,
    memory_type,
    row_bytes,
    stored_type,
)
from catalogs.votable._tabledata import TextRows, is_one_bit, text_rows

# Rows are written as BINARY2.  Those of TABLEDATA stay that where a field is one bit: STILTS reads it there only.

OLDEST_WITH_BINARY2 = "1.3"
WRITTEN_VERSION = "1.3"
"""Not a later one: from 1.4 on units are spelt in another way, and those of older files would not be kept."""

ROWS = re.compile(rb'(<BINARY2>\s*<STREAM encoding="base64">\s*)[A-Za-z0-9+/=]+(\s*</STREAM>\s*</BINARY2>)')
COUNT = re.compile(rb'(?<=\snrows=")\d+(?=")')
OPENING = b"<TABLE"


class NewRows:
    """Rows that are read once, and wait here for their new values, which arrive in batches of another size."""

    def __init__(self, blocks: Iterable[list[Cells]], names: Sequence[str]) -> None:
        self.blocks = blocks
        self.names = names
        self.waiting: deque[list[Cells]] = deque()
        self.new_values: deque[NewValues] = deque()
        self.n_new = 0

    def read(self) -> Iterator[list[Cells]]:
        """Yield the cells of some rows at a time, for what is computed of them."""
        for block in self.blocks:
            self.waiting.append(block)
            yield block

    def completed(self, computed: Iterable[Computed], n_old: int) -> Iterator[list[Cells]]:
        """Yield the first cells of some rows at a time, and behind them the new values."""
        for batch, values in computed:
            if self.names:
                self.new_values.append(values)
            self.n_new += batch.num_rows
            while self.waiting and len(self.waiting[0][0]) <= self.n_new:
                block = self.waiting.popleft()
                yield [*block[:n_old], *self.take(len(block[0]))]

    def take(self, n: int) -> list[Array]:
        """Return the next n values of each new column."""
        self.n_new -= n
        columns: list[list[Array]] = [[] for _ in self.names]
        while n and self.names:
            values = self.new_values.popleft()
            size = len(values[self.names[0]])
            for name, parts in zip(self.names, columns, strict=True):
                parts.append(values[name][:n])
            if size > n:
                self.new_values.appendleft({name: values[name][n:] for name in self.names})
            n -= min(n, size)
        return [np.concatenate(parts) for parts in columns]


@dataclass(frozen=True)
class Content:
    """What is written of a table: its rows, of which `blocks` gives the cells of all fields, some rows at a time.

    They are written as TABLEDATA where `as_text` is true, else as BINARY2.
    """

    n_rows: int
    blocks: Iterable[list[Cells]]
    as_text: bool = False

    def pieces(self, fields: Sequence[Field]) -> Iterator[bytes]:
        """Yield the rows as they are written."""
        if self.as_text:
            return (text_rows(fields, block) for block in self.blocks)
        return encoded(row_bytes(fields, block) for block in self.blocks)


def prepare_bits(table: TableElement, rows: Rows) -> bool:
    """Make single bits such that STILTS reads them; return whether the rows are to be TABLEDATA, as they are.

    Those that were stored as bits become truth values, for only in BINARY2 their nulls and all texts are kept.
    """
    bits = [i for i, field in enumerate(table.fields) if is_one_bit(field)]
    if rows.are_text:
        return bool(bits)
    for i in bits:
        table.fields[i] = copy(table.fields[i])  # the rows are read by the old one
        table.fields[i].datatype = "boolean"
    return False


def prepare_texts(table: TableElement, rows: Rows) -> None:
    """Make fields such that BINARY2 holds all of their texts, as TABLEDATA does whatever its fields say."""
    for number, (is_ascii, longest) in rows.unfit_texts().items():
        field = table.fields[number]
        if not is_ascii:
            field.datatype = "unicodeChar"
        if stored_type(field) is not None and longest > int(field.arraysize):
            field.arraysize = str(longest)


def write(
    file: VOTableFile, stream: IO[bytes], contents: Mapping[TableElement, Content], originals: Originals
) -> None:
    """Write a document, its tables with those contents, its originals as they were."""
    if file.version < OLDEST_WITH_BINARY2:
        file.version = WRITTEN_VERSION
    filled = [t for r in file.resources for t in as_written(r) if contents[t].n_rows]
    for table in filled:
        table.array = one_row(table)
    originals.mark_new(file)
    document = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.to_xml(document, tabledata_format="binary2")
    text, at = originals.restored(document.getvalue(), file), 0
    for place, table in zip(ROWS.finditer(text), filled, strict=True):
        content = contents[table]
        begin, end = (b"<TABLEDATA>\n", b"</TABLEDATA>") if content.as_text else place.groups()
        stream.write(counted(text[at : place.start()], content.n_rows) + begin)
        for piece in content.pieces(table.fields):
            stream.write(piece)
        stream.write(end)
        at = place.end()
    stream.write(text[at:])


def as_written(resource: Resource) -> Iterator[TableElement]:
    """Yield the tables of a resource in the order in which astropy writes them."""
    meta = [r for r in resource.resources if r.type == "meta"]
    for inner in meta:
        yield from as_written(inner)
    yield from resource.tables
    for inner in resource.resources:
        if inner not in meta:
            yield from as_written(inner)


def one_row(table: TableElement) -> Array:
    """Return a row in whose place all others are put."""
    record = np.dtype([(str(i), f.converter.format) for i, f in enumerate(table.fields)])
    row = np.ma.zeros(1, record)
    for name in record.names or ():
        if record[name].kind == "O":
            row.data[name] = None
    return row


def counted(text: bytes, n_rows: int) -> bytes:
    """Return the text with the number of rows, if it tells one, in the tag of the last table that it begins."""
    at = text.rindex(OPENING)
    end = text.index(b">", at)
    return text[:at] + COUNT.sub(b"%d" % n_rows, text[at:end]) + text[end:]


# Rows are read a piece at a time, whatever the size; all else is read by astropy, and kept: other tables, resources,
# parameters, groups, coordinate systems.
# https://www.ivoa.net/documents/VOTable/

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
class VOTablePartition(Partition):
    """One table of a VOTable file: that of number `index`, counted from 0.  A `slim` copy has no other table."""

    index: int
    stamp: Stamp
    names: tuple[str, ...]

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
        require_columns(self.path, columns, self.names)
        for name in columns:
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
        at_once = min(annotation.rows, max(1, WAITING_BYTES // sum(map(memory_bytes, source.table_fields))))
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
        folded = [
            i
            for i, t in enumerate(tables)
            if str(wanted).casefold() in {name.casefold() for name in (t.name, t.ID) if name}
        ]
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
