"""The verdict on a model: whether its probabilities are computed rightly, calibrated, and better than class shares.

Whether they are computed rightly is asked of the whole mixture: each part enters with its share, times the typical
error of a refined posterior, or of draws the standard error.
Shapes: N labelled rows, n of them, T rows of the target, P compared rows, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy.special import softmax

from blr.arrays import Mask, Matrix, Vector
from blr.basis.kinds import fit_basis
from blr.calibration import Skill, log_loss
from blr.candidates.fits import FinalMember
from blr.candidates.rows import TrainingSet
from blr.fitting.newton import maximise
from blr.fitting.problem import pose
from blr.gaussian import GaussianPrior
from blr.posterior.laplace import by_gradients
from blr.predictive.mixture import Temperature
from blr.trust.verdict import MEAN_ERROR, Trust, TrustAnswer

ROWS = 256
"""Rows at which probabilities are compared."""
BEYOND = 0.5
"""How far they lie beyond a pair of training rows, in units of its distance."""
SPREAD_OF_TYPICAL = 0.35
"""Standard deviation of a part's error about the typical one, as a share of it."""
TOGETHER = 0.5
"""Correlation of the typical errors of two parts: stated high, since measured ones are 0.1 to 0.3."""
STEEPEST = 200.0
"""Largest size of the exponent that weighs compared rows by their doubt."""
SLOPES = (0.8, 1.25), (0.5, 2.0)
"""Slopes of calibration that are right, and those beyond which probabilities are wrong."""
ONE_SIDED = 1.645
"""Standard errors by which a gain over the class shares is above zero at 95 %: with twice as many, above its half."""
FOLDS = 5
"""Folds of the logistic regression that a model is compared with."""
PRECISIONS = (30.0, 3.0, 0.3, 0.03)
"""Precisions of its weights that are tried."""
MOST_FITTED = 5000
"""Rows that it is fitted to at most."""
NEAR = 0.01
"""Posterior standard deviations to its mode, where gradients alone lead there."""
COLOURS = ("green", "amber", "red")


def compared_rows(data: TrainingSet, target: tuple[Matrix, Mask] | None) -> Matrix:
    """Return features (P, F) at which probabilities are compared, missing ones at their conditional means.

    They are rows of the target, within the range of the labels.  Without a target they lie on the lines through pairs
    of training rows: of training rows themselves every posterior knows more than of new ones.
    """
    rng, rows = np.random.default_rng(0), data.filled[data.rows.training]
    limits = rows.min(axis=0), rows.max(axis=0)
    if target is None:
        first, second = rng.integers(0, len(rows), (2, ROWS))
        share = rng.uniform(-BEYOND, 1 + BEYOND, (ROWS, 1))
        return np.clip(share * rows[first] + (1 - share) * rows[second], *limits)
    X, missing = target
    some = np.unique(np.linspace(0, len(X) - 1, ROWS).round().astype(int))
    return np.clip(data.moments.impute(X[some], missing[some]), *limits)


def colour_of(mean: float, error: float) -> str:
    """Return the colour of a mean error of probabilities: red only where it is too large by more than its own error."""
    amber, red = MEAN_ERROR
    return COLOURS[int(mean >= amber) + int(mean - error >= red)]


