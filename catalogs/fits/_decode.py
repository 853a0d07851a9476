"""From the stored elements of a FITS column to an Arrow array, cells of variable length (the heap) included."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalogs.errors import CatalogError, DamagedFileError
from catalogs.fits.columns import STORED, FitsColumn, Table
from catalogs.fits.source import Bytes, Source

__all__ = ["array_of", "bits", "cells", "elements", "field_type", "heap_cells", "texts", "trimmed"]

# From the stored elements of a FITS column to an Arrow array: native, nulls apart, texts trimmed.

Stored = npt.NDArray[Any]

TRUE, FALSE = ord("T"), ord("F")


def field_type(column: FitsColumn) -> np.dtype[Any]:
    """Return the type of a cell as it is in the row; texts and bits are bytes."""
    if column.heap:
        return STORED[column.heap]
    if column.code in "AX":
        return np.dtype(("u1", (column.n_bytes,)))
    stored = STORED[column.code]
    return np.dtype((stored, (column.repeat,))) if column.shape else stored


def cells(column: FitsColumn, stored: Stored) -> pa.Array:
    """Return the cells of a column of fixed length from n stored, native ones."""
    if column.code == "A":
        n_bytes = column.repeat * column.width
        flat = texts(stored[:, :n_bytes].reshape(len(stored) * column.repeat, column.width))
    elif column.code == "X":
        flat = array_of(bits(stored, column.repeat).reshape(-1), pa.bool_())
    else:
        flat = elements(column, stored.reshape(-1))
    return _lists(flat, column.datatype, len(stored)) if column.shape else flat


def elements(column: FitsColumn, stored: Stored) -> pa.Array:
    """Return numbers or truth values, scaled, from a row of stored ones in native byte order."""
    if column.code == "L":
        # Neither T nor F is a null: the Standard's is a zero byte, and some writers' a blank.
        return array_of(stored == TRUE, pa.bool_(), valid=(stored == TRUE) | (stored == FALSE))
    values = _scaled(column, stored)
    if column.code in "CM":
        parts = values.view(values.real.dtype)
        return _lists(array_of(parts, column.element.value_type), column.element, len(values))
    valid = None if column.null is None else stored != column.null
    return array_of(values, column.element, valid=valid)


def array_of(
    values: Stored, datatype: pa.DataType, *, valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Wrap the values without a copy; `pa.array` with a mask would import pandas, which takes a second."""
    bitmap = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    data = (
        np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    )
    return pa.Array.from_buffers(datatype, len(values), [bitmap, pa.py_buffer(data)])


def _lists(flat: pa.Array, datatype: pa.DataType, n: int) -> pa.Array:
    """Wrap as lists of fixed size; `n` is an argument because the size may be zero."""
    return pa.Array.from_buffers(datatype, n, [None], children=[flat])


def bits(stored: Bytes, n_bits: int) -> npt.NDArray[np.bool_]:
    """Return the first bits of each row of bytes, most significant first."""
    return np.unpackbits(stored, axis=1, count=n_bits).astype(np.bool_)


def texts(stored: Bytes) -> pa.Array:
    """Return a text from each row of bytes."""
    n, width = stored.shape
    if not stored.size:
        return pa.array([""] * n, pa.string())
    buffer = pa.py_buffer(np.ascontiguousarray(stored))
    return trimmed(pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), n, [None, buffer]))


def trimmed(raw: pa.Array) -> pa.Array:
    """Return texts up to the first NUL and without trailing blanks; not UTF-8 is taken for Latin-1."""
    try:
        text = raw.cast(pa.string())
    except pa.ArrowInvalid:
        text = pa.array([_decoded(value) for value in raw.to_pylist()], pa.string())
    text = pc.ascii_rtrim(text, " \0")
    if pc.any(pc.match_substring(text, "\0")).as_py():
        text = pc.ascii_rtrim(pc.replace_substring_regex(text, "(?s)\\x00.*", ""), " ")
    return text


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _scaled(column: FitsColumn, stored: Stored) -> Stored:
    if column.is_shifted:
        # Adding the top bit means inverting it: this is exact where arithmetic would overflow.
        unsigned = stored.view(f"u{stored.itemsize}")
        top = unsigned.dtype.type(1 << (8 * stored.itemsize - 1))
        turned: Stored = np.bitwise_xor(unsigned, top).view(column.element.to_pandas_dtype())
        return turned
    if column.is_scaled:
        wide: Stored = stored.astype(np.complex128 if column.code in "CM" else np.float64)
        return wide * float(column.scale) + float(column.zero)
    return stored


