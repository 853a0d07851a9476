"""The labelled rows of a training: the same for all candidates.

Kept as one `.npy` file an array, so that every candidate reads them without parsing a catalogue again.
Shapes: N rows, F features.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.files.atomic import atomic_path

__all__ = ["TrainingRows", "read_rows", "write_array", "write_rows"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """X (N, F) with 0 where `missing` (N, F); `target` (N,) class indices; `held_out` (N,); `weight` (N,) or None."""

    X: Floats
    missing: Mask
    target: NDArray[np.intp]
    held_out: Mask
    weight: Floats | None = None
    votes: Floats | None = None  # (N, K), where they are the targets; `target` is then the class of the most
    errors: Floats | None = None  # (N, F), one sigma, where some are stated
    group: NDArray[np.uint64] | None = None  # (N,), equal for rows that the split keeps together
    name: NDArray[np.uint64] | None = None  # (N,), a hash of the object's identifier, where there is one
    identifier: NDArray[np.bytes_] | None = None  # (N,) the object's identifier as UTF-8, its first 100 bytes
    position: Floats | None = None  # (N, 2) right ascension and declination, degrees; NaN where not known
    magnitude: Floats | None = None  # (N,), NaN where missing; the column's name is `magnitude_name`, ()
    magnitude_name: NDArray[np.str_] | None = None
    annotator: NDArray[np.intp] | None = None  # (N,) who labelled each row, where a column says so
    # p(recorded | true class), (K, K) or by annotator (A, K, K); None for right labels
    confusion: Floats | None = None

    @property
    def response(self) -> Floats | NDArray[np.intp]:
        """What fits are of: votes (N, K), or class indices (N,)."""
        return self.target if self.votes is None else self.votes

    def confused(self, rows: Mask) -> Floats | None:
        """Return the confusion of the rows in a mask (N,), (K, K) or one each (n, K, K); None of right labels."""
        if self.confusion is None or self.confusion.ndim == 2 or self.annotator is None:
            return self.confusion
        return np.asarray(self.confusion[self.annotator[rows]])

    @property
    def training(self) -> Mask:
        """The rows (N,) that fits see."""
        return ~self.held_out


def write_rows(rows: TrainingRows, folder: Path) -> None:
    """Write the rows, one file an array, each whole or not at all."""
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
