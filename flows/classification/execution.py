"""A classification is carried out: here or on workers, file by file, until what is whole is published."""

from __future__ import annotations

import errno
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path

from blr.threads import single_threaded_blas
from catalogs.catalog.catalog import Catalog, verified
from catalogs.errors import CatalogError
from catalogs.files.atomic import StorageError
from catalogs.text.table import commented_out
from catalogs.writing.annotate import annotate
from catalogs.writing.conversion import copied
from flows.classification._census import rows_a_file
from flows.classification._class_shares import shift_record
from flows.classification._difference import Annotation, compare, narrowed
from flows.classification._plan import (
    MOST_ORDERS,
    Annotated,
    ClassificationRequest,
    Deferred,
    Failed,
    FileJob,
    FileOrder,
    FileResult,
    Group,
    Job,
    JobGroup,
    Plan,
    PreviousAnnotation,
    Publication,
    Published,
    groups,
    reason,
)
from flows.classification._publishing import finish, summary_of
from flows.classification._repeats import keep_sketch, repeats, sweep_sketches
from flows.classification._tally import ObjectSurvey
from flows.classification.scoring import KnownRows, Scorer, budget_threshold, kept_columns, provenance
from flows.documents import from_json, to_document
from flows.engines.engine import Engine, Lost
from flows.errors import EngineError, FlowError, OutputFolderError
from flows.inputs.files import open_source
from flows.inputs.source import InputCatalogue, spoken
from flows.models.model import Model, read_model
from flows.models.row_files import read_labelled_identifiers
from flows.models.store_folder import StoredModel
from flows.runs.allowed_roots import by_whole_path
from flows.runs.counts import AnnotatedFile, FileCounts, FileDifference, ShownSummary, Totals
from flows.runs.interrupt import begin_piece, check_terminated, stop_asked, stop_points, terminable
from flows.runs.lock import LOCK, Owner, acting_for, check_coherent, check_held, exclusive
from flows.runs.manifest import MANIFEST, Manifest
from flows.runs.object_names import LabelledNames
from flows.runs.outputs import FileState, Output, Quarantined, are_many, as_kept, file_sha256
from flows.runs.progress import listening, tell
from flows.runs.results import (
    EarlierRelease,
    FileWork,
    FinishedClassification,
    FolderResult,
    PlannedClassification,
    ReleaseResult,
    UnchangedClassification,
    WaitingClassification,
)
from flows.runs.staging import Staging
from flows.specification.specification import Specification

__all__ = [
    "DIRECT",
    "Steps",
    "annotate_each",
    "annotate_file",
    "annotate_order",
    "carry_out",
    "execute",
    "model_at",
    "scorer_for",
    "spread",
]

# Annotation of one file into the staging folder, or of several, where a faulty file does not stop the others.

_THE_MACHINES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


def annotate_file(job: FileJob) -> Output:
    """Annotate one file, whose hash is known, into the staging folder; return its record."""
    model, specification = model_at(job.request.model), job.request.specification
    catalog, _ = verified(_one_file(job), specification.catalog.checksums)
    if remark := commented_out(catalog):
        tell().note(f"{job.name}: {remark}")
    step = math.ceil(catalog.n_rows / job.census_rows)
    known = KnownRows.of(catalog, specification, job.request.model.folder, classes=len(model.classes))
    scorer = scorer_for(model, specification, catalog).kept_for_census(max(1, step), known)
    labelled = _labelled_names(job.request.model.folder)
    survey = ObjectSurvey.of(catalog, specification, model.classes, labelled)
    scorer = replace(scorer, survey=survey)
    with single_threaded_blas():
        written = annotate(
            catalog,
            job.staging.folder,
            scorer.columns,
            scorer,
            read=tuple(dict.fromkeys((*scorer.reader.read, *survey.read))),
            provenance=provenance(model, specification, job.input.sha256, scorer.reader.read),
            rows=job.batch_rows,
            threads=job.request.threads,
            progress=tell().advance,
            overwrite=True,
            mode=specification.output.mode,
            keep=kept_columns(specification),
            form=specification.output.form,
            checksums=specification.catalog.checksums,
        )
    for what in written.warnings:
        tell().note(f"{job.name}: {what}")
    counted = all(partition.counted for partition in catalog.partitions)
    output = _output(job, scorer, counted=counted, left_behind=tuple(written.warnings))
    if counted and specification.catalog.id is not None:
        keep_sketch(job.staging.file(job.name), output, specification, job.staging.out)
    job.staging.record(output)
    return output


