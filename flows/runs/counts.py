"""The counts of an annotated file, as its staging record and `summary.json` keep them for later runs.

Shapes: K classes, F features, S draws of the weights, B bins of a feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "ClassSetRule",
    "DoubtfulObject",
    "FeatureCounts",
    "FileCounts",
    "SetRecord",
    "ShiftRecord",
    "SkyCounts",
    "Tally",
]


@dataclass(frozen=True)
class Tally:
    """Class counts over some rows.

    `assigned` (K,) counts the rows by their most probable class.  `expected` (K,) is the sum of the probabilities of a
    class, and `variance` (K,) the sum of p (1 - p), which is the objects' own uncertainty.  `draws` (S, K) are the
    expected counts under S draws of the weights, which all objects share.  `flags` counts rows by the flag's name,
    `missing` (F,) rows without the feature.  With prediction sets, `set_sizes` (K + 1,) counts the classified rows by
    the number of classes in their set, and `in_sets` (K,) the sets that have the class; otherwise both are empty.
    """

    n_rows: int
    n_classified: int
    assigned: tuple[int, ...]
    expected: tuple[float, ...]
    variance: tuple[float, ...]
    draws: tuple[tuple[float, ...], ...]
    flags: Mapping[str, int]
    missing: tuple[int, ...]
    set_sizes: tuple[int, ...] = ()
    in_sets: tuple[int, ...] = ()


@dataclass(frozen=True)
class FeatureCounts:
    """How the features of some rows are distributed.

    By feature (F,): `known` counts the rows that have it, `total` is the sum of its deviations from the training mean,
    and `squares` the sum of their squares.  `bins` (F, B) count the rows in each of the training's bins.
    """

    n_rows: int
    known: tuple[int, ...]
    total: tuple[float, ...]
    squares: tuple[float, ...]
    bins: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SkyCounts:
    """Numbers of rows in nested HEALPix pixels (P,) of one order.

    `n` (P,) counts all rows, `flagged` (P,) rows with a flag that recommends to look at them, `assigned` (P, K) rows by
    class.
    """

    order: int
    pixels: tuple[int, ...]
    n: tuple[int, ...]
    flagged: tuple[int, ...]
    assigned: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class DoubtfulObject:
    """An object whose label would teach the model much: its position in degrees, two most probable classes, flags.

    `features` are the values that the model reads, None where one is missing; they are empty for most objects.
    """

    id: str
    ra: float | None
    dec: float | None
    classes: tuple[str, str]
    probabilities: tuple[float, float]
    mutual_information: float  # nats
    flags: int
    features: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShiftRecord:
    """Class shares that a file was annotated with, and weights of the training rows.

    `class_priors_training` and `class_priors_source` are None where the model's own shares are used, and
    `training_weights` is None where the training rows were not weighted.
    """

    class_priors: Mapping[str, float] = field(default_factory=dict)
    class_priors_training: Mapping[str, float] | None = None
    class_priors_source: str | None = None
    training_weights: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClassSetRule:
    """When a class is in a prediction set: where its probability is at least `least`, None for always.

    `rows` is the number of labelled rows of the class, and `effective` their effective number with weights.  `spread`
    is the standard deviation, over samples of labels, of the share of the class's objects that keep it.  `remark` says
    what is special about the class, '' for nothing.
    """

    bit: int
    rows: int
    effective: float
    least: float | None
    spread: float
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class SetRecord:
    """How prediction sets were made: `level` is the share of a class's objects that keep it, on average.

    `source` is "left-out" or "held-out" for sets learnt from such labelled rows, "stated" for thresholds of the
    specification, which come from an audit, and "cannot be said" where no share can be stated.  `reason` says in words
    what the share is based on, or why there are no sets.
    """

    level: float
    source: Literal["left-out", "held-out", "stated", "cannot be said"]
    reason: str
    classes: Mapping[str, ClassSetRule] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FileCounts:
    """What later runs need of an annotated file.

    `counted` is False for the margins of a HATS catalogue, which repeat rows of other files.  Fields other than the
    tally are None or empty where an earlier version did not write them.  `low_confidence` is the threshold of that
    flag, a probability.  `set_rule` is None where no prediction sets were asked for.  `left_behind` names what the
    format of the copy cannot hold of the input.  `sky` is None where positions are not known.  `doubtful` are a few
    objects; there are no such entries where objects have no names.
    """

    counted: bool | None = None
    tally: Tally
    drift: FeatureCounts | None = None
    low_confidence: float | None = None
    shift: ShiftRecord | None = None
    set_rule: SetRecord | None = None
    left_behind: tuple[str, ...] = ()
    sky: SkyCounts | None = None
    doubtful: tuple[DoubtfulObject, ...] = ()

    @property
    def repeats_rows(self) -> bool:
        """Whether other files have the same rows, where they are counted."""
        return self.counted is False
