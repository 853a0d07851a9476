"""The steps of a training, which run with or without Prefect.

The steps are the ingest, the fit of each candidate, the choice, the refinement of each chosen candidate, and the
saving.  They pass small values on: paths, indices, rows of the evidence table.  Labelled rows and fitted candidates
are kept in a staging folder, so that the same command continues a killed run.

Fits to the training rows are judged.  The model that is kept may be a fit of the same kind to all rows.
Shapes: N rows that judge, K classes, T thresholds, B bins.  Rows without probabilities (NaN) get the shares of the
classes, and are counted.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Array, Floats, Places
from blr.calibration import (
    calibration_error,
    log_loss,
    log_losses,
    mistaken_loss,
    paired_gain,
    reliability_curve,
)
from blr.candidates.candidate import CandidateRow
from blr.candidates.choice import choose as choose_candidates
from blr.candidates.fits import FEW_OF_CLASS, FOLDS, MOST_FEW, FinalMember, FittedCandidate
from blr.candidates.training import TrainedClassifier, Training
from blr.decisions import errors_caught
from blr.selection.grouping import group_classes
from blr.threads import default_threads, single_threaded_blas
from catalogs.catalog.catalog import ColumnMetadata
from catalogs.errors import counted
from catalogs.files import atomic_write_text, scratch_folder, sweep
from catalogs.sky.positions import galactic_latitude
from flows.documents import write_document
from flows.engines.engine import ThreadEngine, chosen_engine, current_engine, working_on
from flows.errors import TrainingError
from flows.features.reader import training_reader, training_table
from flows.inputs.opening import opened_whole, with_checksums
from flows.inputs.source import RemoteSource, resolve_sources
from flows.models.description import (
    Metrics,
    ModelDescription,
    ReliabilityBin,
    Review,
    RiskCurve,
    TrainingPlan,
)
from flows.models.model import Model, make_version, write_tree
from flows.models.row_files import row_keys, write_rows
from flows.models.store import REPORT_FILE, SkillSummary, Store, StoredModel
from flows.reports.data import (
    NOTES,
    NotableObject,
    ReportNotes,
    TrainingPictures,
    boundary_picture,
    made_now,
)
from flows.reports.report_table import class_words
from flows.reports.tables import model_card, render_report
from flows.request import TrainRequest
from flows.runs.lock import exclusive
from flows.runs.progress import SECONDS_BETWEEN_LINES, stop_points, tell
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification
from flows.training import _staging, _target
from flows.training._gather import gather, reading_workers, with_learned_photometry
from flows.training._rows import TrainingRows, read_arrays, rows_of
from flows.training._staging import INGESTED, StagedDescription
from flows.version import code_version

COST = (1.2, 1.9e-3, 4.4e-6)
"""Seconds of each of `cost_terms`, as `benchmarks/bench_training.py` fits them.

