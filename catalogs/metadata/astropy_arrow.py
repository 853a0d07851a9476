"""From the arrays of astropy's tables to Arrow: masks become nulls, vectors lists of one length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["arrow_array", "arrow_type", "change"]

Array = np.ndarray[Any, Any]


def arrow_array(values: Array) -> pa.Array:
    """Return an array as Arrow: (n,) as values, (n, k) as lists of k, objects as text or lists."""
    if values.dtype.kind == "c":
        parts = np.stack([np.ma.getdata(values).real, np.ma.getdata(values).imag], axis=-1)
        mask = np.stack([np.ma.getmaskarray(values)] * 2, axis=-1)
        return arrow_array(np.ma.MaskedArray(parts, mask))
    if values.ndim > 1:
        inner = arrow_array(values.reshape(-1, *values.shape[2:]))
        return pa.FixedSizeListArray.from_arrays(inner, values.shape[1])
    mask = np.ma.getmaskarray(values)
    data = np.ma.getdata(values)
    if data.dtype.kind == "O":
        return objects(data, mask)
    if data.dtype.kind == "S":
        return objects(data.astype(object), mask)  # as texts of one width they would take four times the room
    if data.dtype.kind in "UT":
        return pa.array(data.astype(object), pa.string(), mask=mask)
    wide = data.dtype.kind == "f" and data.dtype.itemsize > 8  # Arrow has no longer floats than these
    native = data.astype(np.float64 if wide else data.dtype.newbyteorder("="), copy=False)
    return pa.array(native, mask=mask if mask.any() else None)


def objects(data: Array, mask: Array) -> pa.Array:
    """Return texts, arrays of their own lengths, or whatever else is of one kind: numbers, structures, dates."""
    plain = [None if gone or v is None else v for v, gone in zip(data.tolist(), mask.tolist(), strict=True)]
    if all(v is None or isinstance(v, str | bytes) for v in plain):
        return pa.array(
            [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in plain], pa.string()
        )
    if any(isinstance(v, list | tuple | np.ndarray) for v in plain):
        return pa.array([None if v is None else arrow_array(np.ma.atleast_1d(v)).to_pylist() for v in plain])
    if any(isinstance(v, complex) for v in plain):
        return arrow_array(
            np.ma.MaskedArray([v or 0j for v in plain], [v is None for v in plain], np.complex128)
        )
    return pa.array(plain)


def change(values: Array) -> str | None:
    """Return what becomes of values that Arrow has not, as `arrow_array` makes them; None where they are as before."""
    data = np.ma.getdata(values)
    unmasked = data[~np.ma.getmaskarray(values)].tolist() if data.dtype.kind in "OS" else []
    if data.dtype.kind == "c" or any(np.iscomplexobj(v) for v in unmasked):
        return "each complex number becomes a pair of its real and imaginary parts"
    if data.dtype.kind == "f" and data.dtype.itemsize > 8:
        return f"{data.dtype} is rounded to float64"
    if any(isinstance(v, bytes) and not is_utf8(v) for v in unmasked):
        return "bytes that are not UTF-8 become the replacement character, U+FFFD"
    return None


def is_utf8(text: bytes) -> bool:
    """Say whether bytes are text."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def arrow_type(values: Array) -> pa.DataType:
    """Return the Arrow type that an array becomes."""
    return arrow_array(values).type
