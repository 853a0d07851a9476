"""What runs count and return: the counts of a file and of a release, and the results of commands.

Staging records, `summary.json`, `manifest.json` and the output of `--json` hold these types.
Shapes: K classes, F features, S draws of the weights, B bins of a feature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NotRequired, Self, TypeVar, get_args

from typing_extensions import TypedDict

from blr.census.results import Census, StatedAssumption
from catalogs.profile.columns import ColumnRange

# The counts of an annotated file, as its staging record and the table of a folder's files keep them for later runs.


@dataclass(frozen=True)
class Tally:
    """Class counts over some rows.

    `assigned` (K,) counts the rows by their most probable class.  `expected` (K,) is the sum of the probabilities of a
    class, and `variance` (K,) the sum of p (1 - p), which is the objects' own uncertainty.  `draws` (S, K) are the
    expected counts under S draws of the weights, which all objects share, with seven digits for a file.  `flags`
    counts rows by the flag's name, `missing` (F,) rows without the feature.  With prediction sets, `set_sizes` (K + 1,)
    counts the classified rows by the number of classes in their set, and `in_sets` (K,) the sets that have the class;
    otherwise both are empty.  `marks` counts numbers that catalogues write for 'no value' (`g = -999`) in rows that are
    unlike the labelled ones.  `by_input` counts the rows inside the target's condition in bins of one input of the
    model, those without a value last, and `flagged_by_input` those of them whose flags recommend to look at them; both
    are empty for a model without such an input.
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
    marks: Mapping[str, int] = field(default_factory=dict)
    by_input: tuple[int, ...] = ()
    flagged_by_input: tuple[int, ...] = ()


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


Summable = TypeVar("Summable", Tally, FeatureCounts)


def summed(parts: Sequence[Summable]) -> Summable:
    """Return the sum of one or more counts, number by number; it does not depend on their order.

    Tuples that are empty in some parts, as those of sets without rows, are summed over the others.
    """
    return type(parts[0])(
        **{f.name: _sum([getattr(part, f.name) for part in parts]) for f in fields(parts[0])}
    )


def _sum(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Mapping):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: sum(value.get(key, 0) for value in values) for key in keys}
    if isinstance(values[0], tuple):
        return tuple(map(_sum, zip(*(value for value in values if value), strict=True)))
    return sum(values) if isinstance(values[0], int) else math.fsum(values)  # exact


class SkyCounts(TypedDict):
    """Numbers of rows in nested HEALPix pixels (P,) of one order.

    `n` (P,) counts all rows, `flagged` (P,) rows with a flag that recommends to look at them, `assigned` (P, K) rows by
    class.
    """

    order: int
    pixels: tuple[int, ...]
    n: tuple[int, ...]
    flagged: tuple[int, ...]
    assigned: tuple[tuple[int, ...], ...]


class DoubtfulObject(TypedDict):
    """An object whose label would teach the model much: its position in degrees, two most probable classes, flags.

    `features` are the values that the model reads, None where one is missing; most objects have none.
    """

    id: str
    ra: float | None
    dec: float | None
    classes: tuple[str, str]
    probabilities: tuple[float, float]
    mutual_information: float  # nats
    flags: int
    features: NotRequired[tuple[float | None, ...]]


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


class ClassSetRule(TypedDict):
    """When a class is in a prediction set: where its probability is at least `least`, None for always.

    `rows` is the number of labelled rows of the class, and `effective` their effective number with weights.  `spread`
    is the standard deviation, over samples of labels, of the share of the class's objects that keep it.  `remark` says
    what is special about the class, if anything is.  A summary has the `count` of sets that contain the class.
    """

    bit: int
    rows: int
    effective: float
    least: float | None
    spread: float
    remark: NotRequired[str]
    count: NotRequired[int]


@dataclass(frozen=True, kw_only=True)
class PredictionSets:
    """How prediction sets were made: `level` is the share of a class's objects that keep it, on average.

    `source` is "left-out" or "held-out" for sets learnt from such labelled rows, "stated" for thresholds of the
    specification, which come from an audit, and "cannot be said" where no share can be stated.  `reason` says in words
    what the share is based on, or why there are no sets.  A summary counts the sets by their number of classes, from
    none to all, as `sizes`.
    """

    level: float
    source: Literal["left-out", "held-out", "stated", "cannot be said"]
    reason: str
    sizes: tuple[int, ...] = ()
    classes: Mapping[str, ClassSetRule] = field(default_factory=dict)

    def counted(self, sizes: tuple[int, ...], in_sets: tuple[int, ...]) -> Self:
        """Return the sets with their counts by size (K + 1,) and by class (K,), which are empty without rows."""
        counts = in_sets or (0,) * len(self.classes)
        pairs = zip(self.classes.items(), counts, strict=True)
        classes: dict[str, ClassSetRule] = {name: {**rule, "count": count} for (name, rule), count in pairs}
        return replace(self, sizes=sizes, classes=classes)

    def judged_by(self, census: Census | None) -> Self:
        """Return the sets with a `reason` that says so if a census contradicts the share that they promise.

        Words on an earlier census are removed.  A stated share promises nothing that a census could contradict.
        """
        reason = self.reason.removesuffix(CONTRADICTED)
        if census is not None and census.contradicted and self.source in ("left-out", "held-out"):
            reason += CONTRADICTED
        return replace(self, reason=reason)


