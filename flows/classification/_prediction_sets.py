"""Prediction sets of a classification, learnt from the model's unseen rows, and their description in outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.census.prediction_sets import NO_SET, SetRule, learn_sets, set_bits
from blr.classifier import Classifier
from flows.errors import UsageError
from flows.models.model import Model
from flows.models.unseen_rows import read_unseen_rows
from flows.runs.counts import ClassSetRule, SetRecord
from flows.specification.specification import Specification

__all__ = ["ConformalSets", "bits_of", "set_entries", "sets_of"]

Array = np.ndarray[Any, Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ConformalSets:
    """Computes the column of prediction sets; `rule` is None where no share can be stated.

    `classifier` gives the probabilities for the rule, where those in the copies are for other class shares.
    """

    record: SetRecord
    rule: SetRule | None
    classifier: Classifier | None

    def contained(self, probability: Floats) -> NDArray[np.bool_] | None:
        """Return which classes are in the sets of rows with probabilities (n, K)."""
        return None if self.rule is None else self.rule.contains(probability)


def bits_of(contained: NDArray[np.bool_] | None, probability: Floats) -> Array:
    """Return the column (n,) of sets (n, K), or of rows that have none."""
    return np.full(len(probability), NO_SET) if contained is None else set_bits(contained, probability)


def sets_of(model: Model, specification: Specification) -> ConformalSets | None:
    """Return the prediction sets that a specification asks for; None where it does not.

    UsageError where the model has no rows to learn them from.
    """
    level, thresholds = specification.output.sets, specification.output.set_thresholds
    if level is None:
        return None
    if thresholds:
        return _stated(model, level, thresholds)
    rule = (
        None
        if model.folder is None
        else _learnt(model.folder, len(model.classes), len(model.features), level)
    )
    if rule is None:
        raise UsageError(
            f"output.sets: got {level:g} for {model.label}, whose folder has no labelled rows with left-out "
            "probabilities, expected a model in a store, trained by this version; train it again, or remove the key"
        )
    if reason := _why_none(model, specification):
        return ConformalSets(SetRecord(level=level, source="cannot be said", reason=reason), None, None)
    moved = model.classifier.log_prior_shift is not None or isinstance(
        specification.shift.class_prior, Mapping
    )
    return ConformalSets(
        _record(model, rule), rule, replace(model.classifier, log_prior_shift=None) if moved else None
    )


def _stated(model: Model, level: float, thresholds: Mapping[str, float]) -> ConformalSets:
    """Return the sets for thresholds that the specification states, which hold for the probabilities in the copies."""
    if set(thresholds) != set(model.classes):
        raise UsageError(
            f"output.set_thresholds: got thresholds of {', '.join(thresholds)}, expected one threshold for "
            f"each class of {model.label}: {', '.join(model.classes)}; correct the names"
        )
    K = len(model.classes)
    least = np.array([thresholds[name] for name in model.classes])
    record = SetRecord(
        level=level,
        source="stated",
        reason="the specification states the thresholds; the share holds if they come from these objects, this "
        "model and these class shares, for example from an audit",
        classes={
            name: ClassSetRule(
                bit=k,
                rows=0,
                effective=0.0,
                least=float(least[k]) or None,
                spread=0.0,
                remark="in every set: the specification states the threshold 0" if not least[k] else "",
            )
            for k, name in enumerate(model.classes)
        },
    )
    return ConformalSets(record, SetRule(level, least, np.zeros(K, np.intp), np.zeros(K)), None)


def _why_none(model: Model, specification: Specification) -> str | None:
    """Return why labelled objects do not show how often a class is kept in the target; None where they do."""
    if "features" in (specification.shift.assumes, model.specification.shift.assumes):
        return (
            'shift.assumes = "features" says that labelled objects were chosen by their features: objects '
            "of a class look different in the target, so the labelled objects do not show how often a class "
            "is kept there"
        )
    if model.specification.shift.density_weights:
        return (
            "the training rows were weighted by density ratio: objects of a class look different in the "
            "target, so the labelled objects do not show how often a class is kept there"
        )
    return None


@lru_cache(maxsize=4)
def _learnt(folder: Path, classes: int, features: int, level: float) -> SetRule | None:
    rows = read_unseen_rows(folder, classes=classes, features=features)
    if rows is None:
        return None
    return learn_sets(rows.probability, rows.target, level=level, weight=rows.weight)


def _record(model: Model, rule: SetRule) -> SetRecord:
    judged_by = model.metrics.judged_by
    return SetRecord(
        level=rule.level,
        source=judged_by,
        reason=f"learnt class by class from the {judged_by} probabilities of the labelled rows; the share holds "
        "where the objects of a class look like its labelled objects, for any class shares",
        classes={
            name: ClassSetRule(
                bit=k,
                rows=int(rule.rows[k]),
                effective=float(rule.effective[k]),
                least=float(rule.least[k]) or None,
                spread=float(rule.spread[k]),
                remark="" if rule.least[k] > 0 else _too_few(rule, k),
            )
            for k, name in enumerate(model.classes)
        },
    )


def _too_few(rule: SetRule, k: int) -> str:
    needed = int(np.ceil(rule.level / (1 - rule.level) - 1e-9))
    if rule.effective[k] >= needed:
        return "in every set: too many labelled rows of the class have probability zero for it"
    return (
        f"in every set: {rule.effective[k]:.3g} labelled rows, at least {needed} are needed at {rule.level:g}"
    )


def set_entries(sets: ConformalSets | None, classes: tuple[str, ...]) -> dict[str, str]:
    """Return the entries of a file's metadata on the sets: the level, its source, the class of each bit."""
    if sets is None:
        return {}
    record = sets.record
    always = [name for name, rule in record.classes.items() if rule.least is None]
    entries = {"set_level": f"{record.level:g}", "set_source": record.source, "set_reason": record.reason}
    if always:
        entries["set_always"] = ", ".join(always)
    return entries | {f"set_bit_{k}": name for k, name in enumerate(classes)}
