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
from blr.threads import default_threads, single_threaded_blas
from catalogs.catalog.catalog import Catalog
from flows.engines.engine import THREADS_HERE, Engine, EngineChoice, current_engine, working_here, working_on
from flows.errors import TrainingError
from flows.features.reader import training_reader, training_table
from flows.features.split import split_columns
from flows.inputs.opening import opened_whole, with_checksums
from flows.inputs.source import RemoteSource, resolve_sources
from flows.models.description import LabelledSample, ModelDescription
from flows.models.model import make_version
from flows.models.store import Store
from flows.runs.allowed_roots import check_scheduler
from flows.runs.interrupt import begin_piece, stop_points
from flows.runs.lock import exclusive
from flows.runs.model_reference import ModelReference
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification
from flows.training._gather import Gathered, gather, reading_workers, with_learned_photometry
from flows.training._saving import save_model
from flows.training._staging import (
    StagedDescription,
    StagedTraining,
    column_metadata,
    fitted_candidate,
    folder_for_rows,
    labelled_sample,
    read_described,
    stage_rows,
    summing_on,
    write_described,
    write_fitted,
)
from flows.training._target import model_needs_target, read_target, version_content
from flows.training.report import TrainingPlan
from flows.training.request import TrainRequest
from flows.version import code_version

COST = (2.7, 0.18, 4.6e-5, 3.4e-6)
"""Seconds of each of `cost_terms`, as `benchmarks/bench_training.py` fits them.

Its eighteen trainings took within a factor of two of them, sixteen within 1.5.
"""
LONG = 120
"""Seconds of a training above which is said what would make it shorter."""


@dataclass(frozen=True)
class TrainingTask:
    """What to train and where to store it, read and checked so that no later step does that again."""

    specification: Specification
    store: Store
    overwrite: bool = False
    limit: int | None = None
    threads: int | None = None
    dry_run: bool = False
    engine: EngineChoice = THREADS_HERE

    @classmethod
    def of(cls, request: TrainRequest) -> TrainingTask:
        """Return the task of a request; UsageError, SpecificationError or ModelError where the request is wrong."""
        wanted = read_specification(request.specification)
        engine, key = EngineChoice.chosen(request.engine, wanted.run.engine, base=Path(wanted.base_folder))
        check_scheduler(engine.file, engine.address, key=key)
        store, threads = Store.named(request.store), request.threads
        return cls(wanted, store, request.overwrite, request.limit, threads, engine=engine)


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """The result of the ingest: the version of the model that the labelled rows give, and the folder of the rows."""

    version: str
    exists: bool  # whether the store has this version already
    sample: LabelledSample
    classes: tuple[str, ...]
    folder: str | None  # folder of the staged rows; None where nothing is to be trained


def ingest(task: TrainingTask) -> Ingested:
    """Gather the labelled rows into a staging folder; return this folder, and the version of the model."""
    asked = task.specification
    key = "catalog.paths"
    sources = resolve_sources(asked.catalog.paths, Path(asked.base_folder), key=key)
    fetched = any(isinstance(source, RemoteSource) for source in sources)
    with working_here() if task.dry_run else nullcontext(), ExitStack() as stack:
        room = folder_for_rows(task.store, asked.name, dry_run=task.dry_run)
        place = cache(lambda: stack.enter_context(room))
        shared = place() if fetched and current_engine(1).is_remote else None  # workers read the files there
        opened = stack.enter_context(opened_whole(sources, training_table(asked), key=key, folder=shared))
        return _staged(task, [with_checksums(c, asked.catalog.checksums) for c in opened], place)


def _staged(task: TrainingTask, opened: list[Catalog], room: Callable[[], Path]) -> Ingested:
    asked, store, limit = task.specification, task.store, task.limit
    specification, gathered = _gathered(asked, opened, limit, room)
    columns = column_metadata(
        opened[0], training_reader(specification, split_by=split_columns(specification)).names
    )
    target = read_target(specification, columns, limit=limit) if model_needs_target(asked) else None
    version = make_version(asked, version_content(gathered.content_hash, asked, target), code_version())
    exists = store.contains(specification.name, version)
    if task.dry_run or (exists and not task.overwrite):
        sample = labelled_sample(specification, gathered, opened)
        return Ingested(version=version, exists=exists, sample=sample, classes=gathered.classes, folder=None)
    folder = store.make_folder(specification.name, version, staging=True)
    target = target or read_target(specification, columns, limit=limit)
    training = stage_rows(specification, gathered, opened, target, folder, limit)
    described = StagedDescription(
        specification=specification,
        version=version,
        classes=gathered.classes,
        training=training,
        columns=columns,
    )
    write_described(described, folder)
    return Ingested(
        version=version, exists=exists, sample=training, classes=gathered.classes, folder=str(folder)
    )


