"""The results of a training, and the content of its report: from a model's description, and what it classified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flows.labels.classes import conflict_words
from flows.models.description import (
    LabelledSample,
    LabelSummary,
    ModelDescription,
    TrainingDescription,
    noise_words,
)
from flows.reports.data import Classification, ReportParts, TrainReport
from flows.training._quality import leak_words, quality_remarks

REPORT_FILE = "report.html"


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


def train_report(
    model: ModelDescription,
    *,
    parts: ReportParts | None = None,
    classifications: Sequence[Classification] = (),
    remarks: Sequence[str] = (),
    attribution: Sequence[str] = (),
) -> TrainReport:
    """Return the report of a model; `parts` are read from the files beside it."""
    return TrainReport(
        model=model,
        parts=ReportParts() if parts is None else parts,
        classifications=tuple(classifications),
        leaks={columns: words for q in model.training.quality for columns, words in leak_words(q).items()},
        remarks=(*remarks, *_noted(model.training)),
        attribution=tuple(attribution),
    )


def _noted(training: TrainingDescription) -> Iterator[str]:
    """Yield sentences on the catalogue, the labels and the fits."""
    for quality in training.quality:
        yield from quality_remarks(quality)
    yield from _states(training.states)
    if training.refitted:
        yield (
            "Judged on fits to the training rows; the model that is kept was fitted to all "
            f"{training.refitted:,} rows."
        )
    if training.sampled is not None:
        yield (
            "Fits are of all rows. The model is judged on the held-out ones of a sample of "
            f"{training.sampled:,} rows, drawn by hash; pictures, medians, centres of functions and limits of the "
            "domain are of it too."
        )
    if training.mean_power is not None:
        yield (
            f"Left-out rows are {'more' if training.mean_power > 1 else 'less'} certain than the models say: "
            f"probabilities were raised to the power {training.mean_power:.2f} (temperature scaling)."
        )
    yield from _label_words(training.labels)
    yield from noise_words(training.label_noise)
    if training.overdispersion > 1:
        yield (
            f"The variance of the votes is {training.overdispersion:.2f} times that of independent votes; "
            "their weight was divided by this factor."
        )


def review_words(labels: LabelSummary) -> str:
    """Return the sentence on the answers of reviews: to how many objects, and how many rows have them."""
    answers = f"; reviews have answers to {labels.answered:,} objects" if labels.answered else ""
    return f"{labels.reviewed:,} labels are from review{answers}."


def _label_words(labels: LabelSummary) -> Iterator[str]:
    """Yield sentences on where labels came from, and on those in conflict."""
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
    if labels.reviewed or labels.answered:
        yield review_words(labels)
    if labels.disputed:
        shown = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in labels.disputing.items())
        yield f"Objects whose reviewers' answers differ, so that they count as votes: {labels.disputed:,} ({shown})."
    if labels.weighted and labels.weighted_as is not None:
        yield (
            f"{labels.weighted:,} reviewed objects count by their inclusion weights: they tell as much as "
            f"{labels.weighted_as:.0f} of equal weight."
        )


def _states(states: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield a sentence on why values are missing, where the specification distinguishes the reasons."""
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
"""Most columns that the sentence on missing values lists."""
MISSING_WORDS = {"not_observed": "not observed", "not_detected": "not detected", "masked": "masked"}
