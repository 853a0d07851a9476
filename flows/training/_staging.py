"""The staging folder of a training: the rows, their filled features, their description, and fitted candidates.

The rows are described before any fit: counts, the quality of features, hashes of the inputs, differences from the
target, and shares of wrong labels.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np

from blr.arrays import Array, Floats, Mask
from blr.calibration import log_loss
from blr.candidates.candidate import CandidateRow, Selection
from blr.candidates.choice import LeftOut
from blr.candidates.fits import FittedCandidate
from blr.candidates.rows import TrainingSet, fitted_confusion, wrong_labels
from blr.candidates.training import TrainedClassifier, Training, weighted_votes
from blr.gaussian import Gaussian
from blr.likelihood.targets import recorded_probability
from blr.missing.moments import FeatureMoments
from blr.selection.label_noise import LabelNoise
from blr.threads import default_threads, single_threaded_blas
from catalogs.catalog.catalog import Catalog, ColumnMetadata
from catalogs.expressions.expression import parse
from catalogs.files import atomic_write_array, scratch_folder
from catalogs.profile.columns import as_numbers, readable, uneven_presence
from catalogs.profile.quality import Leak, Quality, SuspectedLeak, about_the_distance, is_magnitude, quality
from catalogs.text.table import commented_out
from flows.documents import read_document, write_document
from flows.engines.engine import current_engine
from flows.errors import TrainingError
from flows.features.reader import (
    apply_sentinels,
    known_place,
    label_columns_reader,
    position_unit,
)
from flows.labels.reader import LabelReader, found_leaks, most_voted, vote_counts, without_sentinels
from flows.labels.source import LabelSource
from flows.models.description import TargetShift, TrainingDescription, WrongLabels, WrongLabelShare
from flows.models.store import Store
from flows.runs.progress import tell
from flows.specification.catalog import check_noise, stated_confusion
from flows.specification.specification import Specification
from flows.training._gather import Gathered
from flows.training._rows import (
    WEIGHT_OF_ALL,
    StoredRows,
    TrainingRows,
    TrainingShards,
    read_arrays,
    rows_of,
    write_arrays,
)
from flows.training._target import TargetRows, compared

INGESTED = "ingested.json"
"""File of the description, the last one to be written: where it exists, the ingest is complete."""
SHARDS = "shards"
"""Folder of all rows, if they are too many for the memory."""
REFILLED = "refilled"
"""Features of the sample with missing values as the moments of all rows fill them, held-out rows included."""
UNKNOWN_VERSION = "000000000000"
"""Name of a folder for rows that are being read: the version of the model is known after the last row."""


def training_set(
    specification: Specification,
    rows: TrainingRows,
    classes: tuple[str, ...],
    stored: StoredRows | None = None,
    *,
    held_out_too: bool = False,
) -> TrainingSet:
    """Return rows in memory with their missing values filled.

    Where `rows` are a sample, the moments are those of the `stored` training rows, or of all stored rows if
    `held_out_too`.
    """
    features = tuple(specification.features)
    if stored is None:
        return TrainingSet.of(rows, features, classes)
    training, weight = rows.training, rows.weight
    own = np.ones(int(training.sum())) if weight is None else weight[training]

    def incomplete() -> Iterator[tuple[Floats, Mask, Floats]]:
        for part in stored.each(held_out_too=held_out_too):
            chosen = part.training | held_out_too
            weight = np.ones(len(chosen)) if part.weight is None else part.weight
            yield part.X[chosen], part.missing[chosen], weight[chosen]

    moments = FeatureMoments.estimate_of_parts(incomplete(), (rows.X[training], rows.missing[training], own))
    return TrainingSet(rows, moments.impute(rows.X, rows.missing), features, classes, moments)


@contextmanager
def folder_for_rows(store: Store, name: str, *, dry_run: bool) -> Iterator[Path]:
    """Give a folder for rows that are too many for the memory: in the store or, for a dry run, a temporary one."""
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="blr-rows-") as temporary:
            yield Path(temporary)
        return
    waiting = store.make_folder(name, UNKNOWN_VERSION, staging=True)
    try:
        with scratch_folder(waiting) as folder:
            yield folder
    finally:
        with suppress(OSError):  # another run's rows may be there, or other models
            waiting.rmdir()
            waiting.parent.rmdir()


@contextmanager
def kept_if_of_use(folder: Path) -> Iterator[None]:
    """Remove a training's folder where the same command fails again, or would read all rows again; raise the error."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, TrainingError) or not (folder / INGESTED).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # there may be other models
                folder.parent.rmdir()
        raise


