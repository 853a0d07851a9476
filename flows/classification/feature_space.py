"""The whitened features of a model, as a space with points for annotated rows and labelled objects.

A review spreads its objects in this space, and looks in it for what is far from all labelled objects.
Shapes: n rows, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from blr.explanation.novelty import Novelty
from blr.missing.moments import WhitenedSpace
from catalogs.catalog.catalog import Catalog
from flows.classification.scoring import Scorer, annotation_settings
from flows.models.row_files import LabelledObjects
from flows.models.store import Store
from flows.runs.manifest import annotated_manifest
from flows.runs.release_store import output_folder
from flows.specification.toml_file import read_specification

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """The space of a model's features; `novelty` is None where the model keeps no labelled objects."""

    scorer: Scorer
    whitened: WhitenedSpace
    novelty: Novelty | None
    targets: NDArray[np.intp]  # (N,) the class of each labelled object

    @property
    def read(self) -> tuple[str, ...]:
        """The catalogue's columns that the features need."""
        return self.scorer.reader.read

    @property
    def knows_labelled(self) -> bool:
        """Whether there are labelled objects to compare with."""
        return self.novelty is not None

    def on(self, catalog: Catalog) -> FeatureSpace:
        """Return the space for one catalogue; ColumnNotFoundError where it lacks a column that features need."""
        return replace(self, scorer=self.scorer.on(catalog))

    def points(self, batch: pa.RecordBatch) -> Floats:
        """Return the points (n, D) of a batch's rows."""
        features = self.scorer.reader.evaluate(batch)
        return self.whitened.points(features.X, features.missing)

    def distances(self, points: Floats) -> tuple[Floats, NDArray[np.intp]]:
        """Return how far points (n, D) are from the labelled objects (n,), and the nearest one's class (n,)."""
        assert self.novelty is not None  # noqa: S101  callers ask `knows_labelled`
        distance, row = self.novelty.distance(points)
        return distance, self.targets[row]


def feature_space(out: Path, store: Path, specification: Path | None = None) -> FeatureSpace:
    """Return the space of the model that wrote a folder of annotated copies.

    `specification` has the [target] that the copies were classified with, where it was not the model's own.

    Raises
    ------
    UsageError
        If the folder has no manifest.
    ModelError
        If the model is not in the store.
    """
    with output_folder(out, key="out", publish=False) as folder:
        manifest = annotated_manifest(folder)
    models = Store.named(store)
    stored = models.find(manifest.model)
    model = models.read(stored)
    wanted = model.specification if specification is None else read_specification(specification)
    scorer = Scorer.of(model, annotation_settings(model, wanted))
    whitened = WhitenedSpace(scorer.classifier.moments)
    labelled = LabelledObjects.read(stored.folder, classes=len(model.classes), features=len(model.features))
    return FeatureSpace(
        scorer,
        whitened,
        _novelty(whitened, labelled),
        np.empty(0, dtype=np.intp) if labelled is None else np.asarray(labelled.target),
    )


def _novelty(whitened: WhitenedSpace, labelled: LabelledObjects | None) -> Novelty | None:
    if labelled is None or not len(labelled.target):
        return None
    return Novelty.of(whitened.points(np.nan_to_num(labelled.X), ~np.isfinite(labelled.X)))