@dataclass(frozen=True, kw_only=True)
class FileCounts:
    """What later runs need of an annotated file.

    `counted` is False for the margins of a HATS catalogue, which repeat rows of other files.  `low_confidence` is the
    threshold of that flag, a probability.  `set_rule` is None where no prediction sets were asked for.  `left_behind`
    names what the format of the copy cannot hold of the input.  `sky` is None where positions are not known.
    `doubtful` are a few objects; there are no such entries where objects have no names.
    """

    counted: bool
    tally: Tally
    drift: FeatureCounts
    low_confidence: float
    shift: ShiftRecord
    set_rule: PredictionSets | None = None
    left_behind: tuple[str, ...] = ()
    sky: SkyCounts | None = None
    doubtful: tuple[DoubtfulObject, ...] = ()


# How many objects differ between an annotation and the one before it, for a file or a whole release.


class Transition(TypedDict):
    """The number of objects that changed from one class to another; a class is '' where there are no probabilities."""

    was: str
    now: str
    objects: int


class MovedObject(TypedDict):
    """An object whose class or probability changed; `moved` is the largest change of a class's probability.

    `file` is the name of its annotated file, where several are compared.
    """

    file: NotRequired[str]
    id: str
    was: str
    now: str
    moved: float


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How many objects differ between two annotations, of a file or of a whole release.

    `matched_by` says how objects were matched: by "row", by "id", or by "nothing"; then all count as appeared and
    vanished.  `moved` counts objects with a probability that changed by more than 0.1.  `largest_move` is the largest
    change of a probability.  Flags are counted by their names.  `examples` are the objects whose probabilities changed
    most.
    """

    matched_by: str
    compared: int
    appeared: int
    vanished: int
    class_changed: int
    transitions: tuple[Transition, ...]
    flag_changed: int
    flags_gained: Mapping[str, int]
    flags_lost: Mapping[str, int]
    moved: int
    largest_move: float
    examples: tuple[MovedObject, ...] = ()


class SampledChange(TypedDict):
    """How many classes another model would change in a release, from the first rows of some of its files.

    `changed` of the `compared` rows change class; `transitions` counts them by class, the most frequent first.
    `n_rows` and `n_files` are those of the whole release.
    """

    folder: str
    release: int
    n_files: int
    n_rows: int
    files: int  # number of files that were read
    compared: int
    changed: int
    transitions: tuple[Transition, ...]
    troubles: tuple[str, ...]  # files that one of the two could not classify, and why


# The summary of a classification, in `summary.json`; its totals are in `manifest.json` too.

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


class ClassEstimate(TypedDict):
    """The number of objects of a class: the number assigned to it, and the expected number.

    `error` is the standard error of the expected number.  `error_objects` and `error_weights` are its parts, from the
    objects and from the weights.  All three are None where the error is not known (`Counts.no_error`).
    """

    assigned: int
    expected: float
    error: float | None
    error_objects: float | None
    error_weights: float | None


class FlagCount(TypedDict):
    """A flag: its bit in the column of flags, its meaning, and the number and share of the rows that have it."""

    bit: int
    meaning: str
    count: int
    share: float


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

    @property
    def words(self) -> str:
        """How the distribution differs from the training's, in brief."""
        if abs(self.missing_change) > MISSING_MORE + SIGMAS * self.missing_error:
            return f"missing for {self.missing:.0%}, {self.missing - self.missing_change:.0%} in training"
        return f"mean moved by {self.mean_shift:+.1f} standard deviations".replace("-", "−")


