"""The content of reports as plain values, which `train` and `classify` gather.

Everything is a number, a text, a tuple of them, or an array; nothing here reads a file or a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blr.census.results import Census
from catalogs.profile.split import SplitSummary
from flows.reports.candidates import CandidateRow
from flows.reports.picture_data import (
    BoundaryPicture,
    FeatureComparison,
    Made,
    NotableObject,
    SkyMap,
    StoredPictures,
)
from flows.reports.shift import TargetShift
from flows.reports.skill import SkillSummary, has_skill, skill_words

__all__ = [
    "ClassCount",
    "ClassInSets",
    "Classification",
    "FeatureQuality",
    "FlagShare",
    "LabelCount",
    "LeftOutRows",
    "ReliabilityBin",
    "Review",
    "RiskCurve",
    "SetSummary",
    "TrainReport",
    "Verdict",
]


@dataclass(frozen=True, kw_only=True)
class FeatureQuality:
    """One feature over the labelled rows; the range is of the rows that have it."""

    name: str
    expression: str
    missing: float  # share of the rows
    minimum: float
    median: float
    maximum: float
    unit: str | None


@dataclass(frozen=True, kw_only=True)
class LabelCount:
    """Labelled rows of one class."""

    name: str
    training: int
    held_out: int


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Objects that no fit saw, of similar probability: its mean, the observed share, and the 90 % interval of that."""

    predicted: float
    observed: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Review:
    """Share of all errors found if the least certain `share` of the objects is reviewed, for three rankings."""

    share: float
    moderated: float
    plugin: float
    random: float


@dataclass(frozen=True, kw_only=True)
class RiskCurve:
    """Share of errors found against share of objects reviewed, (n,) each, from 0 to 1."""

    reviewed: tuple[float, ...]
    moderated: tuple[float, ...]
    plugin: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """How many objects of a class: by largest probability, and expected with its standard error."""

    name: str
    assigned: int
    expected: float
    error: float | None  # None where it is not known


@dataclass(frozen=True, kw_only=True)
class FlagShare:
    """One bit of the flags."""

    bit: int
    name: str
    meaning: str
    count: int
    share: float


@dataclass(frozen=True, kw_only=True)
class ClassInSets:
    """A class in prediction sets: the number of sets with it, its labelled rows, and what is special about it."""

    bit: int
    name: str
    count: int
    rows: int
    least: float | None  # probability from which on it is in a set; None for always
    spread: float
    remark: str


@dataclass(frozen=True, kw_only=True)
class SetSummary:
    """Prediction sets of a catalogue: the numbers of empty and full ones, and the mean number of classes."""

    level: float
    reason: str
    n: int
    empty: int
    full: int
    mean_size: float | None
    classes: tuple[ClassInSets, ...]


@dataclass(frozen=True, kw_only=True)
class Classification:
    """What `classify` found in the catalogue: all its objects, the unlabelled too.

    `no_error` says why the counts have no errors, where they have none.  `sets` are None where none were asked for.
    """

    catalogue: str
    n_rows: int
    counts: tuple[ClassCount, ...]
    flags: tuple[FlagShare, ...]
    no_error: str = ""
    n_classified: int | None = None  # None where it is not known
    drifted: tuple[str, ...] = ()  # features whose distribution is far from the training's
    sky: SkyMap | None = None  # None where positions are not known
    features: tuple[FeatureComparison, ...] = ()
    sets: SetSummary | None = None  # None where no prediction sets were asked for
    census: Census | None = None  # None where none was taken
    label_shares: Mapping[str, float] = field(default_factory=dict)  # of the classes among the model's labels


