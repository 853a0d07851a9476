"""The rows of a VOTable in BINARY, BINARY2 or FITS: their cells, read and written."""

from __future__ import annotations

import binascii
import math
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any
from xml.parsers import expat

import numpy as np
import pyarrow as pa
from astropy.io.votable.tree import Field

from catalogs.arrays import Array
from catalogs.errors import DamagedFileError, FormatError
from catalogs.fits.columns import FitsColumn, Table, table_of
from catalogs.fits.header import MAX_INFLATED, Source, read_hdus, unnamed
from catalogs.metadata.astropy_header import arrow_array
from catalogs.votable._document import LONGEST_ROW, Data

# The values of a VOTable's field in some rows, as NumPy and as Arrow: their types are what the FIELD says.
# https://www.ivoa.net/documents/VOTable/20250116/, sections 2.1 and 2.2

ELEMENTS = {"unsignedByte": "u1", "short": "i2", "int": "i4", "long": "i8", "float": "f4", "double": "f8"}
ELEMENTS |= {"floatComplex": "c8", "doubleComplex": "c16", "boolean": "b1", "bit": "b1"}
"""The types of what is no text."""

TEXTS = {"char", "unicodeChar"}

OBJECT_BYTES = 80
"""What a text or a list is taken to need."""


@dataclass(frozen=True, eq=False)
class Lists:
    """Arrays of any length, one a row: the next lengths[i] of `values` (m, ...) are row i's; none where `gone` (n,)."""

    values: Array
    lengths: Array
    gone: Array

    def __len__(self) -> int:
        return len(self.lengths)


Cells = Array | Lists
"""Of n rows: a masked array (n, ...), of objects where they are texts, or lists."""


def is_text(field: Field) -> bool:
    return field.datatype in TEXTS


def is_list(field: Field) -> bool:
    """Say whether a field holds arrays of any length."""
    return not is_text(field) and str(field.arraysize or "").endswith("*")


def is_null(field: Field, values: Array) -> Array:
    """Return which numbers are missing by their value: NaN, or the null value that a field declares (NaN too)."""
    null = field.values.null
    if null is None or null != null:  # noqa: PLR0124 -- NaN, real or complex
        return np.isnan(values) if values.dtype.kind in "fc" else np.zeros(values.shape, bool)
    return np.asarray(values == np.asarray(null, values.dtype))


def memory_type(field: Field) -> np.dtype[Any]:
    """Return the type of a cell, or of what a list has any number of."""
    if is_text(field):
        return np.dtype(object)
    sizes = str(field.arraysize or "").split("x")
    if is_list(field):
        sizes.pop()
    return np.dtype((ELEMENTS[str(field.datatype)], tuple(int(size) for size in reversed(sizes) if size)))


def memory_bytes(field: Field) -> int:
    return OBJECT_BYTES if is_text(field) or is_list(field) else memory_type(field).itemsize


def arrow_type(field: Field) -> pa.DataType:
    if is_text(field):
        return pa.string()
    item = arrow_array(np.ma.zeros(0, memory_type(field))).type
    return pa.list_(item) if is_list(field) else item


def arrow_cells(field: Field, cells: Cells) -> pa.Array:
    if isinstance(cells, Lists):
        ends = np.concatenate([[0], np.cumsum(cells.lengths)]).astype(np.int32)
        values, gone = arrow_array(cells.values), pa.array(cells.gone)
        return pa.ListArray.from_arrays(ends, values, arrow_type(field), mask=gone)
    return pa.array(np.ma.getdata(cells), pa.string()) if is_text(field) else arrow_array(cells)


# The base64 of a VOTable's BINARY and BINARY2, decoded and encoded a piece at a time, whatever the size.

BLOCK_BYTES = 1 << 20
BLANKS = b" \t\r\n"


