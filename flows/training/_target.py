"""The target, the catalogue to classify: its rows, how the labelled ones differ, and the corrections for that.

Weights of the labelled rows come from comparing both sets before the fit.  Class shares change the logits of a fitted
model.  Shapes: N labelled rows, T rows of the target, F features, K classes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.calibration import log_loss
from blr.candidates.rows import TrainingSet, density_weights
from blr.candidates.training import MOST_QUADRATIC
from blr.candidates.training import compared as compared_sets
from blr.classifier import Classifier
from blr.shift import ComparedScores, DensityRatio
from blr.threads import default_threads
from catalogs.catalog.catalog import Catalog, ColumnMetadata
from catalogs.errors import CatalogError
from flows.documents import read_document, write_document
from flows.engines.engine import current_engine
from flows.errors import SpecificationError, TrainingError, UsageError
from flows.features.reader import FeatureReader, check_target_marks, target_reader, target_table
from flows.features.units import converted
from flows.inputs.opening import opened, thinned
from flows.inputs.source import resolve_sources
from flows.models.description import ESTIMATED, ComparedTarget, SetDifference, ShareCorrection, TargetLoss
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._reading import ContentHash, spelled
from flows.training._rows import StoredRows, TrainingRows, rows_of, write_array
from flows.training._shards import RATIO, compare_shards, weight_shards

Floats = NDArray[np.float64]

TARGET_ROWS = 50_000
"""Most rows of the target that are compared, taken at equal distances: the error of the AUC is then 0.003."""
MOST_READ = 5_000_000
"""Approximate number of rows that are read at most: of a larger target, only every n-th file is read."""


@dataclass(frozen=True, eq=False)
class TargetRows:
    """Rows of the target: X (T, F), 0 where `missing`; and the name, number of rows and hash of the whole target."""

    X: Floats
    missing: NDArray[np.bool_]
    name: str
    n_rows: int
    content_hash: str


@dataclass(frozen=True, kw_only=True)
class TargetOrigin:
    """The name, the number of rows and the hash of a target, in a file beside its rows."""

    name: str
    n_rows: int
    content_hash: str


@dataclass(frozen=True, eq=False)
class StagedShift:
    """What the staging folder holds of the comparison: rows of the target, density ratios (N,) of labelled rows."""

    target: TargetRows | None = None
    ratio: Floats | None = None


def write_shift(target: TargetRows, ratio: Floats, folder: Path) -> None:
    """Write rows of the target and density ratios, each file whole or not at all."""
    for name, array in (("target_X", target.X), ("target_missing", target.missing), ("ratio", ratio)):
        write_array(array, folder / f"{name}.npy")
    origin = TargetOrigin(name=target.name, n_rows=target.n_rows, content_hash=target.content_hash)
    write_document(folder / STAGED, origin)


def read_shift(folder: Path) -> StagedShift:
    """Return what `write_shift` wrote; an empty result where there was no comparison."""
    if not (folder / STAGED).is_file():
        return StagedShift()
    X, missing, ratio = (
        np.load(folder / f"{name}.npy", allow_pickle=False)
        for name in ("target_X", "target_missing", "ratio")
    )
    origin = read_document(TargetOrigin, folder / STAGED)
    return StagedShift(TargetRows(X, missing, **vars(origin)), ratio)


STAGED = "target.json"


def model_needs_target(specification: Specification) -> bool:
    """Say whether the model itself depends on the target, not only its report."""
    return specification.shift.density_weights or specification.shift.class_prior == "em"


def read_target(
    specification: Specification, trained: Mapping[str, ColumnMetadata], *, limit: int | None = None
) -> TargetRows | None:
    """Return rows of the target that a specification names; None where it names none.

    `trained` is the metadata of the labelled catalogue's columns.  A target that cannot be read is an error
    (SpecificationError, UsageError, CatalogError or OSError) if the specification requires the comparison.  A target
    that is only named under [target] may be missing or damaged: a note says so, and the result is None.
    """
    shift, needed = specification.shift, model_needs_target(specification)
    named = shift.target or specification.target.paths
    if named is None:
        if needed:
            raise SpecificationError(
                f"shift.{'density_weights' if shift.density_weights else 'class_prior'}: got no target, "
                'expected the catalogue with which the training rows are compared; add target = "..." '
                "under [shift], or paths under [target]"
            )
        return None
    try:
        reader = target_reader(specification, specification.features)
        key = "shift.target" if shift.target else "target.paths"
        sources = resolve_sources(named, Path(specification.base_folder), key=key)
        with opened(sources, target_table(specification, reader), key=key) as catalogs:
            return _read(specification, reader, catalogs, trained, limit)
    except (CatalogError, UsageError, OSError) as error:
        if requires_comparison(specification):
            raise
        note_no_comparison(error)
        return None


def requires_comparison(specification: Specification) -> bool:
    """Say whether a training fails without the comparison; otherwise it is made only if the target can be read."""
    return model_needs_target(specification) or specification.shift.target is not None


def note_no_comparison(error: Exception) -> None:
    """Tell the user why the target is not compared with the training rows."""
    tell().note(f"the target is not compared with the training rows: {error}")


def _read(
    specification: Specification,
    general: FeatureReader,
    catalogs: Sequence[Catalog],
    trained: Mapping[str, ColumnMetadata],
    limit: int | None,
) -> TargetRows:
    content = ContentHash(general.read)
    parts = [(c, part) for c in catalogs for part in c.partitions if part.counted]
    n_rows = sum(part.n_rows for _, part in parts)
    parts = parts[:: max(1, math.ceil(n_rows / MOST_READ))]
    wanted = TARGET_ROWS if limit is None else min(limit, TARGET_ROWS)
    step = max(1, math.ceil(sum(part.n_rows for _, part in parts) / wanted))
    X, missing = (
        [np.empty((0, len(specification.features)))],
        [np.empty((0, len(specification.features)), bool)],
    )
    for catalog, part in parts:
        reader = converted(general, catalog, trained=trained, stated=specification.target.units)
        check_target_marks(specification.target, catalog)
        for batch in thinned(part.batches(reader.read), step):
            content.feed(spelled(batch, general.read))
            features = reader.evaluate(batch)
            kept = features.inside & ~features.missing.all(axis=1)
            X.append(features.X[kept])
            missing.append(features.missing[kept])
    name = (
        catalogs[0].path.name
        if len(catalogs) == 1
        else f"{catalogs[0].path.name} and {len(catalogs) - 1} more"
    )
    rows = TargetRows(np.concatenate(X), np.concatenate(missing), name, n_rows, content.hexdigest())
    if not len(rows.X):
        raise CatalogError(
            f"{catalogs[0].path}: no row that fulfils target.where has any feature; correct the condition, "
            "the columns or the target"
        )
    return rows


def version_content(content_hash: str, specification: Specification, target: TargetRows | None) -> str:
    """Return the hash of all rows that a model depends on; those of the target count if the model needs them."""
    if target is None or not model_needs_target(specification):
        return content_hash
    return hashlib.sha256(f"{content_hash}\n{target.content_hash}".encode()).hexdigest()


def compared(
    specification: Specification,
    data: TrainingSet,
    target: TargetRows,
    stored: StoredRows | None = None,
) -> tuple[TrainingRows, Floats, SetDifference] | None:
    """Return the rows, their density ratios (N,) and how the sets differ; None where the comparison fails.

    Where the specification asks for density weights, the rows have them.  Where the rows of `data` are a sample of
    `stored` ones, weights come from all of these, which get them too; without weights, the sample is compared.
    """
    rows = rows_of(data)
    weighted = specification.shift.density_weights
    found: ComparedScores | DensityRatio
    try:
        if stored is not None and weighted:
            engine = current_engine(default_threads())
            other = data.moments.impute(target.X, target.missing)
            degree = 2 if other.shape[1] <= MOST_QUADRATIC else 1
            found = compare_shards(stored, rows, data.filled, other, engine, degree=degree)
            ratio = stored.at(RATIO, rows.numbers)
        else:
            found = compared_sets(data, target.X, target.missing)
            ratio = found.ratio
    except ValueError as error:
        if requires_comparison(specification):
            raise TrainingError(f"shift.target: {error}") from error
        note_no_comparison(error)
        return None
    if stored is not None and weighted:
        n_training, n_effective = weight_shards(stored)
        with_weights = replace(rows, weight=stored.at("weight", rows.numbers))
    else:
        weight = density_weights(rows, ratio)
        n_training, n_effective = int(rows.training.sum()), float(weight[rows.training].sum())
        with_weights = replace(rows, weight=weight)
    difference = SetDifference(
        target=ComparedTarget(
            name=target.name,
            n_rows=target.n_rows,
            n_compared=len(target.X),
            content_hash=target.content_hash,
        ),
        auc=float(found.auc),
        auc_low=float(found.auc_low),
        auc_high=float(found.auc_high),
        advice=found.advice,
        density_weights=weighted,
        n_training=n_training,
        n_effective=n_effective,
    )
    return with_weights if weighted else rows, ratio, difference


def correction(
    specification: Specification, classifier: Classifier, share: Floats, target: TargetRows | None
) -> ShareCorrection | None:
    """Return the class shares that a classifier's probabilities hold for, with those of its training rows (K,)."""
    prior, shift = specification.shift.class_prior, classifier.log_prior_shift
    if shift is None:
        return None
    source = specification.shift.class_prior_source or "as given"
    if prior == "em" and target is not None:
        source = f"{ESTIMATED}{target.name}"
    used = share * np.exp(shift)
    return ShareCorrection(
        class_prior=dict(zip(classifier.classes, (used / used.sum()).tolist(), strict=True)),
        class_prior_training=dict(zip(classifier.classes, share.tolist(), strict=True)),
        class_prior_source=source,
    )