@lru_cache(maxsize=2)
def _labelled_names(folder: Path) -> LabelledNames | None:
    """Return the names of a model's labelled objects; None of a model of an earlier version."""
    names = read_labelled_identifiers(folder)
    return None if names is None else LabelledNames.of(names)


def annotate_each(annotate_one: Callable[[FileJob], Output], group: JobGroup) -> list[FileResult]:
    """Annotate the files of a group; return for each its record, or why it failed or has to wait.

    An error in one file's content does not stop the others.  Any other error (no room, no permission) ends the run.
    """
    results: list[FileResult] = []
    for job in group.jobs:
        if stop_asked():
            break
        begin_piece(job.name)
        results.append(_attempt(annotate_one, job))
    return results


def _not_the_files(error: OSError, path: str) -> bool:
    """Say whether the machine or another file caused an error: then the run ends, and nothing is quarantined."""
    return error.errno in _THE_MACHINES or error.filename not in (None, path)


def _attempt(annotate_one: Callable[[FileJob], Output], job: FileJob) -> FileResult:
    try:
        job = replace(job, input=job.input.hashed(job.path))
        output = annotate_one(job)
    except (FlowError, StorageError, MemoryError):
        raise
    except Exception as error:
        check_terminated()
        if isinstance(error, OSError) and _not_the_files(error, str(job.path)):
            raise
        check_held(
            job.staging.out
        )  # Otherwise the file would count as faulty because another run removed something.
        change = _changed(job.path, job.input)
        return Deferred(job.name, change) if change else Failed(job.name, reason(error), job.input)
    if change := _changed(job.path, job.input):
        check_held(job.staging.out)  # otherwise, a worker of an ended run could discard another run's file
        job.staging.discard(job.name)
        return Deferred(job.name, change)
    return Annotated(job.name, output)


def _changed(path: Path, state: FileState) -> str | None:
    """Return how the input changed while it was read, since its output is invalid then."""
    if state.looks_like(path):
        return None
    return "it changed while it was read" if path.exists() else "it was deleted while it was read"


def scorer_for(model: Model, specification: Specification, catalog: Catalog) -> Scorer:
    """Return the scorer of a catalogue; a review budget needs a pass over its rows first."""
    scorer = Scorer.of(model, specification).on(catalog)
    if specification.flags.budget is None:
        return scorer
    with single_threaded_blas():
        return scorer.with_low_confidence(budget_threshold(scorer, catalog, specification.flags.budget))


def _output(job: FileJob, scorer: Scorer, *, counted: bool, left_behind: tuple[str, ...]) -> Output:
    """Return the record of a file that has been annotated.

    A margin repeats rows, which are not to be `counted`; `left_behind` names what the copy's format cannot hold.
    """
    annotated = job.staging.file(job.name)
    counts = FileCounts(
        counted=counted,
        tally=scorer.tally(),
        drift=scorer.drift(),
        low_confidence=scorer.classifier.low_confidence,
        shift=shift_record(scorer.model, job.request.specification),
        set_rule=None if scorer.sets is None else scorer.sets.record,
        left_behind=left_behind,
        sky=None if scorer.survey is None else scorer.survey.sky(),
        doubtful=() if scorer.survey is None else scorer.survey.doubtful(),
    )
    seen = annotated.stat()
    return Output(
        name=job.name,
        sha256=file_sha256(annotated),
        size=seen.st_size,
        n_rows=counts.tally.n_rows,
        input_path=job.input_path,
        input=job.input,
        mtime_ns=seen.st_mtime_ns,
        inode=seen.st_ino,
        summary=counts,
        difference=_difference(job, annotated, scorer),
        census_rows=scorer.census_rows().text() if counted else "",
    )


def _difference(job: FileJob, annotated: Path, scorer: Scorer) -> FileDifference | None:
    """Return how the rows differ from those of the output that is replaced."""
    before = job.previous
    if before is None:
        return None
    new = Annotation(annotated, scorer.prefix, scorer.model.classes)
    return compare(before.annotation, new, id_column=before.id_column, by_row=before.by_row)


