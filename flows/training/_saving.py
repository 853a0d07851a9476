"""The end of a training: the chosen candidates become a classifier, which is evaluated and stored.

Fits to the training rows are judged.  The model that is kept may be a fit of the same kind to all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Vector
from blr.calibration import log_losses
from blr.classifier import Classifier, Member
from blr.likelihood.confusion import recorded_probability
from blr.predictive.temperature import Temperature
from blr.selection.skill import paired_gain
from flows.models.asdf_file import write_tree
from flows.models.candidates import CandidateRow, PosteriorCheck
from flows.models.description import Metrics, TrustSummary
from flows.models.judged_rows import JudgedRows, write_judged_rows
from flows.models.known_labels import KnownLabels, write_known_labels
from flows.models.label_noise import WrongLabels
from flows.models.labelled_objects import LabelledObjects, write_labelled_objects
from flows.models.model import Model
from flows.models.shift import TargetShift
from flows.models.store import Store
from flows.models.store_folder import StoredModel
from flows.models.unseen_rows import UnseenRows, write_unseen_rows
from flows.reports.boundary import boundary_picture
from flows.reports.card import model_card
from flows.reports.html import write_report
from flows.reports.picture_data import Made, NotableObject, ReportNotes, ReportParts, StoredPictures
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._candidate_data import CandidateData
from flows.training._candidates import build_classifier, used_columns
from flows.training._checks import LEVELS, served_trust
from flows.training._evaluation import evaluate
from flows.training._judged_objects import ObjectRows, judged_pictures, notable_objects
from flows.training._label_noise import with_recorded_losses
from flows.training._rows import TrainingRows
from flows.training._shift import corrected, target_loss
from flows.training._staging import StagedDescription
from flows.training._target_rows import StagedShift
from flows.training.report import REPORT_FILE, train_report

__all__ = [
    "JUDGED_FILE",
    "Judged",
    "Kept",
    "TrainedModel",
    "make_model",
    "save_model",
]

JUDGED_FILE = "judged.asdf"
"""File of the judged classifier, to which the numbers belong, if the model that is kept was fitted to more rows."""


_Shown = tuple[NDArray[np.float64], NDArray[np.intp]]
"""Probabilities (N, K) and class indices (N,) of the rows that judge."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Members fitted to the training rows, and the data that judge them.

    Where no rows are held out, the left-out probabilities `left_out` (N, K) of the training rows judge the members.
    They include the `temperature`, which is that of the model too, as is the share `integrated` of the
    integral over missing features.
    """

    members: Sequence[Member]
    data: CandidateData
    left_out: NDArray[np.float64] | None
    temperature: Temperature | None = None
    integrated: float = 1.0


@dataclass(frozen=True, eq=False)
class Kept:
    """Members that are stored, the rows that they are fitted to, and their checks against exact posteriors."""

    members: Sequence[Member]
    data: CandidateData
    checks: Sequence[PosteriorCheck | None]


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model, the rows that judged it, and what its report shows.

    `judged` is the classifier that was judged; None if it is the model's own.  `rows` has the losses of the rows that
    judged, None if objects have no identifiers; `unseen` has their probabilities, None for votes.
    """

    model: Model
    judged: Classifier | None
    rows: JudgedRows | None
    unseen: UnseenRows | None
    interval: tuple[float, float] | None  # 95 % interval of the log loss; None where unknown
    pictures: StoredPictures
    notable: tuple[NotableObject, ...]


