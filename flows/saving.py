"""The end of a training: the chosen candidate becomes a classifier, is evaluated, and goes to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blr.classifier import Classifier, Member
from flows.candidates import CandidateData, build_classifier, used_columns
from flows.card import model_card
from flows.config import Specification
from flows.evaluation import Evaluation, evaluate
from flows.model import Model
from flows.picture import boundary_picture
from flows.progress import tell
from flows.report import write_report
from flows.shift import corrected, target_loss
from flows.store import Store, StoredModel
from flows.target_rows import StagedShift
from flows.training_report import save_boundary, train_report

__all__ = ["BOUNDARY_FILE", "REPORT_FILE", "make_model", "save_model"]

BOUNDARY_FILE = "boundary.npz"
REPORT_FILE = "report.html"


def make_model(
    specification: Specification,
    members: Sequence[Member],
    data: CandidateData,
    *,
    version: str,
    candidates: Sequence[Mapping[str, Any]],
    selected: int,
    described: Mapping[str, Any],
    code_version: str,
    shifted: StagedShift,
) -> Model:
    """Return the model of a candidate, or of an average; `described` is what `ingest` said of rows and columns.

    It is evaluated as the labelled rows are; as the target, where it is `shifted`, too.
    """
    tell().start("judging the model on held-out objects", int(data.rows.held_out.sum()), "rows")
    training, trust = described["training"], _trust(members, candidates[selected])
    classifier = build_classifier(specification, members, data, untrusted=trust["verdict"] == "red")
    evaluation = _evaluation(classifier, members, data, training["class_share"])
    tell().advance(evaluation.n)
    share = np.asarray(training["class_share"])
    classifier, told = corrected(specification, classifier, share, shifted.target)
    told |= target_loss(specification, classifier, data.rows, share, shifted.ratio)
    return Model(
        name=specification.name,
        version=version,
        classes=data.classes,
        features=classifier.features,
        specification=specification,
        classifier=classifier,
        candidates=tuple(candidates),
        selected=selected,
        trust=trust,
        metrics=evaluation.to_dict(),
        training={**training, "shift": {**training["shift"], **told}},
        columns=described["columns"],
        code_version=code_version,
    )


def _trust(members: Sequence[Member], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on a model: of the Laplace fit, or of the chains where they have taken its place."""
    if members[0].posterior.kind != "sampled":
        return {key: row[key] for key in ("verdict", "reasons", "numbers")}
    worst = max(
        (m.posterior.trust for m in members), key=lambda t: ("green", "amber", "red").index(t.verdict)
    )
    return {
        "verdict": worst.verdict,
        "reasons": list(worst.reasons),
        "numbers": {name: float(x) if np.isfinite(x) else None for name, x in worst.numbers.items()},
    }


def _evaluation(
    classifier: Classifier, members: Sequence[Member], data: CandidateData, class_share: Sequence[float]
) -> Evaluation:
    used, held_out = used_columns(members), data.rows.held_out
    scores = classifier.score(data.rows.X[held_out][:, used], data.rows.missing[held_out][:, used])
    return evaluate(
        scores.probability,
        scores.plugin,
        data.rows.target[held_out],
        class_shares=np.asarray(class_share),
        classes=data.classes,
        votes=None if data.rows.votes is None else data.rows.votes[held_out],
        group=None if data.rows.group is None else data.rows.group[held_out],
    )


def save_model(store: Store, model: Model, members: Sequence[Member], data: CandidateData) -> StoredModel:
    """Write the report, the card and, last, the model file."""
    used, training = used_columns(members), data.rows.training
    tell().start("drawing the report", 2, "parts")
    picture = boundary_picture(
        model.classifier,
        data.rows.X[training][:, used],
        data.rows.missing[training][:, used],
        data.rows.target[training],
        names=model.features,
    )
    tell().advance(1)
    report = train_report(model.described(), boundary=picture)
    folder = store.make_folder(model.name, model.version)
    if picture is not None:
        save_boundary(picture, folder / BOUNDARY_FILE)
    write_report(report, folder / REPORT_FILE)
    tell().advance(1)
    return store.save(model, card=model_card(model, report))
