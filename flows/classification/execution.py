"""A classification is carried out: here or on workers, file by file, until what is whole is published."""

from __future__ import annotations

import errno
import math
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from blr.threads import single_threaded_blas
from catalogs.catalog.catalog import verified
from catalogs.errors import CatalogError
from catalogs.files import StorageError
from catalogs.text.table import commented_out
from catalogs.writing import annotate, copied
from flows.classification._class_shares import shift_record
from flows.classification._plan import MOST_ORDERS, Group, Job, Plan, Work, check_names_free, groups, reason
from flows.classification._publishing import MOST_SHOWN, publish, repeats, summary_of
from flows.classification._tally import ObjectSurvey, object_columns, rows_a_file, rows_text, with_few_digits
from flows.classification.release_changes import compare
from flows.classification.scoring import Scorer, provenance, rows_at_once, scorer_for
from flows.documents import utc_now
from flows.engines.engine import Engine, LostError
from flows.errors import EngineError, FlowError, OutputFolderError, lacks_memory
from flows.inputs.opening import open_source
from flows.models.row_files import read_labelled_identifiers
from flows.runs.lock import LOCK, Owner, acting_for, check_coherent, check_held, exclusive, tell_of_killed
from flows.runs.manifest import MANIFEST, FileState, Manifest, Output, Problem, distinct_names, file_sha256
from flows.runs.progress import (
    Listener,
    check_terminated,
    listening,
    stop_asked,
    stop_points,
    tell,
    terminable,
)
from flows.runs.references import OutputFolder
from flows.runs.release_store import Staging
from flows.runs.results import FileCounts, FileWork, ReleaseResult

T = TypeVar("T")
AnnotateOne = Callable[[Work, Job], Output]

# Annotation of one file into the staging folder, or of several, where a faulty file does not stop the others.

_THE_MACHINES = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
    }
)


def annotate_file(work: Work, job: Job) -> Output:
    """Annotate one file, whose hash is known, into the staging folder; return its record."""
    model, specification = work.model.read(), work.specification
    whole = open_source(job.catalogue)
    one = replace(whole, partitions=(copied(whole, job.catalogue.form)[job.name],))
    catalog, _ = verified(one, specification.catalog.checksums)
    if remark := commented_out(catalog):
        tell().note(f"{job.name}: {remark}")
    step = math.ceil(catalog.n_rows / rows_a_file(work.n_files))
    scorer = scorer_for(model, specification, catalog, threads=work.threads).kept_for_census(step, catalog)
    labelled = _labelled_names(work.model.folder)
    scorer = replace(scorer, survey=ObjectSurvey.of(catalog, specification, model.classes, labelled))
    with single_threaded_blas():
        written = annotate(
            catalog,
            work.staging.folder,
            scorer.columns,
            scorer,
            read=scorer.read,
            provenance=provenance(scorer, job.state.sha256),
            rows=min(work.batch_rows, rows_at_once(catalog)),
            threads=work.threads,
            progress=tell().advance,
            overwrite=True,
            mode=specification.output.mode,
            keep=scorer.kept,
            form=specification.output.form,
            checksums=specification.catalog.checksums,
        )
    for what in written.warnings:
        tell().note(f"{job.name}: {what}")
    counted = all(partition.counted for partition in catalog.partitions)
    output = _output(work, job, scorer, counted=counted, left_behind=tuple(written.warnings))
    work.staging.record(output)
    return output


@lru_cache(maxsize=2)
def _labelled_names(folder: Path) -> pa.Array:
    return distinct_names(read_labelled_identifiers(folder) or ())


def group_name(group: Group) -> str:
    """Return the name of the task that does a group of files."""
    more = len(group) - 1
    return group[0].name + (f" and {more} more" if more else "")


def annotate_each(annotate_one: AnnotateOne, work: Work, group: Group) -> list[Output | Problem]:
    """Annotate the files of a group; return for each its record, or why it failed or has to wait.

    An error in one file's content does not stop the others.  Any other error (no room, no permission) ends the run.
    """
    return [_attempt(annotate_one, work, job) for job in group if not stop_asked()]


def _attempt(annotate_one: AnnotateOne, work: Work, job: Job) -> Output | Problem:
    def problem(why: str, *, waits: bool) -> Problem:
        return Problem(job.name, job.input_path(work.staging.out), why, job.state, waits=waits)

    try:
        job = replace(job, state=job.state.hashed(job.path))
        output = annotate_one(work, job)
    except (FlowError, StorageError, MemoryError):
        raise
    except Exception as error:
        check_terminated()
        if isinstance(error, OSError) and (
            error.errno in _THE_MACHINES or error.filename not in (None, str(job.path))
        ):
            raise  # the machine or another file is the cause
        if lacks_memory(error):
            raise MemoryError(str(error)) from error
        # Otherwise the file would count as faulty because another run removed something.
        check_held(work.staging.out)
        change = _changed(job.path, job.state)
        return problem(change or reason(error), waits=bool(change))
    if change := _changed(job.path, job.state):
        check_held(work.staging.out)  # otherwise, a worker of an ended run could discard another run's file
        work.staging.discard(job.name)
        return problem(change, waits=True)
    return output


