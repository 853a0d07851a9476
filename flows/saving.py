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
from flows.report import write_report
from flows.store import Store, StoredModel
from flows.training_report import save_boundary, train_report

__all__ = ["BOUNDARY_FILE", "REPORT_FILE", "make_model", "save_model"]

BOUNDARY_FILE = "boundary.npz"
REPORT_FILE = "report.html"


def make_model(
    specification: Specification,
    member: Member,
    data: CandidateData,
    *,
    version: str,
    candidates: Sequence[Mapping[str, Any]],
    selected: int,
    described: Mapping[str, Any],
    code_version: str,
) -> Model:
    """Return the model of a fitted candidate; `described` is what `ingest` said of rows and columns."""
    row = candidates[selected]
    classifier = build_classifier(specification, [member], data, untrusted=row["verdict"] == "red")
    evaluation = _evaluation(classifier, member, data, described["training"]["class_share"])
    return Model(
        name=specification.name,
        version=version,
        classes=data.classes,
        features=classifier.features,
        specification=specification,
        classifier=classifier,
        candidates=tuple(candidates),
        selected=selected,
        trust={"verdict": row["verdict"], "reasons": row["reasons"], "numbers": row["numbers"]},
        metrics=evaluation.to_dict(),
        training=described["training"],
        columns=described["columns"],
        code_version=code_version,
    )


def _evaluation(
    classifier: Classifier, member: Member, data: CandidateData, class_share: Sequence[float]
) -> Evaluation:
    used, held_out = used_columns([member]), data.rows.held_out
    scores = classifier.score(data.rows.X[held_out][:, used], data.rows.missing[held_out][:, used])
    return evaluate(
        scores.probability,
        scores.plugin,
        data.rows.target[held_out],
        class_shares=np.asarray(class_share),
        classes=data.classes,
    )


def save_model(store: Store, model: Model, member: Member, data: CandidateData) -> StoredModel:
    """Write the report, the card and, last, the model file."""
    used, training = used_columns([member]), data.rows.training
    picture = boundary_picture(
        model.classifier,
        data.rows.X[training][:, used],
        data.rows.missing[training][:, used],
        data.rows.target[training],
        names=model.features,
    )
    report = train_report(model.described(), boundary=picture)
    folder = store.make_folder(model.name, model.version)
    if picture is not None:
        save_boundary(picture, folder / BOUNDARY_FILE)
    write_report(report, folder / REPORT_FILE)
    return store.save(model, card=model_card(model, report))
