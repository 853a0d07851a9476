"""What is said of a model, all but what predicts: where it came from, how good it is, and what it was trained on.

`blr train`, `blr models show` and `blr inspect` print it, reports are made of it, and the model file holds most of it.
Shapes: K classes, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from catalogs.profile.distribution import Distribution
from catalogs.profile.quality import Quality
from catalogs.profile.split import SplitSummary
from flows.reports.candidates import CandidateRow
from flows.reports.data import FeatureQuality, ReliabilityBin, Review, RiskCurve
from flows.reports.label_noise import WrongLabels
from flows.reports.shift import TargetShift
from flows.reports.skill import SkillSummary

__all__ = [
    "CatalogueQuality",
    "InputFile",
    "LabelSummary",
    "LabelledSample",
    "ListedModel",
    "Metrics",
    "ModelDescription",
    "ModelListing",
    "Promotion",
    "SuspectedLeak",
    "TrainingDescription",
    "TrustSummary",
]


@dataclass(frozen=True, kw_only=True)
class TrustSummary:
    """The verdict on the approximation that a model serves, with its reasons in words and the numbers behind it."""

    verdict: str  # "green", "amber" or "red"
    reasons: tuple[str, ...]
    numbers: Mapping[str, float | None]  # as of `blr.trust.verdict.Trust`; None is what could not be computed


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """How good a model is on rows that no fit saw; the names are those of `flows.reports.data.TrainReport`."""

    n: int  # rows that judge
    n_unclassified: int  # of them, those without any feature: they get the class shares
    log_loss: float  # nats an object
    log_loss_plugin: float
    log_loss_baseline: float  # of the class shares alone
    accuracy: float
    calibration_error: float
    reliability: tuple[ReliabilityBin, ...]
    reliability_of: str  # what the probability of the reliability diagram is of
    reviews: tuple[Review, ...]
    risk: RiskCurve
    skill: SkillSummary | None  # None in models of earlier versions
    judged_by: Literal["held-out", "left-out"]  # left-out: all rows, each by fits without its fold


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A labelled catalogue, known by the hash of its content."""

    name: str
    sha256: str
    n_rows: int


@dataclass(frozen=True, kw_only=True)
class LabelSummary:
    """What tables of labels and reviews gave, and which objects have labels that differ."""

    conflicts: int  # objects that tables label twice, differently: they have no label
    conflicting: Mapping[str, tuple[str, ...]]  # the labels of some of them, by name or place
    joined: int  # rows with a label from a table
    unplaced: int  # labels of the table without a position
    shared: int  # labels of the table that are the nearest of several rows
    reviewed: int  # rows with a label from review
    repeated: int | None = None  # names with rows of several classes; None where objects have no names
    repeating: Mapping[str, tuple[str, ...]] | None = None  # the classes of some of them, by name


@dataclass(frozen=True, kw_only=True)
class SuspectedLeak:
    """Columns that give the class away, as of `catalogs.profile.leaks.Leak`, and whether the features use them."""

    columns: tuple[str, ...]
    gain: float  # share of the class's entropy
    beyond: float  # over the best part of the columns
    combination: str  # the formula whose value tells the class; "" of a single column
    derived: bool  # whether a column was computed from the others
    used: bool  # whether the features use all of them


@dataclass(frozen=True, kw_only=True)
class CatalogueQuality(Quality):
    """The quality of a labelled catalogue, with the columns that give the class away."""

    leaks: tuple[SuspectedLeak, ...]
    catalogue: str  # its name
    commented_out: str  # what is said of lines that may be rows, and were not read


@dataclass(frozen=True, kw_only=True)
class LabelledSample:
    """The labelled rows of a training as they were read, before any fit."""

    inputs: tuple[InputFile, ...]
    content_hash: str  # of the columns' values in the rows
    n_read: int
    n_selected: int  # inside catalog.where
    training_counts: tuple[int, ...]  # (K,)
    held_out_counts: tuple[int, ...]  # (K,)
    class_share: tuple[float, ...]  # (K,) of the training rows, weighted
    unlabelled: int
    unknown_labels: Mapping[str, int]  # labels in no class, the most frequent first
    labels: LabelSummary
    split: SplitSummary | None  # None in models of earlier versions
    states: Mapping[str, Mapping[str, int]]  # rows without a value, by column and reason
    features: tuple[FeatureQuality, ...]
    noise: Mapping[str, float]  # root mean square error of a feature, where errors are stated
    distribution: Mapping[str, Distribution]  # of the training rows, by feature


@dataclass(frozen=True, kw_only=True)
class TrainingDescription(LabelledSample):
    """What a model was trained on, and what was learned of it beside the fits."""

    overdispersion: float  # of votes: their variance over that of independent ones; else 1
    label_noise: WrongLabels
    shift: TargetShift
    quality: tuple[CatalogueQuality, ...]  # of the first catalogues
    refitted: int | None  # rows that the kept model is fitted to; None where it is the one that was judged
    mean_power: float | None = None  # that probabilities are taken to; None for as they are


@dataclass(frozen=True)
class Promotion:
    """A line of the champion's log."""

    when: str  # ISO 8601, UTC
    version: str
    previous: str | None
    who: str
    why: str


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """A model for people and for reports: what it is, where it lies, and which version is the champion."""

    status: Literal["trained", "exists", "trial", "stored"]
    path: str | None  # its folder; None of a trial, which is not kept
    champion: str | None  # the version in use; None where none is
    model: str  # NAME@VERSION
    name: str
    version: str
    model_id: int  # 63 bits, in each row of an annotated catalogue
    classes: tuple[str, ...]  # (K,)
    features: tuple[str, ...]  # (F,)
    candidates: tuple[CandidateRow, ...]  # the evidence table
    selected: int  # row of it that became the model, or its largest part
    selected_by: str  # the specification's select.by
    trust: TrustSummary
    metrics: Metrics
    training: TrainingDescription
    seed: int
    specification_hash: str
    code_version: str
    # Champions of the name, oldest first; None where nobody asked for them.
    history: tuple[Promotion, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ListedModel:
    """A line in the list of a store; skill and trust are None where the model's file is damaged."""

    name: str
    version: str
    model: str  # NAME@VERSION
    champion: bool
    path: str  # of the model file
    has_skill: bool | None
    skill: SkillSummary | None  # None in models of earlier versions too
    trust: str | None  # the verdict on the approximation


@dataclass(frozen=True, kw_only=True)
class ModelListing:
    """What is in a store, by name and then by age."""

    store: str
    models: tuple[ListedModel, ...]
