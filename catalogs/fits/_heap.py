"""Cells of variable length: descriptors in the rows, elements in the heap behind them.

FITS Standard 4.0, section 7.3.5.  Descriptors are checked against the size of the heap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalogs.errors import CatalogError, DamagedFileError
from catalogs.fits._decode import array_of, bits, elements, trimmed
from catalogs.fits.columns import STORED, FitsColumn, Table
from catalogs.fits.source import Bytes, Source

__all__ = ["heap_cells"]

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
