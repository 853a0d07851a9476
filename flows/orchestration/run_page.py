"""What a run leaves on Prefect's page: tables, a summary, a link to its report, events; and how far it is."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from flows.orchestration.events import release_events
from flows.orchestration.links import page_of
from flows.orchestration.messages import classification_message, classification_name
from flows.orchestration.run_log import log_left_out, run_logged
from flows.orchestration.run_state import QUARANTINED, completed, rename_run
from flows.orchestration.tables import run_tables, status_table
from flows.reports.tables import ReportTable, to_markdown
from flows.runs.lock import Owner
from flows.runs.model_reference import ModelReference
from flows.runs.progress import Listener, listening, tell
from flows.runs.results import ClassificationResult, ClassificationTrial, FinishedClassification, read_status

__all__ = [
    "artifact_key",
    "keep_link",
    "keep_markdown",
    "keep_run",
    "keep_table",
    "mark_crashed",
    "progress_kept",
    "run_id",
]

MOST_BYTES = 100_000
"""Prefect's database keeps artifacts for ever, and has no limit of its own."""


def artifact_key(text: str) -> str:
    """Return a key of lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "blr"


def keep_table(key: str, table: ReportTable, description: str) -> None:
    """Leave a table, cut where it is too long."""
    rows, size = [], 0
    for cells in table.rows:
        size += sum(len(cell.encode()) + len(name) for cell, name in zip(cells, table.columns, strict=True))
        if size > MOST_BYTES:
            break
        rows.append(dict(zip(table.columns, cells, strict=True)))
    create_table_artifact(key=artifact_key(key), table=rows, description=description)


def keep_markdown(key: str, text: str, description: str) -> None:
    """Leave a text, cut where it is too long."""
    cut = text.encode()[:MOST_BYTES].decode(errors="ignore")
    note = "" if cut == text else "\n\n(shortened: the report has the full table)"
    create_markdown_artifact(key=artifact_key(key), markdown=cut + note, description=description)


logger = logging.getLogger(__name__)

SECONDS_BETWEEN_UPDATES = 5.0
R = TypeVar("R", bound=ClassificationResult)


def keep_link(key: str, path: Path, text: str) -> None:
    """Leave a link to a file.

    It is one of the machine that ran: under `BLR_PAGES=FOLDER=URL` the link is that of a web server which serves the
    folder, else browsers open it on that machine alone.
    """
    there = path.resolve()
    create_link_artifact(
        link=page_of(there),
        link_text=text,
        key=artifact_key(key),
        description=f"{text}: {there} on {socket.gethostname()}",
    )


def keep_run(verb: str, result: R) -> R:
    """Leave the artifacts of a run, and tell of it; return the result, with its words for the run's final state."""
    name = ModelReference.parse(result.model).name
    said = f"{result.status}, by {result.model}"
    tables = run_tables(result)
    for what, table in tables.items():
        keep_table(f"{name}-{what}", table, f"{table.title}: {said}")
    keep_markdown(f"{name}-summary", "\n".join(map(to_markdown, tables.values())), f"Classification: {said}")
    if isinstance(result, FinishedClassification) and result.report is not None:
        keep_link(f"{name}-release", result.report, f"Report of release {result.release}")
    troubled = not isinstance(result, ClassificationTrial) and bool(result.quarantined)
    if not isinstance(result, ClassificationTrial):
        release_events(result)
        if result.manifest.is_file():
            status = status_table(read_status(result.out))
            keep_table(f"{name}-status", status, f"{status.title}: {said}")
        log_left_out("quarantined", result.quarantined)
        log_left_out("deferred", result.deferred)
        for sentence in result.repeats:
            logger.warning(sentence)
    rename_run(classification_name(verb, result))
    return completed(result, classification_message(result), name=QUARANTINED if troubled else "Completed")


def run_id() -> str | None:
    """Return the id of the flow run in hand."""
    context = FlowRunContext.get()
    return None if context is None or context.flow_run is None else str(context.flow_run.id)


def mark_crashed(owner: Owner) -> None:
    """Let Prefect know that a run was killed: without a worker nobody else tells it, and it would run for ever."""
    tell().note(f"an earlier run was killed ({owner}); its finished files are used")
    if owner.run is None or not owner.gone:
        return
    with get_client(sync_client=True) as client:
        try:
            state = client.read_flow_run(UUID(owner.run)).state
        except (ObjectNotFound, ValueError):
            return  # of another server
        if state is not None and state.is_running():
            said = f"its process {owner.pid} on {owner.host} was killed"
            client.set_flow_run_state(UUID(owner.run), Crashed(message=said), force=True)
            logger.info("Flow run %s has crashed: %s", owner.run, said)


class _Progress:
    """A progress artifact, brought up to date now and then; what it hears goes on to who listened before."""

    def __init__(self, key: str, before: Listener) -> None:
        self._key, self._before = key, before
        self._artifact: UUID | None = None
        self._what, self._unit, self._total, self._done = "", "", 0, 0
        self._began = self._said = time.monotonic()

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a piece of work."""
        self._before.start(what, total, unit)
        self._what, self._unit, self._total, self._done = what, unit, total, 0
        self._began = self._said = time.monotonic()
        artifact = create_progress_artifact(0.0, key=self._key, description=self._text())
        self._artifact = cast("UUID", artifact)  # it would be awaited in an asynchronous flow

    def advance(self, n: int) -> None:
        """Hear that more is done."""
        self._before.advance(n)
        self._done += n
        now = time.monotonic()
        if 0 < self._total <= self._done or now - self._said > SECONDS_BETWEEN_UPDATES:
            self._said = now
            self._tell()

    def note(self, line: str) -> None:
        """Pass a line on."""
        self._before.note(line)

    def _tell(self) -> None:
        if self._artifact is not None:
            share = 100.0 * self._done / max(1, self._total)
            update_progress_artifact(self._artifact, min(100.0, share), description=self._text())

    def _text(self) -> str:
        rate = self._done / max(time.monotonic() - self._began, 1e-9)
        of = f" of {self._total:,}" if self._total else ""
        return f"{self._done:,}{of} {self._unit}, {rate:,.0f} {self._unit}/s"


@contextmanager
def progress_kept(name: str) -> Iterator[None]:
    """Keep a progress artifact of the work in the block, and log it."""
    with listening(_Progress(artifact_key(f"{name}-progress"), tell())), run_logged():
        yield
