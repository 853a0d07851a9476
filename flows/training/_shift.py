"""Corrections for a training set that differs from the target: weights of the rows, or shares of the classes.

The weights come from comparing both sets before the fit.  The shares change the logits of a fitted model.
Shapes: N labelled rows, T rows of the target, F features, K classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from blr.calibration import log_loss
from blr.candidates.rows import TrainingSet, density_weights
from blr.candidates.training import MOST_QUADRATIC
from blr.candidates.training import compared as compared_sets
from blr.classifier import Classifier
from blr.shift import ComparedScores, DensityRatio
from blr.threads import default_threads
from flows.engines.current import current_engine
from flows.errors import TrainingError
from flows.models.shift import ESTIMATED, ComparedTarget, SetDifference, ShareCorrection, TargetLoss
from flows.specification.specification import Specification
from flows.training._density_shards import RATIO, compare_shards, weight_shards
from flows.training._rows import TrainingRows, rows_of
from flows.training._stored_rows import StoredRows
from flows.training._target_rows import TargetRows, note_no_comparison, requires_comparison

__all__ = ["compared", "correction", "target_loss"]

Floats = NDArray[np.float64]


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
