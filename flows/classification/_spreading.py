"""Files annotated by the workers of an engine: orders out, reports back, both as JSON texts.

A worker reads the model and the input, and writes the copy and its record into the staging folder, as a run of one
machine does.  The run that gave the order holds the lock; a worker that finds it gone stops.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from flows.classification._tasks import Annotated, Deferred, Failed, FileJob, FileResult, JobGroup
from flows.classification.annotation import annotate_each, annotate_file
from flows.documents import from_document, to_document
from flows.engines.engine import Engine, Lost
from flows.engines.versions import difference, installed
from flows.errors import EngineError
from flows.inputs.origins import spoken
from flows.runs.allowed_roots import OutputFolder
from flows.runs.lock import Owner, acting_for, check_held
from flows.runs.outputs import Output
from flows.runs.progress import listening, tell
from flows.runs.staging import Staging

__all__ = ["annotate", "spread"]

SLOWEST = 3
"""Files that are named at the end, for they took longest."""
PATIENCE = 30.0
"""Seconds after which a worker that does not see the folder of a run is believed not to have it."""


@dataclass(frozen=True, kw_only=True)
class WorkOrder:
    """Files that a worker annotates for the run of the lock's `owner`; `versions` are those of the run."""

    group: JobGroup
    owner: Owner
    versions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class WorkReport:
    """What became of the files; lines that the user should read; and how long each file took, in seconds."""

    results: tuple[Annotated | Failed | Deferred, ...]
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def spread(engine: Engine, groups: Sequence[JobGroup], stop: Callable[[], None]) -> list[FileResult]:
    """Have the files of all groups annotated by an engine; return what became of them, by name.

    Where the workers of a group were killed, each of its files is tried by itself; one that ends its workers again has
    failed.  `stop` is called between reports, and raises where the run was asked to stop.
    """
    received = _Received(n_files=sum(len(group.jobs) for group in groups))
    lost = received.take(engine, groups, stop)
    alone = [JobGroup(job.name, (job,)) for group, _ in lost for job in group.jobs]
    for group, why in received.take(engine, alone, stop):
        received.results += [Failed(job.name, why.reason, None) for job in group.jobs]
    longest = sorted(received.seconds.items(), key=lambda item: (-item[1], item[0]))[:SLOWEST]
    if len(received.seconds) > SLOWEST:
        tell().note("slowest files: " + ", ".join(f"{name} {seconds:,.1f} s" for name, seconds in longest))
    return sorted(received.results, key=lambda result: result.name)


@dataclass
class _Received:
    """What the workers have reported of so many files; `shown` says what the user calls the paths in orders."""

    n_files: int
    results: list[FileResult] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)

    def take(
        self, engine: Engine, groups: Sequence[JobGroup], stop: Callable[[], None]
    ) -> list[tuple[JobGroup, Lost]]:
        """Give the orders of groups, take the reports; return the groups that no worker outlived."""
        lost = []
        with closing(engine.map(annotate, _orders(groups, self.shown))) as reports:
            for order, report in reports:
                if isinstance(report, Lost):
                    lost.append((_parsed(order).group, report))
                else:
                    self._add(from_document(WorkReport, json.loads(report), source="a worker's report"))
                if len(self.results) < self.n_files:
                    stop()
        return lost

    def _add(self, report: WorkReport) -> None:
        self.results += [_as_named(result, self.shown) for result in report.results]
        self.seconds |= report.seconds
        for note in report.notes:
            tell().note(spoken(note, self.shown))
        tell().advance(sum(r.output.n_rows for r in report.results if isinstance(r, Annotated)))


def annotate(order: str) -> str:
    """Carry out an order on a worker; return its report.

    Raises
    ------
    EngineError
        If the worker's versions are not the run's, or it does not see the run's folder.
    OutputFolderError
        If the run that gave the order has ended.
    """
    received = _parsed(order)
    if differs := difference(platform.node(), received.versions):
        raise EngineError(differs)
    notes = _Notes()
    seconds: dict[str, float] = {}

    def annotate_one(job: FileJob) -> Output:
        began = time.perf_counter()
        check_held(job.staging.out)
        output = annotate_file(job)
        seconds[job.name] = round(time.perf_counter() - began, 3)
        return output

    with acting_for(received.owner), listening(notes):
        _wait_for(received.group.jobs[0].staging)
        results = annotate_each(annotate_one, received.group)
    report = WorkReport(results=tuple(results), notes=tuple(notes.lines), seconds=seconds)
    return json.dumps(to_document(report), allow_nan=False)


class _Notes:
    """Keeps the lines that a worker has for the user."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, what: str, total: int, unit: str) -> None:
        """Do nothing: the run has said what begins."""

    def advance(self, n: int) -> None:
        """Do nothing: the run counts the rows of reports."""

    def note(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)


def _parsed(order: str) -> WorkOrder:
    return from_document(WorkOrder, json.loads(order), source="an order")


def _orders(groups: Iterable[JobGroup], shown: dict[str, str]) -> Iterator[str]:
    """Yield an order a group; note in `shown` what the paths in it are called by the user."""
    owner = Owner.this(None)
    for group in groups:
        jobs = tuple(_absolute(job, shown) for job in group.jobs)
        order = WorkOrder(group=JobGroup(group.label, jobs), owner=owner, versions=installed())
        yield json.dumps(to_document(order), allow_nan=False)


def _absolute(job: FileJob, shown: dict[str, str]) -> FileJob:
    """Return a job whose paths do not depend on the folder that a process works in."""

    def whole(path: Path) -> Path:
        there = path.absolute()
        shown.setdefault(str(there), str(path))
        return there

    request, staging, catalogue, before = job.request, job.staging, job.catalogue, job.previous
    model = replace(request.model, folder=whole(request.model.folder))
    source = replace(catalogue.source, path=whole(catalogue.source.path))
    if before is not None:
        annotation = replace(before.annotation, path=whole(before.annotation.path))
        before = replace(before, annotation=annotation)
    return replace(
        job,
        request=replace(request, model=model, threads=request.threads or 1),
        staging=replace(staging, out=OutputFolder(whole(staging.out)), folder=whole(staging.folder)),
        catalogue=replace(catalogue, source=source),
        path=whole(job.path),
        previous=before,
    )


def _as_named(result: FileResult, shown: Mapping[str, str]) -> FileResult:
    """Return a result whose words have the paths as the user named them."""
    return replace(result, reason=spoken(result.reason, shown)) if isinstance(result, Failed) else result


def _wait_for(staging: Staging) -> None:
    """Return once a worker sees the staging folder, which a network's file system may show late; else EngineError."""
    end = time.monotonic() + PATIENCE
    while not staging.is_open:
        if time.monotonic() > end:
            raise EngineError(
                f"{platform.node()}: got no folder {staging.folder}, expected the one that the run writes to; give "
                "all workers the paths of the machine that the run was started on"
            )
        time.sleep(0.2)
