"""Why some objects of a classification have their class: examples for the report.

They are the objects whose features the survey has kept, so that no catalogue is read again.  Shapes: F features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from blr.classifier import Classifier
from blr.explanation.contributions import contributions
from blr.threads import single_threaded_blas
from flows.classification._class_shares import with_shares
from flows.classification._explained_parts import feature_contributions, nearest_objects
from flows.models.labelled_objects import LabelledObjects, read_labelled_objects
from flows.models.model import Model
from flows.reports.explanation import ClassExample
from flows.runs.counts import DoubtfulObject
from flows.specification.specification import Specification

__all__ = ["class_examples"]


def class_examples(
    model: Model, specification: Specification, folder: Path, objects: Iterable[DoubtfulObject]
) -> tuple[ClassExample, ...]:
    """Return why those objects have their class whose features are known; `folder` is the model's."""
    F = len(model.features)
    known = [one for one in objects if len(one.features) == F and any(x is not None for x in one.features)]
    if not known:
        return ()
    labelled = read_labelled_objects(folder, classes=len(model.classes), features=F)
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
