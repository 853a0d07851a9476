"""Results of a census: the number of objects of each class with an interval, and the assumption behind it.

The other modules compute it; reports show it, and `summary.json` stores it as `census`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

StatedAssumption = Literal["same", "shares", "features"]
"""What target and labelled rows have in common: the distribution of all ("same"), of the features in each class
("shares": class shares may differ), or the class probabilities at given features ("features": labels are biased)."""

Assumption = Literal["same", "shares", "features", "shares or features"]
"""An assumption of a census; "shares or features" only where none was stated and a test contradicts "shares"."""

Source = Literal["model", "labels", "audit", "cannot be said"]


@dataclass(frozen=True, kw_only=True)
class SelectionQuality:
    """How many objects are selected as a class, how pure and how complete: with the ends of the 95 % intervals.

    Purity is the share of the class among them, completeness the share of the class that is among them.
    """

    objects: int
    purity: float
    purity_low: float
    purity_high: float
    completeness: float
    completeness_low: float
    completeness_high: float


@dataclass(frozen=True, kw_only=True)
class SelectionCensus(SelectionQuality):
    """The objects whose probability of a class is at or above a threshold.

    `stated` is what the threshold was chosen for, such as "purity 0.95"; `column` is
    the copies' column that has the selection, '' for none: its threshold was chosen before the target was seen.
    The probability is the one at the class shares of the training.  `threshold` is None where it differs among objects:
    a column may have one in each of its own bins.
    """

    threshold: float | None
    stated: str = ""
    column: str = ""


@dataclass(frozen=True, kw_only=True)
class ClassCensus:
    """The number of objects of one class, and its 95 % interval; None where it cannot be said.

    `source` is "model" for counts that hold under the assumption `assumes`, "labels" where nearly all objects have
    labels of the training and are counted by them, "audit" for counts from objects that people have looked at, which
    assume nothing.  `labelled` are the objects that are counted by a label, also beside a model's count of the others.
    `reason` says in words why this source, or why it cannot be said.
    `selections` tell of objects selected by their probability.  `assigned` tells of those whose most probable class it
    is, by an audit; None without one, or where it saw too few of them.
    """

    count: float | None
    low: float | None
    high: float | None
    source: Source
    assumes: Assumption | None
    reason: str
    selections: tuple[SelectionCensus, ...] = ()
    assigned: SelectionQuality | None = None
    labelled: int = 0


@dataclass(frozen=True, kw_only=True)
class BinCount:
    """The number of objects of one class in a bin, its interval, and selections, of which stated ones are the bin's."""

    count: float
    low: float
    high: float
    selections: tuple[SelectionCensus, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BinCensus:
    """The counts of the classes among the `objects` of a bin, in which `labelled` rows lie."""

    name: str
    objects: int
    labelled: int
    classes: Mapping[str, BinCount]


@dataclass(frozen=True, kw_only=True)
class BinnedSelection(SelectionQuality):
    """The objects of all bins that reach their bin's threshold for what is `stated`.

    `thresholds` are by the bin's name; a bin in which none has what is stated is left out, and loses its objects.
    """

    stated: str
    thresholds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class CensusBins:
    """The census by bins of an expression over features; `reason` says what it rests on, or why there are no bins.

    `selections` are by class: what thresholds that differ from bin to bin come to.
    """

    by: str
    reason: str
    bins: tuple[BinCensus, ...]
    selections: Mapping[str, tuple[BinnedSelection, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Census:
    """The counts of all classes, by name, among the `n_rows` rows that have probabilities; `level` of the intervals.

    `contradicted`: objects of a class do not look alike among labelled objects and here, by a test; counts may span
    what holds then.  Of an audit: it rejects a count of the model, or finds more than 1 % of no class.  `bins` is None
    where none were asked for, or nothing can be said.  `other_labels` are labels of no class, with their objects among
    all labelled ones: the counts take objects of the target like them for one of the classes.
    """

    n_rows: int
    level: float
    classes: Mapping[str, ClassCensus]
    contradicted: bool = False
    bins: CensusBins | None = None
    other_labels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CountChange:
    """How many objects more of a class there are than in the last release, with a 95 % interval.

    The errors of both counts are taken as independent: those of one model share their labelled rows, so the interval is
    rather too wide.  None where one of the counts cannot be said.
    """

    change: float | None
    low: float | None
    high: float | None


def count_changes(old: Census | None, new: Census | None) -> dict[str, CountChange]:
    """Return how the counts of the classes that both have changed; none where there was no census before."""
    if old is None or new is None:
        return {}
    changes = {}
    for name in [name for name in new.classes if name in old.classes]:
        both = old.classes[name], new.classes[name]
        known = [float(x) for of in both for x in (of.count, of.low, of.high) if x is not None]
        ends: list[float | None] = [None] * 3
        if len(known) == 6:
            was, was_low, was_high, now, now_low, now_high = known
            below, above = (
                math.hypot(now - now_low, was_high - was),
                math.hypot(now_high - now, was - was_low),
            )
            ends = [now - was, now - was - below, now - was + above]
        changes[name] = CountChange(change=ends[0], low=ends[1], high=ends[2])
    return changes
