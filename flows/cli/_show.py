"""What a person reads of a result, on standard output."""

from __future__ import annotations

from pathlib import Path

from blr.census.results import Census
from flows.cli._printing import plain_table, print_tables, say, say_next
from flows.models.description import ModelDescription
from flows.models.label_noise import noise_words
from flows.models.promotion import DecidedPromotion, RejectedPromotion, UndonePromotion
from flows.models.shift import shift_words
from flows.orchestration.tables import trouble_table
from flows.reports.answers import answer_lines, training_answers
from flows.reports.catalogue_answers import trusted_in_part
from flows.reports.census import bin_tables, census_table, selection_table
from flows.reports.comparison_tables import comparison_tables, decision_table
from flows.reports.data import Classification
from flows.reports.grouping import grouping_lines
from flows.reports.picture_data import ReportParts
from flows.reports.tables import (
    ReportTable,
    candidate_table,
    check_tables,
    class_count_table,
    class_tables,
    flag_table,
    label_table,
    performance_table,
    review_table,
    set_tables,
    split_words,
)
from flows.runs.census import CensusResult
from flows.runs.results import ClassificationResult, FinishedClassification
from flows.training.report import review_words, train_report
from flows.training.results import TrainingPlan, TrainingResult

__all__ = [
    "REPORT_KEPT",
    "say_done",
    "show_census",
    "show_classified",
    "show_model",
    "show_promoted",
    "show_trained",
]


REPORT_KEPT = (
    "report.html shows the previous census: the version that wrote it kept no data to write it again"
)


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
    say(
        f"{result.model} {STATUS_WORDS[result.status]}; trust verdict on the approximation: {result.trust.verdict}"
    )
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


def show_classified(result: ClassificationResult) -> None:
    """Show a classification, or what it would do."""
    if result.summary:
        counts = Classification.of("all files", result.summary)
        print_tables(class_count_table(counts), flag_table(counts), *set_tables(counts))
        if result.status != "trial" and result.summary.census is not None:
            print_tables(*census_tables(result.summary.census))
        if in_part := trusted_in_part(counts):
            say(f"Can I use it? {in_part}")
    if result.status == "trial":
        say(f"A trial of {result.model}: nothing written")
        return
    if result.quarantined or result.deferred:
        print_tables(trouble_table(result))
    to_do = [name for name, file in result.files.items() if file.to_do]
    if result.status == "planned":
        say(
            f"{result.model} would annotate {len(to_do)} of {len(result.files)} files: "
            f"{', '.join(to_do) or 'none'}"
        )
    elif result.status == "nothing to do":
        say(f"Nothing to do: the files in {result.out} are up to date with {result.model}")
    else:
        say(f"Annotated by {result.model}: {result.out}; {result.manifest} lists the files")
    if result.published and result.status != "planned":
        say(f"Published at {result.published}")
    for sentence in (*result.repeats, *filter(None, [result.advice])):
        say(sentence[:1].upper() + sentence[1:])


TO_LOOK_AT = {"LOW_CONFIDENCE": "of low confidence", "OUT_OF_DOMAIN": "unlike the training set"}
"""Flags whose objects a person should look at, in words."""


def say_done(result: ClassificationResult, seconds: float) -> None:
    """Say how fast files were annotated, how many of all objects need a look, and how to look at them."""
    if not isinstance(result, FinishedClassification):
        return
    rows = sum(file.n_rows for file in result.files.values() if file.to_do)
    if rows:
        say(f"{rows:,} rows in {seconds:,.1f} s, {rows / seconds:,.0f} rows/s")
    counts = {words: result.summary.flags[name].count for name, words in TO_LOOK_AT.items()}
    told = " and ".join(f"{n:,} {words}" for words, n in counts.items() if n)
    say(f"To be looked at: {told or 'none'}, of {result.summary.n_rows:,} objects")
    if told:
        say_next("blr", "review", result.out, "--budget", 100)


def census_tables(census: Census) -> list[ReportTable]:
    """Return the tables of a census: the counts, selections where any has objects, and those of bins."""
    selections = selection_table(census)
    return [census_table(census), *([selections] if selections.rows else []), *bin_tables(census)]


def show_census(result: CensusResult) -> None:
    """Show the census of an output folder."""
    print_tables(*census_tables(result.census))
    files = ", ".join(str(path) for path in (result.written, result.report) if path is not None)
    said = f"written to {files}" if files else "nothing written"
    say(f"Release {result.release} of {result.out}, by {result.model}: {said}")
    if result.written is not None and result.report is None:
        say(REPORT_KEPT)


def show_promoted(result: DecidedPromotion) -> None:
    """Show a decision about a model; of a plan, the comparison too."""
    would = "would be" if result.status == "planned" else "is"
    if isinstance(result, UndonePromotion):
        say(
            f"{result.model} {would} the champion again, in the place of {result.previous} ({result.who}: {result.why})"
        )
        return
    if isinstance(result, RejectedPromotion):
        stays = f"the champion stays: {result.previous or 'none'}"
        say(f"{result.model} {would} rejected ({result.who}: {result.why}); {stays}")
        return
    if result.status == "planned":
        print_tables(*comparison_tables(result.comparison))
    words = {
        "planned": "would be the champion",
        "promoted": f"is the champion ({result.who}: {result.why})",
        "is the champion": "is the champion already",
        "kept": f"is not promoted ({result.why}); the champion stays",
    }
    say(f"{result.model} {words[result.status]}; before: {result.previous or 'none'}")