@lru_cache(maxsize=2)
def model_at(stored: StoredModel) -> Model:
    """Return a model of the store, which is read once: a version never changes."""
    return read_model(stored.path)


def _one_file(job: FileJob) -> Catalog:
    """Return the catalogue with one of its files only."""
    catalog = open_source(job.catalogue)
    return replace(catalog, partitions=(copied(catalog, job.catalogue.form)[job.name],))


# Annotation by the workers of an engine, which get orders and return reports, both as JSON texts.
#
# A worker reads the model and the input, and writes the copy and its record into the staging folder, as a run on one
# machine does.  The run that gave the order holds the lock; a worker stops when it finds that the lock is gone.

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
        with closing(engine.map(annotate_order, _orders(groups, self.shown))) as reports:
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


def annotate_order(order: str) -> str:
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


# Execution of a plan, the same for every flow: each file is annotated, then all files get their final names.

AnnotateOne = Callable[[FileJob], Output]


def finish_outputs(publication: Publication, outputs: Sequence[Output]) -> Published:
    """Give the outputs their final names, write summary and manifest; return what was published."""
    return finish(model_at(publication.request.model), publication, outputs)


def spread_here(engine: str, annotate: Callable[[], list[FileResult]]) -> list[FileResult]:  # noqa: ARG001 - a task's name
    """Have the workers of an engine annotate files; return what became of them."""
    return annotate()


def _no_run() -> str | None:
    return None


def _note_killed(owner: Owner) -> None:
    tell().note(f"an earlier run was killed ({owner}); its finished files are used")


@dataclass(frozen=True)
class Steps:
    """The tasks; the flows put Prefect's in their place.

    `together` does the files of a group with `annotate`.  `spread` holds the engine of that name while its workers
    annotate all files.  `identify` gives the run's id, and `mark_crashed` hears of the run whose lock was found, left
    behind when it was killed.
    """

    annotate: AnnotateOne = annotate_file
    together: Callable[[AnnotateOne, JobGroup], list[FileResult]] = annotate_each
    spread: Callable[[str, Callable[[], list[FileResult]]], list[FileResult]] = spread_here
    finish: Callable[[Publication, Sequence[Output]], Published] = finish_outputs
    identify: Callable[[], str | None] = _no_run
    mark_crashed: Callable[[Owner], None] = _note_killed


DIRECT = Steps()
GO_ON = "run the same command again to continue"


def execute(
    make_plan: Callable[[], Plan],
    model: Model,
    request: ClassificationRequest,
    steps: Steps,
    *,
    engine: Engine,
    dry_run: bool,
) -> ReleaseResult:
    """Plan, and do what is planned, alone in the output folder; return what was done."""
    plan = make_plan()
    if dry_run:
        shared = vars(_folder_result(model, plan))
        return PlannedClassification(status="planned", **shared, up_to_date=plan.nothing_to_do)
    if plan.nothing_to_do:
        _sweep(plan, steps)
        return UnchangedClassification(status="nothing to do", **vars(_folder_result(model, plan)))
    if engine.is_remote and any(job.to_do for job in plan.jobs):
        # The description connects to the workers: an error comes before anything is written.
        tell().note(engine.description)
    with terminable(GO_ON), exclusive(plan.out, run=steps.identify()) as killed:
        if killed:
            steps.mark_crashed(killed)
        if Manifest.read(plan.out) != plan.before:  # another run has finished meanwhile
            plan = make_plan()
        return carry_out(plan, model, request, steps, engine)


def _sweep(plan: Plan, steps: Steps) -> None:
    """Remove the files that a killed run left in a folder where nothing is to be done."""
    if not plan.staging.is_left and not (plan.out / LOCK).exists():
        return
    with suppress(OutputFolderError), exclusive(plan.out, run=steps.identify()) as killed:
        if killed:
            steps.mark_crashed(killed)
        if Manifest.read(plan.out) == plan.before:
            if plan.before is not None:
                sweep_sketches(plan.out, {o.name: o for o in plan.before.outputs})
            plan.staging.open()
            plan.staging.close()
            Manifest.sweep(plan.out)


