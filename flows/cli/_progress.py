"""How far the work is: a bar with rows, rows/s and time left on a terminal, lines elsewhere; on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from flows.runs.progress import listening

__all__ = ["BarListener", "LineListener", "shown_progress"]

SECONDS_BETWEEN_LINES = 10.0


class _Rate(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        """Return the speed, once there is one."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {task.fields['unit']}/s")


class BarListener:
    """A bar for the piece of work in hand."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a bar; the one before stays as it is."""
        self._task = self._progress.add_task(what, total=total or None, unit=unit)

    def advance(self, n: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.advance(self._task, n)

    def note(self, line: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False)


class LineListener:
    """Lines: at the begin of a piece of work, every ten seconds, and at its end."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._what, self._unit, self._total, self._done = "", "", 0, 0
        self._began = self._said = time.monotonic()

    def start(self, what: str, total: int, unit: str) -> None:
        """Print what begins."""
        self._what, self._unit, self._total, self._done = what, unit, total, 0
        self._began = self._said = time.monotonic()
        if not self._quiet:
            _line(f"{what}: {total:,} {unit}" if total else what)

    def advance(self, n: int) -> None:
        """Print how far it is, where there is something new to say."""
        self._done += n
        now = time.monotonic()
        finished = 0 < self._total <= self._done
        if finished or (not self._quiet and now - self._said > SECONDS_BETWEEN_LINES):
            self._said = now
            rate = self._done / max(now - self._began, 1e-9)
            known = self._total and not finished
            left = f", {(self._total - self._done) / max(rate, 1e-9):,.0f} s left" if known else ""
            of = f" of {self._total:,}" if self._total else ""
            _line(
                f"{self._what}: {self._done:,}{of} {self._unit}, {rate:,.{_digits(rate)}f} {self._unit}/s{left}"
            )

    def note(self, line: str) -> None:
        """Print a line."""
        if not self._quiet:
            _line(line)


def _digits(rate: float) -> int:
    return 0 if rate >= 10 else 1


def _line(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[None]:
    """Show the progress of the work in the block."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        with listening(LineListener(quiet=quiet)):
            yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} {task.fields[unit]}"),
    )
    with (
        Progress(*columns, _Rate(), TimeRemainingColumn(), console=console) as bar,
        listening(BarListener(bar)),
    ):
        yield
