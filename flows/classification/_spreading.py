"""Annotation by the workers of an engine, which get orders and return reports, both as JSON texts.

A worker reads the model and the input, and writes the copy and its record into the staging folder, as a run on one
machine does.  The run that gave the order holds the lock; a worker stops when it finds that the lock is gone.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from flows.classification._narrowed import narrowed
from flows.classification._tasks import (
    Annotated,
    ClassificationRequest,
    Deferred,
    Failed,
    FileJob,
    FileOrder,
    FileResult,
    JobGroup,
)
from flows.classification.annotation import annotate_each, annotate_file
from flows.documents import from_json, to_document
from flows.engines.engine import Engine, Lost
from flows.errors import EngineError
from flows.inputs.origins import spoken
from flows.runs.allowed_roots import by_whole_path
from flows.runs.lock import Owner, acting_for, check_coherent, check_held
from flows.runs.outputs import Output
from flows.runs.progress import listening, tell
from flows.runs.staging import Staging

__all__ = ["annotate", "spread"]

SLOWEST = 3
"""Number of files that are named at the end, those that took longest."""
SPLIT = 32
"""Parts of a batch that are read one by one where workers have too little memory."""
PATIENCE = 30.0
"""Seconds after which a worker that does not see the folder of a run counts as without it."""


@dataclass(frozen=True, kw_only=True)
class WorkOrder:
    """Files that a worker annotates for the run of the lock's `owner`."""

    request: ClassificationRequest
    staging: Staging
    files: tuple[FileOrder, ...]
    owner: Owner

    @property
    def group(self) -> JobGroup:
        """The files of the order as jobs, as a run on one machine has them."""
        jobs = (FileJob(request=self.request, staging=self.staging, **vars(file)) for file in self.files)
        return JobGroup(self.files[0].name, tuple(jobs))


@dataclass(frozen=True, kw_only=True)
class WorkReport:
    """The results of the files, lines that the user should read, and the time of each file in seconds."""

    results: tuple[Annotated | Failed | Deferred, ...]
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def spread(engine: Engine, groups: Sequence[JobGroup], stop: Callable[[], None]) -> list[FileResult]:
    """Have the files of all groups annotated by an engine; return what became of them, by name.

    Where the workers of a group were killed, each of its files is tried by itself.  One that ends its workers again is
    tried once more in small batches, and has failed if that is no better.  `stop` is called between reports, and raises
    where the run was asked to stop.
    """
    received = _Received(n_files=sum(len(group.jobs) for group in groups))
    jobs = {job.name: job for group in groups for job in group.jobs}
    lost = [found for found, _ in received.take(engine, groups, stop)]
    alone = [_alone(jobs[name]) for found in lost if len(found) > 1 for name in found]
    if alone:
        tell().note(
            f"workers ended over groups of files: {len(alone):,} files are tried again, each by itself"
        )
    last = [found for found in lost if len(found) == 1]
    last += [found for found, _ in received.take(engine, alone, stop)]
    small = [_in_small_batches(jobs[name]) for name in sorted(name for found in last for name in found)]
    received.results += _last_attempt(engine, small, received, stop)
    longest = sorted(received.seconds.items(), key=lambda item: (-item[1], item[0]))[:SLOWEST]
    if len(received.seconds) > SLOWEST:
        tell().note("slowest files: " + ", ".join(f"{name} {seconds:,.1f} s" for name, seconds in longest))
    return sorted(received.results, key=lambda result: result.name)


def _last_attempt(
    engine: Engine, small: Sequence[FileJob], received: _Received, stop: Callable[[], None]
) -> list[Failed]:
    """Have files annotated that are to be read in small batches; return those that end their workers once more.

    Dask counts the end of a worker against all tasks that wait for it.  So if several files were lost, each gets an
    attempt of its own, one after the other.
    """
    if small:
        shown = ", ".join(job.name for job in small[:SLOWEST]) + (", ..." if len(small) > SLOWEST else "")
        tell().note(f"workers ended over {shown}: tried again in batches of {small[0].batch_rows:,} rows")
    failed = received.take(engine, [_alone(job) for job in small], stop)
    if len(failed) > 1:
        names = {name for found, _ in failed for name in found}
        groups = [_alone(job) for job in small if job.name in names]
        failed = [again for group in groups for again in received.take(engine, [group], stop)]
    said = "read as a whole and in small batches"
    return [Failed(name, f"{said}: {why.reason}", None) for found, why in failed for name in found]


