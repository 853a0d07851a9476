"""VOTables: open, read in batches, write annotated."""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
import pyarrow as pa
from astropy.io.votable.tree import Field, Resource, TableElement, VOTableFile
from astropy.utils.xml.iterparser import get_xml_iterator

from catalogs.arrays import Array, list_shape, number_of
from catalogs.catalog.catalog import (
    BATCH_ROWS,
    Annotation,
    Catalog,
    Column,
    Computed,
    Partition,
    chosen_table,
    each_batch,
    exactly,
)
from catalogs.errors import CatalogError, DamagedFileError, FormatError, require_columns, require_once
from catalogs.files import Stamp, atomic_path, check_unchanged, stamp, writing_like
from catalogs.votable._document import (
    LONGEST_ROW,
    ORIGINAL_MARK,
    Data,
    Originals,
    add_columns,
    check_own_fields,
    column_names,
    drop_columns,
    own_infos,
    parse_document,
    replace_provenance,
    resources_of,
    says_more,
)
from catalogs.votable._rows import (
    BinaryRows,
    Cells,
    FitsRows,
    Lists,
    Rows,
    arrow_type,
    encoded,
    is_list,
    is_null,
    is_text,
    memory_bytes,
    memory_type,
    row_bytes,
    stored_type,
    text_size,
)

# What the words in the cells of TABLEDATA mean, whole columns at once.  It is what astropy takes them for, which
# calls Python for each of them; but an empty cell is missing in any edition of the standard (astropy makes it 0 in
# integers before 1.3), and what astropy would clip to a type's range, or cut off or add to a vector, is refused.
# https://www.ivoa.net/documents/VOTable/20250116/, section 5.1

TRUTHS = dict.fromkeys(("T", "TRUE", "1"), 1) | dict.fromkeys(("F", "FALSE", "0"), 0)
TRUTHS |= dict.fromkeys(("?", "", "\0"), -1)
BITS = {"1": 1, "0": 0, "": -1}
"""1 is true, 0 is false, and -1 neither."""


def cells_of(field: Field, words: Sequence[str]) -> Cells:
    """Return the values of cells; ValueError where they do not fit their field."""
    if is_text(field):
        return np.array([None, *words], object)[1:]
    memory = memory_type(field)
    if is_list(field) or memory.shape or memory.kind == "c":
        return arrays(field, words, memory)
    values, mask = items(field, words, memory)
    return np.ma.MaskedArray(values, mask)


