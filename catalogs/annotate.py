"""Add columns to a catalogue: every partition is copied with them to an output folder, streamed and atomic.

The writers of the formats share `computed_batches`: an ordered pipeline in which threads compute while the
caller reads and writes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from catalogs.annotations import NewColumn, Provenance
from catalogs.atomic import StorageError, atomic_folder, check_free_space, sweep
from catalogs.catalog import BATCH_ROWS, Catalog, Compute, Partition, Progress
from catalogs.errors import CatalogError, OutputExistsError
from catalogs.old_columns import Mode, copying, old_columns
from catalogs.own_columns import with_user_bits

__all__ = ["CheckedCompute", "Computed", "Mode", "NewValues", "annotate", "computed_batches", "finish"]

NewValues = Mapping[str, np.ndarray[Any, Any]]
Computed = tuple[pa.RecordBatch, NewValues]

READ_AHEAD = 1
"""Batches read beyond those being computed: enough to keep the threads busy, and no more memory than that."""

HEADROOM = 1 << 20
"""Bytes a partition for what no estimate knows: headers, padding, statistics."""

UNSIZED_TEXT = 16
"""Bytes a row that a text of unstated width is taken to need."""


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
            raise ValueError(f"compute returned the columns {sorted(new)}, but {missing} were promised too")
        for column in self.columns:
            _check_values(column, new[column.name], batch.num_rows)
        return {c.name: new[c.name] for c in self.columns}


def annotate(
    cat: Catalog,
    out: Path,
    columns: Sequence[NewColumn],
    compute: Compute,
    *,
    read: Sequence[str],
    provenance: Provenance | None = None,
    rows: int = BATCH_ROWS,
    threads: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    mode: Mode = "annotated",
    keep: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Copy every partition, margins too, to the folder `out` with new columns; return the files written.

    A file keeps its name, or its path below the catalogue's root.  Columns that an earlier annotation made are
    replaced, the users' bits of its flags kept.  A "slim" copy has, of the old columns, those of `keep` only: id
    and position.  A catalogue with files of its own beside the partitions (HATS) appears at once, when all are
    whole; of a part of one, see `finish`.  What can be wrong before any work starts is checked before.
    """
    old = old_columns(cat, columns, mode, keep)
    for name in read:
        cat.column(name)
    partitions = [copying(partition, cat, old) for partition in cat.partitions]
    finals = [out / partition.key for partition in cat.partitions]
    _check_places(cat.partitions, finals, overwrite=overwrite)
    _check_whole(cat, out, finals, overwrite=overwrite)
    check_free_space(out, _needed_bytes(cat.partitions, columns))
    read, compute = with_user_bits(read, compute, old.replaced, columns)
    checked = CheckedCompute(tuple(columns), compute)
    with _destination(cat, out) as folder:
        for partition in partitions:
            _make_folder((folder / partition.key).parent)
            partition.write_annotated(
                folder / partition.key,
                columns,
                checked,
                read=read,
                provenance=(provenance or Provenance()).covering(columns),
                rows=rows,
                threads=threads or _usable_cpus(),
                progress=progress,
            )
        if _is_whole(cat):
            finish(cat, folder, columns, provenance=provenance, mode=mode, keep=keep)
    return tuple(finals)


def finish(
    cat: Catalog,
    folder: Path,
    columns: Sequence[NewColumn],
    *,
    provenance: Provenance | None = None,
    mode: Mode = "annotated",
    keep: Sequence[str] = (),
) -> None:
    """Write what a catalogue has beside its partitions, all of which lie annotated in `folder` at their keys.

    For who annotates them one by one (`replace(cat, partitions=...)`), on several machines or to go on later.
    Nothing has to be done for formats without such; doing it again gives the same.
    """
    if cat.whole is not None:
        told = (provenance or Provenance()).covering(columns)
        cat.whole.finish(folder, columns, told, old_columns(cat, columns, mode, keep))


