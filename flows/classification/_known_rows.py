"""Rows of a target whose class is known, since a label of the training is theirs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from flows.models.known_labels import KnownLabels, read_known_labels
from flows.specification.specification import Specification

__all__ = ["KnownRows"]


@dataclass(frozen=True)
class KnownRows:
    """The labels of a training, and the column of a target that names the objects."""

    labels: KnownLabels
    identifier: str

    @classmethod
    def of(
        cls, catalog: Catalog, specification: Specification, folder: Path, *, classes: int
    ) -> KnownRows | None:
        """Return the labels of the model in `folder`; None where it keeps none, or a catalogue names no objects."""
        ours = specification.catalog.id
        theirs = specification.target.columns.get(ours or "", ours)
        if theirs is None or theirs not in catalog.names:
            return None
        labels = _labels(folder, classes)
        return None if labels is None else cls(labels, theirs)

    def classes(
        self, batch: pa.RecordBatch, X: NDArray[np.float64], inside: NDArray[np.bool_]
    ) -> NDArray[np.intp]:
        """Return the class (n,) of the rows `inside`, -1 where it is not known; X (n, F) are their features."""
        place = np.flatnonzero(inside)

        def identifiers(rows: NDArray[np.intp]) -> np.ndarray[Any, Any]:
            return batch_values(batch, (self.identifier,))[self.identifier][place[rows]]

        return self.labels.classes(X, identifiers)


@lru_cache(maxsize=2)
def _labels(folder: Path, classes: int) -> KnownLabels | None:
    """Return the labels of a model, which are read once: a version never changes."""
    return read_known_labels(folder, classes=classes)
