"""The end of a training: the chosen candidates become a classifier, are evaluated, and go to the store.

What is judged are fits to the training rows; what is kept may be fitted to all rows, by the same recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.calibration import log_losses
from blr.classifier import Classifier, Member
from blr.likelihood.confusion import recorded_probability
from blr.predictive.temperature import Temperature
from flows.models.asdf_file import write_tree
from flows.models.card import model_card
from flows.models.judged_rows import JudgedRows, write_judged_rows
from flows.models.model import Model
from flows.models.store import Store, StoredModel
from flows.reports.boundary import boundary_picture
from flows.reports.html import write_report
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._candidates import CandidateData, build_classifier, used_columns
from flows.training._checks import LEVELS, served_trust
from flows.training._evaluation import Evaluation, evaluate
from flows.training._label_noise import recorded_losses
from flows.training._rows import TrainingRows
from flows.training._shift import corrected, target_loss
from flows.training._target_rows import StagedShift
from flows.training.report import save_boundary, train_report

__all__ = [
    "BOUNDARY_FILE",
    "JUDGED_FILE",
    "REPORT_FILE",
    "Judged",
    "Kept",
    "Made",
    "make_model",
    "save_model",
]

BOUNDARY_FILE = "boundary.npz"
REPORT_FILE = "report.html"
JUDGED_FILE = "judged.asdf"
"""The classifier that the numbers are of, where the one that is kept was fitted to more rows."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Members fitted to the training rows; `left_out` (N, K) are the rows' probabilities where none is held out.

    They are at the `temperature` already, which is that of the model too.
    """

    members: Sequence[Member]
    data: CandidateData
    left_out: NDArray[np.float64] | None
    temperature: Temperature | None = None


@dataclass(frozen=True, eq=False)
class Kept:
    """Members that are stored, with the rows that they are fitted to, and their checks against exact posteriors."""

    members: Sequence[Member]
    data: CandidateData
    checks: Sequence[Mapping[str, Any] | None]


@dataclass(frozen=True, eq=False)
class Made:
    """A model, the classifier that was judged where that is another one, and the rows that judged it."""

    model: Model
    judged: Classifier | None
    rows: JudgedRows | None


def make_model(
    specification: Specification,
    judged: Judged,
    kept: Kept,
    *,
    version: str,
    candidates: Sequence[Mapping[str, Any]],
    selected: int,
    described: Mapping[str, Any],
    code_version: str,
    shifted: StagedShift,
) -> Made:
    """Return the model, the classifier that was judged where that is another one, and the rows that judged it.

    `described` is what `ingest` said of rows and columns.  The model is evaluated as the labelled rows are; as the
    target, where it is `shifted`, too.
    """
    training, trust = described["training"], _trust(kept, candidates[selected])
    untrusted, refitted = trust["verdict"] == "red", kept.data is not judged.data
    temperature = judged.temperature
    tested = build_classifier(
        specification, judged.members, judged.data, untrusted=untrusted, temperature=temperature
    )
    rows = judged.data.rows
    tell().start(
        "judging the model on held-out objects" if judged.left_out is None else "judging the model by folds",
        int(rows.held_out.sum()) or len(rows.target),
        "rows",
    )
    evaluation, noise, losses = _evaluation(tested, judged, training["class_share"])
    tell().advance(evaluation.n)
    share = np.asarray(training["class_share"])
    tested, correction = corrected(specification, tested, share, shifted.target)
    loss = target_loss(specification, tested, rows, share, shifted.ratio) if rows.held_out.any() else {}
    classifier = tested
    if refitted:
        share = _class_share(kept.data)
        classifier = build_classifier(
            specification, kept.members, kept.data, untrusted=untrusted, temperature=temperature
        )
        classifier, correction = corrected(specification, classifier, share, shifted.target)
    model = Model(
        name=specification.name,
        version=version,
        classes=judged.data.classes,
        features=classifier.features,
        specification=specification,
        classifier=classifier,
        candidates=tuple(candidates),
        selected=selected,
        trust=trust,
        metrics=evaluation.to_dict(),
        training={
            **training,
            "class_share": share.tolist(),
            "shift": {**training["shift"], **correction, **loss},
            "label_noise": {**training["label_noise"], **noise},
            "refitted": len(rows.target) if refitted else None,
        }
        | ({} if temperature is None else {"mean_power": temperature.mean_power}),
        columns=described["columns"],
        code_version=code_version,
    )
    return Made(model, tested if refitted else None, losses)


def _class_share(data: CandidateData) -> NDArray[np.float64]:
    """Return the weighted share of each class (K,) in the rows that fits see."""
    rows = data.rows
    weight = None if rows.weight is None else rows.weight[rows.training]
    counts = np.bincount(rows.target[rows.training], weights=weight, minlength=len(data.classes))
    return np.asarray(counts / counts.sum())


def _trust(kept: Kept, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on what the model serves: on its checked parts, or on chains where all are sampled."""
    if any(check is not None for check in kept.checks) or kept.members[0].posterior.kind != "sampled":
        return served_trust(row, [m.weight for m in kept.members], kept.checks)
    worst = max((m.posterior.trust for m in kept.members), key=lambda t: LEVELS.index(t.verdict))
    return {
        "verdict": worst.verdict,
        "reasons": list(worst.reasons),
        "numbers": {name: float(x) if np.isfinite(x) else None for name, x in worst.numbers.items()},
    }


