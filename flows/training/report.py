"""From the description of a model, and summaries of what it classified, to what the report shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from catalogs.files.atomic import atomic_path
from flows.labels.conflicts import conflict_words
from flows.models.description import LabelSummary, ModelDescription, TrainingDescription, TrustSummary
from flows.reports.data import (
    BoundaryPicture,
    Classification,
    LabelCount,
    TrainReport,
)
from flows.reports.label_noise import noise_words
from flows.reports.shift import shift_words
from flows.training._quality import quality_remarks

__all__ = ["load_boundary", "save_boundary", "train_report"]


def train_report(
    model: ModelDescription,
    *,
    boundary: BoundaryPicture | None = None,
    classifications: Sequence[Classification] = (),
    remarks: Sequence[str] = (),
    attribution: Sequence[str] = (),
) -> TrainReport:
    """Return the report of a model."""
    training, metrics = model.training, model.metrics
    counts = zip(model.classes, training.training_counts, training.held_out_counts, strict=True)
    return TrainReport(
        name=model.name,
        version=model.version,
        classes=model.classes,
        labels=tuple(LabelCount(name=c, training=n, held_out=h) for c, n, h in counts),
        features=training.features,
        candidates=model.candidates,
        selected=model.selected,
        log_loss=metrics.log_loss,
        log_loss_plugin=metrics.log_loss_plugin,
        log_loss_baseline=metrics.log_loss_baseline,
        accuracy=metrics.accuracy,
        calibration_error=metrics.calibration_error,
        reliability=metrics.reliability,
        reliability_of=metrics.reliability_of,
        reviews=metrics.reviews,
        risk=metrics.risk,
        judged_by=metrics.judged_by,
        skill=metrics.skill,
        split=training.split,
        selected_by=model.selected_by,
        boundary=boundary,
        classifications=tuple(classifications),
        catalogue=", ".join(file.name for file in training.inputs),
        n_rows=training.n_read,
        remarks=(*remarks, *_trust_words(model.trust), *_noted(training)),
        attribution=tuple(attribution),
        provenance=_provenance(model),
    )


def _trust_words(trust: TrustSummary) -> Iterator[str]:
    """Yield the verdict on the model and its reasons: candidates have verdicts of their own in the table."""
    if trust.reasons:
        yield f"Trust verdict on what the model serves: {trust.verdict}."
        yield from (f"Trust: {reason}." for reason in trust.reasons)


def _noted(training: TrainingDescription) -> Iterator[str]:
    """Yield what was noted of catalogue and labels at the ingest."""
    for quality in training.quality:
        yield from quality_remarks(quality)
    yield from _states(training.states)
    if training.refitted:
        yield (
            "Judged on fits to the training rows; the model that is kept was fitted to all "
            f"{training.refitted:,} rows."
        )
    if training.mean_power is not None:
        yield (
            f"Left-out rows are {'more' if training.mean_power > 1 else 'less'} certain than the models say: "
            f"probabilities were taken to the power {training.mean_power:.2f} (temperature scaling)."
        )
    yield from _label_words(training.labels)
    yield from noise_words(training.label_noise)
    yield from shift_words(training.shift)
    if training.overdispersion > 1:
        yield (
            f"Votes scatter {training.overdispersion:.2f} times as much as independent ones (variance): "
            "their weight was divided by that."
        )


def _label_words(labels: LabelSummary) -> Iterator[str]:
    """Yield what was met on the way to the labels."""
    if labels.conflicts:
        shown = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in labels.conflicting.items())
        yield f"{labels.conflicts:,} objects have labels in conflict, and were left out: {shown}."
    if labels.repeated:
        yield conflict_words(labels.repeated, labels.repeating or {})
    if labels.unplaced:
        yield f"{labels.unplaced:,} labels of the table have no position, or one out of range."
    if labels.shared:
        yield (
            f"{labels.shared:,} labels of the table are the nearest of several rows, all of which have them: narrow "
            "label.table.radius where these are different objects."
        )
    if labels.reviewed:
        yield f"{labels.reviewed:,} labels are from review."


def _states(states: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield why values are missing, where the specification tells the reasons apart."""
    if not states:
        return
    worst = sorted(states.items(), key=lambda entry: (-sum(entry[1].values()), entry[0]))[:MOST_STATES]
    shares = (
        f"{name}: " + ", ".join(f"{n[key]:,} {word}" for key, word in MISSING_WORDS.items() if key in n)
        for name, n in worst
    )
    more = f"; and {len(states) - MOST_STATES} more columns" if len(states) > MOST_STATES else ""
    yield f"Missing in labelled rows, by the reason: {'; '.join(shares)}{more}."


MOST_STATES = 8
MISSING_WORDS = {"not_observed": "not observed", "not_detected": "not detected", "masked": "masked"}


def _provenance(model: ModelDescription) -> dict[str, str]:
    return {
        "model": model.model,
        "specification": f"sha256 {model.specification_hash}",
        "training rows": f"sha256 {model.training.content_hash}",
        "blr": model.code_version,
        "seed": str(model.seed),
        **{f"input {file.name}": f"sha256 {file.sha256}" for file in model.training.inputs},
    }


def save_boundary(picture: BoundaryPicture, path: Path) -> None:
    """Write the arrays of a boundary picture: the training rows that it is drawn from are not kept."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **vars(picture))


def load_boundary(path: Path) -> BoundaryPicture | None:
    """Return the boundary picture in a file, or None."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    x_name, y_name = (str(arrays.pop(name)) for name in ("x_name", "y_name"))
    return BoundaryPicture(x_name=x_name, y_name=y_name, **arrays)
