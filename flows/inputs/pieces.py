"""Pieces of catalogues, each read by one worker: a file, or a part of a large one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Divisible, Partition
from catalogs.table_choice import TableChoice

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


class Reading(Protocol):
    """Has a function called with each piece, somewhere; yields the pieces with its results, in their order."""

    def __call__(self, work: Callable[[Piece], R], pieces: Sequence[Piece], /) -> Generator[tuple[Piece, R]]:
        """Yield each piece with what was found in it."""
        ...


@dataclass(frozen=True, eq=False)
class Workers:
    """The pieces that workers read, which are other processes than this one, and what hands these out."""

    reading: Reading
    pieces: tuple[Piece, ...]

    def in_order(self, work: Callable[[Piece], R]) -> Generator[tuple[Piece, R]]:
        """Yield each piece with what the workers found in it, in catalogue order."""
        return self.reading(work, self.pieces)


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
