"""Classified rows for the census: a sample taken while files are annotated, the same for any number of threads.

Each file gives evenly spaced rows of each batch, which its staged record carries.  With the files' final names, the
sample of all files is kept as `_census/rows.parquet` in the output folder: later releases leave most
files alone.
Shapes: n rows, K classes, F features.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.files.atomic import atomic_path, sweep

__all__ = ["CENSUS_ROWS_FILE", "CensusRows", "joined", "read_census_rows", "rows_a_file", "write_census_rows"]

CENSUS_ROWS_FILE = "_census/rows.parquet"
"""In a separate folder, so that patterns such as `OUT/*.parquet` do not match it."""
MOST_ROWS = 20_000
"""Most rows of all files together; more would not change the intervals, since the labelled rows are far fewer."""
FEWEST_OF_FILE = 20

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class CensusRows:
    """Rows with probabilities (n, K) at the training's class shares, features (n, F), NaN where one is missing.

    `weight` (n,) is how many classified rows each stands for.
    """

    probability: Floats
    X: Floats
    weight: Floats

    @classmethod
    def of(cls, probability: NDArray[np.float64], X: NDArray[np.float64], step: int) -> CensusRows:
        """Return every so many rows of a batch, of those that have probabilities."""
        known = np.flatnonzero(~np.isnan(probability[:, 0]))
        chosen = known[step // 2 :: step] if len(known) > step // 2 else known[:1]
        each = len(known) / max(len(chosen), 1)
        return cls(
            probability[chosen].astype(np.float32),
            X[chosen].astype(np.float32),
            np.full(len(chosen), each, np.float32),
        )

    @property
    def matrix(self) -> Floats:
        """The weights, probabilities and features, (n, 1 + K + F)."""
        return np.column_stack([self.weight, self.probability, self.X])

    @classmethod
    def of_matrix(cls, matrix: Floats, n_classes: int) -> CensusRows:
        """Return the rows of such a matrix."""
        return cls(matrix[:, 1 : 1 + n_classes], matrix[:, 1 + n_classes :], matrix[:, 0])

    def sorted(self) -> CensusRows:
        """Return the rows sorted by their values, since threads add batches in any order."""
        matrix = self.matrix
        return CensusRows.of_matrix(matrix[np.lexsort(matrix.T[::-1])], self.probability.shape[1])

    def thinned(self, most: int) -> CensusRows:
        """Return at most so many rows, evenly spaced, whose weights represent all rows."""
        n = len(self.weight)
        if n <= most:
            return self
        chosen = np.linspace(0, n - 1, most).round().astype(np.intp)
        weight = self.weight[chosen]
        return CensusRows(
            self.probability[chosen], self.X[chosen], weight * (self.weight.sum() / weight.sum())
        )

    def text(self) -> str:
        """Return the rows as a text, for a record in JSON."""
        return base64.b64encode(zlib.compress(self.matrix.astype("<f4").tobytes())).decode("ascii")

    @classmethod
    def of_text(cls, text: str, *, classes: int, features: int) -> CensusRows | None:
        """Return the rows of a text; None where it holds no rows of so many classes and features."""
        width = 1 + classes + features
        try:
            values = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<f4")
        except (ValueError, zlib.error):
            return None
        return cls.of_matrix(values.reshape(-1, width), classes) if len(values) % width == 0 else None


def rows_a_file(n_files: int) -> int:
    """Return how many rows each file gives, for a number of files."""
    return max(FEWEST_OF_FILE, MOST_ROWS // max(n_files, 1))


def joined(parts: Sequence[CensusRows]) -> CensusRows:
    """Return the rows of one part or more together."""
    matrix = np.concatenate([part.matrix for part in parts])
    return CensusRows.of_matrix(matrix, parts[0].probability.shape[1])


def write_census_rows(folder: Path, rows: Mapping[str, CensusRows]) -> None:
    """Write the rows of each file, by the hash of its copy; if there are too many rows, fewer of each file."""
    total = sum(len(part.weight) for part in rows.values())
    share = min(1.0, MOST_ROWS / max(total, 1))
    kept = {
        name: part.thinned(max(1, round(share * len(part.weight)))) for name, part in sorted(rows.items())
    }
    names = [name for name, part in kept.items() for _ in range(len(part.weight))]
    matrix = joined(list(kept.values())).matrix
    table = pa.table(
        {
            "copy_sha256": pa.array(names, pa.string()).dictionary_encode(),
            "values": pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1]),
        }
    )
    path = folder / CENSUS_ROWS_FILE
    path.parent.mkdir(exist_ok=True)
    sweep(path.parent)  # removes a half-written file of a killed run
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)


def read_census_rows(folder: Path, *, classes: int, features: int) -> dict[str, CensusRows]:
    """Return the rows of each copy in a folder by its hash; empty if the file is lost or is of another model."""
    try:
        table = pq.read_table(folder / CENSUS_ROWS_FILE)
        values = table["values"].combine_chunks()
        matrix = values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), values.type.list_size)
        names = np.asarray(table["copy_sha256"].to_pylist(), dtype=str)
    except (OSError, pa.ArrowException, KeyError, ValueError, AttributeError):
        return {}
    if matrix.shape[1] != 1 + classes + features:
        return {}
    order = np.argsort(names, kind="stable")
    matrix, (unique, first) = matrix[order], np.unique(names[order], return_index=True)
    parts = np.split(matrix, first[1:]) if len(unique) else []
    return {str(name): CensusRows.of_matrix(part, classes) for name, part in zip(unique, parts, strict=True)}