def carry_out(
    plan: Plan, model: Model, request: ClassificationRequest, steps: Steps, engine: Engine
) -> FinishedClassification | WaitingClassification:
    """Do what is planned, and give it its final names; return what was done."""
    plan.staging.open()
    outputs, results = _annotated(plan, request, steps, engine)
    deferred = {**plan.deferred, **{r.name: r.why for r in results if isinstance(r, Deferred)}}
    bad = _dated((*plan.quarantined, *_quarantined(plan, results)), plan.before)
    stay = [o for name in (*bad, *deferred) if (o := plan.still_good(name))]
    listed = [*outputs, *plan.kept, *stay]
    if not listed and bad:
        # Every file failed: the first error says why.
        raise CatalogError(_with_place(next(iter(bad.values()))))
    if not listed:
        plan.staging.close()
        waiting = replace(_folder_result(model, plan), deferred=deferred)
        return WaitingClassification(status="waiting", **vars(waiting))
    repeated = repeats(listed, plan.staging, request.specification)
    for sentence in repeated:
        tell().note(f"before publication: {sentence}")
    away = {*plan.retired, *(j.name for j in plan.jobs if j.in_the_way)}
    if plan.before:
        away |= {*bad, *deferred} - {o.name for o in stay}
    publication = Publication(
        request=request,
        staging=plan.staging,
        release=plan.before.release + 1 if plan.before else 1,
        retire=tuple(sorted(away)),
        quarantined=tuple(bad[name] for name in sorted(bad)),
        deferred=deferred,
        repeats=repeated,
        why={job.name: job.why for job in plan.jobs if not job.finished},
        before=_before(plan),
        report=plan.policy == "release",
        catalogues=_catalogues(plan),
    )
    check_held(plan.out)
    check_terminated()
    published = steps.finish(publication, listed)
    work = replace(
        _folder_result(model, plan, listed, published.totals),
        release=published.release,
        retired=published.retired,
        quarantined={name: q.reason for name, q in bad.items()},
        stale=tuple(sorted(o.name for o in stay)),
        deferred=deferred,
        repeats=repeated,
    )
    return FinishedClassification(
        status="done",
        **vars(work),
        drifted=published.drifted,
        report=published.report,
        difference=published.difference,
    )


def _annotated(
    plan: Plan, request: ClassificationRequest, steps: Steps, engine: Engine
) -> tuple[list[Output], list[FileResult]]:
    """Annotate the files of the plan; return the outputs of all jobs, and the results of the files done now."""
    to_do = [job for job in plan.jobs if job.to_do]
    results: list[FileResult] = []
    if to_do:
        what = to_do[0].name if len(to_do) == 1 else f"{len(to_do):,} files"
        tell().start(what, sum(job.n_rows for job in to_do), "rows")
    with stop_points(GO_ON, piece="the files that the workers have in hand") as stop:
        if to_do and engine.is_remote:
            handed = [_job_group(group, plan, request) for group in groups(to_do, MOST_ORDERS)]
            results += steps.spread(engine.name, lambda: spread(engine, handed, stop))
            to_do = []
        for group in groups(to_do):
            stop()
            results += steps.together(steps.annotate, _job_group(group, plan, request))
            if len(results) < len(to_do):
                stop()
    done = {r.name: r.output for r in results if isinstance(r, Annotated)}
    staged = {job.name: job.named(job.staged) for job in plan.jobs if job.staged}
    outputs = [o for job in plan.jobs if (o := job.finished or staged.get(job.name) or done.get(job.name))]
    return outputs, results


def _quarantined(plan: Plan, results: Sequence[FileResult]) -> list[Quarantined]:
    jobs = {job.name: job for job in plan.jobs}
    return [
        Quarantined(r.name, _input_path(jobs[r.name], plan), plan.brought.spoken(r.reason), r.input)
        for r in results
        if isinstance(r, Failed)
    ]


