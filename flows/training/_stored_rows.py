"""Labelled rows that are too many for the memory: arrays on the disk, read a shard at a time.

A shard is a range of consecutive rows.  Its boundaries depend on the number of rows alone, not on the engine.
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
from flows.training._freed_memory import return_freed_arrays
from flows.training._rows import TrainingRows

__all__ = ["SHARD_ROWS", "WEIGHT_OF_ALL", "ArrayWriter", "Shard", "StoredRows", "check_seen", "shards_of"]

Array = np.ndarray[Any, Any]

SHARD_ROWS = 65_536
"""Rows of a shard: about ten megabytes, which fit into the memory of any worker."""

WEIGHT_OF_ALL = "weight_of_all"
"""Array of the weights for fits to all rows, where they are not those for fits to the training rows."""

Shard = tuple[int, int]
"""The number of a shard's first row, and of the row after its last."""


def shards_of(n_rows: int) -> list[Shard]:
    """Return the shards of so many rows, in order."""
    return [(i, min(i + SHARD_ROWS, n_rows)) for i in range(0, n_rows, SHARD_ROWS)]


def check_seen(folder: Path) -> None:
    """Raise EngineError where this process, a worker, does not see the folder of the rows."""
    if not folder.is_dir():
        raise EngineError(
            f"{folder}: a worker does not see this folder, expected a model store on a disk that all "
            "machines share under one path; choose such a store with --store"
        )


class ArrayWriter:
    """Writes a `.npy` file row by row; the header gets the number of rows when the writer is closed.

    The file is open only while rows are written, so that a run that fails leaves no open file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dtype: np.dtype[Any] = np.dtype(float)
        self._begun = False
        self._row: tuple[int, ...] = ()
        self._n = 0

    def append(self, rows: Array) -> None:
        """Add rows; all get the type of the first ones.

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
        """Write the header with the final number of rows; without rows, no file is made."""
        if self._begun:
            with self._path.open("r+b") as stream:
                self._write_header(stream)

    def _write_header(self, stream: IO[bytes]) -> None:
        # NumPy pads the header, so that a larger number of rows fits into the same bytes.
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
    """All labelled rows in a folder, a `.npy` file for each array."""

    folder: Path

    def __post_init__(self) -> None:
        """Keep the memory of this process small from now on."""
        return_freed_arrays()

    @cached_property
    def n_rows(self) -> int:
        """N, the number of rows."""
        return len(self._mapped("target"))

    @property
    def shards(self) -> list[Shard]:
        """The shards of all rows, in order."""
        return shards_of(self.n_rows)

    def has(self, name: str) -> bool:
        """Say whether there is an array of that name."""
        return (self.folder / f"{name}.npy").is_file()

    def read(self, name: str, shard: Shard) -> Array:
        """Return a copy of a shard's rows: a memory map that stays open would count as memory in use."""
        return np.array(self._mapped(name)[slice(*shard)])

    def at(self, name: str, numbers: Array) -> Array:
        """Return a copy of the rows with these numbers (n,)."""
        return np.array(self._mapped(name)[numbers])

    def weights(self, shard: Shard, *, held_out_too: bool = False) -> Array:
        """Return the weights of a shard's rows: ones where rows have none.

        If `held_out_too`, they are those for a fit to all rows.
        """
        name = WEIGHT_OF_ALL if held_out_too and self.has(WEIGHT_OF_ALL) else "weight"
        return self.read(name, shard) if self.has(name) else np.ones(shard[1] - shard[0])

    def _mapped(self, name: str) -> Array:
        mapped: Array = np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return mapped

    def rows(self, shard: Shard, *, held_out_too: bool = False) -> TrainingRows:
        """Return a shard's rows in the form of rows in memory, with the arrays that fits and their judgement need.

        If `held_out_too`, their weights are those for a fit to all rows.
        """
        return TrainingRows(
            X=self.read("X", shard),
            missing=self.read("missing", shard),
            target=self.read("target", shard).astype(np.intp),
            held_out=self.read("held_out", shard),
            weight=self.weights(shard, held_out_too=held_out_too) if self.has("weight") else None,
            votes=self.read("votes", shard) if self.has("votes") else None,
            annotator=self.read("annotator", shard) if self.has("annotator") else None,
        )

    def each(self, *, held_out_too: bool = False) -> Iterator[TrainingRows]:
        """Yield the rows of each shard; `held_out_too` as for `rows`."""
        return (self.rows(shard, held_out_too=held_out_too) for shard in self.shards)

    def add(self, name: str, of: Callable[[Shard], Array]) -> None:
        """Write an array, shard by shard; it replaces an array of the same name."""
        path = self.folder / f"{name}.npy"
        unfinished = path.with_suffix(".part")
        with ArrayWriter(unfinished) as written:
            for shard in self.shards:
                written.append(of(shard))
        unfinished.replace(path)

    def remove(self, name: str) -> None:
        """Remove an array that is not needed any more."""
        (self.folder / f"{name}.npy").unlink()

    def moved(self, folder: Path) -> StoredRows:
        """Move the rows to another folder on the same disk, and return them there."""
        return StoredRows(self.folder.rename(folder))
