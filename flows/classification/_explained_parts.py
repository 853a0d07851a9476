"""Contributions and nearest labelled objects of a row, as `explain` and the report show them.  Shapes: F features."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from blr.classifier import Classifier
from blr.explanation.contributions import Contributions
from blr.explanation.neighbours import nearest_rows
from catalogs.sky.survey_links import survey_links
from flows.models.labelled_objects import LabelledObjects
from flows.models.model import Model
from flows.reports.explanation import FeatureContribution, LikeObject

__all__ = ["feature_contributions", "finite", "nearest_objects"]

NEAREST = 5
"""Number of labelled objects that are shown."""

Floats = NDArray[np.float64]


def feature_contributions(
    model: Model, classifier: Classifier, parts: Contributions, x: Floats
) -> tuple[FeatureContribution, ...]:
    """Return the contributions of the features x (F,), the largest first, those of missing features last."""
    mean = classifier.moments.mean
    found = [
        FeatureContribution(
            name=name,
            expression=model.specification.features[name],
            value=None if math.isnan(parts.value[j]) else float(x[j]),
            usual=float(mean[j]),
            contribution=None if math.isnan(parts.value[j]) else float(parts.value[j]),
            std=None if math.isnan(parts.value[j]) else float(parts.std[j]),
        )
        for j, name in enumerate(model.features)
    ]
    return tuple(
        sorted(found, key=lambda c: -abs(c.contribution) if c.contribution is not None else math.inf)
    )


def nearest_objects(
    model: Model, classifier: Classifier, x: Floats, labelled: LabelledObjects, *, identifier: str
) -> tuple[LikeObject, ...]:
    """Return the labelled objects that are nearest to the features x (F,), NaN where one is missing.

    The object itself, by its `identifier`, is not among them.
    """
    labelled = labelled.but(identifier)
    found = nearest_rows(classifier, x, labelled.X, n=NEAREST)
    return tuple(
        LikeObject(
            identifier=labelled.identifier[i].decode(errors="replace"),
            name=model.classes[labelled.target[i]],
            distance=float(distance),
            compared=int(compared),
            ra=finite(labelled.position[i, 0]),
            dec=finite(labelled.position[i, 1]),
            links=survey_links(*labelled.position[i].tolist()),
        )
        for i, distance, compared in zip(found.row, found.distance, found.compared, strict=True)
    )


def finite(value: float) -> float | None:
    """Return a number, None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None
