"""The target, the catalogue to classify: its rows, how the labelled ones differ, and the corrections for that.

Weights of the labelled rows come from comparing both sets before the fit.  Class shares change the logits of a fitted
model.  Shapes: N labelled rows, T rows of the target, n rows of a shard, F features, K classes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blr.arrays import Floats, Mask
from blr.basis.base import Basis, Standardisation
from blr.basis.kinds import fit_basis
from blr.calibration import log_loss
from blr.candidates.rows import TrainingSet, density_weights
from blr.candidates.training import MOST_QUADRATIC, TrainedClassifier, Training
from blr.candidates.training import compared as compared_sets
from blr.classifier import Classifier
from blr.posterior.kinds import LaplacePosterior
from blr.selection.evidence import fit_evidence
from blr.shift import FOLDS, Area, advice, clipped_ratio, compare_scores, require_enough_rows
from blr.sums import Chunk, chunk_rows
from blr.threads import default_threads
from catalogs.catalog.catalog import Catalog, ColumnMetadata
from catalogs.errors import CatalogError
from catalogs.files import atomic_write_array
from flows.engines.engine import Engine, current_engine
from flows.errors import SpecificationError, TrainingError, UsageError
from flows.features.reader import FeatureReader, check_target_marks, converted, target_reader, target_table
from flows.inputs.opening import opened, thinned
from flows.inputs.source import resolve_sources
from flows.models.description import ESTIMATED, ComparedTarget, TargetShift
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._gather import content_hash, spelled
from flows.training._rows import (
    WEIGHT_OF_ALL,
    DesignShards,
    Shard,
    StoredRows,
    TrainingRows,
    rows_of,
    shards_of,
)

NOT_COMPARED = "the target is not compared with the training rows"
TARGET_ROWS = 50_000
"""Most rows of the target that are compared, taken at equal distances: the error of the AUC is then 0.003."""
MOST_READ = 5_000_000
"""Approximate number of rows that are read at most: of a larger target, only every n-th file is read."""


class TargetRows(NamedTuple):
    """Rows of the target: X (T, F), 0 where `missing` (T, F); and the whole target that they are of."""

    X: Floats
    missing: Mask
    origin: ComparedTarget


def model_needs_target(specification: Specification) -> bool:
    """Say whether the model itself depends on the target, not only its report."""
    return specification.shift.density_weights or specification.shift.class_prior == "em"


def read_target(
    specification: Specification, trained: Mapping[str, ColumnMetadata], *, limit: int | None = None
) -> TargetRows | None:
    """Return rows of the target that a specification names; None where it names none.

    `trained` is the metadata of the labelled catalogue's columns.  A target that cannot be read is an error if the
    specification requires the comparison; one that is only named under [target] gives a note, and None.
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
        tell().note(f"{NOT_COMPARED}: {error}")
        return None


def requires_comparison(specification: Specification) -> bool:
    """Say whether a training fails without the comparison; otherwise it is made only if the target can be read."""
    return model_needs_target(specification) or specification.shift.target is not None


def _read(
    specification: Specification,
    general: FeatureReader,
    catalogs: Sequence[Catalog],
    trained: Mapping[str, ColumnMetadata],
    limit: int | None,
) -> TargetRows:
    content = {name: hashlib.sha256() for name in general.read}
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
            for column, values in spelled(batch, general.read).items():
                content[column].update(values)
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
    origin = ComparedTarget(
        name=name, n_rows=n_rows, n_compared=len(known), content_hash=content_hash(content)
    )
    return TargetRows(known, np.concatenate(missing), origin)


def compared(
    specification: Specification, data: TrainingSet, target: TargetRows, stored: StoredRows | None = None
) -> tuple[TrainingRows, Floats, TargetShift] | None:
    """Return the rows, their density ratios (N,) and how the sets differ; None where the comparison fails.

    Where the specification asks for density weights, the rows have them.  Where the rows of `data` are a sample of
    `stored` ones, weights come from all of these, which get them too; without weights, the sample is compared.
    """
    rows, weighted, (X, missing, origin) = rows_of(data), specification.shift.density_weights, target
    try:
        if stored is not None and weighted:
            engine = current_engine(default_threads())
            other = data.moments.impute(X, missing)
            degree = 2 if other.shape[1] <= MOST_QUADRATIC else 1
            area = compare_shards(stored, rows, data.filled, other, engine, degree=degree)
            ratio = stored.at(RATIO, rows.numbers)
            n_training, n_effective = weight_shards(stored)
            weight = stored.at("weight", rows.numbers)
        else:
            found = compared_sets(data, X, missing)
            area, ratio = (found.auc, found.auc_low, found.auc_high), found.ratio
            weight = density_weights(rows, ratio)
            n_training, n_effective = int(rows.training.sum()), float(weight[rows.training].sum())
    except ValueError as error:
        if requires_comparison(specification):
            raise TrainingError(f"shift.target: {error}") from error
        tell().note(f"{NOT_COMPARED}: {error}")
        return None
    difference = TargetShift(
        target=origin,
        auc=float(area[0]),
        auc_low=float(area[1]),
        auc_high=float(area[2]),
        advice=advice(*area[:2]),
        density_weights=weighted,
        n_training=n_training,
        n_effective=n_effective,
    )
    return replace(rows, weight=weight) if weighted else rows, ratio, difference


