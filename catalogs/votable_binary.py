"""The rows of BINARY and BINARY2: fields as they are stored, whole columns at once, to and from astropy's arrays.

Astropy calls Python for each cell.  What is written is what it writes, to the bit.
https://www.ivoa.net/documents/VOTable/20250116/, section 6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from astropy.io.votable.tree import Field

__all__ = ["ELEMENTS", "decoded", "decoded_texts", "is_text", "row_bytes", "stored_type", "text_unit"]

Array = np.ndarray[Any, Any]

ELEMENTS = {"unsignedByte": "u1", "short": "i2", "int": "i4", "long": "i8", "float": "f4", "double": "f8"}
ELEMENTS |= {"floatComplex": "c8", "doubleComplex": "c16"}
"""The types of a VOTable's numbers."""

ENCODINGS = {"char": "ascii", "unicodeChar": "utf_16_be"}
TRUE, FALSE, UNKNOWN = b"Tt1", b"Ff0", b"\0 ?"
SET_BIT = 0x08
"""How astropy writes a bit on its own, and how it reads one."""


def is_text(field: Field) -> bool:
    """Say whether a field holds text."""
    return field.datatype in ENCODINGS


def text_unit(field: Field) -> int:
    """Return the bytes of a character."""
    return 2 if field.datatype == "unicodeChar" else 1


