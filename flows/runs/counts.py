"""What is counted in an annotated file, as its record in the staging and `summary.json` keep it for later runs.

Shapes: K classes, F features, S draws of the weights, B bins of a feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DoubtfulObject", "FeatureCounts", "FileCounts", "ShiftRecord", "SkyCounts", "Tally"]


@dataclass(frozen=True)
class Tally:
    """Class counts over some rows.

    `assigned` (K,) counts the rows whose most probable class it is.  `expected` (K,) is the sum of probabilities,
    `variance` (K,) of p (1 - p): the objects' own uncertainty.  `draws` (S, K) are the sums under S draws of the
    weights, which all objects share.  `flags` counts rows by the flag's name, `missing` (F,) rows without the feature.
    """

    n_rows: int
    n_classified: int
    assigned: tuple[int, ...]
    expected: tuple[float, ...]
    variance: tuple[float, ...]
    draws: tuple[tuple[float, ...], ...]
    flags: Mapping[str, int]
    missing: tuple[int, ...]


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
    """An object whose label would teach the model much: its place in degrees, the two most probable classes, flags."""

    id: str
    ra: float | None
    dec: float | None
    classes: tuple[str, str]
    probabilities: tuple[float, float]
    mutual_information: float  # nats
    flags: int


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
class FileCounts:
    """What later runs need of an annotated file.

    `counted` is False for the margins of a HATS catalogue, which repeat rows of other files.  It and what follows the
    tally are None in files of versions that did not write them.  `low_confidence` is the threshold of that flag, a
    probability.  `left_behind` says what of the input the copy's format has no place for.  `sky` is None where
    positions are not known; `doubtful` objects are few, and empty where objects have no names.
    """

    counted: bool | None = None
    tally: Tally
    drift: FeatureCounts | None = None
    low_confidence: float | None = None
    shift: ShiftRecord | None = None
    left_behind: tuple[str, ...] = ()
    sky: SkyCounts | None = None
    doubtful: tuple[DoubtfulObject, ...] = ()

    @property
    def repeats_rows(self) -> bool:
        """Whether the rows are counted in other files already."""
        return self.counted is False