def make_model(
    specification: Specification,
    judged: Judged,
    kept: Kept,
    *,
    candidates: Sequence[CandidateRow],
    selected: int,
    described: StagedDescription,
    code_version: str,
    shifted: StagedShift,
) -> TrainedModel:
    """Return the model, the rows that judged it, and what its report shows.

    `described` is the ingest's description of rows and columns.  The rows that judge stand for the labelled catalogue;
    where there is a target in `shifted`, they are also weighted as the target is.
    """
    training, trust = described.training, _trust(kept, candidates[selected])
    untrusted, refitted = trust.verdict == "red", kept.data is not judged.data
    temperature = judged.temperature
    build = partial(
        build_classifier,
        specification,
        untrusted=untrusted,
        temperature=temperature,
        integrated=judged.integrated,
    )
    tested = build(judged.members, judged.data)
    rows = judged.data.rows
    tell().start(
        "judging the model on held-out objects" if judged.left_out is None else "judging the model by folds",
        int(rows.held_out.sum()) or len(rows.target),
        "rows",
    )
    share = np.asarray(training.class_share)
    metrics, noise, judged_rows, unseen, interval, shown = _judgement(
        tested, judged, share, training.label_noise
    )
    tell().advance(metrics.n)
    tested, correction = corrected(specification, tested, share, shifted.target)
    loss = target_loss(specification, tested, rows, share, shifted.ratio)
    classifier = tested
    if refitted:
        share = kept.data.class_share
        classifier = build(kept.members, kept.data)
        classifier, correction = corrected(specification, classifier, share, shifted.target)
    model = Model(
        name=specification.name,
        version=described.version,
        classes=judged.data.classes,
        features=classifier.features,
        specification=specification,
        classifier=classifier,
        candidates=tuple(candidates),
        selected=selected,
        trust=trust,
        metrics=metrics,
        training=replace(
            training,
            class_share=tuple(share.tolist()),
            shift=TargetShift.of(training.shift.difference, correction, loss),
            label_noise=noise,
            refitted=judged.data.n_rows if refitted else None,
            mean_power=None if temperature is None else temperature.mean_power,
        ),
        columns=described.columns,
        code_version=code_version,
    )
    mask = rows.held_out if judged.left_out is None else np.ones(len(rows.target), dtype=bool)
    seen = ObjectRows.of(rows, mask)
    return TrainedModel(
        model,
        tested if refitted else None,
        judged_rows,
        unseen,
        interval,
        judged_pictures(*shown, seen),
        notable_objects(*shown, seen, judged.data.classes),
    )


def _trust(kept: Kept, selected: CandidateRow) -> TrustSummary:
    """Return the verdict on the posteriors of the model: that of the checked parts, or of its chains if it has some."""
    if any(check is not None for check in kept.checks) or kept.members[0].posterior.kind != "sampled":
        laplace = TrustSummary(
            verdict=selected.verdict or "red", reasons=selected.reasons, numbers=selected.numbers
        )
        return served_trust(laplace, [m.weight for m in kept.members], kept.checks)
    worst = max((m.posterior.trust for m in kept.members), key=lambda t: LEVELS.index(t.verdict))
    return TrustSummary(
        verdict=worst.verdict,
        reasons=tuple(worst.reasons),
        numbers={name: float(x) if np.isfinite(x) else None for name, x in worst.numbers.items()},
    )


def _judgement(
    classifier: Classifier, judged: Judged, shares: NDArray[np.float64], noise: WrongLabels
) -> tuple[Metrics, WrongLabels, JudgedRows | None, UnseenRows | None, tuple[float, float] | None, _Shown]:
    """Return how the judged model does on held-out rows or, without any, on all rows by left-out probabilities.

    `shares` (K,) are the class shares of the training rows.  Where labels may be wrong, the model is judged by the
    probabilities of the recorded classes.  The results are: the metrics; the record of the `noise` with the losses of
    recorded and true classes; the losses of the rows, None without identifiers; the rows with their probabilities,
    None for votes; the interval of the log loss; probabilities (N, K) and classes (N,) of the rows that judge.
    """
    rows, used = judged.data.rows, used_columns(judged.members)
    if judged.left_out is None:
        seen = rows.held_out
        scores = classifier.score(rows.X[seen][:, used], rows.missing[seen][:, used])
        confusion = rows.confused(seen)
        probability, plugin = (
            recorded_probability(p, confusion) for p in (scores.probability, scores.plugin)
        )
    else:
        seen = np.ones(len(rows.target), dtype=bool)
        probability = plugin = judged.left_out
    metrics = evaluate(
        probability,
        plugin,
        rows.target[seen],
        class_shares=shares,
        classes=judged.data.classes,
        votes=None if rows.votes is None else rows.votes[seen],
        group=None if rows.group is None else rows.group[seen],
        judged_by="held-out" if judged.left_out is None else "left-out",
    )
    # A row without probabilities gets the shares of the classes.
    p = np.where(np.isfinite(probability[:, :1]), probability, shares)
    losses = _losses(rows, seen, p)
    group = None if rows.group is None else rows.group[seen]
    return (
        metrics,
        with_recorded_losses(noise, rows, seen, probability, shares),
        _judged_rows(rows, seen, losses, p.argmax(axis=1)),
        _unseen_rows(rows, seen, probability, used),
        _interval(losses, group),
        (p, rows.target[seen]),
    )


