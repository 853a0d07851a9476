"""Batches of exactly so many rows, whatever the pieces that a file gives, and the bytes that a cell takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["cell_bytes", "exactly"]

TEXT_BYTES, LIST_ITEMS = 32, 16
"""What a text and a list of unknown length are taken to need."""


def exactly(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of `rows` (fewer in the last): boundaries then are the same on any disk."""
    if rows < 1:
        raise ValueError(f"got batches of {rows} rows; expected at least one row in each")
    waiting: list[pa.RecordBatch] = []
    n_waiting = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            part = rest.slice(0, rows - n_waiting)
            rest = rest.slice(part.num_rows)
            waiting.append(part)
            n_waiting += part.num_rows
            if n_waiting == rows:
                yield one(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield one(waiting)


def one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the batches as one."""
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


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
