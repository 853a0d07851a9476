"""Pieces of catalogues, read by the workers of an engine: a file each, or a part of a large one.

What workers find in the pieces comes back in catalogue order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Divisible, Partition
from catalogs.table_choice import TableChoice
from flows.engines.engine import Engine, Lost
from flows.errors import EngineError

__all__ = ["Piece", "Workers", "pieces_of"]

R = TypeVar("R")

PIECE_ROWS = 8 * BATCH_ROWS
"""Rows of a part of a large file: whole batches, seconds of work."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A file, or a part of one: its number among all, its catalogue's number, and its rows.

    `first` is the number of its first row among the rows of all catalogues.
    """

    number: int
    catalog: int
    partition: Partition
    first: int = 0


@dataclass(frozen=True, eq=False)
class Workers:
    """An engine, and the pieces that its workers read; other processes than this one."""

    engine: Engine
    pieces: tuple[Piece, ...]

    def in_order(self, work: Callable[[Piece], R]) -> Generator[tuple[Piece, R]]:
        """Yield each piece with what the workers found in it, in catalogue order.

        Where the caller closes the iterator early, work that has begun is finished, and no other begins.

        Raises
        ------
        EngineError
            If the workers of a piece were killed each time; and as `Engine.map` does.
        """
        waiting: dict[int, R] = {}
        next_number = 0
        with closing(self.engine.map(work, self.pieces)) as results:
            for piece, result in results:
                if isinstance(result, Lost):
                    raise EngineError(f"{piece.partition.path}: {result.reason}")
                waiting[piece.number] = result
                while next_number in waiting:
                    yield self.pieces[next_number], waiting.pop(next_number)
                    next_number += 1


def pieces_of(catalogs: Sequence[Catalog], choice: TableChoice) -> tuple[Piece, ...]:
    """Return what workers read of catalogues, in order: their files, large ones in parts, by absolute paths."""
    pieces: list[Piece] = []
    first = 0
    for number, catalog in enumerate(catalogs):
        for part in _parts(_with_absolute_path(catalog, choice)):
            pieces.append(Piece(len(pieces), number, part, first))
            first += part.n_rows
    return tuple(pieces)


def _parts(catalog: Catalog) -> Iterator[Partition]:
    for partition in catalog.partitions:
        if partition.counted:
            yield from partition.divided(PIECE_ROWS) if isinstance(partition, Divisible) else [partition]


def _with_absolute_path(catalog: Catalog, choice: TableChoice) -> Catalog:
    """Return the catalogue with absolute paths, since a worker may run in another folder."""
    return catalog if catalog.path.is_absolute() else choice.open(catalog.path.absolute())
