"""The end of a training: the chosen candidates become a classifier, which is evaluated and stored.

Fits to the training rows are judged.  The model that is kept may be a fit of the same kind to all rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Vector
from blr.calibration import log_losses
from blr.candidates.training import TrainedClassifier, Training
from blr.selection.skill import paired_gain
from flows.models.asdf_file import write_tree
from flows.models.description import TrustSummary
from flows.models.judged_rows import JudgedRows, write_judged_rows
from flows.models.known_labels import KnownLabels, write_known_labels
from flows.models.labelled_objects import LabelledObjects, write_labelled_objects
from flows.models.model import Model
from flows.models.shift import TargetShift
from flows.models.store import Store
from flows.models.store_folder import StoredModel
from flows.models.unseen_rows import UnseenRows, write_unseen_rows
from flows.reports.boundary import boundary_picture
from flows.reports.card import model_card
from flows.reports.html import write_report
from flows.reports.picture_data import Made, ReportNotes, ReportParts
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._evaluation import evaluate
from flows.training._judged_objects import ObjectRows, judged_pictures, notable_objects
from flows.training._label_noise import with_recorded_losses
from flows.training._rows import TrainingRows, rows_of
from flows.training._shift import correction, target_loss
from flows.training._staging import StagedTraining
from flows.training.report import REPORT_FILE, train_report
from flows.version import code_version

__all__ = ["JUDGED_FILE", "save_model"]

JUDGED_FILE = "judged.asdf"
"""File of the judged classifier, to which the numbers belong, if the model that is kept was fitted to more rows."""


def save_model(store: Store, staged: StagedTraining, trained: TrainedClassifier) -> tuple[Model, StoredModel]:
    """Write the report, the card and, last, the model file; return the model, and where it is stored.

    The rows that judge stand for the labelled catalogue; where there is a target, they are also weighted as it is.
    """
    described, training, seen = staged.described, staged.training, trained.seen
    specification, rows = described.specification, rows_of(training.judged)
    classifier, share = trained.classifier, trained.class_share
    judged = classifier if trained.judged is None else trained.judged
    noted, loss = described.training, target_loss(specification, judged, rows, share, staged.shifted.ratio)
    kept_share = trained.class_share_kept
    temperature = classifier.temperature
    model = Model(
        name=specification.name,
        version=described.version,
        classes=described.classes,
        features=classifier.features,
        specification=specification,
        classifier=classifier,
        candidates=trained.candidates,
        selected=trained.selected,
        trust=TrustSummary(
            verdict=trained.trust.verdict,
            reasons=tuple(trained.trust.reasons),
            numbers={n: float(x) if np.isfinite(x) else None for n, x in trained.trust.numbers.items()},
            answers=trained.trust.answers,
        ),
        metrics=evaluate(
            trained.probability,
            trained.plugin,
            rows.target[seen],
            class_shares=share,
            classes=described.classes,
            votes=None if rows.votes is None else rows.votes[seen],
            group=trained.group,
            judged_by="held-out" if rows.held_out.any() else "left-out",
            log_loss_logistic=trained.log_loss_logistic,
        ),
        training=replace(
            noted,
            class_share=tuple(kept_share.tolist()),
            shift=TargetShift.of(
                noted.shift.difference,
                correction(specification, classifier, kept_share, staged.shifted.target),
                loss,
            ),
            label_noise=with_recorded_losses(noted.label_noise, rows, seen, trained.probability, share),
            refitted=None if trained.judged is None else training.judged.n_rows,
            mean_power=None if temperature is None else temperature.mean_power,
        ),
        columns=described.columns,
        code_version=code_version(),
    )
    return model, _written(store, model, training, trained)


def _written(store: Store, model: Model, training: Training, trained: TrainedClassifier) -> StoredModel:
    rows, kept, seen = rows_of(training.judged), rows_of(training.kept), trained.seen
    used = [training.judged.features.index(name) for name in model.features]
    of_judged = [
        training.judged.features.index(name) for name in (trained.judged or model.classifier).features
    ]
    fitted = kept.training
    tell().start("drawing the report", 2, "parts")
    picture = boundary_picture(
        model.classifier,
        kept.X[fitted][:, used],
        kept.missing[fitted][:, used],
        kept.target[fitted],
        names=model.features,
    )
    tell().advance(1)
    # A row without probabilities gets the shares of the classes.
    p = np.where(np.isfinite(trained.probability[:, :1]), trained.probability, trained.class_share)
    losses, objects, truth = log_losses(p, trained.outcome)[0], ObjectRows.of(rows, seen), rows.target[seen]
    parts = ReportParts(
        picture,
        judged_pictures(p, truth, objects),
        ReportNotes(made=Made.now(), objects=notable_objects(p, truth, objects, model.classes)),
    )
    report = train_report(store.described(model, "trained"), parts=parts)
    folder = store.make_folder(model.name, model.version)
    parts.write(folder)
    write_report(report, folder / REPORT_FILE)
    if trained.judged is not None:
        write_tree(trained.judged.to_dict(), folder / JUDGED_FILE)
    if rows.name is not None and rows.group is not None:
        label, assigned = (classes.astype(np.int16) for classes in (truth, p.argmax(axis=1)))
        write_judged_rows(JudgedRows(rows.name[seen], rows.group[seen], losses, label, assigned), folder)
    write_labelled_objects(_labelled_objects(kept, used), folder)
    known = _known_labels(model.specification, kept, used)
    if known is not None:
        write_known_labels(known, folder)
    if rows.votes is None:
        weight = np.ones(len(p)) if rows.weight is None else rows.weight[seen]
        X = np.where(rows.missing[seen][:, of_judged], np.nan, rows.X[seen][:, of_judged])
        write_unseen_rows(UnseenRows(trained.probability, truth, weight, X), folder)
    tell().advance(1)
    return store.save(model, card=model_card(model, report), interval=_interval(losses, trained.group))


def _interval(losses: Vector, group: NDArray[np.uint64] | None) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of losses (n,), from 0 on; None where it cannot be computed."""
    mean = paired_gain(np.zeros(len(losses)), losses, group=group)
    # Student's interval of few rows may reach below 0, where no log loss is: cut there, it holds the same.
    return (max(0.0, mean.low), mean.high) if np.isfinite(mean.low) else None


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
