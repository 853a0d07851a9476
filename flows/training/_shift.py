"""Corrections for a training set that differs from the target: weights of the rows, or shares of the classes.

The weights come from comparing both sets before the fit.  The shares change the logits of a fitted model.
Shapes: N labelled rows, T rows of the target, F features, K classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from blr.basis.kinds import fit_basis
from blr.calibration import log_loss
from blr.classifier import Classifier
from blr.missing.moments import FeatureMoments
from blr.shift import ComparedScores, DensityRatio, class_priors, density_ratio, log_prior_shift, rescaled
from blr.threads import default_threads
from flows.engines.current import current_engine
from flows.errors import TrainingError
from flows.models.shift import ESTIMATED, ComparedTarget, SetDifference, ShareCorrection, TargetLoss
from flows.specification.specification import Specification
from flows.training._density_shards import RATIO, compare_shards, weight_shards
from flows.training._rows import TrainingRows
from flows.training._stored_rows import StoredRows
from flows.training._target_rows import TargetRows, note_no_comparison, requires_comparison

__all__ = ["compared", "corrected", "density_weights", "target_loss", "with_density_weights_of_all"]

Floats = NDArray[np.float64]

MOST_QUADRATIC = 20
"""Most features with products in the comparison of the sets: more features would have hundreds of products."""


def compared(
    specification: Specification,
    rows: TrainingRows,
    filled: Floats,
    target: TargetRows,
    moments: FeatureMoments,
    stored: StoredRows | None = None,
) -> tuple[TrainingRows, Floats, SetDifference] | None:
    """Return the rows, their density ratios (N,) and how the sets differ; None where the comparison fails.

    Where the specification asks for density weights, the rows have them.  `filled` (N, F) are the features with missing
    values at their conditional mean.  `moments` fill those of the target in the same way.  Where `rows` are a sample of
    `stored` ones, weights come from all of these, which get them too; without weights, the sample is compared.
    """
    other = moments.impute(target.X, target.missing)
    degree = 2 if filled.shape[1] <= MOST_QUADRATIC else 1
    weighted = specification.shift.density_weights
    found: ComparedScores | DensityRatio
    try:
        if stored is not None and weighted:
            engine = current_engine(default_threads())
            found = compare_shards(stored, rows, filled, other, engine, degree=degree)
            ratio = stored.at(RATIO, rows.numbers)
        else:
            basis = fit_basis("polynomial", np.concatenate([filled, other]), degree=degree)
            found = density_ratio(basis(filled), basis(other), train_weight=rows.weight)
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


def density_weights(rows: TrainingRows, ratio: Floats) -> Floats:
    """Return the weights (N,) of rows by density ratio (N,); those of training rows sum to their effective number."""
    training = rows.training
    weight = ratio if rows.weight is None else ratio * rows.weight
    weight = weight.copy()
    own = None if rows.weight is None else rows.weight[training]
    weight[training] = rescaled(ratio[training], own)
    return weight


def with_density_weights_of_all(rows: TrainingRows, ratio: Floats) -> TrainingRows:
    """Return rows of `density_weights` with weights for a fit to all rows, which sum to their effective number.

    `density_weights` gave the training rows the weights w = c g r with the catalogue's weights g.  Its factor is
    c = Σw/Σwr, which is divided out first.
    """
    assert rows.weight is not None  # noqa: S101  density_weights has set them
    training, plain = rows.training, rows.weight.copy()
    seen = plain[training]
    plain[training] = seen * (seen @ ratio[training]) / seen.sum()
    return replace(rows, weight=plain * (plain.sum() / (plain @ ratio)))


def corrected(
    specification: Specification, classifier: Classifier, share: Floats, target: TargetRows | None
) -> tuple[Classifier, ShareCorrection | None]:
    """Return the classifier with the class shares of the target, and these shares.

    Where the specification asks for no other shares, the classifier is unchanged and the shares are None.  `share`
    (K,) are the class shares of the training rows.
    """
    prior = specification.shift.class_prior
    if prior is None:
        return classifier, None
    if prior == "em":
        assert target is not None  # noqa: S101  read_target raises otherwise
        columns = _columns(specification, classifier)
        p = classifier.score(target.X[:, columns], target.missing[:, columns]).probability
        estimate = class_priors(p, share)
        shift, source = estimate.log_shift, f"{ESTIMATED}{target.name}"
    else:
        if set(prior) != set(classifier.classes):
            raise TrainingError(
                f"shift.class_prior: got shares of {', '.join(prior)}, expected one share for each class: "
                f"{', '.join(classifier.classes)}; correct the names"
            )
        shift = log_prior_shift([prior[name] for name in classifier.classes], share)
        source = specification.shift.class_prior_source or "as given"
    used = share * np.exp(shift)
    correction = ShareCorrection(
        class_prior=dict(zip(classifier.classes, (used / used.sum()).tolist(), strict=True)),
        class_prior_training=dict(zip(classifier.classes, share.tolist(), strict=True)),
        class_prior_source=source,
    )
    return replace(classifier, log_prior_shift=shift), correction


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
