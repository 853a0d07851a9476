"""Results on standard output: JSON for programs, tables and lines for people."""

from __future__ import annotations

import json as json_text
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import Console

from flows.documents import Dataclass, to_document
from flows.reports.report_table import ReportTable, to_rich

__all__ = ["plain_table", "print_tables", "say", "say_next", "show"]

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


def plain_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> ReportTable:
    """Return a table of texts."""
    return ReportTable(title=title, columns=columns, rows=tuple(rows))


def print_tables(*tables: ReportTable) -> None:
    """Print tables on standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # Lines of a file or a pipe are never cut.
    for table in tables:
        console.print(to_rich(table))


def say_next(*words: object) -> None:
    """Print the command to type next."""
    say(f"Next: {shlex.join(map(str, words))}")


def say(text: str) -> None:
    """Print a line on standard output."""
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
