"""The steps of a training, which run with or without Prefect.

The steps are the ingest, the fit of each candidate, the choice, the refinement of each chosen candidate, and the
saving.  They pass small values on: paths, indices, rows of the evidence table.  Labelled rows and fitted candidates
are kept in a staging folder, so that the same command continues a killed run.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from blr.candidates.choice import Ranking
from blr.candidates.choice import choose as choose_candidates
from blr.candidates.fits import FinalMember, FittedCandidate
from blr.candidates.training import Training
from blr.threads import default_threads, single_threaded_blas
from catalogs.catalog.catalog import ColumnMetadata
from flows.engines.engine import Engine, EngineChoice, current_engine, working_here, working_on
from flows.errors import TrainingError
from flows.features.reader import training_reader, training_table
from flows.features.split import split_columns
from flows.inputs.opening import opened_whole, with_checksums
from flows.inputs.source import RemoteSource, resolve_sources
from flows.models.description import ModelDescription, TrainingPlan
from flows.models.model import make_version
from flows.models.store import Store
from flows.runs.allowed_roots import check_scheduler
from flows.runs.lock import exclusive
from flows.runs.model_reference import ModelReference
from flows.runs.progress import begin_piece, stop_points, tell
from flows.specification.toml_file import read_specification
from flows.training._gather import gather, reading_workers, with_learned_photometry
from flows.training._saving import save_model
from flows.training._staging import (
    StagedDescription,
    fitted_candidate,
    folder_for_rows,
    labelled_sample,
    read_described,
    stage_rows,
    staged_training,
    summing_on,
    write_described,
    write_fitted,
)
from flows.training._target import model_needs_target, read_arrays, read_target, version_content
from flows.training.request import TrainRequest
from flows.version import code_version

COST = (3.0, 0.15, 3.8e-5, 3.9e-6)
"""Seconds of each of `cost_terms`, as `benchmarks/bench_training.py` fits them.

Its eighteen trainings took within a factor of two of them, sixteen within 1.5.
"""
LONG = 120
"""Seconds of a training above which is said what would make it shorter."""


def ingest(request: TrainRequest, store: Store, *, dry_run: bool = False) -> tuple[TrainingPlan, str | None]:
    """Gather the labelled rows into a staging folder; return the plan for them, and the folder.

    The folder is None where nothing is to be trained.
    """
    asked, key = read_specification(request.specification), "catalog.paths"
    sources = resolve_sources(asked.catalog.paths, Path(asked.base_folder), key=key)
    fetched = any(isinstance(source, RemoteSource) for source in sources)
    with working_here() if dry_run else nullcontext(), ExitStack() as stack:
        room = folder_for_rows(store, asked.name, dry_run=dry_run)
        place = cache(lambda: stack.enter_context(room))
        shared = place() if fetched and current_engine(1).is_remote else None  # workers read the files there
        found = stack.enter_context(opened_whole(sources, training_table(asked), key=key, folder=shared))
        opened = [with_checksums(catalog, asked.catalog.checksums) for catalog in found]
        limit = request.limit
        tell().start("reading labelled rows", sum(c.n_rows for c in opened), "rows")
        workers = reading_workers(asked, opened, limit=limit)
        specification = with_learned_photometry(asked, opened, limit=limit, workers=workers)
        gathered = gather(specification, opened, limit=limit, folder=place, workers=workers)
        names = training_reader(specification, split_by=split_columns(specification)).names
        columns = {name: ColumnMetadata.of(opened[0].column(name)) for name in names}
        needed = model_needs_target(asked)
        target = read_target(specification, columns, limit=limit) if needed else None
        version = make_version(asked, version_content(gathered.content_hash, asked, target), code_version())
        exists, folder = store.contains(asked.name, version), None
        if dry_run or (exists and not request.overwrite):
            sample = labelled_sample(specification, gathered, opened)
        else:
            folder = store.make_folder(asked.name, version, staging=True)
            target = target or read_target(specification, columns, limit=limit)
            sample = training = stage_rows(specification, gathered, opened, target, folder, limit)
            described = StagedDescription(
                specification=specification,
                version=version,
                classes=gathered.classes,
                training=training,
                columns=columns,
            )
            write_described(described, folder)
        plan = TrainingPlan(
            status="planned",
            model=ModelReference(asked.name, version).label,
            store=str(store.root),
            version=version,
            exists=exists,
            training=sample,
            classes=gathered.classes,
        )
        return plan, None if folder is None else str(folder)


def _training(folder: str, threads: int | None) -> Training:
    return staged_training(read_described(Path(folder)), Path(folder), threads)


def fit(folder: str, index: int, threads: int | None = None) -> FittedCandidate:
    """Fit one candidate, unless a killed run has done so."""
    done = fitted_candidate(Path(folder), index)
    if done is not None:
        return done
    try:
        with single_threaded_blas():
            fitted = _training(folder, threads).fit(index)
    except ValueError as error:
        raise TrainingError(
            f"candidate.{index}: the fit failed ({error}); change its basis or features, or remove it"
        ) from error
    write_fitted(fitted, Path(folder), index)
    return fitted


def choose(folder: str, fitted: Sequence[FittedCandidate]) -> Ranking:
    """Return which candidates make the model, and each one's posterior probability."""
    by = read_described(Path(folder)).specification.select.by
    return choose_candidates([one.row for one in fitted], [one.left_out for one in fitted], by=by)


def refine(
    folder: str, index: int, fitted: Sequence[FittedCandidate], ranking: Ranking, threads: int | None = None
) -> dict[str, list[FinalMember]]:
    """Give a candidate the posterior that the specification asks for; return its members, by the rows of their fit."""
    with single_threaded_blas():
        return _training(folder, threads).refine(index, fitted, ranking)


