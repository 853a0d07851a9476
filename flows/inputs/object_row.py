"""One object of a catalogue by its identifier: where its row is.

A catalogue of ten million rows is read once, this column alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Partition

__all__ = ["ObjectRow", "find_object", "read_object"]


@dataclass(frozen=True, eq=False)
class ObjectRow:
    """Where the first row of an object is, counted from 0 in its partition, and how many rows the object has."""

    partition: Partition
    row: int
    n_rows: int


def find_object(catalog: Catalog, column: str, identifier: str) -> ObjectRow | None:
    """Return where the object is whose `column` holds the identifier, blanks at its ends aside; None where nowhere.

    A number is compared as a number: 7 finds 7 and 7.0, but not the text 007.
    """
    wanted = identifier.strip()
    found: ObjectRow | None = None
    n = 0
    for partition in catalog.partitions:
        first = 0
        for batch in partition.batches([column], BATCH_ROWS):
            rows = np.flatnonzero(_holds(batch.column(0), wanted))
            n += len(rows)
            if found is None and len(rows):
                found = ObjectRow(partition, first + int(rows[0]), 0)
            first += batch.num_rows
    return None if found is None else ObjectRow(found.partition, found.row, n)


def _holds(column: pa.Array, wanted: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which values of a column (n,) are the identifier."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        try:
            number = pa.scalar(wanted).cast(column.type)
        except pa.ArrowInvalid:
            return np.zeros(len(column), dtype=bool)
        same = pc.equal(column, number)
    else:
        same = pc.equal(pc.utf8_trim_whitespace(column.cast(pa.large_string())), wanted)
    return np.asarray(pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False), dtype=bool)


def read_object(place: ObjectRow, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Return the row of an object, as a batch of one row."""
    return next(_from_row(place, columns)).slice(0, 1)


def _from_row(place: ObjectRow, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in place.partition.batches(columns, BATCH_ROWS):
        if first <= place.row < first + batch.num_rows:
            yield batch.slice(place.row - first)
        first += batch.num_rows