def stored_type(field: Field) -> np.dtype[Any] | None:
    """Return the type of a cell as it is stored, None where cells have a length of their own."""
    if str(field.arraysize or "").endswith("*"):
        return None
    memory = np.dtype(field.converter.format)
    if is_text(field):
        return np.dtype(f"V{memory.itemsize // 4 * text_unit(field)}")
    if field.datatype == "boolean":
        return np.dtype(("u1", memory.shape))
    if field.datatype == "bit":
        return np.dtype(("u1", ((math.prod(memory.shape) + 7) // 8,))) if memory.shape else np.dtype("u1")
    return np.dtype((memory.base.newbyteorder(">"), memory.shape))


def row_bytes(fields: Sequence[Field], columns: Sequence[Array]) -> bytes:
    """Return rows as BINARY2; columns are masked arrays (n, ...), one a field."""
    gone = np.stack([wholly_masked(column) for column in columns], axis=1)
    parts: list[list[bytes]] = []
    fixed = [np.packbits(gone, axis=1)]
    for field, column in zip(fields, columns, strict=True):
        stored = stored_type(field)
        if stored is not None:
            cells = np.empty((len(column), *stored.shape), stored.base)
            cells[...] = encoded_cells(field, column, stored)
            fixed.append(cells.view(np.uint8).reshape(len(column), -1))
        else:
            parts += [split(np.hstack(fixed)), variable_cells(field, column)]
            fixed = [np.empty((len(column), 0), np.uint8)]
    last = np.hstack(fixed)
    if not parts:
        return last.tobytes()
    return b"".join(cell for row in zip(*parts, split(last), strict=True) for cell in row)


def wholly_masked(column: Array) -> Array:
    """Return which cells (n,) have no value at all."""
    mask = np.ma.getmaskarray(column)
    if mask.dtype.kind == "O":
        return np.array([bool(np.all(m)) for m in mask.tolist()], bool)
    return np.asarray(mask.reshape(len(mask), -1).all(axis=1))


def split(cells: Array) -> list[bytes]:
    """Return the rows of a matrix of bytes."""
    n, width = cells.shape
    return np.ascontiguousarray(cells).view(f"V{width}").reshape(n).tolist() if width else [b""] * n


def encoded_cells(field: Field, column: Array, stored: np.dtype[Any]) -> Array:
    """Return cells of one size as they are stored."""
    data, mask = np.ma.getdata(column), np.ma.getmaskarray(column)
    if is_text(field):
        width, encoding = stored.itemsize, ENCODINGS[str(field.datatype)]
        return np.array(each(data, lambda word: word.encode(encoding)[:width].ljust(width, b"\0")), stored)
    if field.datatype == "boolean":
        letters = np.where(data, TRUE[0], FALSE[0])
        return np.where(mask, UNKNOWN[-1], letters) if stored.shape else letters
    if field.datatype == "bit":
        return (
            np.packbits(data.reshape(len(data), -1), axis=1) if stored.shape else np.where(data, SET_BIT, 0)
        )
    alone = not stored.shape and data.dtype.kind != "c"  # astropy counts complex numbers among the arrays
    if alone or not mask.any():  # the bits in front of the row say which numbers are none
        return data
    null = field.values.null
    if null is None:
        return np.where(mask, np.nan, data) if data.dtype.kind in "fc" else data
    return np.where(mask, np.asarray(null, data.dtype), data)


def each(words: Array, encode: Callable[[str], bytes]) -> list[bytes]:
    """Return encoded texts; most columns have few different ones."""
    given = ["" if w is None else w.decode("ascii") if isinstance(w, bytes) else w for w in words.tolist()]
    known = {word: encode(word) for word in set(given)}
    return [known[word] for word in given]


def variable_cells(field: Field, column: Array) -> list[bytes]:
    """Return cells of any length, each with its length in front."""
    data, mask = np.ma.getdata(column), np.ma.getmaskarray(column)
    if not is_text(field):
        return [field.converter.binoutput(v, m) for v, m in zip(data, mask, strict=True)]
    unit, encoding, limit = text_unit(field), ENCODINGS[str(field.datatype)], longest(field)

    def encode(word: str) -> bytes:
        text = word[:limit].encode(encoding)
        return (len(text) // unit).to_bytes(4, "big") + text

    return each(data, encode)


def longest(field: Field) -> int | None:
    """Return the most characters that a text of its own length may have."""
    bound = str(field.arraysize).removesuffix("*")
    return int(bound) if bound else None


def decoded(field: Field, stored: Array, gone: Array | None) -> np.ma.MaskedArray[Any, Any]:
    """Return cells of one size, stored (n, ...), `gone` (n,) where BINARY2 says so; ValueError where they cannot be."""
    memory = np.dtype(field.converter.format)
    if is_text(field):
        texts = decoded_texts(field, stored.tolist())
        ends = np.array([word.partition("\0")[0] for word in texts], memory)
        return np.ma.MaskedArray(ends, np.zeros(len(ends), bool))
    values, mask = plain_values(field, stored, memory)
    if gone is not None:
        mask = mask | gone.reshape(-1, *[1] * len(memory.shape))
    return np.ma.MaskedArray(values, mask)


def plain_values(field: Field, stored: Array, memory: np.dtype[Any]) -> tuple[Array, Array]:
    """Return numbers and truth values, and which of them are none by what they are."""
    if field.datatype == "boolean":
        if not is_one_of(stored, TRUE + FALSE + UNKNOWN).all():
            raise ValueError(f"'{field.name or field.ID}' has other bytes than T, F, 1, 0 and ?")
        return is_one_of(stored, TRUE), is_one_of(stored, UNKNOWN)
    if field.datatype == "bit":
        if not memory.shape:
            return (stored & SET_BIT) != 0, np.zeros(stored.shape, bool)
        bits = np.unpackbits(stored, axis=1, count=math.prod(memory.shape)).astype(bool)
        return bits.reshape(-1, *memory.shape), np.zeros((len(bits), *memory.shape), bool)
    values = stored.astype(memory.base)
    null = field.values.null
    if null is not None:
        return values, values == np.asarray(null, memory.base)
    return values, np.isnan(values) if values.dtype.kind in "fc" else np.zeros(values.shape, bool)


def is_one_of(stored: Array, letters: bytes) -> Array:
    """Return which bytes are one of the letters."""
    return np.isin(stored, np.frombuffer(letters, np.uint8))


def decoded_texts(field: Field, cells: Iterable[bytes]) -> list[str]:
    """Return the texts of cells; `UnicodeDecodeError`, a ValueError, where they are none."""
    encoding = ENCODINGS[str(field.datatype)]
    return [cell.decode(encoding) for cell in cells]