def save(
    folder: str,
    fitted: Sequence[FittedCandidate],
    ranking: Ranking,
    finals: Mapping[int, Mapping[str, Sequence[FinalMember]]],
    store: Store,
) -> ModelDescription:
    """Make the model of its members and save it; it becomes the champion if its name has none.

    `finals` are the members of each chosen candidate, by its index.
    """
    described = read_described(Path(folder))
    training = staged_training(described, Path(folder))
    with single_threaded_blas():
        try:
            trained = training.trained(fitted, ranking, finals)
        except ValueError as error:
            raise TrainingError(f"the model cannot be made of its candidates: {error}") from error
        (ratio,) = read_arrays(Path(folder), "ratio")
        model, stored = save_model(store, described, training, trained, ratio)
    if store.champion(stored.name) is None:
        store.promote(stored, why="the first of its name", who="the rule")
    return store.described(model, "trained")


@dataclass(frozen=True)
class Steps:
    """The functions of the steps; `flows.train` replaces them by tasks of Prefect."""

    ingest: Callable[..., tuple[TrainingPlan, str | None]] = ingest
    fit: Callable[..., FittedCandidate] = fit
    choose: Callable[..., Ranking] = choose
    refine: Callable[..., dict[str, list[FinalMember]]] = refine
    save: Callable[..., ModelDescription] = save


DIRECT = Steps()


def specified(request: TrainRequest) -> TrainRequest:
    """Return a request with its specification read and checked, before any work starts."""
    return replace(request, specification=read_specification(request.specification))


def train(request: TrainRequest, *, steps: Steps = DIRECT) -> ModelDescription:
    """Fit all candidates of a specification and save the model; a trial saves nothing."""
    request = specified(request)
    engine, store = _engine(request), Store.named(request.store)
    if request.limit is None:
        return _trained(request, store, engine, steps)
    with tempfile.TemporaryDirectory(prefix="blr-trial-") as folder:
        trial = Store(Path(folder), temporary=True)
        model = _trained(replace(request, overwrite=False), trial, engine, steps)
        return replace(model, status="trial", path=None)


def plan(request: TrainRequest, *, steps: Steps = DIRECT) -> TrainingPlan:
    """Return what `train` would do with a request, and write nothing."""
    request = specified(request)
    _engine(request)  # a wrong one is an error now
    found, _ = steps.ingest(request, Store.named(request.store), dry_run=True)
    return found


def _engine(request: TrainRequest) -> EngineChoice:
    """Return the engine of a request; UsageError where it may not be used."""
    wanted = read_specification(request.specification)
    engine, key = EngineChoice.chosen(request.engine, wanted.run.engine, base=Path(wanted.base_folder))
    check_scheduler(engine.file, engine.address, key=key)
    return engine


def _trained(request: TrainRequest, store: Store, choice: EngineChoice, steps: Steps) -> ModelDescription:
    with choice.opened(request.threads or default_threads()) as engine:
        with working_on(engine):
            planned, folder = steps.ingest(request, store)
        if folder is None:
            specification = read_specification(request.specification)
            return store.described(store.read(store.at(specification.name, planned.version)), "exists")
        return _fitted(request, store, planned, folder, steps, engine)


def _fitted(
    request: TrainRequest, store: Store, planned: TrainingPlan, folder: str, steps: Steps, engine: Engine
) -> ModelDescription:
    specification, threads = read_specification(request.specification), request.threads
    n = len(specification.candidate)
    for line in expectation(planned, n):
        tell().note(line)
    tell().start("fitting candidates", n, "candidates")
    fitted = []
    go_on, began = "run the same command again to continue", time.monotonic()
    with exclusive(Path(folder)), summing_on(engine, Path(folder)), stop_points(go_on) as stop:
        for index in range(n):
            stop()
            begin_piece(f"candidate {index + 1} of {n}")
            fitted.append(steps.fit(folder, index, threads))
            left = (
                (time.monotonic() - began) / (index + 1) * (n - index)
            )  # the rest takes as long as a candidate
            tell().note(f"candidate {index + 1} of {n} is fitted; some {left:,.0f} s left")
        begin_piece("the model, of which all candidates are fitted")
        ranking = steps.choose(folder, fitted)
        finals = {
            index: steps.refine(folder, index, fitted, ranking, threads) for index, _ in ranking.members
        }
        model = steps.save(folder, fitted, ranking, finals, store)
    shutil.rmtree(folder)
    return model


def cost_terms(rows: int, features: int, classes: int, candidates: int) -> tuple[float, ...]:
    """Return what the time of a training is a sum of: a start, candidates, their outputs and features in each row."""
    return 1.0, candidates, candidates * rows * (classes - 1), candidates * rows * features


def expectation(planned: TrainingPlan, candidates: int) -> Iterator[str]:
    """Yield what a training is of and how long it takes; of a long one, what would make it shorter."""
    sample = planned.training
    rows, features = sum(sample.training_counts) + sum(sample.held_out_counts), len(sample.features)

    def seconds(rows: int, candidates: int) -> float:
        terms = cost_terms(rows, features, len(planned.classes), candidates)
        return sum(c * term for c, term in zip(COST, terms, strict=True))

    expected = seconds(rows, candidates)
    yield (
        f"{rows:,} rows, {features} features, {len(planned.classes)} classes, {candidates} candidates: "
        f"some {expected:,.0f} s of a processor"
    )
    if expected > LONG:
        half, tenth = max(1, candidates // 2), max(1, rows // 10)
        yield (
            f"to make it shorter: {half} candidates take some {seconds(rows, half):,.0f} s, and a trial of "
            f"`--limit {tenth}` rows {seconds(tenth, candidates):,.0f} s"
        )
