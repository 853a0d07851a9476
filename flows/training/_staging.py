"""The staging folder of a training: the rows, their filled features, their description, and fitted members."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.gaussian import Gaussian
from blr.missing.moments import FeatureMoments
from catalogs.catalog.catalog import ColumnMetadata
from catalogs.files.atomic import scratch_folder, sweep
from flows.documents import read_document, write_document
from flows.engines.current import working_on
from flows.engines.engine import Engine
from flows.models.description import TrainingDescription
from flows.models.store import Store
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._candidate_data import CandidateData
from flows.training._rows import TrainingRows, read_rows, write_array
from flows.training._shift import with_density_weights_of_all
from flows.training._stored_rows import WEIGHT_OF_ALL, StoredRows
from flows.training._target_rows import read_shift

__all__ = [
    "StagedDescription",
    "StagedTraining",
    "fill_shards",
    "filled_features",
    "folder_for_rows",
    "read_described",
    "read_drafts",
    "stage_shards",
    "summing_on",
    "write_described",
    "write_drafts",
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


def filled_features(
    rows: TrainingRows, stored: StoredRows | None = None, *, held_out_too: bool = False
) -> tuple[FeatureMoments, Floats]:
    """Return the moments of the training rows' features, and all features with missing values at conditional means.

    Where `rows` are a sample, the moments are those of the `stored` training rows, or of all stored rows if
    `held_out_too`.
    """
    training, weight = rows.training, rows.weight
    X, missing = rows.X[training], rows.missing[training]
    if stored is None:
        own = None if weight is None else weight[training]
        moments = FeatureMoments.estimate(X, missing, weight=own)
    else:
        sample = X, missing, np.ones(len(X)) if weight is None else weight[training]
        every = stored.each(held_out_too=held_out_too)
        parts = (_incomplete(part, held_out_too=held_out_too) for part in every)
        moments = FeatureMoments.estimate_of_parts(parts, sample)
    return moments, moments.impute(rows.X, rows.missing)


def write_moments(moments: FeatureMoments, folder: Path) -> None:
    """Write mean and covariance of the features: with many patterns of missing ones, EM takes seconds."""
    write_array(np.vstack([moments.mean, moments.covariance]), folder / MOMENTS)


def _read_moments(folder: Path) -> FeatureMoments | None:
    """Return the moments of `write_moments`; None where an earlier version began the training."""
    if not (folder / MOMENTS).is_file():
        return None
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
    stored: StoredRows, rows: TrainingRows, moments: FeatureMoments, phi: float, folder: Path, *, refit: bool
) -> None:
    """Move all rows into the folder, with filled features and with weights divided by the overdispersion `phi`.

    For a `refit` to all rows, features are filled a second time, by the moments of all rows.  `rows` are the sample.
    """
    fill_shards(stored, moments)
    if phi != 1:
        if stored.has(WEIGHT_OF_ALL):
            stored.add(WEIGHT_OF_ALL, lambda shard: stored.weights(shard, held_out_too=True) / phi)
        stored.add("weight", lambda shard: stored.weights(shard) / phi)
    if refit and rows.missing.any():
        whole = _of_all(rows, stored)
        of_all, filled = filled_features(whole, stored, held_out_too=True)
        write_array(filled, folder / REFILLED)
        stored.add(
            "refilled", lambda shard: of_all.impute(stored.read("X", shard), stored.read("missing", shard))
        )
    shutil.rmtree(folder / SHARDS, ignore_errors=True)
    stored.moved(folder / SHARDS)


def _of_all(rows: TrainingRows, stored: StoredRows) -> TrainingRows:
    """Return the sample of the stored rows for a fit to all of them, held-out rows included."""
    weight = stored.at(WEIGHT_OF_ALL, rows.numbers) if stored.has(WEIGHT_OF_ALL) else rows.weight
    return replace(rows, held_out=np.zeros_like(rows.held_out), weight=weight)


def write_drafts(drafts: Sequence[Gaussian], folder: Path, index: int) -> None:
    """Write the drafts of a candidate's parts, a file for each: the mean (D,) as a row above the precision (D, D)."""
    for number, q in enumerate(drafts):
        write_array(np.vstack([q.mean, q.precision]), folder / f"draft-{index:03d}-{number}.npy")


def read_drafts(folder: Path, index: int) -> tuple[Gaussian, ...]:
    """Return what `write_drafts` wrote, part by part; nothing where it wrote nothing."""
    # There are fewer than ten parts, so that the order of the names is that of the numbers.
    paths = sorted(folder.glob(f"draft-{index:03d}-*.npy"))
    arrays = (np.load(path, allow_pickle=False) for path in paths)
    return tuple(Gaussian(array[0], array[1:]) for array in arrays)


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
    """What is read from the staging folder: the description of the rows, and the rows."""

    folder: Path
    described: StagedDescription
    data: CandidateData

    @property
    def specification(self) -> Specification:
        """The specification of the training."""
        return self.described.specification

    @cached_property
    def fits(self) -> dict[str, CandidateData]:
        """The rows for the fits: "judged", and "kept" too if the model is fitted again to all rows."""
        rows = self.data.rows
        if not (self.specification.split.refit and rows.held_out.any()):
            return {"judged": self.data}
        if self.data.stored is not None:
            refilled = self.folder / REFILLED
            filled = np.load(refilled, allow_pickle=False) if refilled.is_file() else self.data.filled
            whole = _of_all(rows, self.data.stored)
            return {
                "judged": self.data,
                "kept": replace(self.data, rows=whole, filled=filled, moments=None, held_out_too=True),
            }
        ratio = read_shift(self.folder).ratio
        if ratio is not None and self.specification.shift.density_weights:
            rows = with_density_weights_of_all(rows, ratio)
        whole = replace(rows, held_out=np.zeros_like(rows.held_out))
        moments, filled = filled_features(whole)
        return {"judged": self.data, "kept": replace(self.data, rows=whole, filled=filled, moments=moments)}

    @property
    def kept(self) -> str:
        """Which of the fits makes the model that is kept: "kept", or "judged" without a second fit."""
        return "kept" if "kept" in self.fits else "judged"

    @classmethod
    def read(cls, folder: Path) -> StagedTraining:
        """Return what `ingest` wrote into the folder."""
        described = read_described(folder)
        filled = np.load(folder / "filled.npy", allow_pickle=False)
        stored = StoredRows((folder / SHARDS).absolute()) if (folder / SHARDS).is_dir() else None
        return cls(
            folder,
            described,
            CandidateData(
                read_rows(folder), filled, described.classes, stored, moments=_read_moments(folder)
            ),
        )