def corrected(shift: TargetShift, specification: Specification, trained: TrainedClassifier) -> TargetShift:
    """Return the record with the class shares that probabilities hold for, and those of the training rows (K,)."""
    classifier, share = trained.classifier, trained.class_share_kept
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
    noted: TargetShift, training: Training, trained: TrainedClassifier, ratio: Floats | None
) -> TargetShift:
    """Return the record with the log loss of held-out rows weighted as the target, with and without corrected shares.

    It is unchanged where no row is held out, or where nothing says how the target differs.  Where class shares are
    corrected, the weights are the ratios of the shares; otherwise they are the density `ratio` (N,).
    """
    classifier = trained.classifier if trained.judged is None else trained.judged
    rows, share, columns = rows_of(training.judged), trained.class_share, training.used(classifier)
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
    corrected_loss = loss(classifier, new / new.sum())
    uncorrected = loss(replace(classifier, log_prior_shift=None), share)
    return replace(noted, log_loss=corrected_loss, log_loss_uncorrected=uncorrected)


# Density ratios of rows on the disk, by fits of which set a row is in: as `blr.density_ratio` has them in memory.
#
# Rows of both sets are numbered together: those of the target come last.

RATIO = "ratio"
"""Array of the density ratios of the labelled rows."""
TARGET, SCORE = "target_filled", "score"
"""Arrays, for the time of the comparison, of the target's features and of the scores of the labelled rows."""


def _read_of_both(stored: StoredRows, fold: int | None, mean_weight: float | None, shard: Shard) -> Chunk:
    """Return features (n, F), 1 for a row of the target and 0 for a labelled one (n,), and weights (n,) or None.

    The rows are those that are not in a fold, or all.  `mean_weight` is that of the labelled rows, by which their
    weights are divided; None gives rows without weights.
    """
    chosen = np.arange(*shard) % FOLDS != fold if fold is not None else slice(None)
    N, weight = stored.n_rows, None
    if shard[0] >= N:
        X = stored.read(TARGET, (shard[0] - N, shard[1] - N))[chosen]
        return X, np.ones(len(X)), None if mean_weight is None else np.ones(len(X))
    X = stored.read("filled", shard)[chosen]
    if mean_weight is not None:
        weight = stored.weights(shard)[chosen] / mean_weight
    return X, np.zeros(len(X)), weight


def compare_shards(
    stored: StoredRows, rows: TrainingRows, filled: Floats, target: Floats, engine: Engine, *, degree: int
) -> Area:
    """Return how the labelled rows differ from the target (T, F), and write the density ratio of each labelled row.

    `rows` are the sample of the labelled rows in memory, `filled` (n, F) its features.  `degree` is that of the
    polynomial that distinguishes the sets.  ValueError if there are too few rows.
    """
    N, n_target = stored.n_rows, len(target)
    require_enough_rows(N, n_target)
    atomic_write_array(stored.folder / f"{TARGET}.npy", target)
    shards: list[Shard] = [*stored.shards, *((N + start, N + stop) for start, stop in shards_of(n_target))]
    some = np.concatenate([filled, target])
    raw = DesignShards(partial(_read_of_both, stored, None, None), shards, engine, None, some.shape[1])
    standardisation = Standardisation.learn_by_sums(raw.accumulate, some)
    basis: Basis = replace(fit_basis("polynomial", some, degree=degree), standardisation=standardisation)
    weight_sums = np.zeros(FOLDS)
    for shard in stored.shards:
        weight_sums += np.bincount(np.arange(*shard) % FOLDS, stored.weights(shard), FOLDS)
    mean = weight_sums.sum() / N

    def fit(fold: int) -> LaplacePosterior:
        """Return the fit, to the rows of both sets outside a fold, of which set a row is in."""
        outside = (weight_sums.sum() - weight_sums[fold]) / mean
        mine = rows.numbers % FOLDS != fold
        own = (np.ones(len(mine)) if rows.weight is None else rows.weight)[mine]
        theirs = target[np.arange(N, N + n_target) % FOLDS != fold]
        weight = np.concatenate([own * (outside / own.sum()), np.ones(len(theirs))])
        is_target = np.concatenate([np.zeros(len(own)), np.ones(len(theirs))])
        chunk = (np.concatenate([filled[mine], theirs]), is_target, weight)
        sample = DesignShards.of_sample(chunk, basis)
        read = partial(_read_of_both, stored, fold, mean)
        n_effective = outside + len(theirs)
        design = DesignShards(read, shards, engine, basis, basis.n_functions, n_effective, sample)
        return fit_evidence(design, None, classes=range(2))

    fits = [fit(fold) for fold in range(FOLDS)]
    stored.add(SCORE, lambda shard: _scores(fits, basis, stored.read("filled", shard), shard[0]))
    theirs = _scores(fits, basis, target, N)
    area, highest = compare_scores(lambda: (stored.read(SCORE, shard) for shard in stored.shards), theirs)
    stored.add(RATIO, lambda shard: clipped_ratio(stored.read(SCORE, shard), highest))
    for name in (SCORE, TARGET):
        (stored.folder / f"{name}.npy").unlink()
    return area


def _scores(fits: list[LaplacePosterior], basis: Basis, X: Floats, first: int) -> Floats:
    """Return the logits (n,) that rows X (n, F), numbered from `first` on, are of the target: by the other fold."""
    score, size = np.empty(len(X)), chunk_rows(basis.n_functions)
    for start in range(0, len(X), size):
        some = slice(start, start + size)
        Phi = basis(X[some])
        fold = np.arange(first + start, first + start + len(Phi)) % FOLDS
        score[some] = np.choose(fold, [Phi @ q.mean for q in fits])
    return score


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

    def weight(shard: Shard) -> Floats:
        own = np.where(stored.read("held_out", shard), 1.0, training)
        return np.asarray(stored.weights(shard) * stored.read(RATIO, shard) * own)

    stored.add("weight", weight)
    return n_training, float(sums[0, 0] * training)