def stream_bytes(data: Data) -> Iterator[bytes]:
    """Yield what the STREAM of a table encodes; `binascii.Error` where it is no base64."""
    rest, padded = b"", False
    chunks: list[str] = []
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.CharacterDataHandler = chunks.append
    for block in data.blocks(BLOCK_BYTES):
        parser.Parse(block, False)  # noqa: FBT003 -- expat takes no keyword
        text = rest + "".join(chunks).encode("ascii", "replace").translate(None, BLANKS)
        chunks.clear()
        if padded and text:
            raise binascii.Error("there are letters after the padding")
        whole = len(text) // 4 * 4
        rest = text[whole:]
        padded = b"=" in text[:whole]
        yield binascii.a2b_base64(text[:whole], strict_mode=True)
    if rest:
        raise binascii.Error(f"{len(rest)} letters remain after the last group of four")


def encoded(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the base64 of all pieces together, without line ends."""
    rest = b""
    for piece in pieces:
        data = rest + piece
        whole = len(data) // 3 * 3
        rest = data[whole:]
        yield binascii.b2a_base64(data[:whole], newline=False)
    yield binascii.b2a_base64(rest, newline=False)


# The rows of BINARY and BINARY2: fields as they are stored, whole columns at once, from and to arrays.  Astropy calls
# Python for each cell.  What is written is what it writes, to the bit, but for lists of bits, which it has no way to
# write. https://www.ivoa.net/documents/VOTable/20250116/, section 6

ENCODINGS = {"char": "ascii", "unicodeChar": "utf_16_be"}
TRUE, FALSE, UNKNOWN = (np.frombuffer(letters, np.uint8) for letters in (b"Tt1", b"Ff0", b"\0 ?"))
LENGTH = struct.Struct(">I")
SET_BIT = 0x08
"""How astropy writes a bit on its own, and how it reads one."""


def text_unit(field: Field) -> int:
    """Return the bytes of a character."""
    return 2 if field.datatype == "unicodeChar" else 1


def text_size(word: str) -> int:
    """Return how many characters, as VOTable counts them, a text has."""
    return len(word) if word.isascii() else len(word.encode("utf_16_be")) // 2


def has_own_length(field: Field) -> bool:
    """Say whether each cell has a length of its own."""
    return str(field.arraysize or "").endswith("*")


def stored_type(field: Field) -> np.dtype[Any] | None:
    """Return the type of a cell as it is stored, None where cells have lengths of their own."""
    if has_own_length(field):
        return None
    if is_text(field):
        return np.dtype(f"V{int(field.arraysize or 1) * text_unit(field)}")
    return stored_item(field)


def stored_item(field: Field) -> np.dtype[Any]:
    """Return the type, as it is stored, of a cell without text, or of what a list has any number of."""
    memory = memory_type(field)
    if field.datatype == "boolean":
        return np.dtype(("u1", memory.shape))
    if field.datatype == "bit":
        return np.dtype(("u1", ((math.prod(memory.shape) + 7) // 8,))) if memory.shape else np.dtype("u1")
    return np.dtype((memory.base.newbyteorder(">"), memory.shape))


def row_bytes(fields: Sequence[Field], columns: Sequence[Cells]) -> bytes:
    """Return rows as BINARY2; `columns` are the cells (n, ...) of each field."""
    masks = (c.gone if isinstance(c, Lists) else np.ma.getmaskarray(c) for c in columns)
    gone = np.stack([mask.reshape(len(mask), -1).all(axis=1) for mask in masks], axis=1)
    parts: list[list[bytes]] = []
    fixed = [np.packbits(gone, axis=1)]
    for field, column in zip(fields, columns, strict=True):
        stored = stored_type(field)
        if isinstance(column, Lists) or stored is None:
            parts += [split(np.hstack(fixed)), cells_with_lengths(field, column)]
            fixed = [np.empty((len(column), 0), np.uint8)]
        else:
            cells = np.empty((len(column), *stored.shape), stored.base)
            cells[...] = encoded_cells(field, column, stored, in_array=bool(stored.shape))
            fixed.append(cells.view(np.uint8).reshape(len(column), -1))
    last = np.hstack(fixed)
    if not parts:
        return last.tobytes()
    return b"".join(cell for row in zip(*parts, split(last), strict=True) for cell in row)


def split(cells: Array) -> list[bytes]:
    """Return the rows of a matrix of bytes."""
    n, width = cells.shape
    return np.ascontiguousarray(cells).view(f"V{width}").reshape(n).tolist() if width else [b""] * n


def encoded_cells(field: Field, column: Array, stored: np.dtype[Any], *, in_array: bool) -> Array:
    """Return cells of one size as they are stored; the bits in front of a row do not tell of those in an array."""
    data, mask = np.ma.getdata(column), np.ma.getmaskarray(column)
    if is_text(field):
        width, encoding = stored.itemsize, ENCODINGS[str(field.datatype)]
        return np.array(each(data, lambda word: word.encode(encoding)[:width].ljust(width, b"\0")), stored)
    if field.datatype == "boolean":
        letters = np.where(data, TRUE[0], FALSE[0])
        return np.where(mask, UNKNOWN[-1], letters) if in_array else letters
    if field.datatype == "bit":
        return (
            np.packbits(data.reshape(len(data), -1), axis=1) if stored.shape else np.where(data, SET_BIT, 0)
        )
    alone = not in_array and data.dtype.kind != "c"  # astropy counts complex numbers among the arrays
    if alone or not mask.any():
        return data
    null = field.values.null
    if null is None:
        return np.where(mask, np.nan, data) if data.dtype.kind in "fc" else data
    return np.where(mask, np.asarray(null, data.dtype), data)


def each(words: Array, encode: Callable[[str], bytes]) -> list[bytes]:
    """Return encoded texts; most columns have few different ones."""
    texts = ["" if w is None else w.decode("ascii") if isinstance(w, bytes) else w for w in words.tolist()]
    known = {word: encode(word) for word in set(texts)}
    return [known[word] for word in texts]


def cells_with_lengths(field: Field, column: Cells) -> list[bytes]:
    """Return cells of any length, each with its length in front."""
    if not isinstance(column, Lists):
        unit, encoding = text_unit(field), ENCODINGS[str(field.datatype)]

        def encode(word: str) -> bytes:
            text = word.encode(encoding)
            return LENGTH.pack(len(text) // unit) + text

        return each(np.ma.getdata(column), encode)
    ends = np.cumsum(column.lengths)
    if field.datatype == "bit":
        parts = np.split(np.ma.getdata(column.values), ends[:-1])
        cells = [np.packbits(part.reshape(-1)).tobytes() for part in parts]
    else:
        stored = stored_item(field)
        items = np.empty((len(column.values), *stored.shape), stored.base)
        items[...] = encoded_cells(field, column.values, stored, in_array=True)
        data, places = items.tobytes(), [0, *(ends * stored.itemsize).tolist()]
        cells = [data[begin:end] for begin, end in pairwise(places)]
    return [LENGTH.pack(n) + cell for n, cell in zip(column.lengths.tolist(), cells, strict=True)]


def decoded(field: Field, stored: Array, gone: Array | None) -> Array:
    """Return cells of one size, stored (n, ...), `gone` (n,) where BINARY2 says so; ValueError where they cannot be."""
    if is_text(field):
        return decoded_texts(field, stored.tolist())
    memory = memory_type(field)
    values, mask = plain_values(field, stored, memory)
    if gone is not None:
        mask = mask | gone.reshape(-1, *[1] * len(memory.shape))
    return np.ma.MaskedArray(values, mask)


def decoded_lists(field: Field, cells: Sequence[bytes], lengths: Array, gone: Array | None) -> Lists:
    """Return lists of those lengths (n,), stored as those bytes."""
    memory = memory_type(field)
    if field.datatype == "bit":
        sizes = (lengths * math.prod(memory.shape)).tolist()
        packed = zip((np.frombuffer(cell, np.uint8) for cell in cells), sizes, strict=True)
        bits = [np.unpackbits(part, count=n) for part, n in packed]
        values = np.concatenate([np.zeros(0, np.uint8), *bits]).astype(bool).reshape(-1, *memory.shape)
        mask = np.zeros(values.shape, bool)
    else:
        stored = np.frombuffer(b"".join(cells), stored_item(field))
        values, mask = plain_values(field, stored, memory)
    nowhere = np.zeros(len(lengths), bool) if gone is None else gone
    return Lists(np.ma.MaskedArray(values, mask), lengths, nowhere)


def plain_values(field: Field, stored: Array, memory: np.dtype[Any]) -> tuple[Array, Array]:
    """Return numbers and truth values, and which of them are missing by their value."""
    if field.datatype == "boolean":
        true, unknown = np.isin(stored, TRUE), np.isin(stored, UNKNOWN)
        if not (true | unknown | np.isin(stored, FALSE)).all():
            raise ValueError(f"'{field.name or field.ID}' has bytes other than T, F, 1, 0 and ?")
        return true, unknown
    if field.datatype == "bit":
        if not memory.shape:
            return (stored & SET_BIT) != 0, np.zeros(stored.shape, bool)
        bits = np.unpackbits(stored, axis=1, count=math.prod(memory.shape)).astype(bool)
        return bits.reshape(-1, *memory.shape), np.zeros((len(bits), *memory.shape), bool)
    values = stored.astype(memory.base)
    return values, is_null(field, values)


def decoded_texts(field: Field, cells: Iterable[bytes]) -> Array:
    """Return the texts of cells (n,); `UnicodeDecodeError`, a ValueError, where they are not text."""
    encoding = ENCODINGS[str(field.datatype)]
    words = [cell.decode(encoding) for cell in cells]
    if not has_own_length(field):
        words = [word.partition("\0")[0] for word in words]
    return np.array([None, *words], object)[1:]


# The rows of a VOTable's table, which stay in the file and are read a piece at a time: of BINARY and its like.


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one table, its fields counted from 0; by itself none."""

    table_fields: tuple[Field, ...]
    data: Data

    @property
    def n_rows(self) -> int:
        return 0

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Cells]]:  # noqa: ARG002
        """Yield the values of those fields, some rows at a time."""
        yield from ()

    def arrow(
        self, fields: Sequence[int], blocks: Iterable[Sequence[Cells]] | None = None
    ) -> Iterator[list[pa.Array]]:
        """Yield the values of those fields as Arrow, some rows at a time: those in the blocks, if they are given."""
        for block in self.blocks(fields) if blocks is None else blocks:
            yield [arrow_cells(self.table_fields[f], cells) for f, cells in zip(fields, block, strict=True)]

    def unfit_texts(self) -> Mapping[int, tuple[bool, int]]:
        """Return the fields whose texts may not fit in BINARY2: whether all are ASCII, and how long the longest is."""
        return {}


