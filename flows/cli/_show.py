"""What a person reads of a result, on standard output."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import Console

from flows.classification.report import reported
from flows.documents import Dataclass, to_document
from flows.models.description import ModelListing
from flows.models.promotion import PromotionResult
from flows.orchestration.tables import trouble_table
from flows.reports.label_noise import noise_words
from flows.reports.shift import shift_words
from flows.reports.tables import (
    ReportTable,
    candidate_table,
    check_tables,
    class_count_table,
    flag_table,
    label_table,
    performance_table,
    review_table,
    set_tables,
    split_words,
    to_rich,
)
from flows.runs.results import ClassificationResult
from flows.training.report import train_report
from flows.training.results import TrainingPlan, TrainingResult

__all__ = [
    "show",
    "show_classified",
    "show_models",
    "show_promoted",
    "show_trained",
]

T = TypeVar("T", bound=Dataclass)


def show(result: T, people: Callable[[T], None], *, json: bool, kind: str | None = None) -> None:
    """Print a result on standard output: for `people`, or as one JSON document.

    `kind` is the first key of the document, where a command has results of several.
    """
    if json:
        document = to_document(result)
        if kind is not None:
            document = {"kind": kind, **document}
        sys.stdout.write(json_text.dumps(document, indent=1, allow_nan=False) + "\n")
    else:
        people(result)


def show_trained(result: TrainingResult) -> None:
    """Show a training, what it would do, or a stored model."""
    if isinstance(result, TrainingPlan):
        _show_plan(result)
        return
    report = train_report(result)
    if not report.has_skill:
        say(report.skill_words)
    print_tables(
        label_table(report),
        candidate_table(report),
        *check_tables(report),
        performance_table(report),
        review_table(report),
    )
    for sentence in (*noise_words(result.training.label_noise), *shift_words(result.training.shift)):
        say(sentence)
    say(
        f"{result.model} {STATUS_WORDS[result.status]}; trust verdict, of the approximation: {result.trust.verdict}"
    )
    say(report.skill_words)
    if result.path:
        say(f"Model, card and report: {result.path}")
    if result.champion not in (None, result.version):
        champion = f"{result.name}@{result.champion}"
        say(f"The champion is still {champion}: `blr models promote {result.model}` changes that")


STATUS_WORDS = {
    "trained": "trained",
    "exists": "is in the store already: nothing to do",
    "trial": "was a trial: not kept",
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
        counts = reported("all files", result.summary)
        print_tables(class_count_table(counts), flag_table(counts), *set_tables(counts))
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
    if result.advice:
        say(result.advice)


def show_models(listing: ModelListing) -> None:
    """Show what is in a store."""
    skill = {True: "better than the class shares", False: "no skill", None: "cannot be read"}
    rows = [
        (m.name, m.version, skill[m.has_skill], m.trust or "–", "champion" if m.champion else "")
        for m in listing.models
    ]
    if rows:
        columns = ("name", "version", "skill", "trust in the approximation", "")
        print_tables(plain_table(f"Models in {listing.store}", columns, rows))
    else:
        say(f"No models in {listing.store}: `blr train SPEC --store {listing.store}` makes one")


def show_promoted(result: PromotionResult) -> None:
    """Show a promotion."""
    words = {
        "planned": "would be the champion",
        "promoted": "is the champion",
        "is the champion": "is the champion already",
        "kept": f"is not promoted ({result.why}); the champion stays",
    }
    say(f"{result.model} {words[result.status]}; before: {result.previous or 'none'}")


def plain_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> ReportTable:
    """Return a table of texts."""
    return ReportTable(title=title, columns=columns, rows=tuple(rows))


def print_tables(*tables: ReportTable) -> None:
    """Print tables on standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # nobody cuts a line of a file or a pipe
    for table in tables:
        console.print(to_rich(table))


def say(text: str) -> None:
    """Print a line on standard output."""
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