Of 27 trainings (200 to 50,000 rows, 3 to 100 features, 2 to 40 classes) 20 took within a factor of 1.3 of them, all
but one within 1.8.
"""
LONG = 120
"""Seconds of a training above which is said what would make it shorter."""


def ingest(
    asked: Specification,
    store: Store,
    *,
    limit: int | None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> tuple[TrainingPlan, str | None]:
    """Gather the labelled rows into a staging folder; return the plan for them, and the folder.

    The folder is None where nothing is to be trained.
    """
    key = "catalog.paths"
    sources = resolve_sources(asked.catalog.paths, Path(asked.base_folder), key=key)
    fetched = any(isinstance(source, RemoteSource) for source in sources)
    # In a dry run the rows lie where no other machine sees them.
    with working_on(ThreadEngine()) if dry_run else nullcontext(), ExitStack() as stack:
        room = _staging.folder_for_rows(store, asked.name, dry_run=dry_run)
        place = cache(lambda: stack.enter_context(room))
        shared = place() if fetched and current_engine(1).is_remote else None  # workers read the files there
        found = stack.enter_context(opened_whole(sources, training_table(asked), key=key, folder=shared))
        opened = [with_checksums(catalog, asked.catalog.checksums) for catalog in found]
        tell().start("reading labelled rows", sum(c.n_rows for c in opened), "rows")
        workers = reading_workers(asked, opened, limit=limit)
        specification = with_learned_photometry(asked, opened, limit=limit, workers=workers)
        gathered = gather(specification, opened, limit=limit, folder=place, workers=workers)
        names = training_reader(specification).names
        columns = {name: ColumnMetadata.of(opened[0].column(name)) for name in names}
        needed = _target.model_needs_target(asked)
        target = _target.read_target(specification, columns, limit=limit) if needed else None
        content = gathered.sample.content_hash
        if target is not None:  # the model depends on these rows too
            content = hashlib.sha256(f"{content}\n{target.origin['content_hash']}".encode()).hexdigest()
        version = make_version(asked, content, code_version())
        exists, folder = store.contains(asked.name, version), None
        if not dry_run:
            sweep(store.root / asked.name)
        if not dry_run and (overwrite or not exists):
            folder = store.make_folder(asked.name, version, staging=True)
            # Another run may be fitting these rows, and removes them then.
            with exclusive(folder), _staging.kept_if_of_use(folder):
                target = target or _target.read_target(specification, columns, limit=limit)
                described = StagedDescription(
                    specification=specification,
                    version=version,
                    classes=gathered.classes,
                    training=_staging.stage_rows(specification, gathered, opened, target, folder, limit),
                    columns=columns,
                )
                write_document(folder / INGESTED, described)
        plan = TrainingPlan(
            status="planned",
            model=f"{asked.name}@{version}",
            store=str(store.root),
            version=version,
            exists=exists,
            training=gathered.sample,
            classes=gathered.classes,
        )
        return plan, None if folder is None else str(folder)


def _training(folder: str, threads: int | None) -> Training:
    return _staging.staged_training(_staging.read_described(Path(folder)), Path(folder), threads)


def fit(folder: str, index: int, threads: int | None = None) -> FittedCandidate:
    """Fit one candidate, unless a killed run has done so."""
    done = _staging.fitted_candidate(Path(folder), index)
    if done is not None:
        return done
    try:
        with single_threaded_blas():
            fitted = _training(folder, threads).fit(index)
    except ValueError as error:
        raise TrainingError(
            f"candidate.{index}: the fit failed ({error}); change its basis or features, or remove it"
        ) from error
    _staging.write_fitted(fitted, Path(folder), index)
    return fitted


def choose(folder: str, fitted: Sequence[FittedCandidate]) -> tuple[CandidateRow, ...]:
    """Return the table of the candidates, with each one's share of the model and posterior probability."""
    by = _staging.read_described(Path(folder)).specification.select.by
    return choose_candidates([one.row for one in fitted], [one.left_out for one in fitted], by=by)


def refine(
    folder: str, index: int, fitted: Sequence[FittedCandidate], threads: int | None = None
) -> dict[str, list[FinalMember]]:
    """Give a candidate the posterior that the specification asks for; return its members, by the rows of their fit."""
    with single_threaded_blas():
        return _training(folder, threads).refine(index, fitted)


def save(
    folder: str,
    fitted: Sequence[FittedCandidate],
    table: Sequence[CandidateRow],
    finals: Mapping[int, Mapping[str, Sequence[FinalMember]]],
    store: Store,
) -> ModelDescription:
    """Make the model of its members and save it; it becomes the champion if its name has none.

    `finals` are the members of each chosen candidate, by its index.
    """
    described = _staging.read_described(Path(folder))
    training = _staging.staged_training(described, Path(folder))
    with single_threaded_blas():
        try:
            trained = training.trained(fitted, table, finals)
        except ValueError as error:
            raise TrainingError(f"the model cannot be made of its candidates: {error}") from error
        (ratio,) = read_arrays(Path(folder), "ratio")
        model, stored = save_model(store, described, training, trained, ratio)
    if store.champion(stored.name) is None:
        store.promote(stored, why="the first of its name", who="the rule")
    return store.described(model, "trained")


