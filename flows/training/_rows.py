"""The labelled rows of a training, which are the same for all candidates.

Each array is a `.npy` file, so that no candidate has to parse a catalogue again.
Shapes: N rows, F features.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.candidates.rows import LabelledRows, TrainingSet
from catalogs.files.atomic import atomic_path

__all__ = ["TrainingRows", "read_rows", "rows_of", "write_array", "write_rows"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainingRows(LabelledRows):
    """The rows that fits see and that judge them, with what a catalogue says of their objects."""

    name: NDArray[np.uint64] | None = None  # (N,), a hash of the object's identifier, if it has one
    identifier: NDArray[np.bytes_] | None = None  # (N,) the object's identifier: 100 bytes of UTF-8 at most
    position: Floats | None = None  # (N, 2) right ascension and declination in degrees; NaN where unknown
    magnitude: Floats | None = None  # (N,), NaN where missing
    magnitude_name: NDArray[np.str_] | None = None  # () the column of the magnitudes
    number: NDArray[np.intp] | None = None  # (N,) the rows' numbers among all, if these are a sample

    @property
    def numbers(self) -> NDArray[np.intp]:
        """The rows' numbers among all rows (N,)."""
        return np.arange(len(self.target)) if self.number is None else self.number


def rows_of(data: TrainingSet) -> TrainingRows:
    """Return the rows of data that were made of a catalogue's rows."""
    rows = data.rows
    assert isinstance(rows, TrainingRows)  # noqa: S101  `blr` changes their arrays, not their type
    return rows


def write_rows(rows: TrainingRows, folder: Path) -> None:
    """Write the rows, a file for each array, whole or not at all."""
    for part in fields(rows):
        array = getattr(rows, part.name)
        if array is not None:
            write_array(array, folder / f"{part.name}.npy")


def write_array(array: np.ndarray[Any, Any], path: Path) -> None:
    """Write an array, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)


def read_rows(folder: Path) -> TrainingRows:
    """Return the rows that `write_rows` wrote."""
    paths = {part.name: folder / f"{part.name}.npy" for part in fields(TrainingRows)}
    return TrainingRows(
        **{name: np.load(path, allow_pickle=False) for name, path in paths.items() if path.exists()}
    )
