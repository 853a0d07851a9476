"""What an audit leaves: the design in `audit_design.json`, and the estimates in `audit.json`.

Classes and bins are named; a stratum is known by its place in the design.  Intervals have the stated level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from blr.census.results import Census

DESIGN: Final = "audit_design.json"
AUDIT: Final = "audit.json"


@dataclass(frozen=True, kw_only=True)
class AuditStratum:
    """A stratum: objects of one class, the most probable one, whose probability is in [low, high), in one bin.

    `n_drawn` of its `n_rows` objects were drawn.  `bin` is '' where the audit has no bins.
    """

    class_given: str
    low: float
    high: float
    bin: str
    n_rows: int
    n_drawn: int


@dataclass(frozen=True, kw_only=True)
class DrawnObject:
    """A drawn object: its name, its stratum's place in the design, its probabilities in the order of the classes."""

    id: str
    stratum: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The objects whose probability of a class is `threshold` or more."""

    class_name: str
    threshold: float


@dataclass(frozen=True, kw_only=True)
class AuditDesign:
    """From what and how the objects were drawn.

    `outputs` is a hash of the annotated copies' bytes: other copies are another population.  `id` is the column that
    names an object, `by` the expression of the bins.
    """

    format: Literal["blr-audit"]
    model: str
    release: int
    outputs: str
    id: str
    seed: int
    by: str | None
    bins: tuple[str, ...]
    classes: tuple[str, ...]
    n_rows: int
    selections: tuple[Selection, ...]
    strata: tuple[AuditStratum, ...]
    objects: tuple[DrawnObject, ...]


@dataclass(frozen=True, kw_only=True)
class AuditDraw:
    """What was drawn, and where the lists are; `files` is empty where nothing was written.

    `n_labelled` of the `n_drawn` objects had a label already.
    """

    status: Literal["planned", "done"]
    model: str
    out: Path
    id: str
    n_rows: int
    n_drawn: int
    n_labelled: int
    bins: tuple[str, ...]
    strata: tuple[AuditStratum, ...]
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class AuditedInterval:
    """An estimate with its interval; the estimate is None where no object was seen that could tell."""

    value: float | None
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """The model's count of a class, with its interval where it has one, and whether the audit rejects it.

    `differs` is None where the model gives no interval.
    """

    count: float
    low: float | None
    high: float | None
    differs: bool | None


@dataclass(frozen=True, kw_only=True)
class AuditedClass:
    """A class: its count, the purity and the completeness of the objects that it was given to, by intervals.

    `assigned` is how many that are.  `if_all` and `if_none` are the count if all objects without an answer were of the
    class, and if none were; None where all have answers.  `model` is what the model says of the count, None of a bin.
    """

    assigned: int
    count: AuditedInterval
    purity: AuditedInterval
    completeness: AuditedInterval
    if_all: AuditedInterval | None = None
    if_none: AuditedInterval | None = None
    model: ModelComparison | None = None


@dataclass(frozen=True, kw_only=True)
class AuditedBin:
    """The classes of the objects of a bin; `n_answered` of them were looked at."""

    n_rows: int
    n_answered: int
    classes: Mapping[str, AuditedClass]


@dataclass(frozen=True, kw_only=True)
class AuditedSelection(Selection):
    """The purity and the completeness of a selection."""

    purity: AuditedInterval
    completeness: AuditedInterval


@dataclass(frozen=True, kw_only=True)
class AuditedSetRule:
    """When a class is in a prediction set: where its probability is at least `least`, 0 for always.

    `rows` answers are of the class, and count as `effective` ones with their weights.  `spread` is the standard
    deviation of the share of the class's objects that keep it, from one audit to another.
    """

    least: float
    rows: int
    effective: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class AuditedSets:
    """Prediction sets learnt from the answers: `level` is the share of a class's objects that keep it, on average."""

    level: float
    classes: Mapping[str, AuditedSetRule]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit says of a release.

    Of the `n_drawn` objects, `n_answered` have an answer, `n_undecided` one that says that nobody can tell, and
    `n_unanswered` none.  `n_other` of the answered ones are of no class of the model.  `joined` counts strata that had
    too few answers, and were joined with a neighbour.  `model_census` is the census of the model, which the audit's
    replaces in `summary.json`.  `sets` is None where no prediction sets were asked for.
    """

    status: Literal["planned", "done"]
    model: str
    release: int
    outputs: str
    out: Path
    level: float
    n_rows: int
    n_drawn: int
    n_answered: int
    n_undecided: int
    n_unanswered: int
    n_other: int
    joined: int
    classes: Mapping[str, AuditedClass]
    by: str | None
    bins: Mapping[str, AuditedBin]
    selections: tuple[AuditedSelection, ...]
    census: Census
    model_census: Census | None
    sets: AuditedSets | None = None
    remarks: tuple[str, ...]
    files: tuple[Path, ...]
