"""The description of a model: where it came from, how good it is, and what it was trained on.

It has everything but the weights.  `blr train`, `blr models show` and `blr inspect` print it, reports show it, and the
model file holds most of it.  Shapes: K classes, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from blr.candidates.candidate import CandidateRow
from blr.selection.grouping import Grouping
from blr.trust.verdict import Trust
from catalogs.profile.columns import Distribution
from catalogs.profile.quality import Quality
from catalogs.profile.split import SplitSummary
from flows.models.store import Promotion, SkillSummary, skill_words

# Labels that may be wrong: shares with intervals, and log losses.


class WrongLabelShare(TypedDict):
    """The share of a class' objects that are recorded as another; with its 95 % interval where it is estimated."""

    rate: float
    standard_error: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]


RatesByClass = Mapping[str, WrongLabelShare]


@dataclass(frozen=True, kw_only=True)
class WrongLabels:
    """The record of labels that may be wrong; all fields have their defaults where labels are taken as right."""

    # Where the shares come from; estimated ones differ by class alone, or by annotator too.
    by: Literal["stated", "class", "annotator"] | None = None
    rows: int | None = None  # training rows that they are estimated from
    basis: str | None = None  # the kind of the model of the features that they are estimated with
    rates: RatesByClass = field(default_factory=dict)  # of all annotators together
    confusion: tuple[tuple[float, ...], ...] = ()  # p(recorded | true class), (K, K)
    column: str | None = None  # column with the names of the annotators
    annotators: Mapping[str, RatesByClass] = field(default_factory=dict)
    log_loss: float | None = None  # of the recorded labels' probabilities on the rows that judge, nats
    log_loss_of_true_classes: float | None = None  # of the true classes', against the recorded labels


# Differences between training set and target.

ESTIMATED = "EM over "
"""First words of the source of estimated class shares; the catalogue's name follows."""
TOLD_APART = 0.55


class ComparedTarget(TypedDict):
    """The catalogue that the labelled rows are compared with."""

    name: str
    n_rows: int
    n_compared: int
    content_hash: str  # of the rows compared


@dataclass(frozen=True, kw_only=True)
class TargetShift:
    """What a training notes of its target.

    Fields are None where no target was named or compared, no class shares were given, or no rows are held out.
    """

    # How unlike objects of the target and training rows are, and the effect of weights.
    target: ComparedTarget | None = None
    auc: float | None = None  # 0.5 is no difference
    auc_low: float | None = None  # of its 90 % interval
    auc_high: float | None = None
    advice: str | None = None
    density_weights: bool | None = None  # whether the training rows are weighted by density ratio
    n_training: int | None = None
    n_effective: float | None = None  # effective number of the weighted rows
    # Class shares that the probabilities hold for, those of the training rows, and where the former come from.
    class_prior: Mapping[str, float] | None = None
    class_prior_training: Mapping[str, float] | None = None
    class_prior_source: str | None = None
    # Log loss of the held-out rows weighted as the target, in nats an object.
    n_effective_held_out: float | None = None
    log_loss: float | None = None
    log_loss_uncorrected: float | None = None  # with the training's class shares; None where these stand


def why_no_error(source: str | None) -> str | None:
    """Return why the errors of class counts are not known under class shares of a source; None where they are.

    `source` says in words where the shares come from, None for the shares of the training rows.
    """
    if source is None or not source.startswith(ESTIMATED):
        return None
    return f"the class shares are an estimate ({source}), whose own error the counts' error would lack"


class FeatureQuality(TypedDict):
    """One feature over the labelled rows; the range is of the rows that have it."""

    name: str
    expression: str
    missing: float  # share of the rows
    minimum: float
    median: float
    maximum: float
    unit: str | None


class ReliabilityBin(TypedDict):
    """Objects that no fit saw, of similar probability: its mean, the observed share, and the 90 % interval of that."""

    predicted: float
    observed: float
    low: float
    high: float
    n: int


class Review(TypedDict):
    """Share of all errors found if the least certain `share` of the objects is reviewed, for three rankings."""

    share: float
    moderated: float
    plugin: float
    random: float


class RiskCurve(TypedDict):
    """Share of errors found against share of objects reviewed, (n,) each, from 0 to 1."""

    reviewed: tuple[float, ...]
    moderated: tuple[float, ...]
    plugin: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """How good a model is, measured on rows that the judging fits did not see.

    A log loss is a mean over these rows, in nats an object.
    """

    n: int  # number of rows
    n_unclassified: int  # rows among them without any feature: they get the class shares as probabilities
    log_loss: float  # of the model's probabilities
    log_loss_plugin: float  # of plug-in probabilities, from the weights at the mode alone
    log_loss_baseline: float  # of the training rows' class shares, the same for every row
    accuracy: float  # share of rows whose most probable class is right
    calibration_error: float  # expected calibration error, of 15 bins of equal weight; a probability
    reliability: tuple[ReliabilityBin, ...]  # the reliability diagram
    reliability_of: str  # the probability on its x axis, in words
    reviews: tuple[Review, ...]  # share of the errors that a review of the least certain objects catches
    risk: RiskCurve  # the same as a curve, against the share reviewed
    skill: SkillSummary  # gain over the class shares
    # Which rows judge: those held out, or all rows, each left out of the fits that judge it.
    judged_by: Literal["held-out", "left-out"]
    # (K, K) rows by their class and by the most probable one.
    confusion: tuple[tuple[int, ...], ...]
    # Classes that the features cannot tell apart; None of two classes, and of votes.
    grouping: Grouping | None = None
    # Of a logistic regression with the features as they are, cross-validated on the same rows; None where not tried.
    log_loss_logistic: float | None = None

    @property
    def judged_objects(self) -> str:
        """The objects that judge: "held-out objects", or "left-out objects"."""
        return f"{self.judged_by} objects"


