"""Classify catalogues with a stored model: the work itself, with or without Prefect.

A task is a file.  What passes between tasks is paths and small dictionaries.  Files are annotated in a
staging folder and get their final names all together, once all are whole; `manifest.json` comes last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import catalogs
from blr.threads import single_threaded_blas
from catalogs.annotate import annotate
from catalogs.catalog import Catalog
from flows.config import Specification
from flows.config_file import load_specification
from flows.inputs import resolve_paths
from flows.interrupt import stop_points
from flows.manifest import MANIFEST, FileState, Manifest, Output, file_sha256
from flows.model import Model
from flows.model_file import read_model
from flows.outputs import finish, summary_of
from flows.plan import Job, Plan, make_plan
from flows.progress import tell
from flows.scoring import Scorer, budget_threshold, provenance
from flows.staging import Staging, exclusive
from flows.store import Store
from flows.trial import trial

__all__ = ["DIRECT", "Steps", "annotate_file", "classify", "finish_outputs"]

Json = dict[str, Any]


def annotate_file(job: Mapping[str, Any]) -> Json:
    """Annotate one file into the staging folder; return its record."""
    model, specification = _model(job["model"]), Specification.model_validate(job["specification"])
    catalog = _one_file(job["catalog"], job["name"], job["input"]["mtime_ns"])
    tell().start(job["name"], catalog.n_rows, "rows")
    scorer = _scorer(model, specification, catalog)
    staging = Staging(Path(job["out"]), Path(job["staging"]))
    with single_threaded_blas():
        annotate(
            catalog,
            staging.folder,
            scorer.columns,
            scorer,
            read=scorer.reader.read,
            provenance=provenance(model, specification, job["input"]["sha256"], scorer.reader.read),
            threads=job["threads"],
            progress=tell().advance,
            overwrite=True,
        )
    output = _output(job, staging.file(job["name"]), scorer)
    staging.record(output)
    return output.to_dict()


def _scorer(model: Model, specification: Specification, catalog: Catalog) -> Scorer:
    """Return the scorer of a catalogue; a review budget needs a pass over its rows first."""
    scorer = Scorer.of(model, specification)
    if specification.flags.budget is None:
        return scorer
    with single_threaded_blas():
        return scorer.with_low_confidence(budget_threshold(scorer, catalog, specification.flags.budget))


def _output(job: Mapping[str, Any], annotated: Path, scorer: Scorer) -> Output:
    """Return the record of a file that has been annotated."""
    counted = {
        "tally": scorer.tally().to_dict(),
        "low_confidence": scorer.classifier.low_confidence,
    }
    return Output(
        name=job["name"],
        sha256=file_sha256(annotated),
        size=annotated.stat().st_size,
        n_rows=scorer.tally().n_rows,
        input_path=os.path.relpath(job["path"], job["out"]),
        input=FileState(**job["input"]),
        summary=counted,
    )


def finish_outputs(request: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]]) -> str:
    """Give the outputs their final names and write summary and manifest; return the manifest's path."""
    specification = Specification.model_validate(request["specification"])
    staging = Staging(Path(request["out"]), Path(request["staging"]))
    return str(finish(_model(request["model"]), specification, staging, [Output.of(o) for o in outputs]))


@lru_cache(maxsize=2)
def _model(path: str) -> Model:
    return read_model(Path(path))  # a version never changes, so a path always means the same model


@lru_cache(maxsize=4)
def _catalog(path: str, mtime_ns: int) -> Catalog:  # noqa: ARG001  part of what is remembered
    return catalogs.open(path)


def _one_file(path: str, name: str, mtime_ns: int) -> Catalog:
    """Return the catalogue with one of its files only."""
    catalog = _catalog(path, mtime_ns)
    return replace(catalog, partitions=tuple(p for p in catalog.partitions if p.key == name))


@dataclass(frozen=True)
class Steps:
    """The tasks; `flows.classify` puts Prefect's in their place."""

    annotate: Callable[[Mapping[str, Any]], Json] = annotate_file
    finish: Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], str] = finish_outputs


DIRECT = Steps()


def classify(
    catalogues: Sequence[str | Path],
    *,
    model: str,
    store: str | Path,
    out: str | Path,
    specification: Specification | str | Path | None = None,
    overwrite: bool = False,
    verify: bool = False,
    limit: int | None = None,
    threads: int | None = None,
    dry_run: bool = False,
    steps: Steps = DIRECT,
) -> Json:
    """Annotate catalogues with a model of the store; return what was done, as JSON can hold it.

    `specification` replaces the target, flags and output that the model was trained with.  `limit` scores
    that many rows of each catalogue and writes nothing.
    """
    stored = Store(Path(store)).find(model)
    loaded = Store(Path(store)).load(stored.label)
    settings = _settings(loaded, specification)
    paths = resolve_paths([str(c) for c in catalogues], Path(), key="CATALOG")
    if limit is not None:
        return {"status": "trial", "model": loaded.label, **trial(paths, loaded, settings, limit)}
    request = {
        "model": str(stored.path),
        "specification": settings.model_dump(mode="json"),
        "threads": threads,
    }
    folder = Path(out)

    def planned() -> Plan:
        return make_plan(paths, loaded, settings, folder, overwrite=overwrite, verify=verify)

    plan = planned()
    if dry_run or plan.nothing_to_do:
        return _told(loaded, plan, "planned" if dry_run else "nothing to do")
    with exclusive(folder):
        if Manifest.read(folder) != plan.found:  # another run has finished meanwhile
            plan = planned()
        outputs = _annotated(plan, request, steps)
        steps.finish(request | _places(plan), [o.to_dict() for o in (*outputs, *plan.kept)])
    return _told(loaded, plan, "done", outputs)


def _settings(model: Model, specification: Specification | str | Path | None) -> Specification:
    """Return the model's specification, with what another one says of target, flags and output."""
    if specification is None:
        return model.specification
    given = specification if isinstance(specification, Specification) else load_specification(specification)
    update = {"target": given.target, "flags": given.flags, "output": given.output}
    return model.specification.model_copy(update=update)


def _annotated(plan: Plan, request: Json, steps: Steps) -> list[Output]:
    """Do what is to be done, file by file; return the outputs of all."""
    plan.staging.open()
    outputs = []
    with stop_points("run the same command again to go on from there") as stop:
        for job in plan.jobs:
            done = job.finished or job.staged
            if done is None:
                stop()
                done = Output.of(steps.annotate(request | _places(plan) | _job_dict(job)))
            outputs.append(done)
    return outputs


def _places(plan: Plan) -> Json:
    return {"out": str(plan.out), "staging": str(plan.staging.folder)}


def _job_dict(job: Job) -> Json:
    return {
        "catalog": str(job.catalog),
        "path": str(job.path),
        "name": job.name,
        "input": asdict(job.state),
    }


def _told(model: Model, plan: Plan, status: str, outputs: Sequence[Output] = ()) -> Json:
    """Return what the user is told."""
    known = [*(outputs or [j.finished for j in plan.jobs if j.finished]), *plan.kept]
    return {
        "status": status,
        "model": model.label,
        "out": str(plan.out),
        "manifest": str(plan.out / MANIFEST),
        "files": {
            job.name: {"input": str(job.path), "n_rows": job.n_rows, "to_do": job.to_do} for job in plan.jobs
        },
        "summary": summary_of(model, known) if known else None,
    }