def _unseen_rows(
    rows: TrainingRows, seen: NDArray[np.bool_], probability: NDArray[np.float64], used: list[int]
) -> UnseenRows | None:
    """Return the rows in the mask `seen`, with their `probability` (n, K) and the features in use; None for votes."""
    if rows.votes is not None:
        return None
    weight = np.ones(len(probability)) if rows.weight is None else rows.weight[seen]
    X = np.where(rows.missing[seen][:, used], np.nan, rows.X[seen][:, used])
    return UnseenRows(probability, rows.target[seen], weight, X)


def _losses(rows: TrainingRows, seen: NDArray[np.bool_], probability: NDArray[np.float64]) -> Vector:
    """Return the log loss (n,), in nats, of the rows in the mask `seen` with their `probability` (n, K)."""
    votes = None if rows.votes is None else rows.votes[seen]
    outcome = rows.target[seen] if votes is None else votes / votes.sum(axis=1, keepdims=True)
    return log_losses(probability, outcome)[0]


def _interval(losses: Vector, group: NDArray[np.uint64] | None) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of losses (n,), from 0 on; None where it cannot be computed."""
    mean = paired_gain(np.zeros(len(losses)), losses, group=group)
    # Student's interval of few rows may reach below 0, where no log loss is: cut there, it holds the same.
    return (max(0.0, mean.low), mean.high) if np.isfinite(mean.low) else None


def _judged_rows(
    rows: TrainingRows, seen: NDArray[np.bool_], losses: Vector, assigned: NDArray[np.intp]
) -> JudgedRows | None:
    """Return the rows in the mask `seen`, with the class that each is assigned; None without identifiers."""
    if rows.name is None or rows.group is None:
        return None
    label = rows.target[seen].astype(np.int16)
    return JudgedRows(rows.name[seen], rows.group[seen], losses, label, assigned.astype(np.int16))


def save_model(store: Store, trained: TrainedModel, data: CandidateData) -> StoredModel:
    """Write the report, the card and, last, the model file; `data` are the rows that the model is fitted to."""
    model = trained.model
    names, training = list(model.specification.features), data.rows.training
    used = [names.index(name) for name in model.features]
    tell().start("drawing the report", 2, "parts")
    picture = boundary_picture(
        model.classifier,
        data.rows.X[training][:, used],
        data.rows.missing[training][:, used],
        data.rows.target[training],
        names=model.features,
    )
    tell().advance(1)
    parts = ReportParts(picture, trained.pictures, ReportNotes(made=Made.now(), objects=trained.notable))
    report = train_report(store.described(model, "trained"), parts=parts)
    folder = store.make_folder(model.name, model.version)
    parts.write(folder)
    write_report(report, folder / REPORT_FILE)
    if trained.judged is not None:
        write_tree(trained.judged.to_dict(), folder / JUDGED_FILE)
    if trained.rows is not None:
        write_judged_rows(trained.rows, folder)
    write_labelled_objects(_labelled_objects(data.rows, used), folder)
    known = _known_labels(model.specification, data.rows, used)
    if known is not None:
        write_known_labels(known, folder)
    if trained.unseen is not None:
        write_unseen_rows(trained.unseen, folder)
    tell().advance(1)
    return store.save(model, card=model_card(model, report), interval=trained.interval)


def _known_labels(specification: Specification, rows: TrainingRows, used: list[int]) -> KnownLabels | None:
    """Return the labels of all rows, held-out ones too; None without names, or where labels are not the classes."""
    label = specification.label
    if rows.identifier is None or label.votes is not None or label.noise is not None:
        return None
    names = np.array([name.decode(errors="replace") for name in rows.identifier.tolist()], dtype=object)
    X = np.where(rows.missing[:, used], np.nan, rows.X[:, used])
    return KnownLabels.of(names, X, rows.target)


def _labelled_objects(rows: TrainingRows, used: list[int]) -> LabelledObjects:
    """Return the objects that a model is fitted to, with the features at the positions `used`."""
    training = rows.training
    n = int(training.sum())
    return LabelledObjects(
        np.zeros(n, dtype="S1") if rows.identifier is None else rows.identifier[training],
        np.full((n, 2), np.nan) if rows.position is None else rows.position[training],
        rows.target[training],
        np.where(rows.missing[training][:, used], np.nan, rows.X[training][:, used]),
    )
