"""From the stored elements of a FITS column to an Arrow array: native, nulls apart, texts trimmed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalogs.fits.columns import STORED, FitsColumn
from catalogs.fits.source import Bytes

__all__ = ["array_of", "bits", "cells", "elements", "field_type", "texts", "trimmed"]

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
