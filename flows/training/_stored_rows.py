"""Labelled rows that are too many for the memory: arrays on the disk, read a shard at a time.

A shard is so many consecutive rows, whoever works on it: its boundaries depend on the number of rows alone.
Shapes: N rows, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from catalogs.files.atomic import StorageError
from flows.errors import EngineError
from flows.training._rows import TrainingRows

__all__ = ["SHARD_ROWS", "ArrayWriter", "Shard", "StoredRows", "check_seen"]

Array = np.ndarray[Any, Any]

SHARD_ROWS = 65_536
"""Rows of a shard: some ten megabytes, so that a worker's memory does not matter."""

Shard = tuple[int, int]
"""The first row of a shard, and the one after its last."""


def check_seen(folder: Path) -> None:
    """Raise EngineError where a worker does not see the folder of the rows."""
    if not folder.is_dir():
        raise EngineError(
            f"{folder}: a worker does not see this folder, expected a model store on a disk that all "
            "machines share under one path; choose such a store with --store"
        )


class ArrayWriter:
    """A `.npy` file that grows by rows; its header says how many once it is closed.

    The file is open only while rows are written, so that nothing is left open where a run fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dtype: np.dtype[Any] = np.dtype(float)
        self._begun = False
        self._row: tuple[int, ...] = ()
        self._n = 0

    def append(self, rows: Array) -> None:
        """Add rows; their type is that of the first ones.

        Raises
        ------
        StorageError
            If there is no room on the disk.
        """
        first, self._begun = not self._begun, True
        if first:
            self._dtype, self._row = rows.dtype, rows.shape[1:]
        try:
            with self._path.open("wb" if first else "ab") as stream:
                if first:
                    self._write_header(stream)
                stream.write(np.ascontiguousarray(rows, dtype=self._dtype).tobytes())
        except OSError as error:
            raise StorageError(
                f"{self._path.parent}: got '{error.strerror}' after {self._n:,} labelled rows, expected enough space "
                "for all of them; free some space, or choose a model store on another disk with --store"
            ) from error
        self._n += len(rows)

    def close(self) -> None:
        """Write the header anew; without rows there is no file."""
        if self._begun:
            with self._path.open("r+b") as stream:
                self._write_header(stream)

    def _write_header(self, stream: IO[bytes]) -> None:
        # NumPy pads the header so that the number of rows may grow in place.
        described = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._n, *self._row),
        }
        np.lib.format.write_array_header_1_0(stream, described)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()


@dataclass(frozen=True)
class StoredRows:
    """All labelled rows in a folder, one `.npy` file an array."""

    folder: Path

    @cached_property
    def n_rows(self) -> int:
        """N."""
        return len(self._mapped("target"))

    @property
    def shards(self) -> list[Shard]:
        """The shards of all rows, in order."""
        return [(i, min(i + SHARD_ROWS, self.n_rows)) for i in range(0, self.n_rows, SHARD_ROWS)]

    def has(self, name: str) -> bool:
        """Say whether there is an array of that name."""
        return (self.folder / f"{name}.npy").is_file()

    def read(self, name: str, shard: Shard) -> Array:
        """Return the rows of a shard, copied: pages of a map that lives count as memory in use."""
        return np.array(self._mapped(name)[slice(*shard)])

    def _mapped(self, name: str) -> Array:
        mapped: Array = np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return mapped

    def rows(self, shard: Shard) -> TrainingRows:
        """Return the rows of a shard as those in memory are: what fits and their judgement need of them."""
        return TrainingRows(
            X=self.read("X", shard),
            missing=self.read("missing", shard),
            target=self.read("target", shard).astype(np.intp),
            held_out=self.read("held_out", shard),
            weight=self.read("weight", shard) if self.has("weight") else None,
            votes=self.read("votes", shard) if self.has("votes") else None,
        )

    def each(self) -> Iterator[TrainingRows]:
        """Yield the rows of each shard."""
        return (self.rows(shard) for shard in self.shards)

    def add(self, name: str, of: Callable[[Shard], Array]) -> None:
        """Write an array, shard by shard; one that was there is replaced."""
        path = self.folder / f"{name}.npy"
        unfinished = path.with_suffix(".part")
        with ArrayWriter(unfinished) as written:
            for shard in self.shards:
                written.append(of(shard))
        unfinished.replace(path)

    def moved(self, folder: Path) -> StoredRows:
        """Return the rows in another place of the same disk."""
        return StoredRows(self.folder.rename(folder))