def target_loss(
    specification: Specification,
    classifier: Classifier,
    rows: TrainingRows,
    share: Floats,
    ratio: Floats | None,
) -> TargetLoss | None:
    """Return the log loss of held-out rows that are weighted as the target, with and without corrected class shares.

    None where no row is held out, or where nothing says how the target differs.  Where class shares are corrected,
    the weights are the ratios of the shares; otherwise they are the density `ratio` (N,).  `share` (K,) are the class
    shares of the training rows.
    """
    held_out, truth, shift = rows.held_out, rows.target[rows.held_out], classifier.log_prior_shift
    if not held_out.any():
        return None
    weight = np.ones(len(truth)) if rows.weight is None else rows.weight[held_out]
    if shift is not None:
        weight = weight * np.exp(shift)[truth]
    elif ratio is None:
        return None
    elif not specification.shift.density_weights:  # with them, the rows' weights include the ratio already
        weight = weight * ratio[held_out]
    columns = _columns(specification, classifier)
    X, missing = rows.X[held_out][:, columns], rows.missing[held_out][:, columns]

    def loss(judged: Classifier, shares: Floats) -> float:
        p = judged.score(X, missing).probability
        return log_loss(np.where(np.isnan(p[:, :1]), shares, p), truth, weight=weight)

    effective = float(weight.sum() ** 2 / (weight**2).sum())
    if shift is None:
        return TargetLoss(n_effective_held_out=effective, log_loss=loss(classifier, share))
    new = share * np.exp(shift)
    return TargetLoss(
        n_effective_held_out=effective,
        log_loss=loss(classifier, new / new.sum()),
        log_loss_uncorrected=loss(replace(classifier, log_prior_shift=None), share),
    )


def _columns(specification: Specification, classifier: Classifier) -> list[int]:
    """Return the positions of the classifier's features among all features."""
    names = list(specification.features)
    return [names.index(name) for name in classifier.features]
