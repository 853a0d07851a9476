"""From Arrow columns to the NumPy arrays that expressions are evaluated on, missing values included.

Missing numbers are NaN and missing text is ''.  Integers without nulls stay integers, so that 64-bit
identifiers compare exactly; with nulls they become float64, or a masked array where float64 would round.
Text loses trailing blanks, which FITS and those who convert from it pad with.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.errors import ColumnNotFoundError, ExpressionError, nearest

__all__ = [
    "EXACT_INTEGER",
    "NO_VALUES",
    "batch_values",
    "column_values",
    "is_real",
    "is_string",
    "is_text",
    "with_missing",
]

Array = np.ndarray[Any, Any]

NO_VALUES = np.dtype("V1")
"""The type of a column of nulls only: missing numbers or missing text, as it is used."""

EXACT_INTEGER = 2**53
"""float64 holds every integer up to this magnitude, and above it rounds."""


STRINGS = frozenset(t.id for t in (pa.string(), pa.large_string(), pa.string_view()))
TEXTS = STRINGS | {t.id for t in (pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view())}


def batch_values(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Array]:
    """Return the named columns of a batch as arrays."""
    known = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in (names := tuple(names)):
        if name not in known:
            raise ColumnNotFoundError(
                f"the column '{name}' was not read, expected one of those that were; {nearest(name, list(known))}"
            )
    return {name: column_values(known[name], name=name) for name in names}


def column_values(column: pa.Array | pa.ChunkedArray, *, name: str = "") -> Array:
    """Return a column as an array, (n,), or (n, k, ...) for vectors; `name` is for messages."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_fixed_size_list(column.type) or pt.is_list(column.type) or pt.is_large_list(column.type):
        return vectors(column, name)
    if is_text(column.type):
        return texts(column)
    return scalars(column, name)


def is_string(datatype: pa.DataType) -> bool:
    """Say whether a type is text of any layout, bytes left out."""
    return datatype.id in STRINGS


def is_text(datatype: pa.DataType) -> bool:
    """Say whether a type holds text; bytes are text, since that is how FITS strings reach Parquet."""
    return datatype.id in TEXTS


def is_real(datatype: pa.DataType) -> bool:
    """Say whether a type holds numbers with fractions; databases write them as decimals too."""
    return pt.is_floating(datatype) or (pt.is_decimal(datatype) and datatype.scale > 0)


def scalars(column: pa.Array, name: str) -> Array:
    """Return one number, boolean or time a row."""
    datatype = column.type
    if pt.is_decimal(datatype):
        column = undecimal(column)
        datatype = column.type
    if pt.is_null(datatype):
        return np.zeros(len(column), NO_VALUES)
    if pt.is_integer(datatype) and column.null_count:
        return nullable_integers(column)
    if pt.is_boolean(datatype) and column.null_count:
        data = pc.fill_null(column, fill_value=False).to_numpy(zero_copy_only=False)
        return np.ma.MaskedArray(data, mask=column.is_null().to_numpy(zero_copy_only=False))
    if pt.is_primitive(datatype):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    raise ExpressionError(
        f"the column '{name}' holds {datatype}; expected numbers, text or vectors: name another column"
    )


def undecimal(column: pa.Array) -> pa.Array:
    """Return decimals, as databases write them, as int64 where they are whole numbers in its range, else as float64."""
    if column.type.scale <= 0:
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return column.cast(pa.float64())


def nullable_integers(column: pa.Array) -> Array:
    """Return integers with nulls."""
    gone = column.is_null().to_numpy(zero_copy_only=False)
    return with_missing(column.fill_null(0).to_numpy(zero_copy_only=False), gone)


def with_missing(values: Array, gone: Array) -> Array:
    """Return numbers with some missing: as NaN, or masked where they are integers that float64 would round."""
    data, gone = np.ma.getdata(values), gone | np.ma.getmaskarray(values)
    whole = data.dtype.kind in "iu" and data.size > 0
    if whole and max(abs(int(data.min())), abs(int(data.max()))) > EXACT_INTEGER:
        return np.ma.MaskedArray(data, mask=gone)
    return np.where(gone, np.nan, data if data.dtype.kind == "f" else data.astype(np.float64))


def texts(column: pa.Array) -> Array:
    """Return text as objects, nulls as ''."""
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        column = decoded(column)
    trimmed = pc.utf8_rtrim(column.fill_null(""), characters=" \0")
    return np.asarray(trimmed.to_numpy(zero_copy_only=False), dtype=object)


def decoded(column: pa.Array) -> pa.Array:
    """Return bytes as text: UTF-8, or Latin-1 where they are no UTF-8."""
    try:
        return column.cast(pa.large_binary()).cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        words = (
            None if b is None else b if isinstance(b, str) else b.decode("latin-1")
            for b in column.to_pylist()
        )
        return pa.array(words, pa.large_string())


def vectors(column: pa.Array, name: str) -> Array:
    """Return vectors as rows; a null vector is NaN throughout, and '' for text."""
    lengths = pc.list_value_length(column).drop_null().unique().to_pylist()
    if len(lengths) > 1:
        raise ExpressionError(
            f"the column '{name}' holds lists of {min(lengths)} to {max(lengths)} elements; expected vectors "
            "of one length: name another column, or give all lists the same length"
        )
    size = lengths[0] if lengths else max(getattr(column.type, "list_size", 0), 0)
    elements = column_values(column.flatten(), name=name)  # leaves out those of null lists
    elements = elements.reshape(-1, size, *elements.shape[1:])
    if not column.null_count:
        return elements
    present = column.is_valid().to_numpy(zero_copy_only=False)
    text = elements.dtype.kind == "O"
    whole = np.full(
        (len(column), *elements.shape[1:]), "" if text else np.nan, dtype=object if text else float
    )
    whole[present] = np.ma.filled(elements.astype(float), np.nan) if not text else elements
    return whole
