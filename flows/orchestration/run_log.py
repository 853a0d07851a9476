"""Lines of a run in Prefect's log: what begins, how fast it went, what was left out and why, and what came of it.

Few of them: a line at the begin and the end of a piece of work, and one every five minutes between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prefect.logging import get_run_logger

from flows.runs.progress import Listener, listening, tell

__all__ = ["log_left_out", "run_logged"]

SECONDS_BETWEEN_LINES = 300.0
Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]
MOST_NOTES = 50
"""Most notes of a run that are logged: a catalogue of a thousand files may have one for each."""
MOST_LEFT_OUT = 10
"""Most files that are named; the table of troubles has more, the manifest all."""


class _Log:
    """A listener that logs, and passes on what it hears to who listened before."""

    def __init__(self, logger: Logger, before: Listener) -> None:
        self._logger, self._before = logger, before
        self._what, self._unit, self._total, self._done = "", "", 0, 0
        self._began = self._said = time.monotonic()
        self._notes = 0
        self._line = ""  # the last that was logged of a begin

    def start(self, what: str, total: int, unit: str) -> None:
        """Log what begins."""
        self._before.start(what, total, unit)
        self._what, self._unit, self._total, self._done = what, unit, total, 0
        self._began = self._said = time.monotonic()
        line = f"{what}: {total:,} {unit}" if total else what
        if line != self._line:
            self._logger.info("%s", line)
        self._line = line

    def advance(self, n: int) -> None:
        """Log the end of the work, and every five minutes how far it is."""
        self._before.advance(n)
        before, self._done = self._done, self._done + n
        now = time.monotonic()
        if before < self._total <= self._done or now - self._said > SECONDS_BETWEEN_LINES:
            self._said = now
            self._logger.info("%s", self._rate(now - self._began))

    def note(self, line: str) -> None:
        """Log a line."""
        self._before.note(line)
        self._notes += 1
        if self._notes <= MOST_NOTES:
            self._logger.info("%s", line)
        elif self._notes == MOST_NOTES + 1:
            self._logger.info("further notes are not logged")

    def _rate(self, seconds: float) -> str:
        rate = self._done / max(seconds, 1e-9)
        of = f" of {self._total:,}" if self._done < self._total else ""
        digits = 0 if rate >= 10 else 1
        return f"{self._what}: {self._done:,}{of} {self._unit} in {seconds:,.1f} s, {rate:,.{digits}f} {self._unit}/s"


@contextmanager
def run_logged() -> Iterator[None]:
    """Log the progress of the work in the block, which is a flow run's."""
    with listening(_Log(get_run_logger(), tell())):
        yield


def log_left_out(state: str, reasons: Mapping[str, str]) -> None:
    """Log which files were left out, and why; `state` says how: "deferred", "quarantined"."""
    logger = get_run_logger()
    for name, why in list(reasons.items())[:MOST_LEFT_OUT]:
        logger.warning("%s", f"{state}: {name}: {why}")
    if len(reasons) > MOST_LEFT_OUT:
        logger.warning("%s", f"{state}: {len(reasons) - MOST_LEFT_OUT:,} more files; the manifest lists them")