# Cells of variable length: descriptors in the rows, elements in the heap behind them.
#
# FITS Standard 4.0, section 7.3.5.  Descriptors are checked against the size of the heap.

Integers = npt.NDArray[np.int64]

MAX_BATCH = 1 << 30
"""Bytes that the cells of one batch may take: descriptors may share a place, and so claim any size."""


def heap_cells(source: Source, table: Table, column: FitsColumn, descriptors: npt.NDArray[Any]) -> pa.Array:
    """Return the cells that n descriptors, (n, 2) of count and place, point to."""
    counts, places = descriptors.astype(np.int64).T
    sizes = (counts + 7) // 8 if column.code == "X" else counts * STORED[column.code].itemsize
    _check(table, column, counts, places, sizes)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    raw = _gather(source, table.heap_offset, places, sizes)
    if column.code == "A":
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
        return trimmed(pa.Array.from_buffers(pa.binary(), len(counts), buffers))
    if column.code == "X":
        flat = array_of(_bits(raw, counts, sizes), pa.bool_())
    else:
        stored = raw.view(STORED[column.code])
        flat = elements(column, stored.astype(stored.dtype.newbyteorder("=")))
    lists = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(column.datatype, len(counts), lists, children=[flat])


def _check(table: Table, column: FitsColumn, counts: Integers, places: Integers, sizes: Integers) -> None:
    # In this order no sum overflows: counts are checked against the heap's size before they are added.
    heap = table.heap_bytes
    bad = (counts < 0) | (sizes < 0) | (sizes > heap)
    bad |= (counts > 0) & ((places < 0) | (places > heap - sizes))
    if bad.any():
        i = int(np.argmax(bad))
        raise DamagedFileError(
            f"{table.hdu.header.where}: a cell of '{column.name}' claims {counts[i]:,} elements at byte "
            f"{places[i]:,} of a heap of {heap:,} bytes; the file is damaged: get another copy"
        )
    total = float(sizes.sum(dtype=np.float64))
    if total > MAX_BATCH:
        raise CatalogError(
            f"{table.hdu.header.where}: {len(counts):,} cells of '{column.name}' take {total:.3g} bytes, more than "
            f"the {MAX_BATCH:,} of a batch; read fewer rows at a time"
        )


def _gather(source: Source, heap: int, places: Integers, sizes: Integers) -> Bytes:
    """Return the cells' bytes one after another."""
    held = sizes > 0
    places, sizes = places[held], sizes[held]
    if not len(sizes):
        return np.empty(0, np.uint8)
    if np.array_equal(places[1:], places[:-1] + sizes[:-1]):  # as every writer leaves them
        return source.read(heap + int(places[0]), int(sizes.sum()))
    raw = np.empty(int(sizes.sum()), np.uint8)
    ends = np.cumsum(sizes)
    for place, size, end in zip(places.tolist(), sizes.tolist(), ends.tolist(), strict=True):
        source.fill(raw[end - size : end], heap + place)
    return raw


def _bits(raw: Bytes, counts: Integers, sizes: Integers) -> npt.NDArray[np.bool_]:
    """Return the bits of all cells one after another; each cell began with a whole byte."""
    flat = bits(raw.reshape(1, -1), raw.size * 8).reshape(-1)
    starts = 8 * (np.cumsum(sizes) - sizes)
    shifts = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return flat[shifts + np.arange(len(shifts))]
