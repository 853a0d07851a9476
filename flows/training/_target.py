"""The target, the catalogue to classify: its rows, how the labelled ones differ, and the corrections for that.

Weights of the labelled rows come from comparing both sets before the fit.  Class shares change the logits of a fitted
model.  Shapes: N labelled rows, T rows of the target, n rows of a shard, F features, K classes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.calibration import log_loss
from blr.candidates.rows import TrainingSet, density_weights
from blr.candidates.training import compared as compared_sets
from blr.classifier import Classifier
from catalogs.catalog.catalog import Catalog, ColumnMetadata
from catalogs.errors import CatalogError
from catalogs.files import atomic_write_array
from flows.errors import SpecificationError, TrainingError, UsageError
from flows.features.reader import FeatureReader, check_target_marks, converted, target_reader, target_table
from flows.inputs.opening import opened, thinned
from flows.inputs.source import resolve_sources
from flows.models.description import ESTIMATED, ComparedTarget, TargetShift
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._gather import ContentHash, spelled
from flows.training._rows import (
    WEIGHT_OF_ALL,
    StoredRows,
    TrainingRows,
    rows_of,
)

Floats = NDArray[np.float64]

TARGET_ROWS = 50_000
"""Most rows of the target that are compared, taken at equal distances: the error of the AUC is then 0.003."""
MOST_READ = 5_000_000
"""Approximate number of rows that are read at most: of a larger target, only every n-th file is read."""


@dataclass(frozen=True, eq=False)
class TargetRows:
    """Rows of the target: X (T, F), 0 where `missing`; and the whole target that they are of."""

    X: Floats
    missing: NDArray[np.bool_]
    origin: ComparedTarget


def write_target(target: TargetRows, ratio: Floats, folder: Path) -> None:
    """Write rows of the target and density ratios (N,) of the labelled rows, each file whole or not at all."""
    for name, array in (("target_X", target.X), ("target_missing", target.missing), ("ratio", ratio)):
        atomic_write_array(folder / f"{name}.npy", array)


def read_arrays(folder: Path, *names: str) -> tuple[Any, ...]:
    """Return arrays that `write_target` wrote; None in the place of each where there was no comparison."""
    paths = [folder / f"{name}.npy" for name in names]
    return tuple(np.load(path, allow_pickle=False) if path.is_file() else None for path in paths)


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
    nothing = np.empty((0, len(specification.features)))
    X, missing = [nothing], [nothing.astype(bool)]
    for catalog, part in parts:
        reader = converted(general, catalog, trained=trained, stated=specification.target.units)
        check_target_marks(specification.target, catalog)
        for batch in thinned(part.batches(reader.read), step):
            content.feed(spelled(batch, general.read))
            features = reader.evaluate(batch)
            kept = features.inside & ~features.missing.all(axis=1)
            X.append(features.X[kept])
            missing.append(features.missing[kept])
    more = f" and {len(catalogs) - 1} more" if len(catalogs) > 1 else ""
    name = f"{catalogs[0].path.name}{more}"
    known = np.concatenate(X)
    if not len(known):
        raise CatalogError(
            f"{catalogs[0].path}: no row that fulfils target.where has any feature; correct the condition, "
            "the columns or the target"
        )
    origin = ComparedTarget(name=name, n_rows=n_rows, n_compared=len(known), content_hash=content.hexdigest())
    return TargetRows(known, np.concatenate(missing), origin)


def version_content(content_hash: str, specification: Specification, target: TargetRows | None) -> str:
    """Return the hash of all rows that a model depends on; those of the target count if the model needs them."""
    if target is None or not model_needs_target(specification):
        return content_hash
    return hashlib.sha256(f"{content_hash}\n{target.origin['content_hash']}".encode()).hexdigest()


def compared(
    specification: Specification,
    data: TrainingSet,
    target: TargetRows,
    stored: StoredRows | None = None,
) -> tuple[TrainingRows, Floats, TargetShift] | None:
    """Return the rows, their density ratios (N,) and how the sets differ; None where the comparison fails.

    Where the specification asks for density weights, the rows have them.  Where the rows of `data` are a sample of
    `stored` ones, the sample is compared, and all rows get their weights by what it says.
    """
    rows = rows_of(data)
    weighted = specification.shift.density_weights
    try:
        found, basis = compared_sets(data, target.X, target.missing)
    except ValueError as error:
        if requires_comparison(specification):
            raise TrainingError(f"shift.target: {error}") from error
        note_no_comparison(error)
        return None
    ratio = found.ratio
    if stored is not None and weighted:
        stored.add(RATIO, lambda shard: found.of(basis(stored.read("filled", shard))))
        ratio = stored.at(RATIO, rows.numbers)
        n_training, n_effective = weight_shards(stored)
        with_weights = replace(rows, weight=stored.at("weight", rows.numbers))
    else:
        weight = density_weights(rows, ratio)
        n_training, n_effective = int(rows.training.sum()), float(weight[rows.training].sum())
        with_weights = replace(rows, weight=weight)
    difference = TargetShift(
        target=target.origin,
        auc=float(found.auc),
        auc_low=float(found.auc_low),
        auc_high=float(found.auc_high),
        advice=found.advice,
        density_weights=weighted,
        n_training=n_training,
        n_effective=n_effective,
    )
    return with_weights if weighted else rows, ratio, difference


def corrected(
    shift: TargetShift, specification: Specification, classifier: Classifier, share: Floats
) -> TargetShift:
    """Return the record with the class shares that probabilities hold for, and those of the training rows (K,)."""
    moved, source = classifier.log_prior_shift, specification.shift.class_prior_source or "as given"
    if moved is None:
        return shift
    if specification.shift.class_prior == "em" and shift.target is not None:
        source = f"{ESTIMATED}{shift.target['name']}"
    used = share * np.exp(moved)
    return replace(
        shift,
        class_prior=dict(zip(classifier.classes, (used / used.sum()).tolist(), strict=True)),
        class_prior_training=dict(zip(classifier.classes, share.tolist(), strict=True)),
        class_prior_source=source,
    )


def judged_as_target(
    noted: TargetShift,
    classifier: Classifier,
    rows: TrainingRows,
    columns: list[int],
    share: Floats,
    ratio: Floats | None,
) -> TargetShift:
    """Return the record with the log loss of held-out rows weighted as the target, with and without corrected shares.

    It is unchanged where no row is held out, or where nothing says how the target differs.  Where class shares are
    corrected, the weights are the ratios of the shares; otherwise they are the density `ratio` (N,).  `share` (K,) are
    the class shares of the training rows; the classifier's features are at the `columns` of the rows.
    """
    held_out, truth, shift = rows.held_out, rows.target[rows.held_out], classifier.log_prior_shift
    if not held_out.any() or (shift is None and ratio is None):
        return noted
    weight = np.ones(len(truth)) if rows.weight is None else rows.weight[held_out]
    if shift is not None:
        weight = weight * np.exp(shift)[truth]
    elif ratio is not None and not noted.density_weights:  # else the rows' weights include the ratio already
        weight = weight * ratio[held_out]
    X, missing = rows.X[held_out][:, columns], rows.missing[held_out][:, columns]

    def loss(judged: Classifier, shares: Floats) -> float:
        p = judged.score(X, missing).probability
        return log_loss(np.where(np.isnan(p[:, :1]), shares, p), truth, weight=weight)

    noted = replace(noted, n_effective_held_out=float(weight.sum() ** 2 / (weight**2).sum()))
    if shift is None:
        return replace(noted, log_loss=loss(classifier, share))
    new = share * np.exp(shift)
    return replace(
        noted,
        log_loss=loss(classifier, new / new.sum()),
        log_loss_uncorrected=loss(replace(classifier, log_prior_shift=None), share),
    )


RATIO = "ratio"
"""Array of the density ratios of the stored rows."""


def weight_shards(stored: StoredRows) -> tuple[int, float]:
    """Weight the stored rows by their density ratios; return the number of training rows and their effective number.

    Weights of training rows sum to their effective number.  A second array has the weights for fits to all rows.
    """
    n_training = 0
    sums = np.zeros((2, 2))  # Σ g r and Σ g r², of the training rows and of all
    for shard in stored.shards:
        ratio, training_rows = stored.read(RATIO, shard), ~stored.read("held_out", shard)
        weighted = stored.weights(shard) * ratio
        n_training += int(training_rows.sum())
        for i, some in enumerate((training_rows, np.ones_like(training_rows))):
            sums[i] += weighted[some].sum(), weighted[some] @ ratio[some]
    training, all_rows = sums[:, 0] / sums[:, 1]
    stored.add(WEIGHT_OF_ALL, lambda shard: all_rows * stored.weights(shard) * stored.read(RATIO, shard))
    stored.add(
        "weight",
        lambda shard: (
            stored.weights(shard)
            * stored.read(RATIO, shard)
            * np.where(stored.read("held_out", shard), 1.0, training)
        ),
    )
    return n_training, float(sums[0, 0] * training)
