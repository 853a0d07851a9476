"""From the batches of a partition to their new columns: an ordered pipeline that all writers share.

Threads compute while the caller reads and, where rows have no place of their own in the file, writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import Annotation, Compute, Partition
from catalogs.catalog.new_columns import NewColumn

__all__ = ["CheckedCompute", "Computed", "NewValues", "computed_batches", "each_batch", "in_order"]

NewValues = Mapping[str, np.ndarray[Any, Any]]
Computed = tuple[pa.RecordBatch, NewValues]

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class CheckedCompute:
    """A `Compute` held to its promise: every new column, one value a row, of the promised type."""

    columns: tuple[NewColumn, ...]
    compute: Compute

    def __call__(self, batch: pa.RecordBatch) -> NewValues:
        """Return the new columns, in their order and no others."""
        new = self.compute(batch)
        missing = [c.name for c in self.columns if c.name not in new]
        if missing:
            raise ValueError(
                f"compute returned the columns {sorted(new)}, expected {missing} too, which it was called "
                "for; return all new columns"
            )
        for column in self.columns:
            _check_values(column, new[column.name], batch.num_rows)
        return {c.name: new[c.name] for c in self.columns}


def computed_batches(partition: Partition, annotation: Annotation) -> Generator[Computed]:
    """Yield every batch of the columns read, and the new ones of the same rows, in the file's order.

    Batches have the same rows whatever the number of threads, so the result does too.
    """
    batches = partition.batches(annotation.read, annotation.rows)
    return each_batch(batches, lambda batch: (batch, annotation.compute(batch)), annotation)


def each_batch(
    batches: Iterable[pa.RecordBatch], work: Callable[[pa.RecordBatch], Result], annotation: Annotation
) -> Generator[Result]:
    """Yield what `work` makes of each batch, in order; `progress` hears of the rows once that was taken."""
    counted = in_order(batches, lambda batch: (batch.num_rows, work(batch)), annotation.threads)
    with closing(counted):
        for n_rows, result in counted:
            yield result
            if annotation.progress is not None:
                annotation.progress(n_rows)


def in_order(items: Iterable[Item], work: Callable[[Item], Result], threads: int) -> Generator[Result]:
    """Yield what `work` makes of each item, in their order.

    Items are made (read) in the caller's thread, working goes on in `threads` others, on few items at a time.  What
    comes out is the same whatever the number of threads.  A failure with any item ends it at once.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="blr-compute")
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            # One batch waits for each thread, which keeps all threads busy and needs little memory.
            if len(pending) > threads:
                yield _oldest(pending)
        while pending:
            yield _oldest(pending)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _oldest(pending: deque[Future[Result]]) -> Result:
    """Return the first result as soon as it is there, or raise what any other has raised meanwhile."""
    while not pending[0].done():
        wait([future for future in pending if not future.done()], return_when=FIRST_COMPLETED)
        for future in pending:
            if future.done():
                future.result()
    return pending.popleft().result()


def _check_values(column: NewColumn, values: np.ndarray[Any, Any], n_rows: int) -> None:
    if values.shape != (n_rows,):
        raise ValueError(
            f"compute returned shape {values.shape} for '{column.name}'; expected one value for each of the "
            f"{n_rows} rows: compute all rows of the batch: compute all rows of the batch"
        )
    if pa.types.is_string(column.datatype):
        if values.dtype.kind not in "UTO":
            raise TypeError(f"compute returned {values.dtype} for '{column.name}'; expected text")
        return
    expected = np.dtype(column.datatype.to_pandas_dtype())
    if values.dtype != expected:
        raise TypeError(
            f"compute returned {values.dtype} for '{column.name}'; expected {expected}: convert the values "
            "in compute, so that you decide how they are rounded"
        )