class InputFile(TypedDict):
    """A labelled catalogue."""

    name: str  # of the file or folder, without its path
    sha256: str  # hash of the content
    n_rows: int  # all rows, labelled or not


@dataclass(frozen=True, kw_only=True)
class LabelSummary:
    """Counts of the labels from a table (`label.table`) and from reviews (`label.extra`), and of labels that differ."""

    conflicts: int  # objects with different labels in the table: they are left without a label
    conflicting: Mapping[str, tuple[str, ...]]  # labels of some of these, by the object's name or position
    joined: int  # rows that got a label from the table
    unplaced: int  # labels in the table without a position: no row gets them
    shared: int  # labels in the table that several rows got, by position
    reviewed: int  # rows that got a label from a review
    repeated: int | None = None  # names that have rows of several classes; None where objects have no names
    repeating: Mapping[str, tuple[str, ...]] | None = None  # the classes of some of these, by name
    # Objects whose reviewers' answers differ, which count as votes, and the answers to some of these, by name.
    disputed: int = 0
    disputing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Reviewed objects that count by inclusion weights, and as many as how many of equal weight; None where none do.
    weighted: int = 0
    weighted_as: float | None = None
    answered: int = 0  # objects that reviews have an answer to, whether the catalogue has them or not
    doubled: int = 0  # objects within an arcsecond of another one, which is left out with other rows


UNDECIDED = "?"
"""Answer of a reviewer who cannot tell: no label, and no class that was forgotten."""


@dataclass(frozen=True, kw_only=True)
class LabelledSample:
    """The labelled rows of a training as they were read, before any fit."""

    inputs: tuple[InputFile, ...]
    content_hash: str  # SHA-256 of what the rows hold in the columns that are read, and of labels from tables
    n_read: int  # rows read, labelled or not
    n_selected: int  # rows among them that catalog.where selects
    training_counts: tuple[int, ...]  # (K,) labelled rows of each class that the fits see
    held_out_counts: tuple[int, ...]  # (K,) labelled rows of each class that are held out
    class_share: tuple[float, ...]  # (K,) share of each class in the training rows, by their weights
    unlabelled: int  # selected rows without a label
    # Selected rows by label, of labels in no class; the most frequent first.
    unknown_labels: Mapping[str, int]
    labels: LabelSummary
    split: SplitSummary  # how rows are held out
    states: Mapping[str, Mapping[str, int]]  # labelled rows without a value, by column and then by reason
    features: tuple[FeatureQuality, ...]
    noise: Mapping[str, float]  # root mean square error of each feature whose errors are stated, in its unit
    distribution: Mapping[str, Distribution]  # of the training rows, by feature

    @property
    def n_training(self) -> int:
        """Rows that the fits saw."""
        return sum(self.training_counts)

    @property
    def n_held_out(self) -> int:
        """Rows that no fit saw."""
        return sum(self.held_out_counts)

    @property
    def other_labels(self) -> dict[str, int]:
        """The labels in no class, with their rows; without the answer of reviewers who cannot tell."""
        return {text: n for text, n in self.unknown_labels.items() if text != UNDECIDED}


@dataclass(frozen=True, kw_only=True)
class TrainingDescription(LabelledSample):
    """The rows that a model was trained on, and what the training learned about them beside the fits."""

    overdispersion: float  # variance of votes over that of independent ones; 1 where labels are no votes
    label_noise: WrongLabels  # shares of wrong labels, where labels may be wrong
    shift: TargetShift  # how the target differs from these rows, where one is named
    quality: tuple[Quality, ...]  # of the first four labelled catalogues
    refitted: int | None  # rows that it was fitted to again after judging; None where the judged fit is kept
    sampled: int | None = None  # rows of the sample that judges, where rows are too many for the memory
    mean_power: float | None = None  # mean power that probabilities are taken to; None for no power


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """A model as people and reports see it: what it is, where it is stored, and which version is the champion."""

    # "trained" now; "exists": the store had it; "trial": trained on some rows and not kept; "stored": it was asked for.
    status: Literal["trained", "exists", "trial", "stored"]
    path: str | None  # folder of the model; None for a trial
    champion: str | None  # champion of the name, a version; None before a promotion
    model: str  # NAME@VERSION
    name: str
    version: str
    model_id: int  # 63 bits; each row of an annotated catalogue holds it
    classes: tuple[str, ...]  # (K,) names
    features: tuple[str, ...]  # (F,) names of the features that the model uses
    candidates: tuple[CandidateRow, ...]  # the evidence table
    selected: int  # index of its row that became the model, or the largest part of the model
    selected_by: str  # the specification's select.by
    trust: Trust
    metrics: Metrics
    training: TrainingDescription
    seed: int  # of the random numbers
    specification_hash: str  # SHA-256
    code_version: str  # version of this package that trained the model
    spellings: tuple[tuple[str, ...], ...] = ()  # (K,) labels of each class; none where labels are votes
    # Decisions about the name, oldest first; None where the command does not ask for them.
    history: tuple[Promotion, ...] | None = None

    @property
    def skill_words(self) -> str:
        """The sentence on the model's skill."""
        return skill_words(self.metrics.skill, self.metrics.judged_by)

    @property
    def chosen(self) -> CandidateRow:
        """The selected candidate."""
        return self.candidates[self.selected]


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What a training would do."""

    status: Literal["planned"]
    model: str  # NAME@VERSION
    store: str
    version: str
    exists: bool  # whether the store has it already, so that nothing would be done
    training: LabelledSample
    classes: tuple[str, ...]


TrainingResult = TrainingPlan | ModelDescription
"""The plan of a dry run, or the model: newly trained, already in the store, or from a trial."""
