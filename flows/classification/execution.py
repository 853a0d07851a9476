"""Execution of a plan, the same for every flow: each file is annotated, then all files get their final names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from catalogs.errors import CatalogError
from flows.classification._census_rows import rows_a_file
from flows.classification._difference import Annotation
from flows.classification._jobs import MOST_ORDERS, Group, Job, groups
from flows.classification._narrowed import narrowed
from flows.classification._plan import Plan
from flows.classification._publishing import finish, summary_of
from flows.classification._repeats import repeats, sweep_sketches
from flows.classification._spreading import spread
from flows.classification._tasks import (
    Annotated,
    ClassificationRequest,
    Deferred,
    Failed,
    FileJob,
    FileResult,
    JobGroup,
    PreviousAnnotation,
    Publication,
    Published,
)
from flows.classification.annotation import annotate_each, annotate_file, model_at
from flows.engines.engine import Engine
from flows.errors import OutputFolderError
from flows.inputs.catalogue import InputCatalogue
from flows.models.model import Model
from flows.runs.interrupt import check_terminated, stop_points, terminable
from flows.runs.kept_counts import are_many, as_kept
from flows.runs.lock import LOCK, Owner, check_held, exclusive
from flows.runs.manifest import MANIFEST, Manifest
from flows.runs.outputs import Output, Quarantined
from flows.runs.progress import tell
from flows.runs.release import EarlierRelease
from flows.runs.results import (
    FileWork,
    FinishedClassification,
    FolderResult,
    PlannedClassification,
    ReleaseResult,
    UnchangedClassification,
    WaitingClassification,
)
from flows.runs.summary import AnnotatedFile, ShownSummary, Totals
from flows.specification.specification import Specification

__all__ = ["DIRECT", "Steps", "carry_out", "execute"]

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
