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

from catalogs.files.atomic import atomic_path, check_links, own_folder, sweep

__all__ = [
    "CENSUS_ROWS_FILE",
    "UNKNOWN",
    "CensusRows",
    "joined",
    "read_census_rows",
    "rows_a_file",
    "write_census_rows",
]

CENSUS_ROWS_FILE = "_census/rows.parquet"
"""In a separate folder, so that patterns such as `OUT/*.parquet` do not match it."""
MOST_ROWS = 20_000
"""Most rows of all files together; more would not change the intervals, since the labelled rows are far fewer."""
FEWEST_OF_FILE = 20

Floats = NDArray[np.float32]


UNKNOWN = -1
"""Class of a row that has no label."""
SECOND_FORM = "2:"
"""First characters of a text with known classes; the texts of earlier versions had none."""


@dataclass(frozen=True, eq=False)
class CensusRows:
    """Rows with probabilities (n, K) at the training's class shares, features (n, F), NaN where one is missing.

    `weight` (n,) is how many classified rows each stands for.  `known` (n,) is the index of the class by the row's
    label, -1 without one; a row with a label stands for rows with this label.
    """

    probability: Floats
    X: Floats
    weight: Floats
    known: Floats

    @classmethod
    def of(
        cls,
        probability: NDArray[np.float64],
        X: NDArray[np.float64],
        step: int,
        known: NDArray[np.intp] | None = None,
    ) -> CensusRows:
        """Return every so many rows of a batch, of those that have probabilities; `known` (n,) are classes by label."""
        labels = np.full(len(probability), UNKNOWN) if known is None else known
        classified = ~np.isnan(probability[:, 0])
        groups = [np.flatnonzero(classified & (labels == k)) for k in np.unique(labels[classified])]
        chosen = [rows[step // 2 :: step] if len(rows) > step // 2 else rows[:1] for rows in groups]
        each = [np.full(len(some), len(rows) / len(some)) for rows, some in zip(groups, chosen, strict=True)]
        rows = np.concatenate([np.empty(0, np.intp), *chosen])
        return cls(
            probability[rows].astype(np.float32),
            X[rows].astype(np.float32),
            np.concatenate([np.empty(0), *each]).astype(np.float32),
            labels[rows].astype(np.float32),
        )

    @property
    def matrix(self) -> Floats:
        """The weights, known classes, probabilities and features, (n, 2 + K + F)."""
        return np.column_stack([self.weight, self.known, self.probability, self.X])

    @classmethod
    def of_matrix(cls, matrix: Floats, n_classes: int) -> CensusRows:
        """Return the rows of such a matrix."""
        return cls(matrix[:, 2 : 2 + n_classes], matrix[:, 2 + n_classes :], matrix[:, 0], matrix[:, 1])

    def sorted(self) -> CensusRows:
        """Return the rows sorted by their values, since threads add batches in any order."""
        matrix = self.matrix
        return CensusRows.of_matrix(matrix[np.lexsort(matrix.T[::-1])], self.probability.shape[1])

    def thinned(self, most: int) -> CensusRows:
        """Return about `most` rows at most, evenly spaced, whose weights represent all rows of each known class."""
        n = len(self.weight)
        if n <= most:
            return self
        parts = [self._thinned(np.flatnonzero(self.known == k), most / n) for k in np.unique(self.known)]
        return joined(parts)

    def _thinned(self, rows: NDArray[np.intp], share: float) -> CensusRows:
        few = max(1, round(share * len(rows)))
        chosen = rows[np.linspace(0, len(rows) - 1, few).round().astype(np.intp)]
        matrix = self.matrix[chosen]
        matrix[:, 0] *= self.weight[rows].sum(dtype=np.float64) / matrix[:, 0].sum(dtype=np.float64)
        return CensusRows.of_matrix(matrix, self.probability.shape[1])

    def text(self) -> str:
        """Return the rows as a text, for a record in JSON."""
        values = zlib.compress(self.matrix.astype("<f4").tobytes())
        return SECOND_FORM + base64.b64encode(values).decode("ascii")

    @classmethod
    def of_text(cls, text: str, *, classes: int, features: int) -> CensusRows | None:
        """Return the rows of a text; None where it holds no rows of so many classes and features."""
        width = 1 + text.startswith(SECOND_FORM) + classes + features
        try:
            packed = base64.b64decode(text.removeprefix(SECOND_FORM))
            values = np.frombuffer(zlib.decompress(packed), dtype="<f4")
        except (ValueError, zlib.error):
            return None
        if len(values) % width:
            return None
        return cls.of_matrix(_with_known(values.reshape(-1, width), classes + features), classes)


def _with_known(matrix: Floats, width: int) -> Floats:
    """Return the matrix of an earlier version, (n, 1 + width), with a column of unknown classes; others as they are."""
    return matrix if matrix.shape[1] != 1 + width else np.insert(matrix, 1, UNKNOWN, axis=1)


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
    own_folder(path.parent, folder)
    sweep(path.parent)  # removes a half-written file of a killed run
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)


def read_census_rows(folder: Path, *, classes: int, features: int) -> dict[str, CensusRows]:
    """Return the rows of each copy in a folder by its hash; empty if the file is lost or is of another model."""
    check_links(folder / CENSUS_ROWS_FILE, folder)
    try:
        table = pq.ParquetFile(folder / CENSUS_ROWS_FILE).read()
        values = table["values"].combine_chunks()
        matrix = values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), values.type.list_size)
        names = np.asarray(table["copy_sha256"].to_pylist(), dtype=str)
    except (OSError, pa.ArrowException, KeyError, ValueError, AttributeError):
        return {}
    if matrix.shape[1] not in (1 + classes + features, 2 + classes + features):
        return {}
    matrix = _with_known(matrix, classes + features)
    order = np.argsort(names, kind="stable")
    matrix, (unique, first) = matrix[order], np.unique(names[order], return_index=True)
    parts = np.split(matrix, first[1:]) if len(unique) else []
    return {str(name): CensusRows.of_matrix(part, classes) for name, part in zip(unique, parts, strict=True)}