class BinaryRows(Rows):
    """Rows in the base64 of BINARY or BINARY2; `DamagedFileError` where they are no such.

    A row is a record, of the cells up to the first with a length of its own, then that cell, the next record, and so
    on.  Where the cells of n rows with lengths of their own begin and end is `bounds` (n, cells, 2).
    """

    @cached_property
    def n_rows(self) -> int:
        """How many there are, after a pass over all of them."""
        return sum(len(bounds) for _, bounds in self.cut())

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Cells]]:
        """Yield the values of those fields, as many rows at a time as a piece of the file holds."""
        place = self.layout[2]
        for data, bounds in self.cut():
            gone = None
            records = {i: self.record(data, bounds, i) for i in {0, *(place[f] for f in fields)}}
            if self.mask_bytes:
                gone = np.unpackbits(records[0]["mask"], axis=1, count=len(self.table_fields)).astype(bool)
            try:
                yield [self.column(data, bounds, records[place[f]], f, gone) for f in fields]
            except ValueError as error:
                raise self.damaged(str(error)) from error

    def record(self, data: bytes, bounds: Array, number: int) -> Array:
        records, bits, _ = self.layout
        if not bits:
            return np.frombuffer(data, records[0], len(bounds))
        if not (size := records[number].itemsize):
            return np.empty(0, records[number])
        if number:
            begins = bounds[:, number - 1, 1]
        else:
            begins = np.concatenate([[0], bounds[:-1, -1, 1] + records[-1].itemsize])
        places = begins[:, None] + np.arange(size)
        return np.frombuffer(data, np.uint8)[places].view(records[number]).reshape(-1)

    def column(self, data: bytes, bounds: Array, record: Array, number: int, gone: Array | None) -> Cells:
        field, place = self.table_fields[number], self.layout[2][number]
        # The null bit of a text is ignored, as astropy does: a text may be empty, and many writers set the bit then.
        nowhere = None if gone is None or is_text(field) else gone[:, number]
        if stored_type(field) is not None:
            return decoded(field, record[str(number)], nowhere)
        cells = [data[begin:end] for begin, end in bounds[:, place].tolist()]
        if is_text(field):
            return decoded_texts(field, cells)
        places = bounds[:, place, :1] - LENGTH.size + np.arange(LENGTH.size)
        lengths = np.frombuffer(data, np.uint8)[places].view(">u4").reshape(-1).astype(np.int64)
        return decoded_lists(field, cells, lengths, nowhere)

    @property
    def mask_bytes(self) -> int:
        """How many bytes in front of a row say which of its cells have no value."""
        return (len(self.table_fields) + 7) // 8 if self.data.serialisation == "BINARY2" else 0

    @cached_property
    def layout(self) -> tuple[list[np.dtype[Any]], list[int], list[int]]:
        """The records, the bits of an item of each cell behind one, and of each field the number of its record."""
        records: list[list[tuple[str, Any]]] = [[("mask", ("u1", (self.mask_bytes,)))]]
        bits: list[int] = []
        places: list[int] = []
        for number, field in enumerate(self.table_fields):
            stored = stored_type(field)
            places.append(len(bits))
            if stored is not None:
                records[-1].append((str(number), stored))
                continue
            if is_text(field):
                bits.append(8 * text_unit(field))
            elif field.datatype == "bit":
                bits.append(math.prod(memory_type(field).shape))
            else:
                bits.append(8 * stored_item(field).itemsize)
            records.append([])
        return [np.dtype(record) for record in records], bits, places

    def pieces(self) -> Iterator[bytes]:
        """Yield the rows as they are stored; `binascii.Error` where they are no base64."""
        return stream_bytes(self.data)

    def cut(self) -> Iterator[tuple[bytes, Array]]:
        """Yield some bytes that begin with whole rows, and the bounds of these."""
        rest = b""
        try:
            for piece in self.pieces():
                rest += piece
                bounds, size = self.bounds(rest)
                if len(bounds):
                    yield rest, bounds
                rest = rest[size:]
                if len(rest) > LONGEST_ROW:
                    raise self.damaged(f"a row has more than {LONGEST_ROW >> 20} MB")
        except binascii.Error as error:
            raise self.damaged(str(error)) from error
        if rest:
            raise self.damaged(f"the data end {len(rest)} bytes after the last whole row")

    def bounds(self, data: bytes) -> tuple[Array, int]:
        """Return the bounds of the whole rows in some bytes, and how many bytes these are."""
        records, bits, _ = self.layout
        behind, last = records[-1].itemsize, len(data)
        if not bits:
            if not behind:
                raise self.damaged("its rows have no bytes")
            return np.empty((last // behind, 0, 2), np.int64), last // behind * behind
        # Each such cell, with what stands in front of it since the last one.
        plan = [(record.itemsize, n_bits) for record, n_bits in zip(records, bits, strict=False)]
        found: list[int] = []
        row_at = n = begin = 0
        while True:
            at, row_bounds = row_at, []
            for skip, n_bits in plan:
                at += skip
                begin = at + LENGTH.size
                if begin > last:
                    break
                at = begin + (LENGTH.unpack_from(data, at)[0] * n_bits + 7) // 8
                row_bounds += [begin, at]
            at += behind
            if begin > last or at > last:
                break
            found += row_bounds
            n, row_at = n + 1, at
        return np.array(found, np.int64).reshape(n, len(plan), 2), row_at

    def damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(
            f"{self.data.path} is damaged: {what}; expected rows of its {len(self.table_fields)} fields in "
            f"{self.data.serialisation}: fetch it again"
        )


# The rows of a VOTable that are a FITS binary table inside the document: each as BINARY would have it.  Columns of
# one size, neither scaled nor on a heap, are stored as BINARY stores the fields that describe them.
# https://www.ivoa.net/documents/VOTable/20250116/, section 5.3

CODES = dict(zip((*ELEMENTS, "char"), "BIJKEDCMLXA", strict=True))
"""The TFORM of a field's datatype."""


class FitsRows(BinaryRows):
    """Rows of a FITS table in base64; the file in the document is decoded to one that has no name."""

    @cached_property
    def decoded_file(self) -> Source:
        done = 0
        with tempfile.TemporaryFile() as file:
            try:
                for piece in stream_bytes(self.data):
                    done += file.write(piece)
                    if done > MAX_INFLATED:
                        raise self.damaged(f"the FITS file in it has more than {MAX_INFLATED:,} bytes")
            except binascii.Error as error:
                raise self.damaged(str(error)) from error
            return unnamed(self.data.path, file)

    @cached_property
    def table(self) -> Table:
        """The first table of the file, whose columns are the fields."""
        tables = [hdu for hdu in read_hdus(self.decoded_file) if hdu.is_bintable]
        if not tables:
            raise self.damaged("the FITS file in it has no table")
        table = table_of(tables[0])
        pairs = list(zip(self.table_fields, table.columns, strict=False))
        odd = [c.name for f, c in pairs if not same_storage(f, c)]
        if odd or len(self.table_fields) != len(table.columns):
            raise FormatError(
                f"{self.data.path} holds its data as FITS, "
                f"{f'with the columns {odd}' if odd else 'of other columns'}; expected the columns that its fields "
                "describe, without scaling and without variable length; convert it (topcat and stilts do)"
            )
        return table

    def pieces(self) -> Iterator[bytes]:
        begin = self.table.hdu.data_offset
        for piece in self.decoded_file.pieces(begin, begin + self.table.n_rows * self.table.row_bytes):
            yield piece.tobytes()

    def column(self, data: bytes, bounds: Array, record: Array, number: int, gone: Array | None) -> Cells:
        """Return the values of a field in some rows; blanks fill up a text in FITS."""
        values = super().column(data, bounds, record, number, gone)
        if isinstance(values, Lists) or not is_text(self.table_fields[number]):
            return values
        words = [word.rstrip(" ") for word in values.tolist()]
        return np.array([None, *words], object)[1:]


def same_storage(field: Field, column: FitsColumn) -> bool:
    """Say whether the cells of a column are stored as BINARY stores those of a field."""
    stored = stored_type(field)
    if stored is None or column.heap or column.is_scaled or column.is_shifted:
        return False
    if field.datatype == "bit" and not field.arraysize:  # BINARY has it in another place of the byte
        return False
    same = CODES.get(field.datatype) == column.code and stored.itemsize == column.n_bytes
    return same and column.null in {None, field.values.null}