def _changed(path: Path, state: FileState) -> str | None:
    """Return how the input changed while it was read, since its output is invalid then."""
    if state.looks_like(path):
        return None
    return "it changed while it was read" if path.exists() else "it was deleted while it was read"


def _output(work: Work, job: Job, scorer: Scorer, *, counted: bool, left_behind: tuple[str, ...]) -> Output:
    """Return the record of a file that has been annotated.

    A margin repeats rows, which are not to be `counted`; `left_behind` names what the copy's format cannot hold.
    """
    annotated = work.staging.folder / job.name
    difference = None  # of the rows from those of the output that a release replaces
    if work.before is not None and job.same_rows is not None:
        difference = compare(
            (work.staging.out / job.name, *work.before[1:]),
            (annotated, scorer.prefix, scorer.model.classes),
            id_column=object_columns(work.specification).id,
            by_row=job.same_rows,
        )
    counts = FileCounts(
        counted=counted,
        tally=with_few_digits(scorer.tally()),
        drift=scorer.drift(),
        low_confidence=scorer.classifier.low_confidence,
        shift=shift_record(scorer.model, work.specification),
        set_rule=scorer.sets and scorer.sets[0],
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
        input_path=job.input_path(work.staging.out),
        input=job.state,
        mtime_ns=seen.st_mtime_ns,
        inode=seen.st_ino,
        summary=counts,
        difference=difference,
        census_rows=rows_text(scorer.census_rows()) if counted else "",
    )


# Annotation by the workers of an engine. A worker reads the model and the input, and writes the copy and its record
# into the staging folder, as a run on one machine does.  The run that gave the work holds the lock; a worker stops
# when it finds that the lock is gone.

SLOWEST = 3
"""Number of files that are named at the end, those that took longest."""
SPLIT = 32
"""Parts of a batch that are read one by one where workers have too little memory."""
PATIENCE = 30.0
"""Seconds after which a worker that does not see the folder of a run counts as without it."""

Report = tuple[list[Output | Problem], list[str], dict[str, float]]
"""What became of the files of a group, lines that the user should read, and the seconds of each file by its name."""


