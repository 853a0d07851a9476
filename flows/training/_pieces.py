"""Reading labelled rows by the workers of an engine, a piece each; rows come back in catalogue order.

A worker writes each batch into a folder that all machines share.  Here the batches are read again one by one, so that
rows, shards and hashes are the same as with a single process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from catalogs.catalog.catalog import BATCH_ROWS
from catalogs.files.atomic import atomic_path
from flows.engines.engine import Engine
from flows.engines.in_order import in_order
from flows.inputs.pieces import Piece, Workers
from flows.labels.source import LabelSource
from flows.training._collected import Part
from flows.training._read_rows import BatchOfRows, Counted, RowReading
from flows.training._stored_rows import check_seen

__all__ = ["ByEngine", "read_by_workers"]

R = TypeVar("R")

CONTENT = "content-"
"""Prefix of the names of those arrays that hold a column as bytes."""


@dataclass(frozen=True)
class ByEngine:
    """Hands pieces out to the workers of an engine; an error calls a piece by its file."""

    engine: Engine

    def __call__(self, work: Callable[[Piece], R], pieces: Sequence[Piece], /) -> Generator[tuple[Piece, R]]:
        """Yield each piece with what a worker found in it, in their order."""
        return in_order(
            self.engine, work, pieces, number=lambda p: p.number, name=lambda p: str(p.partition.path)
        )


@dataclass(frozen=True)
class Report:
    """What a worker reports on a piece: the counts of each batch, and those of its source of labels."""

    batches: tuple[Counted, ...]
    source: LabelSource


@dataclass(frozen=True, eq=False)
class PieceReader:
    """Reads a piece on a worker, and writes its batches into the folder."""

    readings: tuple[RowReading, ...]
    source: LabelSource
    folder: Path

    def __call__(self, piece: Piece) -> Report:
        """Read a piece and write its batches; return what was counted."""
        check_seen(self.folder)
        reading, source = self.readings[piece.catalog], self.source.counting()
        counted: list[Counted] = []
        for batch in piece.partition.batches(reading.readers.general.read, BATCH_ROWS):
            read = reading.read(batch, source)
            _write(_file(self.folder, piece.number, len(counted)), read)
            counted.append(read.counted)
        return Report(tuple(counted), source.counts_alone())


def read_by_workers(
    readings: Sequence[RowReading], source: LabelSource, workers: Workers, folder: Path
) -> Iterator[BatchOfRows]:
    """Yield the batches of catalogues in their order; the source of labels gets the counts of the workers."""
    reader = PieceReader(tuple(reading.without_files() for reading in readings), source, folder.absolute())
    for piece, report in workers.in_order(reader):
        source.add(report.source)
        for j, counted in enumerate(report.batches):
            yield _read_and_remove(_file(folder, piece.number, j), counted)


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