def arrays(field: Field, words: Sequence[str], memory: np.dtype[Any]) -> Cells:
    """Return arrays of one shape, or lists of such; complex numbers are words as arrays are."""
    size = math.prod(memory.shape) * (2 if memory.base.kind == "c" else 1)
    gone = np.array([not word or (memory.kind == "c" and word.lower() == "nan") for word in words], bool)
    present = [word for word, missing in zip(words, gone.tolist(), strict=True) if not missing]
    # Between blanks, or commas, which the standard does not know but writers do.
    parts = [word.replace(",", " ").split() for word in present]
    if field.datatype == "bit":
        parts = [list("".join(part)) for part in parts]
    for word, part in zip(present, parts, strict=True):
        if len(part) % size if is_list(field) else len(part) != size:
            raise ValueError(no_value(field, word))
    values, mask = items(field, list(chain.from_iterable(parts)), memory)
    values, mask = values.reshape(-1, *memory.shape), mask.reshape(-1, *memory.shape)
    if memory.base.kind in "iu" and field.values.null is None and mask.any():
        raise ValueError(
            f"an array in '{field.name or field.ID}' has too few elements, and the field defines no null "
            "value to fill them"
        )
    if not is_list(field):
        shape = (len(words), *memory.shape)
        whole, nowhere = np.zeros(shape, memory.base), np.ones(shape, bool)
        whole[~gone], nowhere[~gone] = values, mask
        return np.ma.MaskedArray(whole, nowhere)
    lengths = np.zeros(len(words), np.int64)
    lengths[~gone] = [len(part) // size for part in parts]
    # As astropy has it: of complex numbers an empty list is none, of all others it is a list of no elements.
    return Lists(np.ma.MaskedArray(values, mask), lengths, gone & (memory.base.kind == "c"))


def items(field: Field, words: Sequence[str], memory: np.dtype[Any]) -> tuple[Array, Array]:
    """Return numbers or truth values, one a word (two if complex), and which are missing."""
    if memory.base.kind == "b":
        return truths(field, words)
    if memory.base.kind in "iu":
        return integers(field, words, memory.base)
    null = field.values.null
    with np.errstate(over="ignore"):  # beyond the largest float is infinity
        if memory.base.kind == "c":
            values = reals(field, words, math.nan).view(np.complex128).astype(memory.base)
        else:
            values = reals(field, words, math.nan if null is None else null).astype(memory.base)
    return values, is_null(field, values)


def reals(field: Field, words: Sequence[str], blank: float) -> Array:
    """Return words as float64; those without a digit that are no numbers (IRSA writes `null`) as the blank."""
    try:
        return np.array([float(word) if word else blank for word in words], np.float64)
    except ValueError:
        numbers = [number_of(word) for word in words]
    for word, number in zip(words, numbers, strict=True):
        if number is None and any(map(str.isdigit, word)):  # a limit as '>23.1', Fortran's 1.5D+01
            raise ValueError(no_value(field, word))
    return np.array([blank if number is None else number for number in numbers], np.float64)


def integers(field: Field, words: Sequence[str], memory: np.dtype[Any]) -> tuple[Array, Array]:
    """Return words as integers, and which are missing."""
    null = field.values.null
    blank = 0 if null is None else int(null)

    def integer(word: str) -> int:
        try:
            return int(np.int64(int(word, 0) if word[:2] in {"0x", "0X"} else int(word)))
        except (ValueError, OverflowError):
            raise ValueError(no_value(field, word)) from None

    try:
        values = np.array([int(word) if word else blank for word in words], np.int64)
    except (ValueError, OverflowError):
        words = ["" if word.lower() == "nan" else word for word in words]
        values = np.array([integer(word) if word else blank for word in words], np.int64)
    limits = np.iinfo(memory)
    outside = np.flatnonzero((values < limits.min) | (values > limits.max))
    if outside.size:
        raise ValueError(no_value(field, words[int(outside[0])]))
    mask = np.array([not word for word in words], bool)
    return values.astype(memory), mask if null is None else mask | (values == null)


def truths(field: Field, words: Sequence[str]) -> tuple[Array, Array]:
    """Return words as truth values, and which are missing."""
    known = BITS if field.datatype == "bit" else TRUTHS
    codes = {word: known.get(word.upper()) for word in set(words)}
    if wrong := [word for word, code in codes.items() if code is None]:
        raise ValueError(no_value(field, min(wrong)))
    values = np.array([codes[word] for word in words], np.int8)
    return values == 1, values < 0


def no_value(field: Field, word: str) -> str:
    """Return what is wrong with a word."""
    return f"'{word[:80]}' in '{field.name or field.ID}' is not of datatype {field.datatype}" + (
        f" with arraysize {field.arraysize}" if field.arraysize else ""
    )


BLOCK_BYTES = 1 << 14
"""As many as the parser asks for; with more of them it takes several times as long, waiting for memory."""
PIECE_BYTES = 1 << 22
"""Of XML, and of arrays, that are held at a time."""


class TextRows(Rows):
    """Rows in TABLEDATA; `DamagedFileError` where they are no such."""

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return self.data.n_rows

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Cells]]:
        """Yield the values of those fields, as many rows at a time as a piece of the file holds."""
        width = len(self.table_fields)
        for words in self.pieces():
            try:
                yield [cells_of(self.table_fields[f], words[f::width]) for f in fields]
            except ValueError as error:
                raise self.damaged(str(error)) from error

    def pieces(self) -> Iterator[list[str]]:
        """Yield the text of cells, row by row, of some rows at a time."""
        most = self.data.width * max(1, PIECE_BYTES // sum(map(memory_bytes, self.table_fields)))
        left = self.data.width * self.n_rows
        words: list[str] = []
        source, n_bytes = self.data.blocks(BLOCK_BYTES), 0

        # More than are asked for: of less the parser thinks that they are the last.
        def read(_size: int) -> bytes:
            nonlocal n_bytes
            block = next(source, b"")
            n_bytes += len(block)
            return block

        try:
            with get_xml_iterator(read) as elements:
                for begins, tag, content, _ in elements if left else ():
                    if begins:
                        if tag == "TD" and "encoding" in content:
                            raise self.damaged(f"a cell has the encoding {content['encoding']}")
                    elif tag == "TD":
                        words.append(content)
                    elif tag == "TR" and (n_bytes > PIECE_BYTES or len(words) >= min(most, left)):
                        yield words
                        left -= len(words)
                        if left <= 0:
                            break
                        words, n_bytes = [], 0
        except (ValueError, RuntimeError) as error:
            raise self.damaged(str(error)) from error
        if left:
            raise self.damaged(f"the limits of {left} cells are unclear")

    def unfit_texts(self) -> Mapping[int, tuple[bool, int]]:
        """Return what the texts need that are not ASCII or that their fields may have no room for."""
        fixed = {i for i, f in enumerate(self.table_fields) if is_text(f) and stored_type(f) is not None}
        if self.data.ascii and not fixed:
            return {}
        needs = {i: (True, 0) for i, f in enumerate(self.table_fields) if is_text(f)}
        width = len(self.table_fields)
        for words in self.pieces():
            for i, (all_ascii, longest) in needs.items():
                several = set(words[i::width])
                plain = all_ascii and all(map(str.isascii, several))
                needs[i] = plain, max(longest, *map(text_size, several))
        return needs

    def damaged(self, what: str) -> DamagedFileError:
        """Return the error for rows that cannot be read."""
        return DamagedFileError(
            f"{self.data.path} is damaged: {what}; expected rows of {len(self.table_fields)} cells of text, "
            "each as its FIELD describes; fetch it again"
        )


# Rows are read once, and wait for their new values, which arrive in batches of another size.  They are written as
# BINARY2.

OLDEST_WITH_BINARY2 = "1.3"
WRITTEN_VERSION = "1.3"
"""Not a later one: from 1.4 on units are spelt in another way, and those of older files would not be kept."""

ROWS = re.compile(rb'(<BINARY2>\s*<STREAM encoding="base64">\s*)[A-Za-z0-9+/=]+(\s*</STREAM>\s*</BINARY2>)')
COUNT = re.compile(rb'(?<=\snrows=")\d+(?=")')
OPENING = b"<TABLE"


def completed(
    waiting: deque[list[Cells]], computed: Iterable[Computed], names: Sequence[str], n_old: int
) -> Iterator[list[Cells]]:
    """Yield the first cells of some rows at a time, which wait until their new values are computed, and these."""
    left = {name: np.empty(0) for name in names}
    n_left = 0
    for batch, values in computed:
        left = {n: np.concatenate([left[n], values[n]]) if n_left else values[n] for n in names}
        n_left += batch.num_rows
        while waiting and (n := len(waiting[0][0])) <= n_left:
            yield [*waiting.popleft()[:n_old], *(left[name][:n] for name in names)]
            left, n_left = {name: left[name][n:] for name in names}, n_left - n


Content = tuple[int, Iterable[list[Cells]]]
"""What is written of a table: how many rows, and the cells of all fields, some rows at a time."""


def write(
    file: VOTableFile, stream: IO[bytes], contents: Mapping[TableElement, Content], originals: Originals
) -> None:
    """Write a document, its tables with those contents, its originals as they were."""
    if file.version < OLDEST_WITH_BINARY2:
        file.version = WRITTEN_VERSION
    filled = [t for r in file.resources for t in as_written(r) if contents[t][0]]
    for table in filled:  # a row, in whose place all others are put
        record = np.dtype([(str(i), f.converter.format) for i, f in enumerate(table.fields)])
        table.array = np.ma.zeros(1, record)
        for name in record.names or ():
            if record[name].kind == "O":
                table.array.data[name] = None
    for element in file.iter_fields_and_params():  # of the new fields
        if element.description and not str(element.utype or "").startswith(ORIGINAL_MARK):
            element.description = originals.mark(element.description)
    document = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.to_xml(document, tabledata_format="binary2")
    text, at = originals.restored(document.getvalue(), file), 0
    for place, table in zip(ROWS.finditer(text), filled, strict=True):
        n_rows, blocks = contents[table]
        begin, end = place.groups()
        # The tag of the last table that begins before may tell the number of rows.
        tag = text.rindex(OPENING, at, place.start())
        end_of_tag = text.index(b">", tag)
        stream.write(text[at:tag] + COUNT.sub(b"%d" % n_rows, text[tag:end_of_tag]))
        stream.write(text[end_of_tag : place.start()] + begin)
        for piece in encoded(row_bytes(table.fields, block) for block in blocks):
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


# Rows are read a piece at a time, whatever the size; all else is read by astropy, and kept: other tables, resources,
# parameters, groups, coordinate systems. https://www.ivoa.net/documents/VOTable/

FORMAT = "votable"
WAITING_BYTES = 1 << 23
"""Of rows that `compute` gets at a time, of which several wait to be written."""

TAKING = Lock()
"""Held while a document is taken from the cache, so that two threads never change the same one."""

DIMENSIONLESS = "---"
"""What astropy writes for a unit that is empty."""


Document = tuple[VOTableFile, tuple[Rows, ...], Originals]
"""A parsed file, whose tables have no rows, the rows of each in the file, and what goes into a copy as it was."""


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
    return file, tuple(rows_of(path, t, data.get(t)) for t in file.iter_tables()), originals


def rows_of(path: Path, table: TableElement, data: Data | None) -> Rows:
    """Return the rows of a table."""
    fields = tuple(table.fields)
    if data is None or not fields:
        return Rows(fields, Data(path, "", b"", 0, 0, 0, 0, ascii=True))
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
    """One table of a VOTable file: that of number `index`, counted from 0.  A slim copy has no other table."""

    index: int
    stamp: Stamp
    names: tuple[str, ...]
    is_cut_off: bool

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, `rows` rows at a time."""
        table_rows = document(self.path, self.stamp)[1][self.index]
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
        require_columns(self.path, columns, self.names)
        require_once(self.path, self.names, columns)
        return [numbers[name] for name in columns or self.names[:1]]

    def verified(self) -> tuple[VOTablePartition, str | None, bool]:
        """Return the partition, and whether its server says that it sent some rows of the answer alone."""
        why = "its server sends no more (QUERY_STATUS is OVERFLOW): ask for more by MAXREC, or for parts of the sky"
        told = f"{self.path} has some rows of its query's answer alone, since {why}"
        return self, told if self.is_cut_off else None, False

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return no texts, and what is left behind, and what becomes of columns in another format."""
        file, rows, _ = document(self.path, self.stamp)
        left = [f"everything in the VOTable except the rows ({m}) is left out" for m in says_more(file)]
        for name, field in zip(self.names, rows[self.index].table_fields, strict=True):
            if field.datatype in {"floatComplex", "doubleComplex"}:
                left.append(f"'{name}': each complex number becomes a pair of its real and imaginary parts")
        return {}, left

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy with the new columns to `out`, streamed and atomic."""
        with TAKING:  # nobody else has the document, nor will be given it: it is going to be changed
            file, rows, originals = document(self.path, self.stamp)
            document.cache_clear()
        table = list(file.iter_tables())[self.index]
        check_own_fields(self.path, file, table)
        contents = prepared(file, rows)
        stay, dropped = drop_columns(table, annotation)
        add_columns(file, table, annotation.columns)
        replace_provenance(table, annotation.provenance, dropped)
        if annotation.slim:
            for resource in resources_of(file):
                resource.tables[:] = [t for t in resource.tables if t is table]
        source, numbers = rows[self.index], self.numbers(annotation.read)
        needed = list(dict.fromkeys([*stay, *numbers]))
        waiting: deque[list[Cells]] = deque()

        def read() -> Iterator[list[Cells]]:
            for block in source.blocks(needed):
                waiting.append(block)
                yield [block[needed.index(i)] for i in numbers]

        at_once = min(annotation.rows, max(1, WAITING_BYTES // sum(map(memory_bytes, source.table_fields))))
        batches = self.record_batches(source.arrow(numbers, read()), annotation.read, at_once)
        computed = each_batch(batches, lambda batch: (batch, annotation.compute(batch)), annotation)
        names = [c.name for c in annotation.columns]
        contents[table] = source.n_rows, completed(waiting, computed, names, len(stay))
        with (
            contextlib.closing(computed),
            atomic_path(out) as temporary,
            writing_like(temporary, self.path) as stream,
        ):
            write(file, stream, contents, originals)
            check_unchanged(self.path, self.stamp)


def prepared(file: VOTableFile, all_rows: Sequence[Rows]) -> dict[TableElement, Content]:
    """Return what is written of each table, once its fields are such that they hold it.

    BINARY2 has to hold all texts that TABLEDATA does whatever its fields say.  STILTS reads no single bits there, so
    they become truth values.
    """
    contents: dict[TableElement, Content] = {}
    for table, rows in zip(file.iter_tables(), all_rows, strict=True):
        for i, field in enumerate(table.fields):
            if field.datatype == "bit" and not field.arraysize:
                table.fields[i] = copy(field)  # the rows are read by the old one
                table.fields[i].datatype = "boolean"
        for number, (is_ascii, longest) in rows.unfit_texts().items():
            field = table.fields[number]
            if not is_ascii:
                field.datatype = "unicodeChar"
            if stored_type(field) is not None and longest > int(field.arraysize):
                field.arraysize = str(longest)
        contents[table] = rows.n_rows, rows.blocks(range(len(table.fields)))
    return contents


def open(  # noqa: A001 -- every format's verb
    path: Path, table: str | int | None = None, *, columns: Sequence[str] = ()
) -> Catalog:
    """Open the table of that name or number (from 0); else the only one, or the only one with those columns."""
    seen = stamp(path)
    file, all_rows, _ = document(path, seen)
    require_answered(path, file)
    tables = list(file.iter_tables())
    known = {i: (t.name or t.ID or "", column_names(t)) for i, t in enumerate(tables)}
    if table is None:
        known = {i: t for i, t in known.items() if t[1]} or known
    index = chosen_table(path, known, table, columns)
    element, rows = tables[index], all_rows[index]
    names = column_names(element)
    told = tuple(column(f, name, arrow_type(f)) for f, name in zip(element.fields, names, strict=True))
    is_cut_off = any(answer[:2] == ("QUERY_STATUS", "OVERFLOW") for answer in answers(file))
    partition = VOTablePartition(path, path.name, rows.n_rows, index, seen, tuple(names), is_cut_off)
    metadata = {"version": str(file.version), "table": element.name or element.ID or str(index)}
    metadata |= own_infos(element)
    return Catalog(FORMAT, path, told, (partition,), metadata)


def answers(file: VOTableFile) -> Iterator[tuple[str, str, str]]:
    """Yield what a server says of its answer: name and value in capital letters, and the text, or else the value."""
    for info in (info for place in (file, *resources_of(file)) for info in place.infos):
        yield str(info.name).upper(), str(info.value).upper(), str(info.content or info.value)


def require_answered(path: Path, file: VOTableFile) -> None:
    """Raise `DamagedFileError` where a server says that the query failed, also after it sent some of the rows."""
    empty = next(file.iter_tables(), None) is None
    for name, value, content in answers(file):
        if (name, value) == ("QUERY_STATUS", "ERROR") or (name == "ERROR" and empty):  # before 2010, as IRSA
            why = " ".join(content.split())[:400]
            raise DamagedFileError(
                f"{path} is a server's answer to a query that failed: {why}; expected a whole table: correct the "
                "query, and fetch it again"
            )


def column(element: Field, name: str, datatype: pa.DataType) -> Column:
    """Return a field as a column."""
    null = element.values.null if isinstance(element.values.null, int | np.integer) else None
    stated = str(element.unit or "").strip()
    unit = None if stated in {"", DIMENSIONLESS} else stated
    description = " ".join(str(element.description or "").split())  # lines are broken anew by every writer
    null = None if null is None else int(null)
    return Column(name, datatype, unit, element.ucd, description or None, null, list_shape(datatype))