def drifted(drift: Mapping[str, FeatureDrift]) -> list[str]:
    """Return the names of the features that have drifted."""
    return [name for name, feature in drift.items() if feature.has_drifted]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of some rows: by class and by flag name, and the shares of rows without a feature.

    `model` is `NAME@VERSION` in a summary.  `no_error` says why the errors of the class counts are not known; None
    where they are.  `sets` are the prediction sets, None where none were asked for.  `left_behind` names what the
    format of a file's copy cannot hold of the input.  `marks` counts suspected marks of missing values.
    """

    model: str = ""
    n_rows: int
    n_classified: int
    classes: Mapping[str, ClassEstimate]
    no_error: str | None = None
    flags: Mapping[str, FlagCount]
    missing: Mapping[str, float]
    sets: PredictionSets | None = None
    left_behind: tuple[str, ...] = ()
    marks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Summary(Counts):
    """Counts of all files of a model together, its class shares, the drift by feature, and the census.

    The content of `summary.json`.  It has the counts of each of the `files` by its name too, unless they are more than
    a hundred; the totals in `manifest.json` lack them.
    """

    shift: ShiftRecord
    drift: Mapping[str, FeatureDrift]
    census: Census | None = None
    files: Mapping[str, Counts] = field(default_factory=dict)

    @property
    def totals(self) -> Self:
        """The summary without the files."""
        return replace(self, files={})

    def with_census(self, census: Census | None) -> Self:
        """Return the summary with another census, whose result the reason of the prediction sets then mentions."""
        return replace(self, census=census, sets=self.sets and self.sets.judged_by(census))


# The questions put to a census, and its result with its place; `blr.census.results` has the census itself.


@dataclass(frozen=True, kw_only=True)
class CensusAsked:
    """The questions of a census: its assumption, purity and completeness by class, and bins of an expression."""

    assumes: StatedAssumption | None = None
    purity: Mapping[str, float] = field(default_factory=dict)
    completeness: Mapping[str, float] = field(default_factory=dict)
    by: str | None = None
    bins: int = 4
    edges: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class CensusResult:
    """The census of an output folder, with the model and the release that it is of.

    `written` is the path of the file with the census; None where it was not written.  `report` is the path of the
    report that shows it; None where none was written.
    """

    out: Path
    model: str
    release: int
    census: Census
    written: Path | None
    report: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ReleaseReference:
    """A release: its number, the time when it was made (ISO 8601, UTC), its model, its specification and its totals."""

    release: int
    created: str
    model: str
    specification_hash: str
    totals: Summary | None = None


# The results of `classify` and `reprocess`: what was done, what would be done, or a trial on some rows.

Value = str | int | float | None
"""A value in one of the new columns; None where it is missing."""


class FileWork(TypedDict):
    """One input file, and what there is to do for it.

    `input` is its path or URL.  `to_do` says whether the plan is to annotate it.  `why` is the reason, for example
    "new" or "changed"; '' where the finished copy is there already.
    """

    input: str
    n_rows: int
    to_do: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class ReleaseResult:
    """What `reprocess` and `classify` have done in an output folder, or would do."""

    # "planned" with `--dry-run`; "nothing to do", since every copy was there already; "waiting", since all inputs were
    # left for the next run.
    status: Literal["planned", "nothing to do", "waiting", "done"]
    model: str  # NAME@VERSION
    out: Path  # the output folder
    manifest: Path  # path of its `manifest.json`
    release: int | None  # number of the release in the folder when the work ends; None before the first
    files: Mapping[str, FileWork]  # the input files, by the names of their copies
    retired: tuple[str, ...]  # copies moved to `_retired`, or to be moved: mostly those whose input is gone
    quarantined: Mapping[str, str]  # why a file could not be annotated, by the name of its copy
    stale: tuple[str, ...]  # copies of an earlier state of their input, which is quarantined or deferred
    deferred: Mapping[str, str]  # why a file is left for the next run, by the name of its copy
    summary: Summary | None  # counts of the annotated files; None where no file is annotated yet
    before: ReleaseReference | None  # the release before this work; None for the first release
    # URL of the object store where the release is published, from the folder `out`; None for a folder of this machine.
    published: str | None = None
    # Sentences on odd files: with objects that are there twice, without rows, or left out of the copies.
    repeats: tuple[str, ...] = ()
    up_to_date: bool | None = None  # whether the plan has nothing to do; None unless the status is "planned"
    drifted: tuple[str, ...] | None = None  # features far from the training's; None unless "done"
    # The release's report, and what the release changes; None for `classify`, which makes neither.
    report: Path | None = None
    difference: Difference | None = None


@dataclass(frozen=True, kw_only=True)
class ClassificationTrial:
    """A trial, with `--limit`: counts of the rows that were scored, and the new columns (by name) of the first few."""

    status: Literal["trial"]
    model: str
    summary: Counts
    rows: tuple[Mapping[str, Value], ...]


ClassificationResult = ReleaseResult | ClassificationTrial
"""What `classify` returns."""

# The results of `map`: fractions of a class over the sky, in all and by bins of what they may depend on.

What = Literal["fraction", "contamination", "completeness"]
"""Of all objects those of the class; of the selected ones those of other classes; of the class those selected."""


class MappedFraction(TypedDict):
    """A fraction of some objects.

    `objects` is what it is a fraction of, as the classifier expects it.  `k` of `n` are the labelled objects.
    `expected` is the classifier's own fraction, `fraction` the one that labelled objects correct, `low` and `high` its
    95 % interval; these are None without labelled objects, or where there is no object.  The fraction of a bin is that
    of the objects with a quantity from `start` to `stop`.
    """

    objects: float
    k: int
    n: int
    expected: float | None
    fraction: float | None
    low: float | None
    high: float | None
    start: NotRequired[float]
    stop: NotRequired[float]


class MappedQuantity(TypedDict):
    """A quantity that the fraction depends on: its expression, unit and bins, which hold as many objects each."""

    expression: str
    unit: str | None
    bins: tuple[MappedFraction, ...]


@dataclass(frozen=True, kw_only=True)
class MapResult:
    """What was mapped, and where the maps are.

    `n_classified` are the objects with probabilities and a position, `cells` the pixels of order `order` that have some
    of what is mapped.  Of the answers, `labelled` are in use, `unanswered` have no label, `unmatched` are of no object
    here.  `files` is empty where nothing was written.
    """

    status: Literal["planned", "done"]
    model: str
    out: Path
    class_name: str
    what: What
    order: int
    n_classified: int
    cells: int
    labelled: int
    unanswered: int
    unmatched: int
    whole: MappedFraction
    over: tuple[MappedQuantity, ...]
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


# What the commands of releases return and keep: the checks, their basis, and the state of a release.

CELL_ORDER = 3  # order of the HEALPix cells in which releases are compared: 7.3 degrees
Verdict = Literal["stop", "look", "pass"]
ORDER = get_args(Verdict)


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a check found: where, the number, the limit and where that comes from."""

    kind: str
    name: str
    verdict: Verdict
    found: str
    file: str = ""
    field: str = ""
    rows: tuple[int, ...] = ()
    number: float | None = None
    limit: float | None = None
    source: str = ""

    @property
    def place(self) -> str:
        """File, field and first rows in words."""
        rows = f"rows {', '.join(map(str, self.rows[:5]))}" if self.rows else ""
        return ", ".join(filter(None, (self.file, self.field, rows)))


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The checks of a release, the worst first, and what they rest on."""

    name: str
    version: str
    checks: tuple[Check, ...]
    n_rows: int
    n_replayed: int
    seed: int
    last: str | None = None
    compared: int = 0
    class_changed: int = 0
    transitions: tuple[Transition, ...] = ()
    attributed: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[MovedObject, ...] = ()
    controls: Mapping[str, float] = field(default_factory=dict)
    truth: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    checked: str = ""
    digest: str = ""

    def names(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the names of the checks with a verdict."""
        return tuple(dict.fromkeys(c.name for c in self.checks if c.verdict == verdict))

    @property
    def stops(self) -> tuple[str, ...]:
        """The names of the checks that say stop."""
        return self.names("stop")

    @property
    def verdict(self) -> str:
        """How many checks say stop, in words."""
        n = len(self.stops)
        return f"{n} checks say stop" if n > 1 else f"{'one' if n else 'no'} check says stop"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a release holds: its columns, and by file and HEALPix cell (order `CELL_ORDER`) the rows and the classes."""

    n_rows: int
    columns: Mapping[str, ColumnRange]
    files: Mapping[str, Mapping[str, int]]
    classes: Mapping[str, int]
    cells: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


Status = Literal["drafted", "signed", "refused", "published", "rolled back", "is published"]


@dataclass(frozen=True, kw_only=True)
class ReleaseState:
    """What was done to a release: its state, its folder, its digest, and what stops it."""

    name: str
    version: str
    status: Status
    folder: str
    digest: str = ""
    latest: str | None = None
    who: str = ""
    why: str = ""
    stops: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What the verification of a release's folder found: `faults` is empty where all is as it was published."""

    folder: str
    version: str
    digest: str
    files: int
    signed_by: str
    with_key: bool
    faults: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """How many rows of a file were scored again, and which columns differ in how many of them, and by how much."""

    file: str
    model: str
    rows: int
    differ: Mapping[str, int]
    largest: Mapping[str, float]
    agrees: bool