def fill_shards(stored: StoredRows, moments: FeatureMoments, name: str = "filled") -> None:
    """Write the stored rows' features with missing values at their conditional means."""
    stored.add(name, lambda shard: moments.impute(stored.read("X", shard), stored.read("missing", shard)))


def stage_shards(
    specification: Specification, stored: StoredRows, data: TrainingSet, phi: float, folder: Path
) -> None:
    """Move all rows into the folder, with filled features and with weights divided by the overdispersion `phi`."""
    rows, engine = rows_of(data), current_engine(1)
    if engine.is_remote:  # it sums over the shards in each fit
        tell().note(engine.description)
    fill_shards(stored, data.moments)
    if phi != 1:
        if stored.has(WEIGHT_OF_ALL):
            stored.add(WEIGHT_OF_ALL, lambda shard: stored.weights(shard, held_out_too=True) / phi)
        stored.add("weight", lambda shard: stored.weights(shard) / phi)
    if specification.split.refit and rows.held_out.any() and rows.missing.any():
        sample = _of_all(rows, stored)
        whole = training_set(specification, sample, data.classes, stored, held_out_too=True)
        write_arrays(folder, refilled=whole.filled)
        fill_shards(stored, whole.moments, REFILLED)
    shutil.rmtree(folder / SHARDS, ignore_errors=True)
    stored.folder.rename(folder / SHARDS)


def _of_all(rows: TrainingRows, stored: StoredRows) -> TrainingRows:
    """Return the sample of the stored rows for a fit to all of them, held-out rows included."""
    weight = stored.at(WEIGHT_OF_ALL, rows.numbers) if stored.has(WEIGHT_OF_ALL) else rows.weight
    return replace(rows, held_out=np.zeros_like(rows.held_out), weight=weight)


@dataclass(frozen=True, kw_only=True)
class StagedDescription:
    """The description of the rows in the folder, and the specification with what was learned from them."""

    specification: Specification
    version: str
    classes: tuple[str, ...]
    training: TrainingDescription
    columns: Mapping[str, ColumnMetadata]


def read_described(folder: Path) -> StagedDescription:
    """Return the description of the rows in a folder."""
    return read_document(StagedDescription, folder / INGESTED)


def staged_training(described: StagedDescription, folder: Path, threads: int | None = None) -> Training:
    """Return the training of the rows in the folder; fits use so many threads, or the engine of the moment."""
    specification = described.specification
    rows = TrainingRows(*read_arrays(folder, *(part.name for part in fields(TrainingRows))))
    target_X, target_missing, ratio = read_arrays(folder, "target_X", "target_missing", "ratio")
    filled, (mean, *covariance) = (np.load(folder / f"{name}.npy") for name in ("filled", "moments"))
    moments = FeatureMoments(mean, np.array(covariance))
    data = TrainingSet(rows, filled, tuple(specification.features), described.classes, moments)
    again: Callable[[], TrainingSet] | None = None
    refit = specification.split.refit and bool(rows.held_out.any())
    if (folder / SHARDS).is_dir():
        stored, by_annotator = StoredRows((folder / SHARDS).absolute()), rows.confusion_by_annotator
        engine = current_engine(default_threads() if threads is None else threads)
        streamed = partial(TrainingShards, stored, len(described.classes), engine, confusion=by_annotator)

        def of_all() -> TrainingSet:
            (refilled,), every = read_arrays(folder, REFILLED), streamed(held_out_too=True)
            filled = data.filled if refilled is None else refilled
            return replace(data, rows=_of_all(rows, stored), filled=filled, streamed=every)

        data = replace(data, streamed=streamed(held_out_too=False))
        again = of_all if refit else None
    elif refit:
        again = partial(data.of_all, ratio if specification.shift.density_weights else None)
    select, flags = specification.select.model_dump(), specification.flags
    return Training(
        tuple(candidate.fitted for candidate in specification.candidate),
        data,
        again,
        Selection(**select, low_confidence=flags.low_confidence, close_call=flags.close_call),
        specification.seed,
        threads,
        tell(),
        None if target_X is None else (target_X, target_missing),
        specification.shift.class_prior,
    )