def _gathered(
    specification: Specification, opened: list[Catalog], limit: int | None, room: Callable[[], Path]
) -> tuple[Specification, Gathered]:
    tell().start("reading labelled rows", sum(c.n_rows for c in opened), "rows")
    workers = reading_workers(specification, opened, limit=limit)
    learned = with_learned_photometry(specification, opened, limit=limit, workers=workers)
    return learned, gather(learned, opened, limit=limit, folder=room, workers=workers)


def fit(folder: str, index: int, threads: int | None = None) -> FittedCandidate:
    """Fit one candidate, unless a killed run has done so."""
    done = fitted_candidate(Path(folder), index)
    if done is not None:
        return done
    try:
        with single_threaded_blas():
            fitted = StagedTraining.read(Path(folder), threads).training.fit(index)
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
        return StagedTraining.read(Path(folder), threads).training.refine(index, fitted, ranking)


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
    staged = StagedTraining.read(Path(folder))
    with single_threaded_blas():
        try:
            trained = staged.training.trained(fitted, ranking, finals)
        except ValueError as error:
            raise TrainingError(f"the model cannot be made of its candidates: {error}") from error
        model, stored = save_model(store, staged, trained)
    if store.champion(stored.name) is None:
        store.promote(stored, why="the first of its name", who="the rule")
    return store.described(model, "trained")


@dataclass(frozen=True)
class Steps:
    """The functions of the steps; `flows.train` replaces them by tasks of Prefect."""

    ingest: Callable[[TrainingTask], Ingested] = ingest
    fit: Callable[[str, int, int | None], FittedCandidate] = fit
    choose: Callable[[str, Sequence[FittedCandidate]], Ranking] = choose
    refine: Callable[
        [str, int, Sequence[FittedCandidate], Ranking, int | None], dict[str, list[FinalMember]]
    ] = refine
    save: Callable[
        [
            str,
            Sequence[FittedCandidate],
            Ranking,
            Mapping[int, Mapping[str, Sequence[FinalMember]]],
            Store,
        ],
        ModelDescription,
    ] = save


DIRECT = Steps()


def specified(request: TrainRequest) -> TrainRequest:
    """Return a request with its specification read and checked, before any work starts."""
    return replace(request, specification=read_specification(request.specification))


def train(request: TrainRequest, *, steps: Steps = DIRECT) -> ModelDescription:
    """Fit all candidates of a specification and save the model; a trial saves nothing."""
    task = TrainingTask.of(request)
    if task.limit is not None:
        with tempfile.TemporaryDirectory(prefix="blr-trial-") as folder:
            trial = replace(task, store=Store(Path(folder), temporary=True), overwrite=False)
            return replace(_trained(trial, steps), status="trial", path=None)
    return _trained(task, steps)


def plan(request: TrainRequest, *, steps: Steps = DIRECT) -> TrainingPlan:
    """Return what `train` would do with a request, and write nothing."""
    task = replace(TrainingTask.of(request), dry_run=True)
    ingested = steps.ingest(task)
    return TrainingPlan(
        status="planned",
        model=ModelReference(task.specification.name, ingested.version).label,
        store=str(task.store.root),
        version=ingested.version,
        exists=ingested.exists,
        training=ingested.sample,
        classes=ingested.classes,
    )


def _trained(task: TrainingTask, steps: Steps) -> ModelDescription:
    with task.engine.opened(task.threads or default_threads()) as engine:
        with working_on(engine):
            ingested = steps.ingest(task)
        return _fitted(task, steps, ingested, engine)


def _fitted(task: TrainingTask, steps: Steps, ingested: Ingested, engine: Engine) -> ModelDescription:
    specification, store, threads = task.specification, task.store, task.threads
    folder, n = ingested.folder, len(specification.candidate)
    if folder is None:
        return store.described(store.read(store.at(specification.name, ingested.version)), "exists")
    for line in expectation(specification, ingested):
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


def expectation(specification: Specification, ingested: Ingested) -> Iterator[str]:
    """Yield what a training is of and how long it takes; of a long one, what would make it shorter."""
    sample, candidates = ingested.sample, len(specification.candidate)
    rows, features = sum(sample.training_counts) + sum(sample.held_out_counts), len(sample.features)

    def seconds(rows: int, candidates: int) -> float:
        terms = cost_terms(rows, features, len(ingested.classes), candidates)
        return sum(c * term for c, term in zip(COST, terms, strict=True))

    expected = seconds(rows, candidates)
    yield (
        f"{rows:,} rows, {features} features, {len(ingested.classes)} classes, {candidates} candidates: "
        f"some {expected:,.0f} s of a processor"
    )
    if expected > LONG:
        half, tenth = max(1, candidates // 2), max(1, rows // 10)
        yield (
            f"to make it shorter: {half} candidates take some {seconds(rows, half):,.0f} s, and a trial of "
            f"`--limit {tenth}` rows {seconds(tenth, candidates):,.0f} s"
        )
