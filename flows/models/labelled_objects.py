"""The labelled objects that a model was fitted to: what people are shown when they ask what an object is like.

They lie beside the model, as `labelled_objects.parquet`.  Shapes: N objects, F features of the model.
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

__all__ = [
    "LABELLED_OBJECTS_FILE",
    "LabelledObjects",
    "read_labelled_identifiers",
    "read_labelled_objects",
    "write_labelled_objects",
]

LABELLED_OBJECTS_FILE = "labelled_objects.parquet"
MOST_OBJECTS = 1_000_000
"""Most objects that are kept: evenly spaced ones."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelledObjects:
    """Objects with labels.

    `identifier` (N,) is UTF-8, empty where objects have none.  `position` (N, 2) is right ascension and declination in
    degrees, NaN where it is not known.  `target` (N,) is the index of the class, `X` (N, F) the features, NaN where one
    is missing.
    """

    identifier: NDArray[np.bytes_]
    position: Floats
    target: NDArray[np.intp]
    X: Floats

    def but(self, identifier: str) -> LabelledObjects:
        """Return the objects with another identifier than this one; 7.0 is 7 too."""
        spellings = [identifier.encode(), identifier.removesuffix(".0").encode()]
        others = ~np.isin(self.identifier, spellings)
        return self if others.all() else self._of(np.flatnonzero(others))

    def _of(self, rows: NDArray[np.intp]) -> LabelledObjects:
        return LabelledObjects(self.identifier[rows], self.position[rows], self.target[rows], self.X[rows])

    def kept(self, most: int = MOST_OBJECTS) -> LabelledObjects:
        """Return at most so many objects, evenly spaced."""
        n = len(self.target)
        if n <= most:
            return self
        return self._of(np.linspace(0, n - 1, most).round().astype(np.intp))


def write_labelled_objects(objects: LabelledObjects, folder: Path) -> None:
    """Write the objects into a model's folder, whole or not at all."""
    kept = objects.kept()
    names = [text.decode(errors="replace") for text in kept.identifier.tolist()]
    table = pa.table(
        {
            "identifier": names,
            "ra": kept.position[:, 0],
            "dec": kept.position[:, 1],
            "target": kept.target,
            "features": pa.FixedSizeListArray.from_arrays(pa.array(kept.X.ravel()), kept.X.shape[1]),
        }
    )
    with atomic_path(folder / LABELLED_OBJECTS_FILE) as temporary:
        pq.write_table(table, temporary)


def read_labelled_identifiers(folder: Path) -> list[str] | None:
    """Return the objects' identifiers, '' where they have none; None of a model of an earlier version."""
    path = folder / LABELLED_OBJECTS_FILE
    try:
        return [name or "" for name in pq.ParquetFile(path).read(columns=["identifier"])[0].to_pylist()]
    except (OSError, pa.ArrowException, IndexError):
        return None


def read_labelled_objects(folder: Path, *, classes: int, features: int) -> LabelledObjects | None:
    """Return the objects of a model's folder; None where it has none, as models of earlier versions.

    ModelError where the file is not of so many `classes` and `features`.
    """
    path = folder / LABELLED_OBJECTS_FILE
    if not path.exists():
        return None
    try:
        table = pq.ParquetFile(path).read()
        X = table["features"].combine_chunks()
        width = X.type.list_size
        objects = LabelledObjects(
            np.array([text.encode() for text in table["identifier"].to_pylist()], dtype=np.bytes_),
            np.stack([table[name].to_numpy() for name in ("ra", "dec")], axis=1),
            table["target"].to_numpy(),
            np.asarray(X.flatten().to_numpy(zero_copy_only=False), dtype=np.float64).reshape(len(X), width),
        )
    except (pa.ArrowException, KeyError, AttributeError, ValueError) as error:
        raise ModelError(
            f"{path}: cannot be read as the table of labelled objects ({error}); train the model again"
        ) from error
    if width != features or (len(objects.target) and not 0 <= objects.target.max() < classes):
        raise ModelError(
            f"{path}: got objects of {width} features and {objects.target.max(initial=-1) + 1} classes, "
            f"expected {features} and {classes} for this model; train the model again"
        )
    return objects
