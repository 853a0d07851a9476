"""What people and programs read: results on standard output, progress and errors on standard error.

A result is one JSON document for programs, or tables and lines for people.  Progress is a bar with rows, rows/s and
time left on a terminal, and lines elsewhere.  An error is its message alone, without a traceback.
"""

from __future__ import annotations

import json as json_text
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any, TypeVar, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from catalogs.remote.urls import scrubbed
from flows.documents import Dataclass, to_document
from flows.errors import FlowError, Interrupted, Terminated, UsageError
from flows.orchestration.settings import connect, start_home_server, words_of
from flows.reports.report_table import ReportTable
from flows.runs.progress import LineListener, Listener, listening, speed, tell, write_error
from flows.runs.references import check_parameters

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


def print_tables(*tables: ReportTable) -> None:
    """Print tables on standard output."""
    for table in tables:
        wide_console().print(table)


def print_table(
    title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, note: str = "", remark: str = ""
) -> None:
    """Print a table of texts on standard output, with what stands above and below it."""
    print_tables(ReportTable(title=title, columns=columns, rows=tuple(rows), note=note, remark=remark))


def wide_console() -> Console:
    """Return standard output; lines of a file or a pipe are never cut."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def say(*lines: str) -> None:
    """Print lines on standard output."""
    for line in lines:
        Console().print(line, markup=False, highlight=False, soft_wrap=True)


def formatted(templates: Sequence[str], things: Iterable[Mapping[str, object]]) -> list[tuple[str, ...]]:
    """Return a row of a table for each thing: the templates, filled in with what the thing has."""
    return [tuple(template.format_map(thing) for template in templates) for thing in things]


def say_next(*words: object) -> None:
    """Print the command to type next."""
    say(f"Next: {shlex.join(map(str, words))}")


def files_words(files: Sequence[object]) -> str:
    """Return the paths of files that were written, in a line."""
    return ", ".join(map(str, files)) or "nothing written"


LONG_WORK = 1.0
"""Seconds of work from which its end is news where its begin was printed."""


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[None]:
    """Show the progress of the work in the block."""
    console = Console(file=cast("IO[str]", _Errors()))
    if quiet or not console.is_terminal:
        lines = LineListener(_error_line, shortest=LONG_WORK)
        if quiet:
            lines = LineListener(_error_line, math.inf, quiet=True)
        with listening(lines):
            yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} {task.fields[unit]}"),
    )
    with (
        Progress(*columns, _Rate(), TimeRemainingColumn(), console=console, transient=True) as bar,
        listening(BarListener(bar)),
    ):
        yield


class _Rate(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        """Return the speed, once there is one."""
        return Text(
            speed(int(task.completed), task.finished_time or task.elapsed or 0, task.fields["unit"])[2:]
        )


class BarListener(Listener):
    """A bar for the piece of work in hand."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a bar in the place of the one before."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        one = unit.removesuffix("s") if total == 1 else unit
        self._task = self._progress.add_task(what, total=total or None, unit=one)

    def advance(self, n: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.advance(self._task, n)

    def note(self, line: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False)


def _error_line(text: str) -> None:
    write_error(f"{text}\n")


class _Errors:
    """Standard error for `rich`; a terminal that was closed does not stop the run."""

    def write(self, text: str) -> int:
        """Write at once."""
        write_error(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def runs_as_flow(prefect: bool | None) -> bool:  # noqa: FBT001  the switch --prefect/--direct, None where neither
    """Return whether to run as a flow; if so, Prefect has its environment and may be imported."""
    if prefect is False:
        return False
    # Prefect itself logs each failure with its traceback; the message is ours to show.
    line = connect(console_level="CRITICAL")
    if line is not None:
        tell().note(line)
        return True
    if prefect:
        raise UsageError(
            "got --prefect, but no Prefect server is configured or running; start `blr ui` in another terminal, or "
            "set PREFECT_API_URL"
        )
    tell().note("running without Prefect; to see runs in its UI, start `blr ui` in another terminal first")
    return False


def flow_or_work(
    name: str, work: Callable[[Any], Any], request: Any, *, dry_run: bool, prefect: bool | None, quiet: bool
) -> Any:
    """Do the work of a request, and show its progress: as the flow of that name where Prefect is wanted."""
    with shown_progress(quiet=quiet):
        return run_flow(name, request) if not dry_run and runs_as_flow(prefect) else work(request)


def connect_or_start() -> None:
    """Give Prefect its environment, with the server that is configured or running, or with one for this process."""
    line = connect(console_level="CRITICAL")
    if line is None:
        tell().note("starting Prefect's server; --direct works without it")
        os.environ.setdefault("PREFECT_API_BLOCKS_REGISTER_ON_START", "false")  # a third of the time to start
        line = start_home_server(0, console_level="CRITICAL").line
    tell().note(line)


def run_flow(name: str, request: Any) -> Any:
    """Run a request as the flow of that name; UsageError where a parameter, which Prefect keeps, has a secret."""
    check_parameters(getattr(request, "catalogues", ()))
    return getattr(import_module(f"flows.{name}"), name)(**vars(request))


FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130


def exit_status(error: BaseException) -> int:
    """Show an error on standard error and return the exit status for it."""
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if hasattr(error, "format_message"):  # Wrong use, as found by Typer or by Click.
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "blr"
        said = error.format_message().rstrip(".").replace("Value error, ", "")  # Pydantic's
        _error_line(f"blr: error: {said}; `{command} --help` shows how to use it")
        return WRONG_USE
    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__  # a signal came while compiled code was running
    words = words_of(error)
    match error:
        case KeyboardInterrupt() | typer.Abort():
            status, message = INTERRUPTED, "interrupted; run the same command again to continue"
        case Interrupted() | Terminated():
            status, message = error.exit_status, str(words)
        case _ if words is not None:
            status = error.exit_status if isinstance(error, FlowError) else FAILED
            message = f"error: {words}"
        case _:
            said = scrubbed(f"{type(error).__name__}: {error}")
            status = FAILED
            message = f"error: {said}\nThis is an error in blr: `blr --debug ...` shows where. Report it."
    _error_line(f"blr: {message}")
    return status
