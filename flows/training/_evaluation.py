"""How good a model is on rows that no fit saw: the numbers of the report, from probabilities and true classes.

Shapes: N held-out rows, K classes.  Rows without probabilities (NaN) get the shares of the classes, and are counted.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from blr.calibration import ReliabilityCurve, calibration_error, log_loss, reliability_curve
from blr.decisions import errors_caught
from blr.selection.grouping import group_classes
from blr.selection.skill import skill
from flows.models.description import Metrics, ReliabilityBin, Review, RiskCurve
from flows.models.skill import SkillSummary

__all__ = ["REVIEWED", "evaluate"]

REVIEWED: Final = (0.05, 0.1, 0.2)
"""Shares of the least certain objects whose review is reported."""
BINS: Final = 12
"""Bins of the reliability curve."""
CURVE: Final = np.linspace(0, 1, 201)
"""Shares of reviewed objects at which the curve of the errors found is computed."""

Floats = NDArray[np.float64]


def evaluate(
    probability: Floats,
    plugin: Floats,
    truth: NDArray[np.intp],
    *,
    class_shares: Floats,
    classes: tuple[str, ...],
    votes: Floats | None = None,
    group: NDArray[np.uint64] | None = None,
    judged_by: Literal["held-out", "left-out"] = "held-out",
    log_loss_logistic: float | None = None,
) -> Metrics:
    """Return the performance on rows that no fit saw.

    `probability` and `plugin` (N, K) are the moderated and the plug-in probabilities, `truth` (N,) class indices.
    `class_shares` (K,) are those of the training rows, which a baseline predicts for every object.  Where the targets
    are `votes` (N, K), losses and reliability compare with each object's shares of the votes, and any class but the one
    with most votes is wrong.  Rows of equal `group` (N,) count as one in the interval of the skill.
    """
    outcome = truth if votes is None else votes / votes.sum(axis=1, keepdims=True)
    known = np.isfinite(probability[:, 0])
    # An object without any measured feature gets the shares of the classes, so that every model is judged on all rows.
    p, q = (np.where(known[:, None], x, class_shares) for x in (probability, plugin))
    wrong = p.argmax(axis=1) != truth
    said, happened, what = _statement(p, outcome, wrong, classes)
    curve = reliability_curve(said, happened, bins=BINS)
    return Metrics(
        n=len(truth),
        n_unclassified=int(np.sum(~known)),
        log_loss=log_loss(p, outcome),
        log_loss_plugin=log_loss(q, outcome),
        log_loss_baseline=log_loss(np.broadcast_to(class_shares, p.shape), outcome),
        accuracy=float(np.mean(~wrong)),
        calibration_error=calibration_error(p, outcome),
        reliability=_bins(curve),
        reliability_of=what,
        reviews=_reviews(p, q, wrong),
        risk=RiskCurve(
            reviewed=tuple(CURVE.tolist()),
            moderated=tuple(errors_caught(p.max(axis=1), wrong, CURVE).tolist()),
            plugin=tuple(errors_caught(q.max(axis=1), wrong, CURVE).tolist()),
        ),
        judged_by=judged_by,
        log_loss_logistic=log_loss_logistic,
        skill=SkillSummary.of(skill(p, outcome, class_shares=class_shares, group=group)),
        confusion=_confusion(truth, p.argmax(axis=1), len(classes)),
        grouping=group_classes(p, truth) if len(classes) > 2 and votes is None else None,
    )


def _confusion(
    truth: NDArray[np.intp], assigned: NDArray[np.intp], n_classes: int
) -> tuple[tuple[int, ...], ...]:
    """Return the confusion matrix (K, K): numbers of rows by true class and by assigned class."""
    pairs = np.bincount(truth * n_classes + assigned, minlength=n_classes**2)
    return tuple(map(tuple, pairs.reshape(n_classes, n_classes).tolist()))


def _statement(
    p: Floats, outcome: NDArray[np.intp] | Floats, wrong: NDArray[np.bool_], classes: tuple[str, ...]
) -> tuple[Floats, Floats, str]:
    """Return the probability whose reliability is drawn (N,), whether its class is the true one (N,), and its name."""
    if len(classes) == 2:
        happened = outcome[:, 1] if outcome.ndim == 2 else (outcome == 1)
        return p[:, 1], happened.astype(float), f"probability of {classes[1]}"
    return p.max(axis=1), (~wrong).astype(float), "probability of the most probable class"


def _bins(curve: ReliabilityCurve) -> tuple[ReliabilityBin, ...]:
    columns = (curve.predicted, curve.observed, curve.low, curve.high, curve.count)
    return tuple(
        ReliabilityBin(predicted=said, observed=seen, low=low, high=high, n=n)
        for said, seen, low, high, n in zip(*(c.tolist() for c in columns), strict=True)
    )


def _reviews(p: Floats, q: Floats, wrong: NDArray[np.bool_]) -> tuple[Review, ...]:
    """Return the share of all wrong classes that reviews of the least certain objects find, for both probabilities."""
    moderated = errors_caught(p.max(axis=1), wrong, REVIEWED)
    plugin = errors_caught(q.max(axis=1), wrong, REVIEWED)
    return tuple(
        Review(share=share, moderated=float(m), plugin=float(r), random=share)
        for share, m, r in zip(REVIEWED, moderated, plugin, strict=True)
    )
