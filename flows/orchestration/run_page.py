"""What a run leaves on Prefect's page and in its log: how far it is, tables, a link to its report, events."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote
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
from prefect.events import emit_event
from prefect.events.filters import EventFilter, EventNameFilter, EventOccurredFilter, EventResourceFilter
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.states import Crashed

from flows.documents import to_document
from flows.errors import UsageError
from flows.orchestration.run_state import (
    QUARANTINED,
    classification_message,
    classification_name,
    completed,
    rename_run,
)
from flows.reports.counts import run_tables, status_table
from flows.reports.report_table import ReportTable
from flows.reports.tables import to_markdown
from flows.runs.lock import Owner
from flows.runs.manifest import read_status
from flows.runs.progress import Listener, listening, tell
from flows.runs.references import ModelReference
from flows.runs.results import ClassificationResult, ClassificationTrial, ReleaseResult, Summary

PAGES = "BLR_PAGES"
"""Environment variable: FOLDER=URL, a folder and the address at which a web server of the team serves it."""


def page_of(path: Path) -> str:
    """Return the address of a file: that of the team's web server for files below its folder, else a file's own.

    Raises
    ------
    UsageError
        If `BLR_PAGES` is set, and is not FOLDER=URL.
    """
    setting = os.environ.get(PAGES, "")
    if setting:
        folder, equals, url = setting.partition("=")
        if not (equals and folder and "://" in url):
            raise UsageError(
                f"{PAGES}: got '{setting}', expected FOLDER=URL, such as /srv/survey=https://survey.example.org/files"
            )
        if path.is_relative_to(Path(folder).resolve()):
            below = path.relative_to(Path(folder).resolve()).as_posix()
            return f"{url.rstrip('/')}/{quote(below)}"
    return path.as_uri()


DAY = timedelta(hours=20)
"""Time after which a file that is still quarantined is reported again: runs of a daily schedule differ by minutes."""
MOST_FILES = 50
"""Most quarantined files that have an event each."""


def release_events(result: ReleaseResult) -> None:
    """Tell of a release that was done, and of what somebody should look at.

    A file that stays quarantined is reported again every day, by the first run of the day.
    """
    is_new = result.before is None or result.before.release != result.release
    if result.summary is not None and result.status == "done" and is_new:
        _release_done(result, result.summary)
    out = str(result.out)
    known = _reported_lately(result)
    for file, reason in list(result.quarantined.items())[:MOST_FILES]:
        if (out, file, reason) not in known:
            payload = {"file": file, "reason": reason, "model": result.model, "out": out}
            _emit("blr.partition.quarantined", f"blr.partition.{file}", payload)


def _reported_lately(result: ReleaseResult) -> set[tuple[str, str, str]]:
    """Return folder, file and reason of the quarantined files that the server has heard of within the last day."""
    if not result.quarantined:
        return set()
    wanted = EventFilter(
        occurred=EventOccurredFilter.model_validate({"since": datetime.now(UTC) - DAY}),
        event=EventNameFilter(name=["blr.partition.quarantined"]),
        resource=EventResourceFilter(
            id=[f"blr.partition.{file}" for file in result.quarantined][:MOST_FILES]
        ),
    )
    with get_client(sync_client=True) as client:
        page = client.read_events(wanted, limit=MOST_FILES)
        found = [*page.events]
        while page.next_page:
            page = client.read_events_page(str(page.next_page))
            found += page.events
    return {tuple(str(e.payload.get(key)) for key in ("out", "file", "reason")) for e in found}  # type: ignore[misc]


def _release_done(result: ReleaseResult, summary: Summary) -> None:
    """Tell of a new release, and of features that have drifted in it."""
    name, out = ModelReference.parse(result.model).name, str(result.out)
    difference = result.difference
    changed = {name: getattr(difference, name) if difference else 0 for name in ("class_changed", "moved")}
    payload = {
        "release": result.release,
        "model": result.model,
        "out": out,
        "rows": summary.n_rows,
        "annotated": sum(1 for file in result.files.values() if file["why"]),
        "retired": len(result.retired),
        "quarantined": len(result.quarantined),
        "deferred": len(result.deferred),
        **changed,
    }
    _emit("blr.release.done", f"blr.release.{name}", payload)
    if result.drifted:
        features = {feature: to_document(summary.drift[feature]) for feature in result.drifted}
        _emit("blr.drift.found", f"blr.model.{name}", {"model": result.model, "features": features})


def model_promoted(model: str, *, previous: str | None, who: str | None, why: str | None) -> None:
    """Tell of a new champion, NAME@VERSION: instead of which, by whom and why."""
    promotion = {"model": model, "previous": previous, "who": who, "why": why}
    _emit("blr.model.promoted", f"blr.model.{ModelReference.parse(model).name}", promotion)


def _emit(event: str, resource: str, payload: Mapping[str, object]) -> None:
    emit_event(event=event, resource={"prefect.resource.id": resource}, payload=dict(payload))


SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_UPDATES = 300.0, 5.0
Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]
MOST_NOTES = 50
"""Most notes of a run that are logged: a catalogue of a thousand files may have one for each."""
MOST_LEFT_OUT = 10
"""Most files that are named; the table of troubles has more, the manifest all."""


class _Log(Listener):
    """A listener that logs, keeps a progress artifact, and passes on what it hears to who listened before.

    Few lines: at the begin and the end of a piece of work, and one every five minutes between.
    """

    def __init__(self, logger: Logger, before: Listener, artifact: str = "") -> None:
        self._logger, self._before, self._key = logger, before, artifact
        self._artifact: UUID | None = None
        self._what, self._unit, self._total, self._done = "", "", 0, 0
        self._began = self._logged = self._updated = time.monotonic()
        self._notes = 0
        self._line = ""  # the last that was logged of a begin

    def start(self, what: str, total: int, unit: str) -> None:
        """Log what begins."""
        self._before.start(what, total, unit)
        self._what, self._unit, self._total, self._done = what, unit, total, 0
        self._began = self._logged = self._updated = time.monotonic()
        line = f"{what}: {total:,} {unit}" if total else what
        if line != self._line:
            self._logger.info("%s", line)
        self._line = line
        if self._key:
            artifact = create_progress_artifact(0.0, key=self._key, description=self._text())
            self._artifact = cast("UUID", artifact)  # it would be awaited in an asynchronous flow

    def advance(self, n: int) -> None:
        """Log the end of the work, and every five minutes how far it is; every five seconds the artifact says it."""
        self._before.advance(n)
        before, self._done = self._done, self._done + n
        now = time.monotonic()
        if before < self._total <= self._done or now - self._logged > SECONDS_BETWEEN_LINES:
            self._logged = now
            seconds = now - self._began
            rate = self._done / max(seconds, 1e-9)
            of = f" of {self._total:,}" if self._done < self._total else ""
            digits = 0 if rate >= 10 else 1
            done = f"{self._done:,}{of} {self._unit} in {seconds:,.1f} s, {rate:,.{digits}f} {self._unit}/s"
            self._logger.info("%s", f"{self._what}: {done}")
        ended = 0 < self._total <= self._done
        if self._artifact is not None and (ended or now - self._updated > SECONDS_BETWEEN_UPDATES):
            self._updated = now
            share = 100.0 * self._done / max(1, self._total)
            update_progress_artifact(self._artifact, min(100.0, share), description=self._text())

    def note(self, line: str) -> None:
        """Log a line."""
        self._before.note(line)
        self._notes += 1
        if self._notes <= MOST_NOTES:
            self._logger.info("%s", line)
        elif self._notes == MOST_NOTES + 1:
            self._logger.info("further notes are not logged")

    def _text(self) -> str:
        rate = self._done / max(time.monotonic() - self._began, 1e-9)
        of = f" of {self._total:,}" if self._total else ""
        return f"{self._done:,}{of} {self._unit}, {rate:,.0f} {self._unit}/s"


@contextmanager
def run_logged(artifact: str = "") -> Iterator[None]:
    """Log the progress of the work in the block, which is a flow run's; keep a progress artifact of that name."""
    key = f"{artifact_key(artifact)}-progress" if artifact else ""
    with listening(_Log(get_run_logger(), tell(), key)):
        yield


def log_left_out(state: str, reasons: Mapping[str, str]) -> None:
    """Log which files were left out, and why; `state` says how: "deferred", "quarantined"."""
    logger = get_run_logger()
    for name, why in list(reasons.items())[:MOST_LEFT_OUT]:
        logger.warning("%s", f"{state}: {name}: {why}")
    if len(reasons) > MOST_LEFT_OUT:
        logger.warning("%s", f"{state}: {len(reasons) - MOST_LEFT_OUT:,} more files; the manifest lists them")


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
    if not isinstance(result, ClassificationTrial) and result.report is not None:
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
