"""What a person reads of a result, on standard output."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

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
    split_words,
    to_rich,
)
from flows.training.report import classification, train_report

__all__ = [
    "show",
    "show_classified",
    "show_models",
    "show_promoted",
    "show_trained",
]

Json = dict[str, Any]


def show(told: Json, people: Callable[[Json], None], *, json: bool) -> None:
    """Print a result on standard output: for `people`, or as one JSON document."""
    if json:
        sys.stdout.write(json_text.dumps(told, indent=1, allow_nan=False) + "\n")
    else:
        people(told)


def show_trained(told: Json) -> None:
    """Show a training, what it would do, or a stored model."""
    if told["status"] == "planned":
        say(f"{told['model']} would be trained" + (", but is in the store already" if told["exists"] else ""))
        counts = zip(
            told["classes"],
            told["training"]["training_counts"],
            told["training"]["held_out_counts"],
            strict=True,
        )
        print_tables(
            plain_table(
                "Labelled objects",
                ("class", "training", "held out"),
                [(c, f"{n:,}", f"{h:,}") for c, n, h in counts],
            )
        )
        say(f"Held out by a salted hash {split_words(told['training']['split'])}")
        return
    report = train_report(told)
    if not report.has_skill:
        say(report.skill_words)
    print_tables(
        label_table(report),
        candidate_table(report),
        *check_tables(report),
        performance_table(report),
        review_table(report),
    )
    training = told["training"]
    for sentence in (
        *noise_words(training.get("label_noise", {})),
        *shift_words(training.get("shift", {})),
    ):
        say(sentence)
    verdict = told["trust"]["verdict"]
    said = {
        "trained": "trained",
        "exists": "is in the store already: nothing to do",
        "trial": "was a trial: not kept",
    }
    say(
        f"{told['model']} {said.get(told['status'], 'in the store')}; trust verdict, of the approximation: {verdict}"
    )
    say(report.skill_words)
    if told["path"]:
        say(f"Model, card and report: {told['path']}")
    if told["champion"] not in (None, told["version"]):
        champion = f"{told['name']}@{told['champion']}"
        say(f"The champion is still {champion}: `blr models promote {told['model']}` changes that")


def show_classified(told: Json) -> None:
    """Show a classification, or what it would do."""
    if told["summary"]:
        found = classification("all files", told["summary"])
        print_tables(class_count_table(found), flag_table(found))
    if told.get("quarantined") or told.get("deferred"):
        print_tables(trouble_table(told))
    if told["status"] == "trial":
        say(f"A trial of {told['model']}: nothing written")
        return
    to_do = [name for name, file in told["files"].items() if file["to_do"]]
    if told["status"] == "planned":
        say(
            f"{told['model']} would annotate {len(to_do)} of {len(told['files'])} files: {', '.join(to_do) or 'none'}"
        )
    elif told["status"] == "nothing to do":
        say(f"Nothing to do: the files in {told['out']} are up to date with {told['model']}")
    else:
        say(f"Annotated by {told['model']}: {told['out']}; {told['manifest']} lists the files")
    if told["advice"]:
        say(told["advice"])


def show_models(told: Json) -> None:
    """Show what is in a store."""
    skill = {True: "better than the class shares", False: "no skill", None: "cannot be read"}
    rows = [
        (
            m["name"],
            m["version"],
            skill[m["has_skill"]],
            m["trust"] or "–",
            "champion" if m["champion"] else "",
        )
        for m in told["models"]
    ]
    if rows:
        columns = ("name", "version", "skill", "trust in the approximation", "")
        print_tables(plain_table(f"Models in {told['store']}", columns, rows))
    else:
        say(f"No models in {told['store']}: `blr train SPEC --store {told['store']}` makes one")


def show_promoted(told: Json) -> None:
    """Show a promotion."""
    said = {
        "planned": "would be the champion",
        "promoted": "is the champion",
        "is the champion": "is the champion already",
        "kept": f"is not promoted ({told['why']}); the champion stays",
    }
    say(f"{told['model']} {said[told['status']]}; before: {told['previous'] or 'none'}")


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
