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

from catalogs.files.atomic import atomic_path

__all__ = ["TrainingRows", "read_rows", "write_array", "write_rows"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Features X (N, F), 0 where `missing`; class indices `target` (N,); the mask `held_out` (N,); weights or None."""

    X: Floats
    missing: Mask
    target: NDArray[np.intp]
    held_out: Mask
    weight: Floats | None = None
    votes: Floats | None = None  # (N, K), if votes are the targets; `target` has most of them
    errors: Floats | None = None  # (N, F), one sigma, if the specification states some
    group: NDArray[np.uint64] | None = None  # (N,), equal for rows that the split keeps together
    name: NDArray[np.uint64] | None = None  # (N,), a hash of the object's identifier, if it has one
    identifier: NDArray[np.bytes_] | None = None  # (N,) the object's identifier: 100 bytes of UTF-8 at most
    position: Floats | None = None  # (N, 2) right ascension and declination in degrees; NaN where unknown
    magnitude: Floats | None = None  # (N,), NaN where missing
    magnitude_name: NDArray[np.str_] | None = None  # () the column of the magnitudes
    annotator: NDArray[np.intp] | None = None  # (N,) the number of each row's annotator, if known
    number: NDArray[np.intp] | None = None  # (N,) the rows' numbers among all, if these are a sample
    # p(recorded | true class), (K, K) or by annotator (A, K, K); None where labels are right
    confusion: Floats | None = None

    @property
    def response(self) -> Floats | NDArray[np.intp]:
        """The targets of fits: votes (N, K), or class indices (N,)."""
        return self.target if self.votes is None else self.votes

    def confused(self, rows: Mask) -> Floats | None:
        """Return the confusion of the rows in a mask (N,): (K, K), or (n, K, K) by row; None where labels are right."""
        if self.confusion_by_annotator is None or self.annotator is None:
            return self.confusion
        return np.asarray(self.confusion_by_annotator[self.annotator[rows]])

    @property
    def confusion_by_annotator(self) -> Floats | None:
        """The confusion of each annotator (A, K, K); None where all labels have the same one, or are right."""
        return self.confusion if self.confusion is not None and self.confusion.ndim > 2 else None

    @property
    def numbers(self) -> NDArray[np.intp]:
        """The rows' numbers among all rows (N,)."""
        return np.arange(len(self.target)) if self.number is None else self.number

    @property
    def training(self) -> Mask:
        """The rows (N,) that fits see."""
        return ~self.held_out


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
