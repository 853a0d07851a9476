"""A plan carried out: files annotated, each on its own, then all given their final names; the same for every flow."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from catalogs.errors import CatalogError
from flows.classification._jobs import Job, groups
from flows.classification._plan import Plan
from flows.classification._publishing import finish, summary_of
from flows.classification.annotation import annotate_each, annotate_file, model_at
from flows.errors import OutputFolderError
from flows.models.model import Model
from flows.runs.interrupt import stop_points, terminable
from flows.runs.lock import LOCK, Owner, check_held, exclusive
from flows.runs.manifest import COUNTED, MANIFEST, Manifest, Output, Quarantined
from flows.runs.progress import tell
from flows.specification.specification import Specification

__all__ = ["DIRECT", "Steps", "carry_out", "execute", "told_of"]

Json = dict[str, Any]
AnnotateOne = Callable[[Mapping[str, Any]], Json]

MOST_FILES_TOLD = 100
"""Most files whose summaries are listed; `summary.json` has all, a flow's result stays small."""


def finish_outputs(request: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]]) -> Json:
    """Give the outputs their final names, write summary and manifest; return what was written."""
    model, done = model_at(request["model"]), [Output.of(o) for o in outputs]
    return finish(model, request["specification"], request, done)


def _no_run() -> str | None:
    return None


def _note_killed(owner: Owner) -> None:
    tell().note(f"a run before this one was killed ({owner}); what it had finished is used")


@dataclass(frozen=True)
class Steps:
    """The tasks; the flows put Prefect's in their place.

    `together` does the files of a group with `annotate`; `identify` gives the run's id, and `mark_crashed` hears of the
    run whose lock was found, left behind when it was killed.
    """

    annotate: AnnotateOne = annotate_file
    together: Callable[[AnnotateOne, Mapping[str, Any]], list[Json]] = annotate_each
    finish: Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], Json] = finish_outputs
    identify: Callable[[], str | None] = _no_run
    mark_crashed: Callable[[Owner], None] = _note_killed


DIRECT = Steps()
GO_ON = "run the same command again to go on from there"


def execute(planned: Callable[[], Plan], model: Model, request: Json, steps: Steps, *, dry_run: bool) -> Json:
    """Plan, and do what is planned, alone in the output folder; return what is said of it."""
    plan = planned()
    if dry_run:
        return told_of(model, plan, "planned") | {"up_to_date": plan.nothing_to_do}
    if plan.nothing_to_do:
        _sweep(plan, steps)
        return told_of(model, plan, "nothing to do")
    with terminable(GO_ON), exclusive(plan.out, run=steps.identify()) as killed:
        if killed:
            steps.mark_crashed(killed)
        if Manifest.read(plan.out) != plan.found:  # another run has finished meanwhile
            plan = planned()
        return carry_out(plan, model, request, steps)


def _sweep(plan: Plan, steps: Steps) -> None:
    """Remove what a killed run has left in a folder where nothing is to be done."""
    if not plan.staging.is_left and not (plan.out / LOCK).exists():
        return
    with suppress(OutputFolderError), exclusive(plan.out, run=steps.identify()) as killed:
        if killed:
            steps.mark_crashed(killed)
        if Manifest.read(plan.out) == plan.found:
            plan.staging.open()
            plan.staging.close()


def carry_out(plan: Plan, model: Model, request: Json, steps: Steps) -> Json:
    """Do what is planned, and give it its final names; return what is said of it."""
    plan.staging.open()
    outputs, results = _annotated(plan, request, steps)
    failed = {r["name"]: r["failed"] for r in results if "failed" in r}
    deferred = {**plan.deferred, **{r["name"]: r["deferred"] for r in results if "deferred" in r}}
    bad = {q.name: q for q in (*plan.quarantined, *_quarantined(plan, failed))}
    stay = [o for name in (*bad, *deferred) if (o := plan.still_good(name))]
    listed = [*outputs, *plan.kept, *stay]
    if not listed and bad:
        raise CatalogError(next(iter(bad.values())).reason)  # the only file's fault, or none of theirs
    if not listed:
        plan.staging.close()
        return told_of(model, plan, "waiting") | {"deferred": deferred}
    away = {*plan.retired, *(j.name for j in plan.jobs if j.in_the_way)}
    if plan.found:
        away |= {*bad, *deferred} - {o.name for o in stay}
    finishing = {
        "staging": plan.staging,
        "release": plan.found.release + 1 if plan.found else 1,
        "retire": sorted(away),
        "quarantined": [bad[name].to_dict() for name in sorted(bad)],
        "deferred": deferred,
        "why": {job.name: job.why for job in plan.jobs if not job.finished},
        "before": _before(plan),
        "report": plan.policy == "release",
        "catalogues": _catalogues(plan),
    }
    check_held(plan.out)
    written = steps.finish(request | finishing, [o.to_dict() for o in listed])
    result = told_of(model, plan, "done", listed) | written
    known = {(q.name, q.reason) for q in plan.found.quarantined} if plan.found else set()
    return result | {
        "quarantined": {n: q.reason for n, q in bad.items()},
        "newly_quarantined": [n for n, q in bad.items() if (n, q.reason) not in known],
        "deferred": deferred,
    }


