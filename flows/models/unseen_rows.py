"""Labelled rows with the probabilities of fits that have not seen them: what counts of classes are calibrated by.

They are the held-out rows, or all rows where none is held out, each by the fits without it.  They lie beside the model,
as `unseen_rows.parquet`.  Shapes: N rows, K classes, F features of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.files.atomic import atomic_path
from flows.errors import ModelError

__all__ = ["UNSEEN_ROWS_FILE", "UnseenRows", "read_unseen_rows", "write_unseen_rows"]

UNSEEN_ROWS_FILE = "unseen_rows.parquet"
MOST_ROWS = 200_000
"""Most rows that are kept: evenly spaced ones, since a row more changes no interval then."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class UnseenRows:
    """Labelled rows that the judged fits have not seen.

    `probability` (N, K) is moderated, at the class shares of the training, NaN for a row that cannot be classified.
    `target` (N,) is the index of the class, `weight` (N,) how much a row counts.  `X` (N, F) are the features, NaN
    where one is missing.
    """

    probability: Floats
    target: NDArray[np.intp]
    weight: Floats
    X: Floats

    def kept(self, most: int = MOST_ROWS) -> UnseenRows:
        """Return at most so many rows, evenly spaced."""
        n = len(self.target)
        if n <= most:
            return self
        rows = np.linspace(0, n - 1, most).round().astype(np.intp)
        return UnseenRows(self.probability[rows], self.target[rows], self.weight[rows], self.X[rows])


def write_unseen_rows(rows: UnseenRows, folder: Path) -> None:
    """Write the rows into a model's folder, whole or not at all."""
    kept = rows.kept()
    table = pa.table(
        {
            "probability": _vectors(kept.probability),
            "target": kept.target,
            "weight": kept.weight,
            "features": _vectors(kept.X),
        }
    )
    with atomic_path(folder / UNSEEN_ROWS_FILE) as temporary:
        pq.write_table(table, temporary)


def _vectors(values: Floats) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def read_unseen_rows(folder: Path, *, classes: int, features: int) -> UnseenRows | None:
    """Return the rows of a model's folder; None where it has none, as models of earlier versions.

    ModelError where the file is not of so many `classes` and `features`.
    """
    path = folder / UNSEEN_ROWS_FILE
    if not path.exists():
        return None
    try:
        table = pq.ParquetFile(path).read()
        probability, X = _matrix(table["probability"]), _matrix(table["features"])
        target, weight = table["target"].to_numpy(), table["weight"].to_numpy()
    except (pa.ArrowException, KeyError, AttributeError, ValueError) as error:
        raise ModelError(
            f"{path}: cannot be read as the table of rows that no fit has seen ({error}); train the model again"
        ) from error
    fits = probability.shape[1] == classes and X.shape[1] == features
    if not fits or (len(target) and not 0 <= target.min() <= target.max() < classes):
        raise ModelError(
            f"{path}: got rows of {probability.shape[1]} classes and {X.shape[1]} features, expected "
            f"{classes} and {features} for this model; train the model again"
        )
    return UnseenRows(probability, target, weight, X)


def _matrix(column: pa.ChunkedArray) -> Floats:
    values = column.combine_chunks()
    return np.asarray(values.flatten().to_numpy(zero_copy_only=False), dtype=np.float64).reshape(
        len(values), values.type.list_size
    )