def _dated(bad: Sequence[Quarantined], before: Manifest | None) -> dict[str, Quarantined]:
    """Return quarantined files by name, with the time since when they are: those of the last manifest keep theirs."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    known = {q.name: q.since or before.created for q in before.quarantined} if before else {}
    return {q.name: replace(q, since=known.get(q.name, now)) for q in bad}


def _with_place(bad: Quarantined) -> str:
    """Return why a file failed, with its name where the reason lacks it."""
    name = bad.input_path.rpartition("/")[2]
    return bad.reason if name in bad.reason else f"{name}: {bad.reason}"


def _input_path(job: Job, plan: Plan) -> str:
    """Return the path of a file relative to the output folder, or its URL."""
    return job.input_path or os.path.relpath(job.path, plan.out)


def _catalogues(plan: Plan) -> tuple[InputCatalogue, ...]:
    """Return the sources that are folders, each once: a catalogue may have files beside those with rows."""
    catalogues = {job.opened.catalogue.source: job.opened.catalogue for job in plan.jobs}
    return tuple(c.unlisted() for source, c in catalogues.items() if source.is_folder)


def _job_group(group: Group, plan: Plan, request: ClassificationRequest) -> JobGroup:
    return JobGroup(group.label, tuple(_file_job(job, plan, request) for job in group.jobs))


def _file_job(job: Job, plan: Plan, request: ClassificationRequest) -> FileJob:
    return FileJob(
        request=request,
        staging=plan.staging,
        catalogue=job.opened.catalogue.unlisted(),
        path=job.path,
        input_path=_input_path(job, plan),
        name=job.name,
        input=job.state,
        previous=_previous(job, plan, request.specification),
        census_rows=rows_a_file(len(plan.jobs)),
    )


def _previous(job: Job, plan: Plan, specification: Specification) -> PreviousAnnotation | None:
    """Return the output that is replaced, for the difference report of a release."""
    if plan.policy != "release" or plan.before is None or job.previous is None or plan.before.prefix is None:
        return None
    identity = specification.catalog.id
    return PreviousAnnotation(
        annotation=Annotation(plan.out / job.name, plan.before.prefix, tuple(plan.before.details.classes)),
        by_row=job.previous.input.sha256 == job.state.sha256,
        id_column=identity and specification.target.columns.get(identity, identity),
    )


def _before(plan: Plan) -> EarlierRelease | None:
    """Return what the last release was, as far as this one is compared with it."""
    return None if plan.before is None else narrowed(EarlierRelease, plan.before)


def _folder_result(
    model: Model, plan: Plan, outputs: Sequence[Output] = (), totals: Totals | None = None
) -> FolderResult:
    """Return what every result says of the folder: of `outputs` with their totals, by default of those that stay."""
    return FolderResult(
        model=model.label,
        out=plan.out,
        manifest=plan.out / MANIFEST,
        release=plan.before.release if plan.before else None,
        files={
            o.name: FileWork(input=o.input_path, n_rows=o.n_rows, to_do=False, why="")
            for o in plan.brought.unchanged
        }
        | {
            job.name: FileWork(
                input=job.input_path or str(job.path), n_rows=job.n_rows, to_do=job.to_do, why=job.why
            )
            for job in plan.jobs
        },
        retired=plan.retired,
        quarantined={q.name: q.reason for q in plan.quarantined},
        stale=tuple(sorted(o.name for o in _stale(plan))),
        deferred=dict(plan.deferred),
        advice=plan.advice,
        summary=_shown(model, plan, outputs, totals)
        if outputs
        else _shown(model, plan, _standing(plan), None),
        before=_before(plan),
    )


def _standing(plan: Plan) -> list[Output]:
    """Return the outputs that are there and stay, without any work."""
    finished = (job.finished for job in plan.jobs)
    return [o for o in (*finished, *plan.kept, *_stale(plan)) if o is not None]


def _stale(plan: Plan) -> list[Output]:
    """Return the copies of earlier states of files that cannot be annotated, or not yet."""
    troubled = (*(q.name for q in plan.quarantined), *plan.deferred)
    return [o for name in troubled if (o := plan.still_good(name)) is not None]


def _shown(model: Model, plan: Plan, outputs: Sequence[Output], totals: Totals | None) -> ShownSummary | None:
    """Return the summary of outputs without what only later runs need; of many files the totals alone.

    Totals that are not given are those of the manifest where nothing has to be done.
    """
    if not outputs:
        return None
    before = None if plan.before is None else plan.before.totals
    if totals is None and before is not None and plan.nothing_to_do:
        totals = before
    if totals is not None and are_many(outputs):
        return ShownSummary(**vars(totals), files={})
    counted = totals or before
    summary = summary_of(model, as_kept(outputs), None if counted is None else counted.census)
    files = {name: narrowed(AnnotatedFile, file) for name, file in summary.files.items()}
    return ShownSummary(**vars(narrowed(Totals, summary)), files=files)
