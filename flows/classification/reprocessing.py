"""The steps that bring a release up to date, with or without Prefect.

It classifies only the inputs that are new, that have changed, or whose outputs another model or specification made.
Outputs whose input is gone are moved to `_retired/`.  A second run finds nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from blr.threads import default_threads
from catalogs.errors import OutputExistsError
from flows.classification._census_wish import CensusWish, with_stated_bias
from flows.classification._class_shares import chosen_shift
from flows.classification._jobs import hashes_on
from flows.classification._plan import Plan, known_outputs, make_plan
from flows.classification._tasks import ClassificationRequest
from flows.classification.execution import DIRECT, Steps, execute
from flows.classification.request import ReprocessRequest
from flows.classification.steps import annotation_settings, chosen_engine
from flows.inputs.fetching import fetching
from flows.inputs.resolve import check_apart, resolve_sources
from flows.inputs.source import LocalSource, Source, local_sources
from flows.inputs.still_written import still_written
from flows.models.store import Store
from flows.runs.allowed_roots import OutputFolder
from flows.runs.manifest import Manifest
from flows.runs.release_store import output_folder
from flows.runs.results import ReleaseResult, published
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification

__all__ = ["Named", "named_folder", "reprocess", "specified"]


class Named(NamedTuple):
    """A folder as it is named, relative to `base`; `key` says who named it."""

    out: str | Path
    base: Path
    key: str


def specified(request: ReprocessRequest) -> ReprocessRequest:
    """Return a request with its specification read and checked, before anything is started."""
    return replace(request, specification=read_specification(request.specification))


def reprocess(request: ReprocessRequest, *, dry_run: bool = False, steps: Steps = DIRECT) -> ReleaseResult:
    """Bring the annotated copies of a specification's target up to date; return what was done."""
    wanted = read_specification(request.specification)
    out, base, key = named_folder(request, wanted)
    with output_folder(out, key=key, base=base, publish=not dry_run) as folder:
        return published(_reprocessed(request, wanted, folder, dry_run=dry_run, steps=steps), out)


def _reprocessed(
    request: ReprocessRequest, wanted: Specification, folder: OutputFolder, *, dry_run: bool, steps: Steps
) -> ReleaseResult:
    """Bring the copies in a folder of this machine up to date."""
    base, verify = Path(wanted.base_folder), request.verify
    place = Store.named(request.store)
    stored = place.find(request.model or wanted.name)
    loaded = place.read(stored)
    settings = annotation_settings(loaded, wanted).model_copy(
        update={"shift": chosen_shift(loaded, wanted.shift)}
    )
    settings = with_stated_bias(settings, loaded, wanted)

    where = chosen_engine(request.engine, wanted)
    with (
        fetching(
            folder, run=steps.identify(), mark_crashed=steps.mark_crashed, resumable=not dry_run
        ) as mirror,
        where.opened(request.threads or default_threads()) as engine,
    ):

        def plan() -> Plan:
            sources = _inputs(wanted, base, folder)
            before = Manifest.read(folder)
            _check_same_name(before, stored.name, folder)
            unknown = [] if dry_run else _unknown_files(local_sources(sources), before, folder)
            writing = still_written(unknown, quiet=request.quiet_seconds, patience=request.patience)
            brought = mirror.bring(sources, known_outputs(folder, loaded, settings, verify=verify))
            return make_plan(
                brought,
                loaded,
                settings,
                folder,
                policy="release",
                verify=verify,
                deferred=writing,
                hashes=hashes_on(engine),
            )

        work = ClassificationRequest(
            model=stored,
            specification=settings,
            threads=request.threads,
            wish=CensusWish.of(loaded, wanted),
        )
        return execute(plan, loaded, work, steps, engine=engine, dry_run=dry_run)


def named_folder(request: ReprocessRequest, wanted: Specification) -> Named:
    """Return what names the folder of a release: the request, else the specification."""
    if request.out is not None:
        return Named(request.out, Path(), "out")
    return Named(wanted.output.folder, Path(wanted.base_folder), "output.folder")


def _inputs(specification: Specification, base: Path, out: Path) -> tuple[Source, ...]:
    """Return what there is to classify; UsageError where outputs would be inputs of the next run."""
    target = specification.target.paths
    key = "target.paths" if target else "catalog.paths"
    sources = resolve_sources(target or specification.catalog.paths, base, key=key)
    check_apart(sources, out, key=key)
    return sources


def _unknown_files(sources: Iterable[LocalSource], before: Manifest | None, out: Path) -> list[Path]:
    """Return the files that are not as they were at the last release: those may be still in the making."""
    known = {o.input_path: o.input for o in before.outputs} if before else {}
    files = (file for source in sources for file in source.files())
    return [f.path for f in files if not f.looks_like(known.get(os.path.relpath(f.path, out)))]


def _check_same_name(before: Manifest | None, name: str, out: Path) -> None:
    """Raise OutputExistsError where the folder is another product's, whose outputs would all be retired."""
    if before is not None and before.model_name != name:
        raise OutputExistsError(
            f"{out}: got a folder with outputs of the model {before.model}, expected outputs of '{name}'; "
            "choose another output.folder"
        )