@dataclass(frozen=True)
class Verdict:
    """A verdict on the posterior approximation, "green", "amber" or "red", and its reasons in words."""

    verdict: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LeftOutRows:
    """Numbers of rows of the labelled catalogue that are not used, and of rows without any measured feature."""

    n_read: int
    n_selected: int  # by catalog.where
    unlabelled: int
    unknown_labels: Mapping[str, int]  # rows by label, of labels in no class
    conflicts: int  # objects
    disputed: int = 0  # objects whose reviewers differ
    without_features: int  # of the rows that judge


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """Everything that the report of a trained model shows.

    `log_loss`, `log_loss_plugin` and `log_loss_baseline` are means over the rows that judge, in nats: for the selected
    model's moderated probabilities, for its plug-in ones, and for the training rows' class shares.  `judged_by` is
    "held-out", or "left-out" if all rows judge, each by fits without it.
    """

    name: str
    version: str
    classes: tuple[str, ...]
    labels: tuple[LabelCount, ...]
    features: tuple[FeatureQuality, ...]
    candidates: tuple[CandidateRow, ...]
    selected: int
    log_loss: float
    log_loss_plugin: float
    log_loss_baseline: float
    accuracy: float
    calibration_error: float  # expected, equal-mass bins
    reliability: tuple[ReliabilityBin, ...]
    reviews: tuple[Review, ...]
    risk: RiskCurve
    judged_by: str = "held-out"
    skill: SkillSummary | None = None  # against the class shares; None for models of earlier versions
    reliability_of: str = "moderated probability"  # what the reliability diagram's x axis is
    split: SplitSummary | None = None  # None where it is not known
    selected_by: str = ""  # the specification's select.by; "" where it is not known
    boundary: BoundaryPicture | None = None
    pictures: StoredPictures | None = None  # None for models of earlier versions
    objects: tuple[NotableObject, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()  # (K, K) rows that judge, by class and assigned class
    trust: Verdict | None = None
    left_out: LeftOutRows | None = None
    # Columns that the features use and that may give the class away, each set with how.
    leaks: Mapping[str, str] = field(default_factory=dict)
    # Other columns that they use and that may tell how objects were chosen, each with why.
    suspects: Mapping[str, str] = field(default_factory=dict)
    shift: TargetShift = field(default_factory=TargetShift)
    made: Made | None = None
    classifications: tuple[Classification, ...] = ()
    catalogue: str = ""  # the labelled one
    n_rows: int = 0  # of it, labelled or not
    remarks: tuple[str, ...] = ()  # what a reader should know: what was left out and why
    attribution: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_skill(self) -> bool:
        """Whether the model is known to predict better than the class shares alone."""
        return has_skill(self.skill, log_loss=self.log_loss, baseline=self.log_loss_baseline)

    @property
    def skill_words(self) -> str:
        """The sentence on the model's skill."""
        return skill_words(
            self.skill, log_loss=self.log_loss, baseline=self.log_loss_baseline, rows=self.judged_by
        )

    @property
    def judged_words(self) -> str:
        """Why the fits did not see the objects that judge them: "held-out", or "left-out (five folds)"."""
        if self.judged_by != "left-out":
            return self.judged_by
        ways = {c.left_out_by for c in self.candidates}
        if "one step" not in ways:
            return "left-out (five folds)"
        return "left-out (five folds, or one step)" if "folds" in ways else "left-out (one step)"

    @property
    def judged_objects(self) -> str:
        """The objects that judge: "held-out objects", or "left-out objects (five folds)"."""
        return self.judged_words.replace(self.judged_by, f"{self.judged_by} objects", 1)

    @property
    def is_mixture(self) -> bool:
        """Whether the model is a mixture of candidates, each with a share."""
        return self.selected_by in ("average", "stack")

    @property
    def chosen(self) -> CandidateRow:
        """The selected candidate."""
        return self.candidates[self.selected]

    @property
    def n_training(self) -> int:
        """Rows that the fits saw."""
        return sum(c.training for c in self.labels)

    @property
    def n_held_out(self) -> int:
        """Rows that no fit saw."""
        return sum(c.held_out for c in self.labels)

    @property
    def n_judged(self) -> int:
        """Rows that judge the model."""
        return self.n_training if self.judged_by == "left-out" else self.n_held_out
