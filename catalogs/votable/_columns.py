"""The values of a VOTable's field in some rows, as NumPy and as Arrow: their types are what the FIELD says.

https://www.ivoa.net/documents/VOTable/20250116/, sections 2.1 and 2.2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from astropy.io.votable.tree import Field

from catalogs.metadata.astropy_arrow import arrow_array

__all__ = [
    "ELEMENTS",
    "Array",
    "Cells",
    "Lists",
    "arrow_cells",
    "arrow_type",
    "is_list",
    "is_null",
    "is_text",
    "memory_bytes",
    "memory_type",
]

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
