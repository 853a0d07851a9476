"""What a classification adds up to, for people and programs: `summary.json`, and the totals in `manifest.json`."""

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
"""Excess of the stability index that is called drift; the trade calls 0.1 moderate and 0.25 large."""
MISSING_MORE = 0.1
"""Change of the share of rows without the feature that is called drift."""
CONTRADICTED = (
    "; the test of the census finds that these objects look different, so the share may not hold for them"
)
"""What the reason of prediction sets ends with where the objects are unlike the labelled ones."""
SIGMAS = 3.0
"""Standard deviations of chance, on top of those: a small file is no alarm."""


@dataclass(frozen=True)
class ClassEstimate:
    """How many objects are of a class: counted by the most probable class, and expected.

    `error` is the standard error of the expected number; its parts are of the objects and of the weights.  All three
    are None where the error is not known (`Counts.no_error`).
    """

    assigned: int
    expected: float
    error: float | None
    error_objects: float | None
    error_weights: float | None


@dataclass(frozen=True)
class FlagCount:
    """A flag: its bit in the column of flags, and the number and share of the rows that have it."""

    bit: int
    meaning: str
    count: int
    share: float


@dataclass(frozen=True, kw_only=True)
class ClassSets(ClassSetRule):
    """A class in prediction sets: its rule, and the number of sets that have it."""

    count: int


@dataclass(frozen=True, kw_only=True)
class PredictionSets:
    """The prediction sets of some rows: `sizes` counts them by their number of classes, from none to all.

    `empty` and `full` are the first and the last of these.  `mean_size` is None where there are no sets.  `level`,
    `source` and `reason` are those of the record.
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
        """Return the summary of a record and of counts by size (K + 1,) and by class (K,)."""
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
        """Return the sets with a `reason` that says whether a census contradicts what they promise.

        What an earlier census said is taken back.  A stated share promises nothing that a census could contradict.
        """
        reason = self.reason.removesuffix(CONTRADICTED)
        if census is not None and census.contradicted and self.source in ("left-out", "held-out"):
            reason += CONTRADICTED
        return replace(self, reason=reason)


@dataclass(frozen=True, kw_only=True)
class FeatureDrift:
    """How a feature's distribution differs from the training's.

    `rows` have the feature; `missing` is the share without it, its change from the training's with a standard error.
    `index` is the population stability index, with its expectation and standard deviation by chance.  `mean_shift` is
    in standard deviations of the training rows, `sd_ratio` the ratio of the two.  Both and the indices are 0 where no
    row has the feature.
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
        """Whether the distribution has moved further than chance and habit explain."""
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
    """What a model made: its `NAME@VERSION`."""

    model: str


@dataclass(frozen=True, kw_only=True)
class Totals(Counts, _OfModel):
    """Counts of all files of a model together, its class shares, the drift by feature, and the census.

    The census is None in outputs of versions that made none.
    """

    shift: ShiftRecord
    drift: Mapping[str, FeatureDrift]
    census: Census | None = None

    def with_census(self, census: Census | None) -> Self:
        """Return the totals with another census, by which prediction sets are judged."""
        return replace(self, census=census, sets=self.sets and self.sets.judged_by(census))


@dataclass(frozen=True, kw_only=True)
class FileSummary(FileCounts, Counts):
    """Counts of one file in `summary.json`, and what later runs need of it."""


@dataclass(frozen=True, kw_only=True)
class Summary(Totals):
    """What `summary.json` holds: the totals, and of up to a hundred files the counts of each by its name."""

    files: Mapping[str, FileSummary]


@dataclass(frozen=True, kw_only=True)
class AnnotatedFile(Counts):
    """Counts of one file in a result; `left_behind` says what of the input the copy's format has no place for."""

    left_behind: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShownSummary(Totals):
    """The summary in a result: without what only later runs need, and of many files the totals alone."""

    files: Mapping[str, AnnotatedFile]
