"""Reading labelled rows by the workers of an engine, a file or a part of one each; rows come back in catalogue order.

A worker writes each batch into a folder that all machines share.  Here the batches are read again one by one, so that
rows, shards and hashes are the same as with a single process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Divisible, Partition
from catalogs.files.atomic import atomic_path
from flows.engines.engine import Engine, Lost
from flows.errors import EngineError
from flows.features.table_choice import training_table
from flows.labels.source import LabelSource
from flows.specification.specification import Specification
from flows.training._collected import Part
from flows.training._read_rows import BatchOfRows, Counted, RowReading
from flows.training._stored_rows import check_seen

__all__ = ["parts_of", "read_by_workers"]

PIECE_ROWS = 8 * BATCH_ROWS
"""Rows of a part of a large file: whole batches, seconds of work."""
CONTENT = "content-"
"""Prefix of the names of those arrays that hold a column as bytes."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A file, or a part of one, that a worker reads: its number among all, its catalogue's number, and the rows."""

    number: int
    catalog: int
    partition: Partition


@dataclass(frozen=True)
class Report:
    """What a worker reports on a file: the counts of each batch, and those of its source of labels."""

    batches: tuple[Counted, ...]
    source: LabelSource


@dataclass(frozen=True, eq=False)
class PieceReader:
    """Reads a file on a worker, and writes its batches into the folder."""

    readings: tuple[RowReading, ...]
    source: LabelSource
    folder: Path

    def __call__(self, piece: Piece) -> Report:
        """Read a file and write its batches; return what was counted."""
        check_seen(self.folder)
        reading, source = self.readings[piece.catalog], self.source.counting()
        counted: list[Counted] = []
        for batch in piece.partition.batches(reading.readers.general.read, BATCH_ROWS):
            read = reading.read(batch, source)
            _write(_file(self.folder, piece.number, len(counted)), read)
            counted.append(read.counted)
        return Report(tuple(counted), source.counts_alone())


def read_by_workers(
    readings: Sequence[RowReading], source: LabelSource, engine: Engine, folder: Path
) -> Iterator[BatchOfRows]:
    """Yield the batches of catalogues in their order; the source of labels gets the counts of the workers.

    Raises
    ------
    EngineError
        If the workers of a file were killed each time.
    """
    absolute = [_with_absolute_path(reading.catalog, reading.specification) for reading in readings]
    partitions = [(c, p) for c, catalog in enumerate(absolute) for p in parts_of(catalog)]
    pieces = [Piece(i, c, p) for i, (c, p) in enumerate(partitions)]
    waiting: dict[int, Report] = {}
    next_number = 0
    reader = PieceReader(tuple(reading.without_files() for reading in readings), source, folder.absolute())
    with closing(engine.map(reader, pieces)) as reports:
        for piece, report in reports:
            if isinstance(report, Lost):
                raise EngineError(f"{piece.partition.path}: {report.reason}")
            waiting[piece.number] = report
            while next_number in waiting:
                done = waiting.pop(next_number)
                source.add(done.source)
                for j, counted in enumerate(done.batches):
                    yield _read_and_remove(_file(folder, next_number, j), counted)
                next_number += 1


def parts_of(catalog: Catalog) -> list[Partition]:
    """Return what workers read of a catalogue, in its order: its files, large ones in parts."""
    counted = (p for p in catalog.partitions if p.counted)
    return [part for p in counted for part in (p.divided(PIECE_ROWS) if isinstance(p, Divisible) else [p])]


def _with_absolute_path(catalog: Catalog, specification: Specification) -> Catalog:
    """Return the catalogue with absolute paths, since a worker may run in another folder."""
    if catalog.path.is_absolute():
        return catalog
    return training_table(specification).open(catalog.path.absolute())


def _file(folder: Path, piece: int, batch: int) -> Path:
    return folder / f"{piece:06d}-{batch:04d}.npz"


def _write(path: Path, read: BatchOfRows) -> None:
    """Write a batch to its final name at once: another worker may have begun this file, or may still write it."""
    arrays: dict[str, Any] = {
        f.name: a for f in fields(Part) if (a := getattr(read.part, f.name)) is not None
    }
    arrays |= {CONTENT + name: np.frombuffer(text, np.uint8) for name, text in read.content.items()}
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)


def _read_and_remove(path: Path, counted: Counted) -> BatchOfRows:
    """Return a batch from its file, and remove the file."""
    with np.load(path, allow_pickle=False) as stored:
        arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
    path.unlink()
    content = {
        n.removeprefix(CONTENT): arrays.pop(n).tobytes() for n in list(arrays) if n.startswith(CONTENT)
    }
    part: dict[str, Any] = {f.name: arrays.get(f.name) for f in fields(Part)}
    return BatchOfRows(Part(**part), content, counted)
