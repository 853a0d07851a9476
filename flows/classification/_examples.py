"""Why an object has its class: the parts of its probability, and examples of each class for a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.classifier import Classifier
from blr.explanation.contributions import Contributions, contributions
from blr.explanation.novelty import nearest_rows
from blr.threads import single_threaded_blas
from catalogs.sky.survey_links import survey_links
from flows.classification._class_shares import with_shares
from flows.models.model import Model
from flows.models.row_files import LabelledObjects
from flows.reports.explanation import ClassExample, FeatureContribution, LikeObject
from flows.runs.counts import DoubtfulObject
from flows.specification.specification import Specification

__all__ = ["class_examples", "feature_contributions", "finite", "nearest_objects"]

# Contributions and nearest labelled objects of a row, as `explain` and the report show them.  Shapes: F features.

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


# Why some objects of a classification have their class: examples for the report.
#
# They are the objects whose features the survey has kept, so that no catalogue is read again.  Shapes: F features.


def class_examples(
    model: Model, specification: Specification, folder: Path, objects: Iterable[DoubtfulObject]
) -> tuple[ClassExample, ...]:
    """Return why those objects have their class whose features are known; `folder` is the model's."""
    F = len(model.features)
    known = [one for one in objects if len(one.features) == F and any(x is not None for x in one.features)]
    if not known:
        return ()
    labelled = LabelledObjects.read(folder, classes=len(model.classes), features=F)
    with single_threaded_blas():
        return tuple(_examples(model, with_shares(model, specification), labelled, known))


def _examples(
    model: Model, classifier: Classifier, labelled: LabelledObjects | None, objects: list[DoubtfulObject]
) -> Iterator[ClassExample]:
    for one in objects:
        x = np.array([math.nan if value is None else value for value in one.features])
        missing = np.isnan(x)
        of, against = (model.classes.index(name) for name in one.classes)
        parts = contributions(classifier, np.nan_to_num(x), missing, of=of, against=against)
        yield ClassExample(
            identifier=one.id,
            classes=one.classes,
            probabilities=one.probabilities,
            contributions=feature_contributions(model, classifier, parts, x),
            nearest=()
            if labelled is None
            else nearest_objects(model, classifier, x, labelled, identifier=one.id),
        )
