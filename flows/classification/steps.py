"""The steps of `classify` and `reprocess`, with or without Prefect: a plan, a trial, or the whole work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from blr.threads import default_threads
from catalogs.errors import OutputExistsError
from flows.classification._plan import Plan, Policy, Work, make_plan
from flows.classification._tally import summarise
from flows.classification.census_taking import census_asked
from flows.classification.execution import Task, execute, here
from flows.classification.scoring import Scorer, settled
from flows.engines.engine import chosen_engine
from flows.inputs.opening import first_rows, opened
from flows.inputs.source import (
    Source,
    check_apart,
    check_no_copies_below,
    fetching,
    local_sources,
    resolve_sources,
    still_written,
    with_whole_paths,
)
from flows.models.model import Model
from flows.models.store import Store
from flows.request import ClassifyRequest, ReprocessRequest
from flows.runs.manifest import Manifest
from flows.runs.references import OutputFolder
from flows.runs.release_store import Staging, output_folder, published_at
from flows.runs.results import ClassificationResult, ClassificationTrial, ReleaseResult, Value
from flows.specification.specification import Specification, specification_hash
from flows.specification.toml_file import read_specification

# A trial of a classification: the first rows of each catalogue are scored, and nothing is written.

SHOWN = 10
"""Most rows that are shown."""


def trial(
    sources: Sequence[Source], model: Model, specification: Specification, limit: int
) -> ClassificationTrial:
    """Score the first `limit` rows of each catalogue; return their counts and the first few rows."""
    scorer = Scorer.of(model, specification)
    shown: list[Mapping[str, Value]] = []
    for source in sources:
        with opened([source], scorer.choice) as catalogs:
            for catalog in catalogs:
                scorer.check_copies(catalog)
                ours = scorer.on(catalog)  # it adds to the tallies of `scorer`
                for batch in first_rows(catalog, ours.reader.read, limit):
                    # As pandas has it, NaN is null.
                    new = {name: pa.array(x, from_pandas=True) for name, x in ours(batch).items()}
                    shown += pa.table(new).slice(0, SHOWN - len(shown)).to_pylist()
    sets = scorer.sets and scorer.sets[0]
    counts = summarise(scorer.tally(), model.classes, model.features, sets=sets)
    return ClassificationTrial(status="trial", model=model.label, summary=counts, rows=tuple(shown))


# The steps of a classification with a stored model, with or without Prefect. A task is a group of files.  Tasks pass
# on paths and small values, never rows.  Files are annotated in a staging folder.  They get their final names
# together, once all are whole; `manifest.json` is written last.


def classify(request: ClassifyRequest, *, dry_run: bool = False, task: Task = here) -> ClassificationResult:
    """Annotate catalogues with a model of the store; return what was done.

    The request's `specification` replaces the target, flags and output that the model was trained with, and its class
    shares where it gives some; `class_prior` does that alone, and `output_format` chooses the copies' format alone.
    """
    publish = not dry_run and request.limit is None
    with output_folder(request.out, key="out", publish=publish) as folder:
        result = _classified(request, folder, dry_run=dry_run, task=task)
        if isinstance(result, ClassificationTrial):
            return result
        return replace(result, published=published_at(request.out))


def _classified(
    request: ClassifyRequest, folder: OutputFolder, *, dry_run: bool, task: Task
) -> ClassificationResult:
    stored = Store.named(request.store).find(request.model)
    loaded = stored.read()
    stated = None if request.specification is None else read_specification(request.specification)
    settings, limit = stated or loaded.specification, request.limit
    if request.output_format is not None:
        output = settings.output.model_copy(update={"format": request.output_format})
        settings = settings.model_copy(update={"output": output})
    asked = census_asked(loaded, settings)
    names = [str(c) for c in request.catalogues]
    sources = with_whole_paths(resolve_sources(names, Path(), key="CATALOG"))
    policy: Policy = "overwrite" if request.overwrite else "add"
    if limit is None:
        check_no_copies_below(sources, folder)
    resumable = not dry_run and limit is None
    threads = request.threads or default_threads()
    engine = chosen_engine(request.engine, settings.run.engine, settings.base_folder, threads)
    with (
        fetching(folder, resumable=resumable) as bring,
        closing(engine),
    ):
        settings = settled(loaded, settings, request.class_prior, sources=lambda: bring(sources).sources)
        if limit is not None:
            return trial(sources, loaded, settings, limit)
        staging = Staging.of(folder, loaded.label, specification_hash(settings))
        work = Work(
            model=stored, specification=settings, asked=asked, threads=request.threads, staging=staging
        )
        plan = partial(make_plan, bring, sources, loaded, work, engine, policy=policy, verify=request.verify)
        return execute(plan, task, engine=engine, dry_run=dry_run)


# The steps that bring a release up to date, with or without Prefect. It classifies only the inputs that are new, that
# have changed, or whose outputs another model or specification made. Outputs whose input is gone are moved to
# `_retired/`.  A second run finds nothing to do.


def reprocess(request: ReprocessRequest, *, dry_run: bool = False, task: Task = here) -> ReleaseResult:
    """Bring the annotated copies of a specification's target up to date; return what was done."""
    wanted = read_specification(request.specification)
    out, base, key = named_folder(request, wanted)
    with output_folder(out, key=key, base=base, publish=not dry_run) as folder:
        result = _reprocessed(request, wanted, folder, dry_run=dry_run, task=task)
        return replace(result, published=published_at(out))


