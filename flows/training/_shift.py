"""A training set unlike the target: how well they can be separated, weights for the rows, shares for the classes.

Weights are for the fit, and the target is read before it.  Shares move the logits of a fitted model.
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
from blr.shift import DensityRatio, class_priors, density_ratio, log_prior_shift, rescaled
from flows.errors import TrainingError
from flows.reports.shift import ESTIMATED, ComparedTarget, SetDifference, ShareCorrection, TargetLoss
from flows.specification.specification import Specification
from flows.training._rows import TrainingRows
from flows.training._target_rows import TargetRows, is_asked, pass_over

__all__ = ["compared", "corrected", "target_loss", "with_density_weights", "with_density_weights_of_all"]

Floats = NDArray[np.float64]

MOST_QUADRATIC = 20
"""Features above which the sets are separated by linear functions alone: the products would be hundreds."""


def compared(
    specification: Specification,
    rows: TrainingRows,
    filled: Floats,
    target: TargetRows,
    moments: FeatureMoments,
) -> tuple[DensityRatio, SetDifference] | None:
    """Return density ratios of all labelled rows (N,), and how the sets differ; None where that fails.

    `filled` (N, F) are the features, the missing ones at their conditional mean, to which `moments` bring the target's.
    """
    other = moments.impute(target.X, target.missing)
    degree = 2 if filled.shape[1] <= MOST_QUADRATIC else 1
    basis = fit_basis("polynomial", np.concatenate([filled, other]), degree=degree)
    try:
        ratio = density_ratio(basis(filled), basis(other), train_weight=rows.weight)
    except ValueError as error:
        if is_asked(specification):
            raise TrainingError(f"shift.target: {error}") from error
        pass_over(error)
        return None
    training = rows.training
    weight = rescaled(ratio.ratio[training], None if rows.weight is None else rows.weight[training])
    return ratio, SetDifference(
        target=ComparedTarget(
            name=target.name,
            n_rows=target.n_rows,
            n_compared=len(target.X),
            content_hash=target.content_hash,
        ),
        auc=float(ratio.auc),
        auc_low=float(ratio.auc_low),
        auc_high=float(ratio.auc_high),
        advice=ratio.advice,
        density_weights=specification.shift.density_weights,
        n_training=int(training.sum()),
        n_effective=float(weight.sum()),
    )


def with_density_weights(rows: TrainingRows, ratio: Floats) -> TrainingRows:
    """Return the rows weighted by density ratio (N,): those that fits see sum to their effective number."""
    training = rows.training
    weight = ratio if rows.weight is None else ratio * rows.weight
    weight = weight.copy()
    own = None if rows.weight is None else rows.weight[training]
    weight[training] = rescaled(ratio[training], own)
    return replace(rows, weight=weight)


def with_density_weights_of_all(rows: TrainingRows, ratio: Floats) -> TrainingRows:
    """Return rows of `with_density_weights` for a fit to all of them, so that they sum to their effective number.

    Of the training rows' weights w = c g r, g the given ones, the factor c is Σw/Σwr.
    """
    assert rows.weight is not None  # noqa: S101  with_density_weights has set them
    training, plain = rows.training, rows.weight.copy()
    seen = plain[training]
    plain[training] = seen * (seen @ ratio[training]) / seen.sum()
    return replace(rows, weight=plain * (plain.sum() / (plain @ ratio)))


def corrected(
    specification: Specification, classifier: Classifier, share: Floats, target: TargetRows | None
) -> tuple[Classifier, ShareCorrection | None]:
    """Return the classifier for the class shares of the target, and these; as it was, and None, where none are.

    `share` (K,) is that of the training rows.
    """
    prior = specification.shift.class_prior
    if prior is None:
        return classifier, None
    if prior == "em":
        assert target is not None  # noqa: S101  read_target has said so
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
    """Return the log loss that held-out rows, weighted as the target, show: with class shares corrected, and without.

    None where no row is held out, or nothing says how the target differs.  Weights are those of the classes where
    shares are corrected, else the density ratio (N,) where there is one.  `share` (K,) are the classes' in the
    training.
    """
    held_out, truth, shift = rows.held_out, rows.target[rows.held_out], classifier.log_prior_shift
    if not held_out.any():
        return None
    weight = np.ones(len(truth)) if rows.weight is None else rows.weight[held_out]
    if shift is not None:
        weight = weight * np.exp(shift)[truth]
    elif ratio is None:
        return None
    elif not specification.shift.density_weights:  # they are in the rows' weights then
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
    """Return where the classifier's features are among all."""
    names = list(specification.features)
    return [names.index(name) for name in classifier.features]
