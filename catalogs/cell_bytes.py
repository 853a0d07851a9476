"""About how many bytes a cell of a column takes, from its type alone: for room on the disk and rows at a time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["cell_bytes"]

TEXT_BYTES, LIST_ITEMS = 32, 16
"""What a text and a list of unknown length are taken to need."""


def cell_bytes(datatype: pa.DataType, text: int = TEXT_BYTES) -> int:
    """Return about how many bytes a cell of an Arrow type takes; `text` are those of a text."""
    if pt.is_fixed_size_list(datatype):
        return int(datatype.list_size) * cell_bytes(datatype.value_type, text)
    if pt.is_list(datatype) or pt.is_large_list(datatype):
        return LIST_ITEMS * cell_bytes(datatype.value_type, text)
    try:
        return (int(datatype.bit_width) + 7) // 8
    except ValueError:
        return text
