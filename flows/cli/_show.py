"""What a person reads of a result, on standard output."""

from __future__ import annotations

from pathlib import Path

from flows.cli._printing import plain_table, print_tables, say
from flows.models.description import ModelDescription
from flows.models.label_noise import noise_words
from flows.models.shift import shift_words
from flows.reports.answers import answer_lines, training_answers
from flows.reports.comparison_tables import decision_table
from flows.reports.data import ReportParts
from flows.reports.grouping import grouping_lines
from flows.reports.tables import (
    candidate_table,
    check_tables,
    class_tables,
    label_table,
    performance_table,
    review_table,
    split_words,
)
from flows.training.report import TrainingPlan, TrainingResult, review_words, train_report

__all__ = ["show_model", "show_trained"]


def show_trained(result: TrainingResult, *, verbose: bool = False) -> None:
    """Show a training, what it would do, or a stored model: the report's answers; its tables if `verbose`."""
    if isinstance(result, TrainingPlan):
        _show_plan(result)
        return
    parts = ReportParts.read_from(Path(result.path)) if result.path else None
    report = train_report(result, parts=parts)
    if not report.has_skill:
        say(report.skill_words)
    if result.training.labels.answered:
        say(review_words(result.training.labels))
    if verbose:
        print_tables(
            label_table(report),
            *class_tables(report),
            performance_table(report),
            review_table(report),
            candidate_table(report),
            *check_tables(report),
        )
        for sentence in (*noise_words(result.training.label_noise), *shift_words(result.training.shift)):
            say(sentence)
    say(f"{result.model} {STATUS_WORDS[result.status]}; verdict on its probabilities: {result.trust.verdict}")
    for line in (*answer_lines(training_answers(report)), *grouping_lines(result)):
        say(line)
    if result.path:
        say(f"Model, card and report: {result.path}")
    if result.history:
        print_tables(decision_table(result.history))
    if result.champion not in (None, result.version):
        champion = f"{result.name}@{result.champion}"
        say(f"The champion is still {champion}: `blr models promote {result.model}` changes that")


def show_model(model: ModelDescription) -> None:
    """Show a stored model with its tables."""
    show_trained(model, verbose=True)


STATUS_WORDS = {
    "trained": "trained",
    "exists": "is in the store already: nothing to do",
    "trial": "was a trial and is not kept",
    "stored": "in the store",
}


def _show_plan(plan: TrainingPlan) -> None:
    say(f"{plan.model} would be trained" + (", but is in the store already" if plan.exists else ""))
    counts = zip(plan.classes, plan.training.training_counts, plan.training.held_out_counts, strict=True)
    print_tables(
        plain_table(
            "Labelled objects",
            ("class", "training", "held out"),
            [(c, f"{n:,}", f"{h:,}") for c, n, h in counts],
        )
    )
    say(f"Held out by a salted hash {split_words(plan.training.split)}")