def _annotated(plan: Plan, request: Json, steps: Steps) -> tuple[list[Output], list[Json]]:
    """Do what is to be done; return the outputs of all jobs, and what is said of those done now."""
    to_do = [job for job in plan.jobs if job.to_do]
    if to_do:
        what = to_do[0].name if len(to_do) == 1 else f"{len(to_do):,} files"
        tell().start(what, sum(job.n_rows for job in to_do), "rows")
    results: list[Json] = []
    with stop_points(GO_ON) as stop:
        for group in groups(to_do):
            stop()
            jobs = [request | {"staging": plan.staging} | _job_dict(job, plan, request) for job in group.jobs]
            results += steps.together(steps.annotate, {"label": group.label, "jobs": jobs})
            if len(results) < len(to_do):
                stop()
    done = {r["name"]: Output.of(r["output"]) for r in results if "output" in r}
    staged = {job.name: job.named(job.staged) for job in plan.jobs if job.staged}
    outputs = [o for job in plan.jobs if (o := job.finished or staged.get(job.name) or done.get(job.name))]
    return outputs, results


def _quarantined(plan: Plan, failed: Mapping[str, str]) -> list[Quarantined]:
    jobs = {job.name: job for job in plan.jobs}
    return [
        Quarantined(name, _input_path(jobs[name], plan), plan.brought.spoken(why), jobs[name].state)
        for name, why in failed.items()
    ]


def _input_path(job: Job, plan: Plan) -> str:
    """Return where a file is, from the output folder on, or its URL."""
    return job.input_path or os.path.relpath(job.path, plan.out)


def _catalogues(plan: Plan) -> list[Json]:
    """Return the sources that are folders, each once: a catalogue may have files beside those with rows."""
    catalogues = {job.found.catalogue.source: job.found.catalogue for job in plan.jobs}
    return [c.to_dict() for source, c in catalogues.items() if source.is_folder]


def _job_dict(job: Job, plan: Plan, request: Json) -> Json:
    return {
        "catalogue": job.found.catalogue.to_dict(),
        "path": str(job.path),
        "input_path": _input_path(job, plan),
        "name": job.name,
        "input": asdict(job.state),
        "previous": _previous(job, plan, request["specification"]),
    }


def _previous(job: Job, plan: Plan, specification: Specification) -> Json | None:
    """Return the output that is replaced, for the difference report of a release."""
    if plan.policy != "release" or plan.found is None or job.previous is None or plan.found.prefix is None:
        return None
    identity = specification.catalog.id
    return {
        "path": str(plan.out / job.name),
        "prefix": plan.found.prefix,
        "classes": [*plan.found.details["classes"]],
        "by_row": job.previous.input.sha256 == job.state.sha256,
        "id": identity and specification.target.columns.get(identity, identity),
    }


def _before(plan: Plan) -> Json | None:
    """Return what the last release was, as far as this one is compared with it."""
    found = plan.found
    if found is None:
        return None
    names = ("release", "created", "model", "specification_hash", "totals")
    return {name: getattr(found, name) for name in names}


def told_of(model: Model, plan: Plan, status: str, outputs: Sequence[Output] = ()) -> Json:
    """Return the result for the user."""
    known = outputs or _standing(plan)
    return {
        "status": status,
        "model": model.label,
        "out": str(plan.out),
        "manifest": str(plan.out / MANIFEST),
        "release": plan.found.release if plan.found else None,
        "files": {
            o.name: {"input": o.input_path, "n_rows": o.n_rows, "to_do": False, "why": ""}
            for o in plan.brought.unchanged
        }
        | {
            job.name: {
                "input": job.input_path or str(job.path),
                "n_rows": job.n_rows,
                "to_do": job.to_do,
                "why": job.why,
            }
            for job in plan.jobs
        },
        "retired": [*plan.retired],
        "quarantined": {q.name: q.reason for q in plan.quarantined},
        "deferred": dict(plan.deferred),
        "advice": plan.advice,
        "summary": _shown(summary_of(model, known)) if known else None,
        "before": _before(plan),
    }


def _standing(plan: Plan) -> list[Output]:
    """Return the outputs that are there and stay, without any work."""
    troubled = (plan.still_good(name) for name in (*(q.name for q in plan.quarantined), *plan.deferred))
    finished = (job.finished for job in plan.jobs)
    return [o for o in (*finished, *plan.kept, *troubled) if o is not None]


def _shown(summary: Json) -> Json:
    """Return a summary without what only later runs need of each file, and of many files only their sum."""
    files = summary["files"] if len(summary["files"]) <= MOST_FILES_TOLD else {}
    shown = {name: {k: v for k, v in file.items() if k not in COUNTED} for name, file in files.items()}
    return summary | {"files": shown}