def _reprocessed(
    request: ReprocessRequest, wanted: Specification, folder: OutputFolder, *, dry_run: bool, task: Task
) -> ReleaseResult:
    stored = Store.named(request.store).find(request.model or wanted.name)
    loaded = stored.read()
    settings, asked = settled(loaded, wanted), census_asked(loaded, wanted)
    staging = Staging.of(folder, loaded.label, specification_hash(settings))
    work = Work(model=stored, specification=settings, asked=asked, threads=request.threads, staging=staging)
    threads = request.threads or default_threads()
    engine = chosen_engine(request.engine, wanted.run.engine, wanted.base_folder, threads)
    with (
        fetching(folder, resumable=not dry_run) as bring,
        closing(engine),
    ):

        def plan() -> Plan:
            sources = _inputs(wanted, folder)
            before = Manifest.read(folder)
            if before is not None and before.model_name != stored.name:  # all its outputs would be retired
                raise OutputExistsError(
                    f"{folder}: got a folder with outputs of the model {before.model}, expected outputs of "
                    f"'{stored.name}'; choose another output.folder"
                )
            # Files that are not as they were at the last release may be still in the making.
            known = {o.input_path: o.input for o in before.outputs} if before else {}
            files = [] if dry_run else [one for s in local_sources(sources) for one in s.files().items()]
            new = [path for path, seen in files if not seen.is_like(known.get(os.path.relpath(path, folder)))]
            writing = still_written(new, quiet=request.quiet_seconds, patience=request.patience)
            return make_plan(
                bring,
                sources,
                loaded,
                work,
                engine,
                policy="release",
                verify=request.verify,
                deferred=writing,
            )

        return execute(plan, task, engine=engine, dry_run=dry_run)


def named_folder(request: ReprocessRequest, wanted: Specification) -> tuple[str | Path, Path, str]:
    """Return the folder of a release, what it is relative to, and the key that names it: request, or specification."""
    if request.out is not None:
        return request.out, Path(), "out"
    return wanted.output.folder, Path(wanted.base_folder), "output.folder"


def _inputs(specification: Specification, out: Path) -> tuple[Source, ...]:
    """Return what there is to classify; UsageError where outputs would be inputs of the next run."""
    target = specification.target.paths
    key = "target.paths" if target else "catalog.paths"
    sources = resolve_sources(target or specification.catalog.paths, Path(specification.base_folder), key=key)
    check_apart(sources, out, key=key)
    return with_whole_paths(sources)
