"""The model card: what a model is, how good it is, and what it is not for; Markdown, beside the model file."""

from __future__ import annotations

from flows.models.description import noise_words, shift_words
from flows.models.model import Model
from flows.reports.data import TrainReport
from flows.reports.html import provenance
from flows.reports.tables import (
    candidate_table,
    check_tables,
    feature_table,
    label_table,
    literal,
    performance_table,
    review_table,
    to_markdown,
)
from flows.specification.toml_file import specification_toml

__all__ = ["model_card"]


def _drawn_as(model: Model) -> list[str]:
    """Return of what objects the probabilities hold."""
    shift = model.training.shift
    said = [f"- {literal(sentence)}" for sentence in shift_words(shift)]
    if model.specification.shift.density_weights or shift.correction is not None:
        return ["Probabilities hold for objects drawn as those of the target.", "", *said, ""]
    text = "Probabilities hold for objects drawn as the labelled ones were: the class shares and selection of the"
    return [text, "training rows are the prior.", *(["", *said, ""] if said else [])]


def _wrong_labels(model: Model) -> list[str]:
    """Return what is said of labels that may be wrong; nothing of right ones."""
    said = [f"- {literal(sentence)}" for sentence in noise_words(model.training.label_noise)]
    return [*said, ""] if said else []


def model_card(model: Model, report: TrainReport) -> str:
    """Return the card of a model."""
    tables = (
        *(table(report) for table in (label_table, feature_table, candidate_table)),
        *check_tables(report),
        *(table(report) for table in (performance_table, review_table)),
    )
    return "\n".join(
        [
            f"# {model.label}",
            "",
            f"**{literal(report.skill_words)}**",
            "",
            f"Classes, in order: {', '.join(literal(c) for c in model.classes)}. Made by blr {model.code_version}.",
            f"`blr_model` is {model.id} in the rows that it made.",
            f"Verdict on its probabilities: **{model.trust.verdict}**.",
            "",
            *(f"- {literal(one.says)} ({one.colour})" for one in model.trust.answers),
            "",
            *(f"- The features use {literal(words)}." for words in report.leaks.values()),
            *([""] if report.leaks else []),
            *_wrong_labels(model),
            *_drawn_as(model),
            "Objects unlike the training rows carry the flag OUT_OF_DOMAIN.",
            "",
            *map(to_markdown, tables),
            "## Specification",
            "",
            "```toml",
            specification_toml(model.specification).replace("```", "'''").rstrip(),
            "```",
            "",
            "## Provenance",
            "",
            *(f"- {literal(key)}: {literal(value)}" for key, value in provenance(report).items()),
            "",
        ]
    )
