"""The staging folder of a training: the rows, their filled features, their description, and fitted members."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.candidates.candidate import JudgedCandidate
from blr.candidates.choice import LeftOut, Selection
from blr.candidates.fits import FittedCandidate
from blr.candidates.rows import TrainingSet
from blr.candidates.training import Training
from blr.gaussian import Gaussian
from blr.missing.moments import FeatureMoments
from blr.threads import default_threads
from catalogs.catalog.catalog import ColumnMetadata
from catalogs.files.atomic import scratch_folder, sweep
from flows.documents import read_document, write_document
from flows.engines.current import current_engine, working_on
from flows.engines.engine import Engine
from flows.models.description import TrainingDescription
from flows.models.store import Store
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._rows import TrainingRows, read_rows, rows_of, write_array
from flows.training._shards import TrainingShards
from flows.training._stored_rows import WEIGHT_OF_ALL, StoredRows
from flows.training._target_rows import StagedShift, read_shift

__all__ = [
    "StagedDescription",
    "StagedTraining",
    "fill_shards",
    "fitted_candidate",
    "folder_for_rows",
    "read_described",
    "stage_shards",
    "summing_on",
    "training_set",
    "write_described",
    "write_fitted",
    "write_moments",
]

Floats = NDArray[np.float64]

INGESTED = "ingested.json"
SHARDS = "shards"
"""Folder of all rows, if they are too many for the memory."""
REFILLED = "refilled.npy"
"""Features of the sample with missing values as the moments of all rows fill them, held-out rows included."""
MOMENTS = "moments.npy"
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
    parts = (_incomplete(part, held_out_too=held_out_too) for part in stored.each(held_out_too=held_out_too))
    moments = FeatureMoments.estimate_of_parts(parts, (rows.X[training], rows.missing[training], own))
    return TrainingSet(rows, moments.impute(rows.X, rows.missing), features, classes, moments)


def write_moments(moments: FeatureMoments, folder: Path) -> None:
    """Write mean and covariance of the features: with many patterns of missing ones, EM takes seconds."""
    write_array(np.vstack([moments.mean, moments.covariance]), folder / MOMENTS)


def _read_moments(folder: Path) -> FeatureMoments:
    """Return the moments of `write_moments`."""
    mean, *covariance = np.load(folder / MOMENTS, allow_pickle=False)
    return FeatureMoments(mean, np.array(covariance))


def _incomplete(rows: TrainingRows, *, held_out_too: bool) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Return features, their mask of missing values, and weights of the rows that the moments are estimated from."""
    training = np.ones(len(rows.target), bool) if held_out_too else rows.training
    weight = np.ones(int(training.sum())) if rows.weight is None else rows.weight[training]
    return rows.X[training], rows.missing[training], weight


@contextmanager
def folder_for_rows(store: Store, name: str, *, dry_run: bool) -> Iterator[Path]:
    """Give a folder for rows that are too many for the memory: in the store or, for a dry run, a temporary one."""
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="blr-rows-") as temporary:
            yield Path(temporary)
        return
    waiting = store.make_folder(name, UNKNOWN_VERSION, staging=True)
    sweep(waiting)
    with scratch_folder(waiting) as folder:
        yield folder
    with suppress(OSError):  # another run's rows may be there
        waiting.rmdir()


@contextmanager
def summing_on(engine: Engine, folder: Path) -> Iterator[None]:
    """Compute sums over the shards in the folder on an engine; without shards, this process does all work."""
    if not (folder / SHARDS).is_dir():
        yield
        return
    with working_on(engine):
        if engine.is_remote:
            tell().note(engine.description)
        yield


def fill_shards(stored: StoredRows, moments: FeatureMoments) -> None:
    """Write the stored rows' features with missing values at their conditional means."""
    stored.add("filled", lambda shard: moments.impute(stored.read("X", shard), stored.read("missing", shard)))