Step = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What makes a function of a step one that is run elsewhere: as a task of Prefect."""


def train(request: TrainRequest, *, step: Step = lambda function: function) -> ModelDescription:
    """Fit all candidates of a specification and save the model; a trial saves nothing."""
    wanted = read_specification(request.specification)
    store, threads = Store.named(request.store), request.threads or default_threads()
    engine = chosen_engine(request.engine, wanted.run.engine, wanted.base_folder, threads)
    with closing(engine), working_on(engine):
        if request.limit is None:
            return _trained(request, wanted, store, step)
        with tempfile.TemporaryDirectory(prefix="blr-trial-") as folder:
            model = _trained(request, wanted, Store(Path(folder)), step)
            return replace(model, status="trial", path=None)


def plan(request: TrainRequest) -> TrainingPlan:
    """Return what `train` would do with a request, and write nothing."""
    wanted = read_specification(request.specification)
    chosen_engine(request.engine, wanted.run.engine, wanted.base_folder, 1)  # a wrong one is an error now
    return ingest(wanted, Store.named(request.store), limit=request.limit, dry_run=True)[0]


def _trained(request: TrainRequest, wanted: Specification, store: Store, step: Step) -> ModelDescription:
    planned, folder = step(ingest)(wanted, store, limit=request.limit, overwrite=request.overwrite)
    if folder is None:
        return store.described(store.load(planned.model), "exists")
    n, threads = len(wanted.candidate), request.threads
    for line in expectation(planned, n):
        tell().note(line)
    going_on = stop_points("run the same command again to continue")
    with exclusive(Path(folder)), _staging.kept_if_of_use(Path(folder)), going_on as stop:
        fitted = [step(fit)(folder, index, threads) for index in _each_candidate(n, stop)]
        table = step(choose)(folder, fitted)
        chosen = [index for index, row in enumerate(table) if row.share]
        finals = {index: step(refine)(folder, index, fitted, threads) for index in chosen}
        model = step(save)(folder, fitted, table, finals, store)
    # At once: half of a folder is no start for the next run.
    with scratch_folder(Path(folder).parent) as away:
        Path(folder).rename(away / "ended")
    return model


def _each_candidate(n: int, stop: Callable[[], None]) -> Iterator[int]:
    """Yield the index of each candidate, unless the run is to stop; of long work say how much is left."""
    tell().start("fitting candidates", n, "candidates")
    began = said = time.monotonic()
    for index in range(n):
        stop()
        yield index
        now = time.monotonic()
        if now - said >= SECONDS_BETWEEN_LINES:
            left = (now - began) / (index + 1) * (n - index)  # the rest takes as long as a candidate
            said = now
            tell().note(f"candidate {index + 1} of {n} is fitted; some {left:,.0f} s left")


def cost_terms(rows: int, features: int, classes: int, candidates: int) -> tuple[float, ...]:
    """Return what the time of a training is a sum of: a start, and of candidates their outputs and features in rows.

    Few rows of many classes take as long as more: the weights of all classes are what counts, and fits are repeated
    without each fold.
    """
    fits = FOLDS if rows < min(FEW_OF_CLASS * classes, MOST_FEW) else 1
    return 1.0, candidates * math.sqrt(rows) * (classes - 1) * fits, candidates * rows * features


def expectation(planned: TrainingPlan, candidates: int) -> Iterator[str]:
    """Yield what a training is of and how long it takes; of a long one, what would make it shorter."""
    sample = planned.training
    rows, features = sum(sample.training_counts) + sum(sample.held_out_counts), len(sample.features)

    def seconds(rows: int, candidates: int) -> float:
        terms = cost_terms(rows, features, len(planned.classes), candidates)
        return sum(c * term for c, term in zip(COST, terms, strict=True))

    expected = seconds(rows, candidates)
    yield (
        f"{counted(rows, 'row')}, {counted(features, 'feature')}, {counted(len(planned.classes), 'class')}, "
        f"{counted(candidates, 'candidate')}: some {expected:,.0f} s of a processor"
    )
    if expected > LONG:
        half, tenth = max(1, candidates // 2), max(1, rows // 10)
        yield (
            f"to make it shorter: {half} candidates take some {seconds(rows, half):,.0f} s, and a trial of "
            f"`--limit {tenth}` rows {seconds(tenth, candidates):,.0f} s"
        )


JUDGED_FILE = "judged.asdf"
"""File of the judged classifier, to which the numbers belong, if the model that is kept was fitted to more rows."""


def save_model(
    store: Store,
    described: StagedDescription,
    training: Training,
    trained: TrainedClassifier,
    ratio: Floats | None,
) -> tuple[Model, StoredModel]:
    """Write the report, the card and, last, the model file; return the model, and where it is stored.

    The rows that judge stand for the labelled catalogue; where there is a target, they are also weighted as it is.
    `ratio` (N,) are the density ratios of the labelled rows, None without a comparison.
    """
    specification, rows = described.specification, rows_of(training.judged)
    classifier, noted = trained.classifier, described.training
    shift = _target.corrected(noted.shift, specification, trained)
    known = {n: float(x) for n, x in trained.trust.numbers.items() if x is not None and np.isfinite(x)}
    shift = _target.judged_as_target(shift, training, trained, ratio)
    model = Model(
        name=specification.name,
        version=described.version,
        classes=described.classes,
        features=classifier.features,
        specification=specification,
        classifier=classifier,
        candidates=trained.candidates,
        selected=trained.selected,
        trust=replace(trained.trust, numbers={n: known.get(n) for n in trained.trust.numbers}),
        metrics=evaluate(trained, rows.target[trained.seen]),
        training=replace(
            noted,
            class_share=tuple(trained.class_share_kept.tolist()),
            shift=shift,
            label_noise=_staging.with_recorded_losses(noted.label_noise, rows, trained),
            refitted=None if trained.judged is None else training.judged.n_rows,
            mean_power=None if classifier.temperature is None else classifier.temperature.mean_power,
        ),
        columns=described.columns,
        code_version=code_version(),
    )
    return model, _written(store, model, training, trained)


def _written(store: Store, model: Model, training: Training, trained: TrainedClassifier) -> StoredModel:
    rows, kept, seen = rows_of(training.judged), rows_of(training.kept), trained.seen
    used, fitted = training.used(model.classifier), kept.of(kept.training)
    tell().start("drawing the report", 2, "parts")
    X, missing = fitted.X[:, used], fitted.missing[:, used]
    picture = boundary_picture(model.classifier, X, missing, fitted.target, names=model.features)
    tell().advance(1)
    p, losses, objects = trained.served, log_losses(trained.served, trained.outcome), rows.of(seen)
    described = store.described(model, "trained")
    notes = ReportNotes(made=made_now(), objects=notable_objects(p, objects, model.classes))
    page = render_report(described, notes, boundary=picture, pictures=judged_pictures(p, objects))
    folder = store.make_folder(model.name, model.version)
    write_document(folder / NOTES, notes)
    atomic_write_text(folder / REPORT_FILE, page)
    if trained.judged is not None:
        write_tree(trained.judged.to_dict(), folder / JUDGED_FILE)
    write_rows(_stored_rows(model, training, trained, losses), folder)
    tell().advance(1)
    mistaken = mistaken_loss(p) if trained.judged_by == "left-out" else None
    mean = paired_gain(np.zeros(len(losses)), losses, group=trained.group, mistaken=mistaken)
    # Student's interval of few rows may reach below 0, where no log loss is: cut there, it holds the same.
    interval = (max(0.0, mean.low), mean.high) if np.isfinite(mean.low) else None
    return store.save(model, card=model_card(model, described, notes.objects), interval=interval)


def _stored_rows(
    model: Model, training: Training, trained: TrainedClassifier, losses: Floats
) -> dict[str, Array]:
    """Return the columns of the labelled rows beside a model; `losses` (n,) and others are of rows that judge alone."""
    rows, kept, seen = rows_of(training.judged), rows_of(training.kept), trained.seen
    used, label, N = training.used(model.classifier), model.specification.label, len(rows.target)

    def of_all(values: Array, empty: float) -> Array:
        whole = np.full((N, *values.shape[1:]), empty, values.dtype)
        whole[seen] = values
        return whole

    columns: dict[str, Array] = {
        "identifier": np.zeros(N, dtype="S1") if rows.identifier is None else rows.identifier,
        "position": np.full((N, 2), np.nan) if rows.position is None else rows.position,
        "target": rows.target,
        "X": np.where(kept.missing[:, used], np.nan, kept.X[:, used]),
        "fitted": kept.training,
        "judged": seen,
    }
    if rows.name is not None and rows.group is not None:
        columns |= {"name": rows.name, "group": rows.group, "log_loss": of_all(losses, np.nan)}
        columns["assigned"] = of_all(trained.served.argmax(axis=1).astype(np.int16), -1)
    if label.votes is None:
        columns["probability"] = of_all(trained.probability, np.nan)
        columns["weight"] = np.ones(N) if rows.weight is None else rows.weight
    # Labels of objects with names, held-out ones too, where labels are the classes.
    if rows.identifier is not None and label.votes is None and label.noise is None:
        names = [name.decode(errors="replace") for name in rows.identifier.tolist()]
        columns["key"], columns["features"] = row_keys(np.array(names, dtype=object), columns["X"])
    return columns


REVIEWED: Final = (0.05, 0.1, 0.2)
"""Shares of the least certain objects whose review is reported."""
BINS: Final = 12
"""Bins of the reliability curve."""
CURVE: Final = np.linspace(0, 1, 201)
"""Shares of reviewed objects at which the curve of the errors found is computed."""


def evaluate(trained: TrainedClassifier, truth: Places) -> Metrics:
    """Return the performance on the rows that judge, whose class indices are `truth` (N,).

    Where the targets are votes, losses and reliability compare with each object's shares of the votes, and any class
    but the one with most votes is wrong.
    """
    classes, outcome, p = trained.classifier.classes, trained.outcome, trained.served
    # An object without any measured feature gets the shares of the classes, so that every model is judged on all rows.
    known = np.isfinite(trained.probability[:, 0])
    q = np.where(known[:, None], trained.plugin, trained.class_share)
    wrong = p.argmax(axis=1) != truth
    K = len(classes)
    said, happened, what = p.max(axis=1), (~wrong).astype(float), "probability of the most probable class"
    if K == 2:
        said, what = p[:, 1], f"probability of {classes[1]}"
        happened = (outcome[:, 1] if outcome.ndim == 2 else outcome == 1).astype(float)
    curve = reliability_curve(said, happened, bins=BINS)
    bins = zip(*(curve[n].tolist() for n in ("predicted", "observed", "low", "high", "count")), strict=True)
    caught, caught_by_plugin = (errors_caught(x.max(axis=1), wrong, REVIEWED).tolist() for x in (p, q))
    confusion = np.bincount(truth * K + p.argmax(axis=1), minlength=K**2).reshape(K, K)
    return Metrics(
        n=len(truth),
        n_unclassified=int(np.sum(~known)),
        log_loss=trained.log_loss,
        log_loss_plugin=log_loss(q, outcome),
        log_loss_baseline=log_loss(np.broadcast_to(trained.class_share, p.shape), outcome),
        accuracy=float(np.mean(~wrong)),
        calibration_error=calibration_error(p, outcome),
        reliability=tuple(
            ReliabilityBin(predicted=said, observed=seen, low=low, high=high, n=n)
            for said, seen, low, high, n in bins
        ),
        reliability_of=what,
        reviews=tuple(
            Review(share=share, moderated=m, plugin=r, random=share)
            for share, m, r in zip(REVIEWED, caught, caught_by_plugin, strict=True)
        ),
        risk=RiskCurve(
            reviewed=tuple(CURVE.tolist()),
            moderated=tuple(errors_caught(p.max(axis=1), wrong, CURVE).tolist()),
            plugin=tuple(errors_caught(q.max(axis=1), wrong, CURVE).tolist()),
        ),
        judged_by=trained.judged_by,
        log_loss_logistic=trained.log_loss_logistic,
        skill=SkillSummary.of(trained.skill),
        confusion=tuple(map(tuple, confusion.tolist())),
        grouping=group_classes(p, truth) if K > 2 and outcome.ndim == 1 else None,
    )


THRESHOLDS: Final = np.linspace(0.0, 1.0, 101)
OBJECT_BINS: Final = 8
"""Bins of magnitude or latitude, with about as many objects in each."""
FEWEST: Final = 100
"""Fewest objects with a magnitude, or with a position, that are binned."""
FEWEST_TAKEN: Final = 10
"""Fewest objects above a threshold whose purity is shown: that of fewer would be mostly noise."""
MOST_OBJECTS: Final = 20
"""Most notable objects that the report lists."""


def judged_pictures(probability: Floats, objects: TrainingRows) -> TrainingPictures:
    """Return the arrays of the pictures, from the probabilities (N, K) of the rows that judge."""
    truth = objects.target
    completeness, purity = threshold_curves(probability, truth)
    assigned, K = probability.argmax(axis=1), probability.shape[1]
    latitude = None if objects.position is None else np.abs(galactic_latitude(*objects.position.T))
    quantities = {"magnitude": objects.magnitude, "latitude": latitude}
    binned = {name: _binned(x, truth, assigned, K) for name, x in quantities.items()}
    return TrainingPictures(
        threshold=THRESHOLDS,
        completeness=completeness,
        purity=purity,
        magnitude_name="" if objects.magnitude_name is None else str(objects.magnitude_name),
        binned={name: bins for name, bins in binned.items() if bins is not None},
    )


def threshold_curves(probability: Floats, truth: Places) -> tuple[Floats, Floats]:
    """Return completeness and purity (K, T) of the objects whose probability of a class reaches a threshold."""
    K = probability.shape[1]
    completeness, purity = np.full((2, K, len(THRESHOLDS)), np.nan)
    for k in range(K):
        own = truth == k
        below = np.searchsorted(np.sort(probability[:, k]), THRESHOLDS, side="left")
        own_below = np.searchsorted(np.sort(probability[own, k]), THRESHOLDS, side="left")
        taken, found = len(truth) - below, own.sum() - own_below
        np.divide(found, own.sum(), out=completeness[k], where=own.sum() > 0)
        np.divide(found, taken, out=purity[k], where=taken >= FEWEST_TAKEN)
    return completeness, purity


def _binned(
    x: Floats | None, truth: Places, assigned: Places, n_classes: int
) -> tuple[Floats, NDArray[np.int64]] | None:
    """Return the means (B,) of bins of about equal counts, and counts (3, B, K); None for few known values.

    The counts are of objects by true class, by assigned class, and by both where they agree.
    """
    if x is None or (known := np.isfinite(x)).sum() < FEWEST:
        return None
    edges = np.unique(np.quantile(x[known], np.linspace(0, 1, OBJECT_BINS + 1)))
    if len(edges) < 3:
        return None
    place = np.clip(np.searchsorted(edges, x[known], side="right") - 1, 0, len(edges) - 2)
    t, a = truth[known], assigned[known]
    counts = np.zeros((3, len(edges) - 1, n_classes), dtype=np.int64)
    for i, of in enumerate((t, a, t[t == a])):
        cell = (place[t == a] if i == 2 else place) * n_classes + of
        counts[i] = np.bincount(cell, minlength=counts[i].size).reshape(counts[i].shape)
    means = np.bincount(place, weights=x[known]) / np.maximum(np.bincount(place), 1)
    return means, counts


def notable_objects(
    probability: Floats, objects: TrainingRows, classes: tuple[str, ...]
) -> tuple[NotableObject, ...]:
    """Return the objects to whose label the model gives least: the label may be wrong, or the features not enough."""
    names, truth = objects.identifier, objects.target
    if names is None or not (names != b"").any():
        return ()
    place = np.full((len(truth), 2), np.nan) if objects.position is None else objects.position
    own, assigned = probability[np.arange(len(truth)), truth], probability.argmax(axis=1)
    wrong = np.flatnonzero(assigned != truth)
    chosen: dict[str, NotableObject] = {}
    for i in wrong[np.argsort(own[wrong], kind="stable")]:
        if len(chosen) == MOST_OBJECTS:
            break
        name = names[i].decode(errors="replace")
        label, given = (class_words(classes[at[i]]) for at in (truth, assigned))
        why = (
            f"labelled {label}, to which the model gives {_percent(probability[i, truth[i]])}; "
            f"it gives {given} {_percent(probability[i, assigned[i]])}"
        )
        ra, dec = (float(x) if np.isfinite(x) else None for x in place[i])
        chosen.setdefault(name, NotableObject(name=name, ra=ra, dec=dec, why=why))
    return tuple(chosen.values())


def _percent(share: float) -> str:
    """Return a probability as a percentage; a small one is never shown as zero."""
    return "less than 0.1%" if share < 0.001 else f"{share:.1%}"