def fitted_candidate(folder: Path, index: int) -> FittedCandidate | None:
    """Return a candidate that a run has fitted; None where none has."""
    done = folder / f"candidate-{index:03d}.json"
    if not done.is_file():
        return None
    row = read_document(CandidateRow, done)
    left_out = LeftOut(*np.load(done.with_suffix(".npy"), allow_pickle=False))
    # There are fewer than ten parts, so that the order of the names is that of the numbers.
    drafts = (np.load(p, allow_pickle=False) for p in sorted(folder.glob(f"draft-{index:03d}-*.npy")))
    return FittedCandidate(row, left_out, tuple(Gaussian(one[0], one[1:]) for one in drafts))


def write_fitted(fitted: FittedCandidate, folder: Path, index: int) -> None:
    """Write a candidate; its row is the last file, so that where it exists, all is there.

    Each draft of a part is a file: the mean (D,) as a row above the precision (D, D).
    """
    done, unseen = folder / f"candidate-{index:03d}.json", fitted.left_out
    arrays = [unseen.filled, unseen.share, *([] if unseen.integrated is None else [unseen.integrated])]
    atomic_write_array(done.with_suffix(".npy"), np.stack(arrays))
    for number, q in enumerate(fitted.drafts):
        atomic_write_array(folder / f"draft-{index:03d}-{number}.npy", np.vstack([q.mean, q.precision]))
    write_document(done, fitted.row)


def stage_rows(
    specification: Specification,
    gathered: Gathered,
    opened: list[Catalog],
    target: TargetRows | None,
    folder: Path,
    limit: int | None,
) -> TrainingDescription:
    """Write the weighted rows and their filled features into the folder; return the description of the rows."""
    rows, sample, stored, classes = gathered.rows, gathered.sample, gathered.stored, gathered.classes
    shift = TargetShift()
    tell().start("describing the rows: missing features, differences from the target, quality", 0, "rows")
    with single_threaded_blas():
        data = training_set(specification, rows, classes, stored)
        if target is not None and stored is not None and specification.shift.density_weights:
            fill_shards(stored, data.moments)
        comparison = None if target is None else compared(specification, data, target, stored)
        if target is not None and comparison is not None:
            rows, ratio, shift = comparison
            write_arrays(folder, target_X=target.X, target_missing=target.missing, ratio=ratio)
            if specification.shift.density_weights:
                data = training_set(specification, rows, classes, stored)
        phi = 1.0
        if specification.label.overdispersion:
            data, phi = weighted_votes(data, specification.seed)
        confusion, noise = label_confusion(specification, data, gathered.annotators)
        data = replace(data, rows=replace(data.rows, confusion=confusion))
    # With many patterns of missing features, EM for the moments takes seconds.
    moments = np.vstack([data.moments.mean, data.moments.covariance])
    write_arrays(folder, **vars(rows_of(data)), filled=data.filled, moments=moments)
    if stored is not None:
        stage_shards(specification, stored, data, phi, folder)
    source = gathered.source
    examined = [catalog_quality(specification, one, source, limit=limit) for one in opened[:MOST_QUALITY]]
    return TrainingDescription(
        **vars(sample),
        overdispersion=phi,
        label_noise=noise,
        shift=shift,
        quality=tuple(examined),
        refitted=None,
        sampled=None if stored is None else len(rows.target),
    )


MOST_QUALITY = 4
"""Most catalogues whose quality is examined, the first ones: each of them is read once more."""


def label_confusion(
    specification: Specification, data: TrainingSet, annotators: Sequence[str] = ()
) -> tuple[Floats | None, WrongLabels]:
    """Return the confusion matrix of the labels, by annotator where they differ, and a record of it."""
    noise, column, classes = specification.label.noise, specification.label.annotator, data.classes
    if noise is None:
        return None, WrongLabels()
    if noise != "estimated":
        try:
            check_noise(noise, classes)
        except ValueError as error:
            raise TrainingError(f"label.{error}") from error
        confusion = stated_confusion(noise, list(classes))
        wrong = zip(classes, (1 - np.diag(confusion)).tolist(), strict=True)
        rates = {name: WrongLabelShare(rate=rate) for name, rate in wrong}
        matrix = tuple(map(tuple, confusion.tolist()))
        return confusion, WrongLabels(by="stated", rates=rates, confusion=matrix)
    tell().start("estimating the shares of wrong labels", 0, "steps")
    rng = np.random.default_rng([specification.seed, 0x6E6F6973])
    step = partial(tell().advance, 1)
    estimated, n_rows, basis = wrong_labels(data, n_annotators=len(annotators), rng=rng, on_step=step)
    common = estimated.common or estimated
    rates, matrix = _rates(common, classes), tuple(map(tuple, common.confusion.tolist()))
    record = WrongLabels(by="class", rows=n_rows, basis=basis, rates=rates, confusion=matrix)
    if column is not None:
        by_annotator = {name: _rates(estimated, classes, a) for a, name in enumerate(annotators)}
        record = replace(record, by="annotator", column=column, annotators=by_annotator)
    return fitted_confusion(estimated), record