def _alone(job: FileJob) -> JobGroup:
    return JobGroup(job.name, (job,))


def _in_small_batches(job: FileJob) -> FileJob:
    """Return the job with as little in memory at a time as is worth reading."""
    return replace(job, batch_rows=job.batch_rows // SPLIT, request=replace(job.request, threads=1))


@dataclass
class _Received:
    """The reports of the workers so far; `shown` has the user's names for the paths in orders."""

    n_files: int
    results: list[FileResult] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)

    def take(
        self, engine: Engine, groups: Sequence[JobGroup], stop: Callable[[], None]
    ) -> list[tuple[list[str], Lost]]:
        """Give the orders of groups and take the reports; return the files of lost orders, with the reasons."""
        lost = []
        with closing(engine.map(annotate, _orders(groups, self.shown))) as reports:
            for order, report in reports:
                if isinstance(report, Lost):
                    lost.append(([file.name for file in _parsed(order).files], report))
                else:
                    self._add(from_json(WorkReport, report, source="a worker's report"))
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
        If the worker does not see the run's folder.
    OutputFolderError
        If the run that gave the order has ended, or its lock does not hold for this host.
    """
    received = _parsed(order)
    notes = _Notes()
    seconds: dict[str, float] = {}

    def annotate_one(job: FileJob) -> Output:
        began = time.perf_counter()
        check_held(job.staging.out)
        output = annotate_file(job)
        seconds[job.name] = round(time.perf_counter() - began, 3)
        return output

    with acting_for(received.owner), listening(notes):
        _wait_for(received.staging)
        check_coherent(received.staging.out)
        results = annotate_each(annotate_one, received.group)
    report = WorkReport(results=tuple(results), notes=tuple(notes.lines), seconds=seconds)
    return json.dumps(to_document(report), allow_nan=False)


class _Notes:
    """Collects the lines of a worker for the user."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, what: str, total: int, unit: str) -> None:
        """Do nothing, since the run has announced the work."""

    def advance(self, n: int) -> None:
        """Do nothing, since the run counts the rows in reports."""

    def note(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)


def _parsed(order: str) -> WorkOrder:
    return from_json(WorkOrder, order, source="an order")


def _orders(groups: Iterable[JobGroup], shown: dict[str, str]) -> Iterator[str]:
    """Yield an order a group, with paths that do not depend on the folder that a process works in.

    `shown` gets the user's names for these paths.
    """
    owner = Owner.this(None)

    @cache
    def whole(path: Path) -> Path:
        there = path.absolute()
        shown.setdefault(str(there), str(path))
        return there

    # Written once, since all orders have the same.
    known: tuple[ClassificationRequest, Mapping[str, object]] | None = None
    for group in groups:
        request, staging = group.jobs[0].request, group.jobs[0].staging
        if known is None or known[0] is not request:
            model = replace(request.model, folder=whole(request.model.folder))
            order = WorkOrder(
                request=replace(request, model=model, threads=request.threads or 1),
                staging=Staging(by_whole_path(staging.out), whole(staging.folder)),
                files=(),
                owner=owner,
            )
            known = request, to_document(order)
        files = [to_document(_file_order(job, whole)) for job in group.jobs]
        yield json.dumps({**known[1], "files": files}, allow_nan=False)


def _file_order(job: FileJob, whole: Callable[[Path], Path]) -> FileOrder:
    before = job.previous
    if before is not None:
        annotation = replace(before.annotation, path=whole(before.annotation.path))
        before = replace(before, annotation=annotation)
    source = replace(job.catalogue.source, path=whole(job.catalogue.source.path))
    catalogue = replace(job.catalogue, source=source)
    return replace(narrowed(FileOrder, job), catalogue=catalogue, path=whole(job.path), previous=before)


def _as_named(result: FileResult, shown: Mapping[str, str]) -> FileResult:
    """Return a result whose messages have the paths in the user's form."""
    return replace(result, reason=spoken(result.reason, shown)) if isinstance(result, Failed) else result


def _wait_for(staging: Staging) -> None:
    """Return once a worker sees the staging folder, which a network's file system may show late; else EngineError."""
    end = time.monotonic() + PATIENCE
    while not staging.is_open:
        if time.monotonic() > end:
            raise EngineError(
                f"{platform.node()}: there is no folder {staging.folder}, to which the run writes; mount it "
                "on every worker under the same path as on the machine that started the run"
            )
        time.sleep(0.2)
