"""The labels that a training read, so that a census counts the same objects of a target as they are labelled.

A row of a target is such an object if it has the identifier and, in single precision, all features of it: numbers that
name other objects in another catalogue match nothing.  Both are kept as hashes, as `known_labels.parquet` beside the
model.  Shapes: N labelled objects, n rows of a target, F features of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.files.atomic import atomic_path
from catalogs.profile.split import name_keys
from flows.errors import ModelError

__all__ = ["KNOWN_LABELS_FILE", "KnownLabels", "read_known_labels", "write_known_labels"]

KNOWN_LABELS_FILE = "known_labels.parquet"
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)

Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """Objects whose class a label says.

    `key` (N,) are hashes of identifier and features in order, each once; `features` (N,) hashes of the features alone,
    `target` (N,) the index of the class.
    """

    key: Hashes
    features: Hashes
    target: NDArray[np.intp]

    @classmethod
    def of(cls, identifiers: Array, X: Floats, target: NDArray[np.intp]) -> KnownLabels:
        """Return the labels of objects: identifiers (N,), "" without one; X (N, F), NaN where one is missing.

        An object without an identifier, or with two classes, is left out.
        """
        named = np.flatnonzero(identifiers != "")
        features = _of_features(X[named])
        key, target = _keys(identifiers[named], features), target[named]
        order = np.lexsort((target, key))
        key, features, target = key[order], features[order], target[order]
        first = np.r_[True, key[1:] != key[:-1]][: len(key)]
        start = np.flatnonzero(first)
        end = np.r_[start[1:], len(key)][: len(start)] - 1
        one = target[start] == target[end]  # sorted by class within an object
        return cls(key[start[one]], features[start[one]], target[start[one]])

    def classes(self, X: Floats, identifiers: Callable[[NDArray[np.intp]], Array]) -> NDArray[np.intp]:
        """Return the class (n,) of rows with features X (n, F), -1 where it is not known.

        `identifiers` returns those of some rows by number, as numbers or texts: it is asked only for rows with the
        features of an object.
        """
        found = np.full(len(X), -1, dtype=np.intp)
        if not len(self.key) or not len(X):
            return found
        features = _of_features(X)
        rows = np.flatnonzero(np.isin(features, self.features))
        if len(rows):
            key = _keys(identifiers(rows), features[rows])
            place = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
            found[rows] = np.where(self.key[place] == key, self.target[place], -1)
        return found


def _of_features(X: Floats) -> Hashes:
    """Return a hash (n,) of each row (n, F) in single precision; all NaN are one value, and -0.0 is 0.0."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = X.astype(np.float32) + np.float32(0)
    bits = np.where(np.isnan(single), np.float32(np.nan), single).view(np.uint32).astype(np.uint64)
    total = np.zeros(len(X), dtype=np.uint64)
    for column in bits.T:
        total = (total ^ column) * _PRIME
        total ^= total >> _SHIFT
    return total


def _keys(identifiers: Array, features: Hashes) -> Hashes:
    key = (name_keys([identifiers]) ^ features) * _PRIME
    return np.asarray(key ^ (key >> _SHIFT), dtype=np.uint64)


def write_known_labels(known: KnownLabels, folder: Path) -> None:
    """Write the labels into a model's folder, whole or not at all."""
    table = pa.table({"key": known.key, "features": known.features, "target": known.target.astype(np.int32)})
    with atomic_path(folder / KNOWN_LABELS_FILE) as temporary:
        pq.write_table(table, temporary)


def read_known_labels(folder: Path, *, classes: int) -> KnownLabels | None:
    """Return the labels of a model's folder; None where it has none, as models of earlier versions.

    Raises
    ------
    ModelError
        If the file cannot be read, or is not of so many classes.
    """
    path = folder / KNOWN_LABELS_FILE
    if not path.exists():
        return None
    columns: list[Any]
    try:
        table = pq.ParquetFile(path).read()
        columns = [table[name].to_numpy() for name in ("key", "features", "target")]
    except (pa.ArrowException, KeyError) as error:
        raise ModelError(
            f"{path}: cannot be read as the table of known labels ({error}); train the model again"
        ) from error
    key, features, target = columns
    if len(target) and not 0 <= target.min() <= target.max() < classes:
        raise ModelError(
            f"{path}: got labels of {target.max() + 1} classes, expected {classes} for this model; train the model "
            "again"
        )
    return KnownLabels(key.astype(np.uint64), features.astype(np.uint64), target.astype(np.intp))