def stage_shards(
    specification: Specification, stored: StoredRows, data: TrainingSet, phi: float, folder: Path
) -> None:
    """Move all rows into the folder, with filled features and with weights divided by the overdispersion `phi`.

    For a refit to all rows, features are filled a second time, by the moments of all rows.
    """
    rows = rows_of(data)
    fill_shards(stored, data.moments)
    if phi != 1:
        if stored.has(WEIGHT_OF_ALL):
            stored.add(WEIGHT_OF_ALL, lambda shard: stored.weights(shard, held_out_too=True) / phi)
        stored.add("weight", lambda shard: stored.weights(shard) / phi)
    if specification.split.refit and rows.held_out.any() and rows.missing.any():
        sample = _of_all(rows, stored)
        whole = training_set(specification, sample, data.classes, stored, held_out_too=True)
        write_array(whole.filled, folder / REFILLED)
        stored.add(
            "refilled",
            lambda shard: whole.moments.impute(stored.read("X", shard), stored.read("missing", shard)),
        )
    shutil.rmtree(folder / SHARDS, ignore_errors=True)
    stored.moved(folder / SHARDS)


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


def write_described(described: StagedDescription, folder: Path) -> None:
    """Write the description of the rows.  It is the last file: where it exists, the ingest is complete."""
    write_document(folder / INGESTED, described)


def read_described(folder: Path) -> StagedDescription:
    """Return what `write_described` wrote."""
    return read_document(StagedDescription, folder / INGESTED)


@dataclass(frozen=True)
class StagedTraining:
    """What is read from the staging folder: the description of the rows, the target, and the training of `blr`."""

    described: StagedDescription
    shifted: StagedShift
    training: Training

    @classmethod
    def read(cls, folder: Path, threads: int | None = None) -> StagedTraining:
        """Return what `ingest` wrote into the folder; fits use so many threads, or the engine of the moment."""
        described, shifted = read_described(folder), read_shift(folder)
        specification, rows = described.specification, read_rows(folder)
        data = TrainingSet(
            rows,
            np.load(folder / "filled.npy", allow_pickle=False),
            tuple(specification.features),
            described.classes,
            _read_moments(folder),
        )
        again: Callable[[], TrainingSet] | None = None
        refit = specification.split.refit and bool(rows.held_out.any())
        if (folder / SHARDS).is_dir():
            stored = StoredRows((folder / SHARDS).absolute())
            engine = current_engine(default_threads() if threads is None else threads)

            def streamed(*, held_out_too: bool) -> TrainingShards:
                by_annotator = rows.confusion_by_annotator
                return TrainingShards(stored, len(described.classes), engine, held_out_too, by_annotator)

            def of_all() -> TrainingSet:
                refilled = folder / REFILLED
                filled = np.load(refilled, allow_pickle=False) if refilled.is_file() else data.filled
                whole, every = _of_all(rows, stored), streamed(held_out_too=True)
                return replace(data, rows=whole, filled=filled, streamed=every)

            data = replace(data, streamed=streamed(held_out_too=False))
            again = of_all if refit else None
        elif refit:
            again = partial(data.of_all, shifted.ratio if specification.shift.density_weights else None)
        select, flags = specification.select, specification.flags
        training = Training(
            tuple(candidate.fitted for candidate in specification.candidate),
            data,
            again,
            Selection(
                **select.model_dump(), low_confidence=flags.low_confidence, close_call=flags.close_call
            ),
            specification.seed,
            threads,
            tell(),
            None if shifted.target is None else (shifted.target.X, shifted.target.missing),
            specification.shift.class_prior,
        )
        return cls(described, shifted, training)


def fitted_candidate(folder: Path, index: int) -> FittedCandidate | None:
    """Return a candidate that a run has fitted; None where none has."""
    done = folder / f"candidate-{index:03d}.json"
    if not done.is_file():
        return None
    row = read_document(JudgedCandidate, done)
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
    write_array(np.stack(arrays), done.with_suffix(".npy"))
    for number, q in enumerate(fitted.drafts):
        write_array(np.vstack([q.mean, q.precision]), folder / f"draft-{index:03d}-{number}.npy")
    write_document(done, fitted.row)