def _rates(
    estimate: LabelNoise, classes: Sequence[str], annotator: int | None = None
) -> dict[str, WrongLabelShare]:
    """Return the shares of wrong labels by class; those of one annotator, where annotators differ."""
    arrays = (estimate.rate, estimate.standard_error, estimate.low, estimate.high)
    columns = ((array if annotator is None else array[annotator]).tolist() for array in arrays)
    return {
        name: WrongLabelShare(rate=rate, standard_error=error, low=low, high=high)
        for name, rate, error, low, high in zip(classes, *columns, strict=True)
    }


def with_recorded_losses(noise: WrongLabels, rows: TrainingRows, trained: TrainedClassifier) -> WrongLabels:
    """Return the record with the log losses of recorded and of true classes; unchanged where labels are right."""
    confusion, recorded = rows.confused(trained.seen), trained.probability
    if confusion is None:
        return noise
    back = np.asarray(np.linalg.inv(confusion), dtype=np.float64)
    p = np.clip(recorded_probability(recorded, back), 0.0, None)
    p = np.where(np.isfinite(recorded), p / p.sum(axis=1, keepdims=True), trained.class_share)
    of_true = log_loss(p, trained.outcome)
    return replace(noise, log_loss=trained.log_loss, log_loss_of_true_classes=of_true)


# The quality of labelled catalogues, for the report: columns, duplicates, outliers, leaks.


def catalog_quality(
    specification: Specification, catalog: Catalog, source: LabelSource, *, limit: int | None = None
) -> Quality:
    """Return the quality of a labelled catalogue."""
    # A copy: the counts of `source` are those of the gathered rows.
    read, table = _class_reader(specification, catalog, replace(source)), specification.catalog
    measured, seen = quality(
        catalog,
        identifier=table.id,
        places=known_place(table, catalog),
        limit=limit,
        choice=None if read is None else lambda values: read(values) != "",
    )
    leaks: list[Leak] = []
    cells = {cell for text in specification.features.values() for cell in parse(text).cells}
    used = {name + "".join(f"[{i}]" for i in index) for name, index in cells}
    suspects: dict[str, str] = {}
    if read is not None:
        labels = read(seen.chosen)
        leaks, _ = found_leaks(catalog, seen, specification.label.column or "", labels)
        alone = {leak.columns[0] for leak in leaks if len(leak.columns) == 1}
        # Columns that may tell how objects were chosen, by their presence or as distances: suspects of `blr init` too.
        values = {n: without_sentinels(seen, n) for n in seen.chosen if n in used - alone}
        uneven = uneven_presence(values, labels)
        for name, value in values.items():
            column = seen.columns[name].column
            why = [uneven[name]] if name in uneven else []
            if about_the_distance(column) and not is_magnitude(column, as_numbers(value)):
                why.append("a distance")
            suspects |= {name: "; ".join(why)} if why else {}
    return replace(
        measured,
        leaks=tuple(SuspectedLeak(**vars(leak), used=used.issuperset(leak.columns)) for leak in leaks),
        commented_out=commented_out(catalog),
        suspects=suspects,
    )


def _class_reader(
    specification: Specification, catalog: Catalog, source: LabelSource
) -> Callable[[Mapping[str, Array]], Array] | None:
    """Return a function from columns to the classes (n,) of rows, '' where the class is missing.

    The classes may be in a column, in a separate table, or given by votes.  None where the catalogue lacks a column
    that the function needs, or where the column does not hold one value a row.
    """
    label = specification.label
    needed = replace(label_columns_reader(specification), where=None).names
    if not all(name in catalog.names and readable(catalog.column(name)) for name in needed):
        return None
    if label.votes is not None:
        marks, names = specification.catalog.sentinels, tuple(label.votes)
        return lambda values: most_voted(
            vote_counts(label, {n: apply_sentinels(values[n], marks.get(n, ())) for n in needed}), names
        )
    unit = position_unit(specification, catalog)
    if label.classes is None:
        return lambda values: source.texts(values, unit)
    reader = LabelReader.of(label, Counter())
    classes = np.array(["", *reader.classes], dtype=object)
    return lambda values: classes[reader.read(source.texts(values, unit)) + 1]
