"""Columns that select objects by their probability, with thresholds for a stated purity or completeness.

The thresholds are known before the first row is written: they are learnt from the labelled rows that the model has not
seen, each class at the share that the copies are made for.  Shapes: n rows, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.census.purity import Selection, learnt_threshold
from blr.census.rows import LabelledRows
from blr.classifier import Classifier
from catalogs.catalog.new_columns import selected_column
from flows.classification._class_shares import shift_record, with_shares
from flows.errors import UsageError
from flows.models.model import Model
from flows.models.unseen_rows import UnseenRows, read_unseen_rows
from flows.runs.manifest import SelectedColumn
from flows.specification.specification import Specification

__all__ = ["SelectedClass", "Selections", "known_labels", "selection_entries", "selections_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SelectedClass:
    """The selection of the class at place `k`: the column that has it, the threshold, and what labelled rows expect."""

    k: int
    name: str
    column: SelectedColumn
    expected: Selection

    def contains(self, probability: Floats) -> NDArray[np.bool_]:
        """Return which rows (n,) are selected; none without probabilities (NaN)."""
        single = probability[:, self.k].astype(np.float32)  # as the copies have it
        return np.asarray(single >= np.float32(self.column.threshold))


@dataclass(frozen=True, eq=False)
class Selections:
    """What makes the columns of selections.

    `classifier` gives the probabilities that the thresholds are of, where the served one's are for other class shares.
    """

    chosen: tuple[SelectedClass, ...]
    classifier: Classifier | None

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that have a column."""
        return tuple(one.column.class_name for one in self.chosen)

    @property
    def columns(self) -> dict[str, SelectedColumn]:
        """The columns by name."""
        return {one.name: one.column for one in self.chosen}


def selections_of(model: Model, specification: Specification) -> Selections | None:
    """Return the selections that a specification asks for; None where it does not.

    UsageError where the model has no rows to learn thresholds from, or no threshold has what is stated.
    """
    flags, output = specification.flags, specification.output
    if not output.selected:
        return None
    biased = "features" in (specification.shift.assumes, model.specification.shift.assumes)
    if biased or model.specification.shift.density_weights:
        raise UsageError(
            'output.selected: got true for labels that may be biased (shift.assumes = "features" or density_weights), '
            "expected ones whose classes look as in the target: the completeness among biased labels is not the "
            "target's; drop the key, and audit the output"
        )
    rows = None if model.folder is None else _labelled(model.folder, len(model.classes), len(model.features))
    if rows is None:
        raise UsageError(
            f"output.selected: got true for {model.label}, which has no labelled rows with left-out probabilities "
            "beside it, expected a model of this version that lies in a store; train it again, or drop the key"
        )
    shares = shift_record(model, specification).class_priors
    at = tuple(shares[name] for name in model.classes)
    wanted = {("purity", c): x for c, x in flags.purity.items()}
    wanted |= {("completeness", c): x for c, x in flags.completeness.items()}
    chosen = [
        _selected(model, specification.output.prefix, what, name, stated, at)
        for (what, name), stated in wanted.items()
    ]
    moved = with_shares(model, specification).log_prior_shift is not None
    return Selections(
        tuple(sorted(chosen, key=lambda one: one.k)),
        replace(model.classifier, log_prior_shift=None) if moved else None,
    )


def _selected(
    model: Model, prefix: str, what: str, name: str, stated: float, shares: tuple[float, ...]
) -> SelectedClass:
    if name not in model.classes:
        raise UsageError(
            f"flags.{what}: got the class '{name}', expected one of {', '.join(model.classes)}; correct the name"
        )
    assert model.folder is not None  # noqa: S101  its rows were read
    k = model.classes.index(name)
    found = _learnt(model.folder, len(model.features), k, shares, what, stated)
    if found is None:
        raise UsageError(
            f"flags.{what}: got {stated:g} of '{name}', expected one that a selection by probability has: by the "
            "labelled rows that the model has not seen, no threshold reaches it; state less, or drop output.selected"
        )
    column = SelectedColumn(class_name=name, threshold=found[0], stated=f"{what} {stated:g}")
    return SelectedClass(k, selected_column(name, prefix).name, column, found[1])


@lru_cache(maxsize=4)
def _labelled(folder: Path, classes: int, features: int) -> LabelledRows | None:
    rows = read_unseen_rows(folder, classes=classes, features=features)
    known = None if rows is None else known_labels(rows)
    return None if known is None or not known.class_rows.all() else known


@lru_cache(maxsize=64)
def _learnt(
    folder: Path, features: int, k: int, shares: tuple[float, ...], what: str, stated: float
) -> tuple[float, Selection] | None:
    rows = _labelled(folder, len(shares), features)
    if rows is None:
        return None
    asked = {"purity": stated} if what == "purity" else {"completeness": stated}
    return learnt_threshold(rows, k, np.array(shares), **asked)


def known_labels(unseen: UnseenRows) -> LabelledRows:
    """Return the unseen rows that have probabilities and count."""
    known = np.isfinite(unseen.probability).all(axis=1) & (unseen.weight > 0)
    return LabelledRows(
        unseen.probability[known], unseen.target[known], unseen.weight[known], unseen.X[known]
    )


def selection_entries(selections: Selections | None) -> Mapping[str, str]:
    """Return what a file's metadata say of the columns of selections, as texts."""
    if selections is None:
        return {}
    return {f"threshold_{one.name}": _words(one) for one in selections.chosen} | {
        "thresholds_from": "labelled rows that the model has not seen, at these class shares; probabilities at those "
        "of the training"
    }


def _words(one: SelectedClass) -> str:
    of, what = one.expected, one.column.stated.split()[0]
    draws = of.purity if what == "purity" else of.completeness
    low, high = of.interval(draws)
    return (
        f"p of {one.column.class_name} >= {one.column.threshold!r}, for {one.column.stated}; expected "
        f"{draws.mean():.4f} ({low:.4f} to {high:.4f}, 95 %)"
    )