def computed(
    members: Sequence[FinalMember], temperature: Temperature | None, left_out: Matrix | None
) -> tuple[TrustAnswer, dict[str, float]]:
    """Return whether the probabilities of a mixture of `members` are computed rightly, and the numbers of it.

    What chance leaves of draws adds up as errors do; typical differences are correlated.  Without a target,
    the compared rows are weighted to be as doubtful as training rows that were `left_out`, by their probabilities
    (N, K) in the mixture: between well separated classes hardly any object lies.
    """
    served = np.sum([m.member.weight * m.probability for m in members], axis=0)
    off = np.sum([m.member.weight * m.off for m in members], axis=0)
    zero = np.zeros(len(served))
    noise = np.sqrt(sum(((m.member.weight * m.error) ** 2 for m in members if m.sampled), zero))
    typical = [m.member.weight * m.error for m in members if not m.sampled]
    alone, all_together = sum((x**2 for x in typical), zero), sum(typical, zero) ** 2
    doubt = np.sqrt((1 - TOGETHER) * alone + TOGETHER * all_together)
    exact = np.clip(served - off, 1e-12, 1.0)
    exact /= exact.sum(axis=1, keepdims=True)
    weight = _as_doubtful(served, left_out)
    if temperature is not None:
        noise, doubt = (_scaled(served, x, temperature) for x in (noise, doubt))
        served, exact = temperature.scaled(served), temperature.scaled(exact)
    by_row = np.hypot(np.abs(served - exact).max(axis=1), noise) + doubt
    order = np.argsort(by_row)
    mean = float(weight @ by_row)
    high = float(by_row[order][np.searchsorted(np.cumsum(weight[order]), 0.99 * weight.sum())])
    error = float(np.hypot(weight @ noise, SPREAD_OF_TYPICAL * (weight @ doubt)))
    colour = colour_of(mean, error)
    shown = "less than 0.001" if mean + error < 0.001 else f"{mean:.3f} ± {error:.3f}"
    says = (
        f"probabilities err by {shown} on average through the computation, and by less than "
        f"{max(1.0, np.ceil(1000 * high)) / 1000:.3f} for 99 of 100 objects"
    )
    return TrustAnswer(
        name="computed",
        colour=colour,
        value=mean,
        low=max(0.0, mean - 1.96 * error),
        high=mean + 1.96 * error,
        says=says,
        advice=""
        if colour == "green"
        else "use fewer features, or label more objects"
        if not typical
        else 'train with posterior = "sampled" under [select]',
    ), {"mean_error": mean, "mean_error_error": error, "error_99": high}


def _as_doubtful(p: Matrix, left_out: Matrix | None) -> Vector:
    """Return weights (P,), 1 in all, with which rows of probabilities p (P, K) are as doubtful as those left out.

    A row's doubt is 1 less its largest probability; the weights are exponential in it, and as even as they may be.
    """
    if left_out is None:
        return np.full(len(p), 1 / len(p))
    doubt = 1 - p.max(axis=1)
    goal = float(np.nanmean(1 - left_out.max(axis=1)))

    def weights(steepness: float) -> Vector:
        return np.asarray(softmax(steepness * doubt))

    def beyond(steepness: float) -> float:
        return float(weights(steepness) @ doubt) - goal

    if beyond(-STEEPEST) >= 0:
        return weights(-STEEPEST)
    if beyond(STEEPEST) <= 0:
        return weights(STEEPEST)
    return weights(float(scipy.optimize.brentq(beyond, -STEEPEST, STEEPEST)))


def _scaled(p: Matrix, error: Vector, temperature: Temperature) -> Vector:
    """Return the errors (P,) that the largest of the probabilities p (P, K) have after the temperature."""
    top, least = p.max(axis=1), 1 / p.shape[1]
    lower = np.maximum(top - error, np.minimum(top, least))
    rest = np.where(top < 1, (1 - lower) / np.maximum(1 - top, 1e-12), 1.0)
    moved = np.where(p == top[:, None], lower[:, None], p * rest[:, None])
    off = temperature.scaled(moved / moved.sum(axis=1, keepdims=True)) - temperature.scaled(p)
    return np.asarray(np.abs(off).max(axis=1))


def calibrated(line: Mapping[str, float], name: str) -> TrustAnswer:
    """Return whether probabilities are calibrated on rows that no fit saw, by a line; `name` has the largest excess."""
    slope, low, high, excess = (line[key] for key in ("slope", "slope_low", "slope_high", "excess"))
    inside = [low <= most and high >= least for least, most in SLOPES]
    colour = COLOURS[0 if inside[0] else 1 if inside[1] else 2]
    how = "as sure as they may be" if inside[0] else "too sure" if slope < 1 else "too cautious"
    shares = "no class is expected too often or too seldom"
    if abs(excess) > 1.96 * line["excess_error"]:
        often = "often" if excess > 0 else "seldom"
        shares = f"{name} is expected {abs(excess):.1%} ± {line['excess_error']:.1%} too {often}"
    return TrustAnswer(
        name="calibrated",
        colour=colour,
        value=slope,
        low=low,
        high=high,
        says=f"probabilities are {how} (slope {slope:.2f}, {low:.2f} to {high:.2f} at 95 %); {shares}",
        advice="" if colour == "green" else "label more objects, drawn as the target is",
    )