def _evaluation(
    classifier: Classifier, judged: Judged, class_share: Sequence[float]
) -> tuple[Evaluation, dict[str, Any], JudgedRows | None]:
    """Return how the judged model does on the held-out rows, or all rows by their left-out probabilities.

    Where labels may be wrong it is judged by the probabilities of what was recorded; what else is known of that comes
    second.  Last the rows with their losses, where their objects have identifiers.
    """
    rows = judged.data.rows
    if judged.left_out is None:
        seen, used = rows.held_out, used_columns(judged.members)
        scores = classifier.score(rows.X[seen][:, used], rows.missing[seen][:, used])
        confusion = rows.confused(seen)
        probability, plugin = (
            recorded_probability(p, confusion) for p in (scores.probability, scores.plugin)
        )
    else:
        seen = np.ones(len(rows.target), dtype=bool)
        probability = plugin = judged.left_out
    shares = np.asarray(class_share)
    evaluation = evaluate(
        probability,
        plugin,
        rows.target[seen],
        class_shares=shares,
        classes=judged.data.classes,
        votes=None if rows.votes is None else rows.votes[seen],
        group=None if rows.group is None else rows.group[seen],
        judged_by="held-out" if judged.left_out is None else "left-out",
    )
    return (
        evaluation,
        recorded_losses(rows, seen, probability, shares),
        _judged_rows(rows, seen, probability, shares),
    )


def _judged_rows(
    rows: TrainingRows,
    seen: NDArray[np.bool_],
    probability: NDArray[np.float64],
    class_shares: NDArray[np.float64],
) -> JudgedRows | None:
    """Return the rows in the mask `seen`, by their `probability` (n, K); None where objects have no identifiers.

    A row without probabilities (NaN) has the loss of the classes' shares (K,).
    """
    if rows.name is None or rows.group is None:
        return None
    p = np.where(np.isfinite(probability[:, :1]), probability, class_shares)
    votes = None if rows.votes is None else rows.votes[seen]
    losses, _ = log_losses(
        p, rows.target[seen] if votes is None else votes / votes.sum(axis=1, keepdims=True)
    )
    return JudgedRows(rows.name[seen], rows.group[seen], losses)


def save_model(store: Store, made: Made, data: CandidateData) -> StoredModel:
    """Write the report, the card and, last, the model file; `data` are the rows that the model is fitted to."""
    model = made.model
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
    report = train_report(model.described(), boundary=picture)
    folder = store.make_folder(model.name, model.version)
    if picture is not None:
        save_boundary(picture, folder / BOUNDARY_FILE)
    write_report(report, folder / REPORT_FILE)
    if made.judged is not None:
        write_tree(made.judged.to_dict(), folder / JUDGED_FILE)
    if made.rows is not None:
        write_judged_rows(made.rows, folder)
    tell().advance(1)
    return store.save(model, card=model_card(model, report))
