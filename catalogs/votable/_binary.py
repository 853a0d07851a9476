"""The rows of BINARY and BINARY2: fields as they are stored, whole columns at once, from and to arrays.

Base64 is decoded and encoded a piece at a time, whatever its size.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from xml.parsers import expat

import numpy as np
import pyarrow as pa
from astropy.io.votable.tree import Field

from catalogs.metadata.astropy_header import arrow_array
from catalogs.votable._document import Data

__all__ = [
    "ELEMENTS",
    "Array",
    "Cells",
    "Lists",
    "arrow_cells",
    "arrow_type",
    "decoded",
    "decoded_lists",
    "decoded_texts",
    "encoded",
    "is_list",
    "is_null",
    "is_text",
    "memory_bytes",
    "memory_type",
    "row_bytes",
    "stored_bits",
    "stored_type",
    "stream_bytes",
    "text_size",
]

# The values of a VOTable's field in some rows, as NumPy and as Arrow: their types are what the FIELD says.
#
# https://www.ivoa.net/documents/VOTable/20250116/, sections 2.1 and 2.2

Array = np.ndarray[Any, Any]

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
        """How many rows there are."""
        return len(self.lengths)


Cells = Array | Lists
"""Of n rows: a masked array (n, ...), of objects where they are texts, or lists."""


def is_text(field: Field) -> bool:
    """Say whether a field holds text."""
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
    """Return about how many bytes a cell takes."""
    return OBJECT_BYTES if is_text(field) or is_list(field) else memory_type(field).itemsize


def arrow_type(field: Field) -> pa.DataType:
    """Return the type of a field in Arrow."""
    if is_text(field):
        return pa.string()
    item = arrow_array(np.ma.zeros(0, memory_type(field))).type
    return pa.list_(item) if is_list(field) else item


def arrow_cells(field: Field, cells: Cells) -> pa.Array:
    """Return the values of a field as Arrow."""
    if isinstance(cells, Lists):
        ends = np.concatenate([[0], np.cumsum(cells.lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(
            ends, arrow_array(cells.values), arrow_type(field), mask=pa.array(cells.gone)
        )
    return pa.array(np.ma.getdata(cells), pa.string()) if is_text(field) else arrow_array(cells)


# The base64 of a VOTable's BINARY and BINARY2, decoded and encoded a piece at a time, whatever the size.

BLOCK_BYTES = 1 << 20
BLANKS = b" \t\r\n"


def stream_bytes(data: Data) -> Iterator[bytes]:
    """Yield what the STREAM of a table encodes; `binascii.Error` where it is no base64."""
    rest, padded = b"", False
    for block in texts(data):
        text = rest + block.translate(None, BLANKS)
        if padded and text:
            raise binascii.Error("there are letters after the padding")
        whole = len(text) // 4 * 4
        rest = text[whole:]
        padded = b"=" in text[:whole]
        yield binascii.a2b_base64(text[:whole], strict_mode=True)
    if rest:
        raise binascii.Error(f"{len(rest)} letters remain after the last group of four")


def texts(data: Data) -> Iterator[bytes]:
    """Yield the text of an element, what is not ASCII as question marks."""
    chunks: list[str] = []
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.CharacterDataHandler = chunks.append
    for block in data.blocks(BLOCK_BYTES):
        parser.Parse(block, False)  # noqa: FBT003 -- expat takes no keyword
        yield "".join(chunks).encode("ascii", "replace")
        chunks.clear()


def encoded(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the base64 of all pieces together, without line ends."""
    rest = b""
    for piece in pieces:
        data = rest + piece
        whole = len(data) // 3 * 3
        rest = data[whole:]
        yield binascii.b2a_base64(data[:whole], newline=False)
    yield binascii.b2a_base64(rest, newline=False)


# The rows of BINARY and BINARY2: fields as they are stored, whole columns at once, from and to arrays.
#
# Astropy calls Python for each cell.  What is written is what it writes, to the bit, but for lists of bits, which it
# has no way to write.
# https://www.ivoa.net/documents/VOTable/20250116/, section 6

ENCODINGS = {"char": "ascii", "unicodeChar": "utf_16_be"}
TRUE, FALSE, UNKNOWN = b"Tt1", b"Ff0", b"\0 ?"
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


def stored_bits(field: Field) -> int:
    """Return the bits of each item where cells have lengths of their own."""
    if is_text(field):
        return 8 * text_unit(field)
    return math.prod(memory_type(field).shape) if field.datatype == "bit" else 8 * stored_item(field).itemsize


def row_bytes(fields: Sequence[Field], columns: Sequence[Cells]) -> bytes:
    """Return rows as BINARY2; `columns` are the cells (n, ...) of each field."""
    gone = np.stack([wholly_masked(column) for column in columns], axis=1)
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


def wholly_masked(column: Cells) -> Array:
    """Return which cells (n,) have no value at all."""
    if isinstance(column, Lists):
        return column.gone
    mask = np.ma.getmaskarray(column)
    return np.asarray(mask.reshape(len(mask), -1).all(axis=1))


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
    if isinstance(column, Lists):
        return [
            n.to_bytes(4, "big") + cell
            for n, cell in zip(column.lengths.tolist(), list_cells(field, column), strict=True)
        ]
    unit, encoding = text_unit(field), ENCODINGS[str(field.datatype)]

    def encode(word: str) -> bytes:
        text = word.encode(encoding)
        return (len(text) // unit).to_bytes(4, "big") + text

    return each(np.ma.getdata(column), encode)


def list_cells(field: Field, lists: Lists) -> list[bytes]:
    """Return each list as it is stored."""
    ends = np.cumsum(lists.lengths)
    if field.datatype == "bit":
        parts = np.split(np.ma.getdata(lists.values), ends[:-1])
        return [np.packbits(part.reshape(-1)).tobytes() for part in parts]
    stored = stored_item(field)
    cells = np.empty((len(lists.values), *stored.shape), stored.base)
    cells[...] = encoded_cells(field, lists.values, stored, in_array=True)
    data, places = cells.tobytes(), [0, *(ends * stored.itemsize).tolist()]
    return [data[begin:end] for begin, end in pairwise(places)]


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
        size = math.prod(memory.shape)
        bits = [
            np.unpackbits(np.frombuffer(cell, np.uint8), count=n * size)
            for cell, n in zip(cells, lengths.tolist(), strict=True)
        ]
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
        if not is_one_of(stored, TRUE + FALSE + UNKNOWN).all():
            raise ValueError(f"'{field.name or field.ID}' has bytes other than T, F, 1, 0 and ?")
        return is_one_of(stored, TRUE), is_one_of(stored, UNKNOWN)
    if field.datatype == "bit":
        if not memory.shape:
            return (stored & SET_BIT) != 0, np.zeros(stored.shape, bool)
        bits = np.unpackbits(stored, axis=1, count=math.prod(memory.shape)).astype(bool)
        return bits.reshape(-1, *memory.shape), np.zeros((len(bits), *memory.shape), bool)
    values = stored.astype(memory.base)
    return values, is_null(field, values)


def is_one_of(stored: Array, letters: bytes) -> Array:
    """Return which bytes are one of the letters."""
    return np.isin(stored, np.frombuffer(letters, np.uint8))


def decoded_texts(field: Field, cells: Iterable[bytes]) -> Array:
    """Return the texts of cells (n,); `UnicodeDecodeError`, a ValueError, where they are not text."""
    encoding = ENCODINGS[str(field.datatype)]
    words = [cell.decode(encoding) for cell in cells]
    if not has_own_length(field):
        words = [word.partition("\0")[0] for word in words]
    return np.array([None, *words], object)[1:]
