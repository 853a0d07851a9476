"""From what a model says of itself, and summaries of what it classified, to what the report shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from catalogs.files.atomic import atomic_path
from flows.labels.conflicts import told_in_words
from flows.reports.data import (
    BoundaryPicture,
    CandidateRow,
    ClassCount,
    Classification,
    FeatureQuality,
    FlagShare,
    LabelCount,
    TrainReport,
)
from flows.reports.label_noise import noise_words
from flows.reports.shift import shift_words
from flows.training._evaluation import Evaluation
from flows.training._quality import quality_remarks

__all__ = ["classification", "load_boundary", "save_boundary", "train_report"]

ROW_KEYS = tuple(field.name for field in fields(CandidateRow) if field.name != "features")


def train_report(
    described: Mapping[str, Any],
    *,
    boundary: BoundaryPicture | None = None,
    classifications: Sequence[Classification] = (),
    remarks: Sequence[str] = (),
    attribution: Sequence[str] = (),
) -> TrainReport:
    """Return the report of a model, of which `Model.described`, or what `train` returned, says enough."""
    training, evaluation = described["training"], Evaluation.from_dict(described["metrics"])
    counts = zip(described["classes"], training["training_counts"], training["held_out_counts"], strict=True)
    shown = {f.name: getattr(evaluation, f.name) for f in fields(Evaluation) if f.name in REPORT_KEYS}
    return TrainReport(
        name=described["name"],
        version=described["version"],
        classes=tuple(described["classes"]),
        labels=tuple(LabelCount(name=c, training=n, held_out=h) for c, n, h in counts),
        features=tuple(FeatureQuality(**quality) for quality in training["features"]),
        candidates=tuple(_candidate(row) for row in described["candidates"]),
        selected=described["selected"],
        split=training.get("split", {}),
        selected_by=described.get("selected_by", ""),
        boundary=boundary,
        classifications=tuple(classifications),
        catalogue=", ".join(source["name"] for source in training["inputs"]),
        n_rows=training["n_read"],
        remarks=(*remarks, *_trust_words(described), *_noted(training)),
        attribution=tuple(attribution),
        provenance=_provenance(described),
        **shown,
    )


def _trust_words(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield the verdict on the model and its reasons: candidates have verdicts of their own in the table."""
    trust = described.get("trust", {})
    if trust.get("reasons"):
        yield f"Trust verdict on what the model serves: {trust['verdict']}."
        yield from (f"Trust: {reason}." for reason in trust["reasons"])


def _noted(training: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was noted of catalogue and labels at the ingest."""
    for quality in training.get("quality", ()):
        yield from quality_remarks(quality)
    yield from _states(training.get("states", {}))
    if training.get("refitted"):
        yield (
            "Judged on fits to the training rows; the model that is kept was fitted to all "
            f"{training['refitted']:,} rows."
        )
    if "mean_power" in training:
        power = training["mean_power"]
        yield (
            f"Left-out rows are {'more' if power > 1 else 'less'} certain than the models say: probabilities were "
            f"taken to the power {power:.2f} (temperature scaling)."
        )
    labels = training.get("labels", {})
    if labels.get("conflicts"):
        shown = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in labels["conflicting"].items())
        yield f"{labels['conflicts']:,} objects have labels in conflict, and were left out: {shown}."
    if labels.get("repeated"):
        yield told_in_words(labels["repeated"], labels["repeating"])
    if labels.get("unplaced"):
        yield f"{labels['unplaced']:,} labels of the table have no position, or one out of range."
    if labels.get("shared"):
        yield (
            f"{labels['shared']:,} labels of the table are the nearest of several rows, all of which have them: narrow "
            "label.table.radius where these are different objects."
        )
    if labels.get("reviewed"):
        yield f"{labels['reviewed']:,} labels are from review."
    yield from noise_words(training.get("label_noise", {}))
    yield from shift_words(training.get("shift", {}))
    if training.get("overdispersion", 1.0) > 1:
        yield (
            f"Votes scatter {training['overdispersion']:.2f} times as much as independent ones (variance): "
            "their weight was divided by that."
        )


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
REPORT_KEYS = frozenset(field.name for field in fields(TrainReport))


def _candidate(row: Mapping[str, Any]) -> CandidateRow:
    known = {key: row[key] for key in ROW_KEYS if key in row}
    lists = {key: tuple(row[key]) for key in ("features", "parts", "checks") if key in row}
    return CandidateRow(**known | lists)


def _provenance(described: Mapping[str, Any]) -> dict[str, str]:
    training = described["training"]
    sources = {f"input {s['name']}": f"sha256 {s['sha256']}" for s in training["inputs"]}
    return {
        "model": described["model"],
        "specification": f"sha256 {described['specification_hash']}",
        "training rows": f"sha256 {training['content_hash']}",
        "blr": described["code_version"],
        "seed": str(described["seed"]),
        **sources,
    }


def classification(name: str, summary: Mapping[str, Any]) -> Classification:
    """Return what a report shows of a summary that `classify` made, of one file or of all."""
    n = max(1, summary["n_rows"])
    return Classification(
        catalogue=name,
        n_rows=summary["n_rows"],
        no_error=summary.get("no_error", ""),
        counts=tuple(
            ClassCount(name=c, assigned=found["assigned"], expected=found["expected"], error=found["error"])
            for c, found in summary["classes"].items()
        ),
        flags=tuple(
            FlagShare(bit=f["bit"], name=flag, meaning=f["meaning"], count=f["count"], share=f["count"] / n)
            for flag, f in summary["flags"].items()
        ),
    )


def save_boundary(picture: BoundaryPicture, path: Path) -> None:
    """Write the arrays of a boundary picture: the training rows that it is drawn from are not kept."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **vars(picture))


def load_boundary(path: Path) -> BoundaryPicture | None:
    """Return the boundary picture in a file, or None."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        values: dict[str, Any] = {name: stored[name] for name in stored.files}
    values |= {name: str(values[name]) for name in ("x_name", "y_name")}
    return BoundaryPicture(**values)
