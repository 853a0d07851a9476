"""The summary of a classification, in `summary.json`, and its totals in `manifest.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from blr.census.results import Census
from flows.runs.counts import ClassSetRule, FileCounts, SetRecord, ShiftRecord

__all__ = [
    "DRIFTED",
    "AnnotatedFile",
    "ClassEstimate",
    "ClassSets",
    "Counts",
    "FeatureDrift",
    "FileSummary",
    "FlagCount",
    "PredictionSets",
    "ShownSummary",
    "Summary",
    "Totals",
    "drifted",
]

DRIFTED = 0.2
"""Excess of the stability index that counts as drift; by convention, 0.1 is moderate and 0.25 is large."""
MISSING_MORE = 0.1
"""Change in the share of rows without the feature that counts as drift."""
CONTRADICTED = (
    "; the test of the census finds that these objects look different, so the share may not hold for them"
)
"""Last words of the reason of prediction sets, where a census finds the objects unlike the labelled ones."""
SIGMAS = 3.0
"""Standard deviations that are added to both limits, so that a small file causes no alarm by chance."""


@dataclass(frozen=True)
class ClassEstimate:
    """The number of objects of a class: the number assigned to it, and the expected number.

    `error` is the standard error of the expected number.  `error_objects` and `error_weights` are its parts, from the
    objects and from the weights.  All three are None where the error is not known (`Counts.no_error`).
    """

    assigned: int
    expected: float
    error: float | None
    error_objects: float | None
    error_weights: float | None


@dataclass(frozen=True)
class FlagCount:
    """A flag: its bit in the column of flags, its meaning, and the number and share of the rows that have it."""

    bit: int
    meaning: str
    count: int
    share: float


@dataclass(frozen=True, kw_only=True)
class ClassSets(ClassSetRule):
    """A class in prediction sets: its rule, and the number of sets that contain it."""

    count: int


@dataclass(frozen=True, kw_only=True)
class PredictionSets:
    """The prediction sets of some rows: `sizes` counts them by their number of classes, from none to all.

    `empty` and `full` are the numbers of sets with no class and with all classes.  `mean_size` is None where there are
    no sets.  `level`, `source` and `reason` are those of the `SetRecord`.
    """

    level: float
    source: Literal["left-out", "held-out", "stated", "cannot be said"]
    reason: str
    empty: int
    full: int
    mean_size: float | None
    sizes: tuple[int, ...]
    classes: Mapping[str, ClassSets]

    @classmethod
    def of(cls, record: SetRecord, sizes: tuple[int, ...], in_sets: tuple[int, ...]) -> PredictionSets:
        """Return the summary of a record, with the counts of sets by size (K + 1,) and by class (K,)."""
        n, counts = sum(sizes), in_sets or (0,) * len(record.classes)
        pairs = zip(record.classes.items(), counts, strict=True)
        return cls(
            level=record.level,
            source=record.source,
            reason=record.reason,
            empty=sizes[0] if sizes else 0,
            full=sizes[-1] if sizes else 0,
            mean_size=sum(in_sets) / n if n else None,
            sizes=sizes,
            classes={name: ClassSets(**vars(rule), count=count) for (name, rule), count in pairs},
        )

    def judged_by(self, census: Census | None) -> Self:
        """Return the sets with a `reason` that says so if a census contradicts the share that they promise.

        Words on an earlier census are removed.  A stated share promises nothing that a census could contradict.
        """
        reason = self.reason.removesuffix(CONTRADICTED)
        if census is not None and census.contradicted and self.source in ("left-out", "held-out"):
            reason += CONTRADICTED
        return replace(self, reason=reason)


@dataclass(frozen=True, kw_only=True)
class FeatureDrift:
    """How a feature's distribution differs from the training's.

    `rows` is the number of rows with the feature.  `missing` is the share of rows without it; `missing_change` and
    `missing_error` are its change since the training and the standard error of that.  `index` is the population
    stability index; `expected_index` and `index_error` are its mean and standard deviation by chance.  `mean_shift` is
    the change of the mean in standard deviations of the training rows, and `sd_ratio` the ratio of the standard
    deviations.  Where no row has the feature, these and the indices are 0.
    """

    rows: int
    missing: float
    missing_change: float
    missing_error: float
    index: float
    expected_index: float
    index_error: float
    mean_shift: float
    sd_ratio: float

    @property
    def has_drifted(self) -> bool:
        """Whether the distribution differs by more than the limits of drift and chance together."""
        moved = self.index - self.expected_index > DRIFTED + SIGMAS * self.index_error
        return moved or abs(self.missing_change) > MISSING_MORE + SIGMAS * self.missing_error


def drifted(drift: Mapping[str, FeatureDrift]) -> list[str]:
    """Return the names of the features that have drifted."""
    return [name for name, feature in drift.items() if feature.has_drifted]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of some rows: by class and by flag name, and the shares of rows without a feature.

    `no_error` says why the errors of the class counts are not known; None where they are.  `sets` are the prediction
    sets, None where none were asked for.
    """

    n_rows: int
    n_classified: int
    classes: Mapping[str, ClassEstimate]
    no_error: str | None = None
    flags: Mapping[str, FlagCount]
    missing: Mapping[str, float]
    sets: PredictionSets | None = None


@dataclass(frozen=True, kw_only=True)
class _OfModel:
    """The model, as `NAME@VERSION`."""

    model: str


@dataclass(frozen=True, kw_only=True)
class Totals(Counts, _OfModel):
    """Counts of all files of a model together, its class shares, the drift by feature, and the census.

    The census is None where an earlier version wrote the outputs.
    """

    shift: ShiftRecord
    drift: Mapping[str, FeatureDrift]
    census: Census | None = None

    def with_census(self, census: Census | None) -> Self:
        """Return the totals with another census, whose result the reason of the prediction sets then mentions."""
        return replace(self, census=census, sets=self.sets and self.sets.judged_by(census))


@dataclass(frozen=True, kw_only=True)
class FileSummary(FileCounts, Counts):
    """Counts of one file in `summary.json`, with what later runs need of the file."""


@dataclass(frozen=True, kw_only=True)
class Summary(Totals):
    """The content of `summary.json`: the totals and, for up to a hundred files, the counts of each by its name."""

    files: Mapping[str, FileSummary]


@dataclass(frozen=True, kw_only=True)
class AnnotatedFile(Counts):
    """Counts of one file in a result; `left_behind` names what the format of the copy cannot hold of the input."""

    left_behind: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShownSummary(Totals):
    """The summary in a result, without what only later runs need; for many files, it has the totals alone."""

    files: Mapping[str, AnnotatedFile]