def spread(
    engine: Engine, work: Work, groups: Sequence[Group], stop: Callable[[], None]
) -> list[Output | Problem]:
    """Have the files of all groups annotated by an engine; return what became of them, by name.

    Where the workers of a group were killed, each of its files is tried by itself.  One that ends its workers again is
    tried once more in small batches, and has failed if that is no better: several together, then each alone, since Dask
    counts the end of a worker against all tasks that wait for it.  `stop` is called between reports, and raises where
    the run was asked to stop.
    """
    workers = _Workers(engine, n_files=sum(len(group) for group in groups), stop=stop)
    lost = [group for group, _ in workers.take(work, groups)]
    alone: list[Group] = [(job,) for group in lost if len(group) > 1 for job in group]
    if alone:
        tell().note(
            f"workers ended over groups of files: {len(alone):,} files are tried again, each by itself"
        )
    last: list[Group] = [group for group in lost if len(group) == 1]
    last += [group for group, _ in workers.take(work, alone)]
    # With as little in memory at a time as is worth reading.
    small = replace(work, batch_rows=work.batch_rows // SPLIT, threads=1)
    if last:
        last.sort(key=group_name)
        shown = ", ".join(map(group_name, last[:SLOWEST])) + (", ..." * (len(last) > SLOWEST))
        tell().note(f"workers ended over {shown}: tried again in batches of {small.batch_rows:,} rows")
    failed = workers.take(small, last)
    if len(failed) > 1:
        failed = [again for group, _ in failed for again in workers.take(small, [group])]
    for group, error in failed:
        place, why = group[0].input_path(work.staging.out), f"read as a whole and in small batches: {error}"
        workers.results.append(Problem(group[0].name, place, why, None))
    longest = sorted(workers.seconds.items(), key=lambda item: (-item[1], item[0]))[:SLOWEST]
    if len(workers.seconds) > SLOWEST:
        tell().note("slowest files: " + ", ".join(f"{name} {seconds:,.1f} s" for name, seconds in longest))
    return sorted(workers.results, key=lambda result: result.name)


class _Workers:
    """Hands groups of files to the workers of an engine, and holds their reports so far."""

    def __init__(self, engine: Engine, *, n_files: int, stop: Callable[[], None]) -> None:
        self._engine, self._n_files, self._stop = engine, n_files, stop
        self.results: list[Output | Problem] = []
        self.seconds: dict[str, float] = {}

    def take(self, work: Work, groups: Sequence[Group]) -> list[tuple[Group, LostError]]:
        """Hand over groups and take the reports; return the groups whose workers were killed, with the reasons."""
        model, (out, staged) = work.model, (work.staging.out, work.staging.folder)
        there = replace(  # a worker may run in another folder
            work,
            model=replace(model, folder=model.folder.absolute()),
            staging=Staging(OutputFolder(out.absolute()), staged.absolute()),
            threads=work.threads or 1,
        )
        annotate_there = partial(annotate_elsewhere, there, Owner.this())
        lost: list[tuple[Group, LostError]] = []
        with closing(self._engine.map(annotate_there, groups)) as reports:
            for group, report in reports:
                if isinstance(report, LostError):
                    lost.append((group, report))
                else:
                    results, notes, seconds = report
                    self.results += results
                    self.seconds |= seconds
                    tell().advance(sum(result.n_rows for result in results if isinstance(result, Output)))
                    for note in notes:
                        tell().note(note)
                if len(self.results) < self._n_files:
                    self._stop()
        return lost


def annotate_elsewhere(work: Work, owner: Owner, group: Group) -> Report:
    """Annotate a group of files on a worker, for the run of the lock's `owner`.

    EngineError if the worker does not see the run's folder; OutputFolderError if the run that gave the work has ended,
    or its lock does not hold for this host.
    """
    notes, seconds = _Notes(), dict[str, float]()

    def annotate_one(work: Work, job: Job) -> Output:
        began = time.perf_counter()
        check_held(work.staging.out)
        output = annotate_file(work, job)
        seconds[job.name] = round(time.perf_counter() - began, 3)
        return output

    with acting_for(owner), listening(notes):
        end = time.monotonic() + PATIENCE
        while not work.staging.folder.is_dir():  # which a network's file system may show late
            if time.monotonic() > end:
                raise EngineError(
                    f"{platform.node()}: there is no folder {work.staging.folder}, to which the run writes; mount it "
                    "on every worker under the same path as on the machine that started the run"
                )
            time.sleep(0.2)
        check_coherent(work.staging.out)
        results = annotate_each(annotate_one, work, group)
    return results, notes.lines, seconds


class _Notes(Listener):
    """Collects the lines of a worker for the user; the run announces the work, and counts the rows in reports."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)


# Execution of a plan, the same for every flow: each file is annotated, then all files get their final names.


Task = Callable[[str, str, Callable[[], Any]], Any]
"""Does work as a task of a kind and a name: as one of Prefect, or as none."""


def here(kind: str, name: str, work: Callable[[], T]) -> T:  # noqa: ARG001 - a task's kind and name
    """Do a piece of work in this process."""
    return work()


GO_ON = "run the same command again to continue"


def execute(make_plan: Callable[[], Plan], task: Task, *, engine: Engine, dry_run: bool) -> ReleaseResult:
    """Plan, and do what is planned, alone in the output folder; return what was done."""
    plan = make_plan()
    if dry_run:
        return replace(_result(plan), status="planned", up_to_date=plan.nothing_to_do)
    if plan.nothing_to_do:
        _sweep(plan)
        return _result(plan)
    if engine.is_remote and any(job.to_do for job in plan.jobs):
        # The description connects to the workers: an error comes before anything is written.
        tell().note(engine.description)
    with terminable(GO_ON), exclusive(plan.out) as killed:
        tell_of_killed(killed)
        if Manifest.read(plan.out) != plan.before:  # another run has finished meanwhile
            plan = make_plan()
        return carry_out(plan, task, engine)


def _sweep(plan: Plan) -> None:
    """Remove the files that a killed run left in a folder where nothing is to be done."""
    if not plan.work.staging.folder.parent.exists() and not (plan.out / LOCK).exists():
        return
    with suppress(OutputFolderError), exclusive(plan.out) as killed:
        tell_of_killed(killed)
        if Manifest.read(plan.out) == plan.before:
            plan.work.staging.open()
            plan.work.staging.close()
            Manifest.sweep(plan.out)


def carry_out(plan: Plan, task: Task, engine: Engine) -> ReleaseResult:
    """Do what is planned, and give it its final names; return what was done."""
    plan.work.staging.open()
    if plan.lost:
        tell().note(f"{', '.join(plan.lost)}: deleted or changed since, so the manifest lists them no longer")
    outputs, problems = _annotated(plan, task, engine)
    problems = [replace(p, reason=plan.brought.spoken(p.reason)) for p in problems]
    deferred = {**plan.deferred, **{p.name: p.reason for p in problems if p.waits}}
    # Those of the last manifest keep the time since when they are quarantined.
    since = {q.name: q.since or plan.before.created for q in plan.before.quarantined} if plan.before else {}
    failed, now = (*plan.quarantined, *(p for p in problems if not p.waits)), utc_now()
    bad = {p.name: replace(p, since=since.get(p.name, now)) for p in failed}
    stay = [o for name in (*bad, *deferred) if (o := plan.still_good(name))]
    listed = [*outputs, *plan.kept, *stay]
    if not listed and bad:
        # Every file failed: the first error says why, with the file's name where it lacks it.
        first = next(iter(bad.values()))
        name = first.input_path.rpartition("/")[2]
        raise CatalogError(first.reason if name in first.reason else f"{name}: {first.reason}")
    if not listed:
        plan.work.staging.close()
        return replace(_result(plan), status="waiting", deferred=deferred)
    plan.work.staging.check(outputs)
    repeated = repeats(listed, plan.work)
    for sentence in repeated:
        tell().note(f"before publication: {sentence}")
    away = {*plan.retired, *(j.name for j in plan.jobs if j.in_the_way)}
    if plan.before:
        away |= {*bad, *deferred} - {o.name for o in stay}
    done = replace(
        _result(plan),
        status="done",
        release=plan.before.release + 1 if plan.before else 1,
        retired=tuple(sorted(away)),
        quarantined={name: problem.reason for name, problem in bad.items()},
        stale=tuple(sorted(o.name for o in stay)),
        deferred=deferred,
        repeats=repeated,
    )
    check_held(plan.out)
    check_names_free(plan)
    check_terminated()
    return task("publish", f"publish release {done.release}", partial(publish, plan, done, listed, bad))


def _annotated(plan: Plan, task: Task, engine: Engine) -> tuple[list[Output], list[Problem]]:
    """Annotate the files of the plan; return the outputs of all jobs, and the problems of the files tried now."""
    to_do = [job for job in plan.jobs if job.to_do]
    results: list[Output | Problem] = []
    if to_do:
        what = to_do[0].name if len(to_do) == 1 else f"{len(to_do):,} files"
        tell().start(what, sum(job.n_rows for job in to_do), "rows")
    with stop_points(GO_ON) as stop:
        if to_do and engine.is_remote:
            handed = groups(to_do, MOST_ORDERS)
            order = partial(spread, engine, plan.work, handed, stop)
            results += task("annotate", f"annotate on {engine.name}", order)
            to_do = []
        for group in groups(to_do):
            stop()
            together = partial(annotate_each, annotate_file, plan.work, group)
            results += task("annotate", f"annotate {group_name(group)}", together)
            if len(results) < len(to_do):
                stop()
    done = {r.name: r for r in results if isinstance(r, Output)}
    staged = {job.name: job.named(job.staged) for job in plan.jobs if job.staged}
    outputs = [o for job in plan.jobs if (o := job.finished or staged.get(job.name) or done.get(job.name))]
    return outputs, [r for r in results if isinstance(r, Problem)]


def _result(plan: Plan) -> ReleaseResult:
    """Return what there is to say of the folder before any work; a summary of many files is in the manifest."""
    before = None if plan.before is None else plan.before.totals
    # Copies of earlier states of files that cannot be annotated, or not yet.
    troubled = (*(q.name for q in plan.quarantined), *plan.deferred)
    stale = [o for name in troubled if (o := plan.still_good(name)) is not None]
    standing = [*(job.finished for job in plan.jobs if job.finished), *plan.kept, *stale]
    summary = before if plan.nothing_to_do and len(standing) > MOST_SHOWN else None
    if standing and summary is None:
        summary = summary_of(plan.scorer.model, standing, None if before is None else before.census)
    files = {
        o.name: FileWork(input=o.input_path, n_rows=o.n_rows, to_do=False, why="")
        for o in plan.brought.unchanged
    }
    files |= {
        j.name: FileWork(input=j.url or str(j.path), n_rows=j.n_rows, to_do=j.to_do, why=j.why)
        for j in plan.jobs
    }
    return ReleaseResult(
        status="nothing to do",
        model=plan.work.model.label,
        out=plan.out,
        manifest=plan.out / MANIFEST,
        release=plan.before.release if plan.before else None,
        files=files,
        retired=plan.retired,
        quarantined={q.name: q.reason for q in plan.quarantined},
        stale=tuple(sorted(o.name for o in stale)),
        deferred=dict(plan.deferred),
        summary=summary,
        before=None if plan.before is None else plan.before.reference,
    )
