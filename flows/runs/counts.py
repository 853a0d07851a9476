"""What is counted in an annotated file, as its record in the staging and `summary.json` keep it for later runs.

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

    `assigned` (K,) counts the rows whose most probable class it is.  `expected` (K,) is the sum of probabilities,
    `variance` (K,) of p (1 - p): the objects' own uncertainty.  `draws` (S, K) are the sums under S draws of the
    weights, which all objects share.  `flags` counts rows by the flag's name, `missing` (F,) rows without the feature.
    Where prediction sets were asked for, `set_sizes` (K + 1,) counts the classified rows by the number of classes in
    their set, `in_sets` (K,) those that have the class in it; else both are empty.
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

    By feature (F,): the rows that have it, the sum of its deviations from the training mean, and of their squares;
    `bins` (F, B) are the rows in each of the training's bins.
    """

    n_rows: int
    known: tuple[int, ...]
    total: tuple[float, ...]
    squares: tuple[float, ...]
    bins: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SkyCounts:
    """Rows by their place: nested HEALPix pixels (P,) of an order, each with its numbers of rows.

    `n` (P,) are all rows, `flagged` (P,) those with a flag that asks for a look, `assigned` (P, K) those of each class.
    """

    order: int
    pixels: tuple[int, ...]
    n: tuple[int, ...]
    flagged: tuple[int, ...]
    assigned: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class DoubtfulObject:
    """An object whose label would teach the model much: its place in degrees, the two most probable classes, flags.

    `features` are those that the model reads, None where one is missing; of most objects they are not kept.
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

    The shares of the training and the source are None where the model's own shares are in use, `training_weights`
    where the training rows were not weighted.
    """

    class_priors: Mapping[str, float] = field(default_factory=dict)
    class_priors_training: Mapping[str, float] | None = None
    class_priors_source: str | None = None
    training_weights: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClassSetRule:
    """When a class is in a prediction set: where its probability is at least `least`, None for always.

    `rows` are the labelled rows of the class, `effective` what they count as with their weights.  `spread` is the
    standard deviation of the share of the class's objects that keep it, from one sample of labels to another.
    `remark` says what is special: '' for nothing.
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

    `source` is "left-out" or "held-out" for the labelled rows that they were learnt from, "stated" for thresholds of
    the specification (of an audit), or "cannot be said" where no share can be stated; `reason` says in words what the
    share rests on, or why no set can be given.
    """

    level: float
    source: Literal["left-out", "held-out", "stated", "cannot be said"]
    reason: str
    classes: Mapping[str, ClassSetRule] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FileCounts:
    """What later runs need of an annotated file.

    `counted` is False for the margins of a HATS catalogue, which repeat rows of other files.  It and what follows the
    tally are None in files of versions that did not write them.  `low_confidence` is the threshold of that flag, a
    probability.  `set_rule` is None where no prediction sets were asked for.  `left_behind` says what of the input the
    copy's format has no place for.  `sky` is None where positions are not known; `doubtful` objects are few, and empty
    where objects have no names.
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
        """Whether the rows are counted in other files already."""
        return self.counted is False