def known(skill: Skill, log_loss_logistic: float | None) -> TrustAnswer:
    """Return whether the model knows more than the class shares, beside a logistic regression on the same rows."""
    base, gain = skill.baseline, skill.gain
    finite = bool(np.isfinite([skill.low, skill.high]).all())
    errors = gain / max((skill.high - skill.low) / 3.92, 1e-12) if finite else 0.0
    colour = "green" if errors > 2 * ONE_SIDED else "amber" if errors > -ONE_SIDED else "red"
    ends = f" ({_share(skill.low, base)} to {_share(skill.high, base)} at 95 %)" if finite else ""
    beside = (
        ""
        if log_loss_logistic is None
        else f"; cross-validated logistic regression removes {_share(base - log_loss_logistic, base)}"
    )
    return TrustAnswer(
        name="known",
        colour=colour,
        value=gain,
        low=skill.low if finite else None,
        high=skill.high if finite else None,
        says=f"the model removes {_share(gain, base)}{ends} of the doubt that class shares leave{beside}",
        advice="" if colour == "green" else "add labels, or features that tell the classes apart",
    )


def _share(gain: float, base: float) -> str:
    return f"{gain / base:.0%}".replace("-", "−") if base > 0 else "nothing"


def verdict_of(answers: Sequence[TrustAnswer], numbers: dict[str, float]) -> Trust:
    """Return the verdict: the worst of the answers; its reasons are their sentences, with what to do."""
    worst = max((one.colour for one in answers), key=COLOURS.index)
    deciding = [one for one in answers if one.colour == worst]
    reasons = [f"{one.says}: {one.advice}" if one.advice else one.says for one in deciding]
    return Trust(worst, tuple(reasons), numbers, tuple(answers))


def logistic_loss(data: TrainingSet, outcome: ArrayLike) -> float | None:
    """Return the log loss of a logistic regression on the rows that judge, in nats.

    It is None where labels may be wrong, or all rows are one group.  `outcome` are the classes (n,) of these rows, or
    the shares (n, K) of their votes.

    It has the features as they are, missing ones at conditional means, and plug-in probabilities; the precision of its
    weights is the one of four that predicts best.  Where no rows are held out, each fifth of the rows is predicted by a
    fit to the others.
    """
    rows, K = data.rows, len(data.classes)
    if rows.confusion is not None:
        return None
    judging = rows.held_out if rows.held_out.any() else np.ones(len(rows.target), dtype=bool)
    label = np.arange(len(judging)) if rows.group is None else rows.group
    fold = np.where(rows.held_out, FOLDS, np.unique(label, return_inverse=True)[1].ravel() % FOLDS)
    p = np.empty((len(PRECISIONS), len(fold), K))
    for number in np.unique(fold[judging]):
        seen, unseen = np.flatnonzero(rows.training & (fold != number)), fold == number
        if not len(seen):
            return None
        seen = seen[:: -(-len(seen) // MOST_FITTED)]
        basis = fit_basis("linear", data.filled[seen])
        Phi, new = basis(data.filled[seen]), basis(data.filled[unseen])
        problem = pose(
            Phi,
            rows.response[seen],
            None,
            "logistic" if K == 2 else "softmax",
            sample_weight=None if rows.weight is None else rows.weight[seen],
            classes=range(K),
        )
        theta = np.zeros(problem.n_solved)
        for i, precision in enumerate(PRECISIONS):
            posed = replace(
                problem, prior=GaussianPrior.isotropic(Phi.shape[1], precision=precision, intercept=0)
            )
            near = by_gradients(posed, posed.solver_prior, theta, within=NEAR)
            theta = maximise(posed.evaluate, posed.solver_prior, theta).theta if near is None else near
            found = problem.response(problem.activations(new, theta))
            p[i, unseen] = np.stack([1 - found, found], axis=1) if problem.binary else found
    return min(log_loss(one[judging], outcome) for one in p)
