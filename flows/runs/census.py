"""How many objects of each class a catalogue has, with an interval that says what it rests on.

`summary.json` has it as `census`.  Shapes: K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Assumption", "Census", "ClassCensus", "Source"]

Assumption = Literal["same", "shares", "features"]
"""What target and labelled rows have in common: the distribution of all ("same"), of the features in each class
("shares": class shares may differ), or the class probabilities at given features ("features": labels are biased)."""

Source = Literal["model", "audit", "cannot be said"]


@dataclass(frozen=True, kw_only=True)
class ClassCensus:
    """The number of objects of one class, and its 95 % interval; None where it cannot be said.

    `source` is "model" for counts that hold under the assumption `assumes`, "audit" for counts from objects that people
    have looked at, which assume nothing.  `reason` says in words why this source, or why it cannot be said.
    """

    count: float | None
    low: float | None
    high: float | None
    source: Source
    assumes: Assumption | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class Census:
    """The counts of all classes, by name, among the `n_rows` rows that have probabilities; `level` of the intervals."""

    n_rows: int
    level: float
    classes: Mapping[str, ClassCensus]