def computed_batches(
    partition: Partition, read: Sequence[str], compute: Compute, rows: int = BATCH_ROWS, threads: int = 1
) -> Generator[Computed]:
    """Yield every batch of the columns `read` with what `compute` made of it, in the file's order.

    Reading happens in the caller's thread, computing in `threads` others.  Batches have the same rows
    whatever the number of threads, so the result does too.  A failure in any batch ends it at once.
    """
    pending: deque[Future[Computed]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="blr-compute")
    try:
        for batch in partition.batches(read, rows):
            pending.append(pool.submit(_compute_one, compute, batch))
            if len(pending) > threads + READ_AHEAD:
                yield _oldest(pending)
        while pending:
            yield _oldest(pending)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _compute_one(compute: Compute, batch: pa.RecordBatch) -> Computed:
    return batch, compute(batch)


def _oldest(pending: deque[Future[Computed]]) -> Computed:
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
            f"compute returned shape {values.shape} for '{column.name}'; expected one value for each of "
            f"the {n_rows} rows"
        )
    if pa.types.is_string(column.datatype):
        if values.dtype.kind not in "UTO":
            raise TypeError(f"compute returned {values.dtype} for '{column.name}'; expected text")
        return
    expected = np.dtype(column.datatype.to_pandas_dtype())
    if values.dtype != expected:
        raise TypeError(
            f"compute returned {values.dtype} for '{column.name}'; expected {expected}: convert it there, "
            "where it is known what is lost"
        )


def _is_whole(cat: Catalog) -> bool:
    """Say whether this is all of a catalogue that is more than its partitions."""
    return cat.whole is not None and cat.whole.keys == {p.key for p in cat.partitions}


@contextmanager
def _destination(cat: Catalog, out: Path) -> Iterator[Path]:
    """Give the folder to write to: for a whole catalogue one that is temporary until all is there."""
    _make_folder(out)
    if cat.whole is None or not _is_whole(cat):
        yield out
        return
    with atomic_folder(out / cat.whole.name) as folder:
        yield folder


def _check_places(partitions: Sequence[Partition], finals: Sequence[Path], *, overwrite: bool) -> None:
    for partition, final in zip(partitions, finals, strict=True):
        if not final.exists():
            continue
        if final.samefile(partition.path):
            raise CatalogError(
                f"{partition.path} would be replaced by its own annotated copy; choose another output folder"
            )
        if not overwrite:
            raise OutputExistsError(
                f"{final} exists already; choose another output folder, or ask to overwrite it"
            )


def _check_whole(cat: Catalog, out: Path, finals: Sequence[Path], *, overwrite: bool) -> None:
    """Raise where a folder has the place of a whole catalogue, unless it is one that may be replaced."""
    if cat.whole is None or not _is_whole(cat) or not (place := out / cat.whole.name).exists():
        return
    if place.samefile(cat.path):
        raise CatalogError(
            f"{cat.path} would be replaced by its own annotated copy; choose another output folder"
        )
    if not overwrite or not any(final.exists() for final in finals):
        raise OutputExistsError(
            f"{place} exists already{' and is something else' if overwrite else ''}; choose another output folder"
            f"{', or move it away' if overwrite else ', or ask to overwrite it'}"
        )


def _needed_bytes(partitions: Sequence[Partition], columns: Sequence[NewColumn]) -> int:
    width = sum(_width(c) for c in columns)
    return sum(p.path.stat().st_size + p.n_rows * width + HEADROOM for p in partitions)


def _width(column: NewColumn) -> int:
    if pa.types.is_string(column.datatype):
        return column.width or UNSIZED_TEXT
    return (int(column.datatype.bit_width) + 7) // 8


def _usable_cpus() -> int:
    """Return how many processors this process may use, which on a shared machine are not all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _make_folder(folder: Path) -> None:
    """Make the folder, and clear it of what a killed run has left there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the folder {folder} cannot be made: {error.strerror}; choose another output folder"
        ) from error
    sweep(folder)
