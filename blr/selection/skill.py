"""Does a model predict better than the class shares alone, and by how much?  A paired comparison with an interval.

A verdict on the computation says nothing of this.  The rows are ones that no fit has seen: held out, of
cross-validation folds, or left out one at a time.  Shapes: N rows, K classes, G groups of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from blr.arrays import Vector
from blr.calibration import log_losses


@dataclass(frozen=True, kw_only=True)
class Skill:
    """How much smaller a model's log loss is than that of the class shares, nats a row.

    `gain` is the mean of the paired differences, `low` to `high` its interval at `level` (infinite where fewer than
    two groups leave the error unknown).  `baseline` is the log loss of the class shares, `n` counts the rows and
    `n_groups` the groups of rows that are independent of each other.
    """

    gain: float
    low: float
    high: float
    baseline: float
    level: float
    n: int
    n_groups: int

    @property
    def verdict(self) -> str:
        """Return "better" or "worse" than the class shares, or "none shown" where the interval holds 0."""
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "none shown"


def skill(
    probability: ArrayLike,
    outcome: ArrayLike,
    *,
    class_shares: ArrayLike,
    weight: ArrayLike | None = None,
    group: ArrayLike | None = None,
    level: float = 0.95,
) -> Skill:
    """Return the gain in log loss over the class shares, with Student's t interval of its mean.

    The difference of the two losses is taken row by row, since both find the same rows hard.  Rows of a group count
    as one observation (variance of the groups' sums, Liang and Zeger 1986, doi:10.1093/biomet/73.1.13).

    Parameters
    ----------
    probability
        (N, K), each row's by a model that has not seen the row.
    outcome
        Class indices (N,), or shares of each class (N, K), such as of votes.
    class_shares
        (K,), or (N, K) where they differ by row, as between folds: those of the rows that were fitted.
    weight
        Of the rows (N,), relative; default: equal.
    group
        Labels (N,): rows of equal label belong together, as duplicates and neighbours do; default: each for itself.
    level
        Probability of the interval.

    Raises
    ------
    ValueError
        If shapes differ, a probability or share is not between 0 and 1, or the level is not.
    """
    P = np.asarray(probability, dtype=np.float64)
    shares = np.asarray(class_shares, dtype=np.float64)
    if P.ndim != 2 or shares.shape not in (P.shape, P.shape[1:]):
        raise ValueError(
            f"got probability of shape {P.shape} and class_shares of shape {shares.shape}, expected (N, K) and (K,) "
            "or (N, K); give a probability and a share of each class"
        )
    _require_level(level)
    loss, w = log_losses(P, outcome, weight=weight)
    base, _ = log_losses(np.broadcast_to(shares, P.shape), outcome, weight=weight)
    return _paired(loss, base, w, group, level)


def paired_gain(
    loss: ArrayLike, baseline: ArrayLike, *, group: ArrayLike | None = None, level: float = 0.95
) -> Skill:
    """Return by how much the losses (N,) are smaller than those of another model on the same rows.

    Its interval is Student's t of the mean, as of `skill`; so is `group`.

    Raises
    ------
    ValueError
        If the shapes differ, there are no rows, or the level is not between 0 and 1.
    """
    own, other = np.asarray(loss, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if own.ndim != 1 or own.shape != other.shape or not own.size:
        raise ValueError(
            f"got losses of shapes {own.shape} and {other.shape}, expected (N,) of one row or more for both; give the "
            "two models' losses of the same rows"
        )
    _require_level(level)
    return _paired(own, other, np.full(len(own), 1 / len(own)), group, level)


def _paired(loss: Vector, base: Vector, w: Vector, group: ArrayLike | None, level: float) -> Skill:
    gain = base - loss
    mean = float(w @ gain)
    mass, scatter = _by_group(_labels(group, len(gain)), w, gain - mean)
    half = _half_width(mass, scatter, level)
    return Skill(
        gain=mean,
        low=mean - half,
        high=mean + half,
        baseline=float(w @ base),
        level=level,
        n=int(np.count_nonzero(w)),
        n_groups=len(mass),
    )


def _require_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"got level {level}, expected one between 0 and 1; 0.95 is usual")


def _labels(group: ArrayLike | None, n: int) -> NDArray[np.generic]:
    labels = np.arange(n) if group is None else np.asarray(group)
    if labels.shape != (n,):
        raise ValueError(
            f"got group of shape {labels.shape}, expected ({n},); give each row its group's label"
        )
    return labels


def _by_group(labels: NDArray[np.generic], w: Vector, deviation: Vector) -> tuple[Vector, Vector]:
    """Return the groups' weight and their weighted sum of deviations, (G,) each; groups of no weight are left out."""
    inverse = np.unique(labels[w > 0], return_inverse=True)[1].ravel()
    mass, scatter = (np.bincount(inverse, weights=x[w > 0]) for x in (w, w * deviation))
    return np.asarray(mass, dtype=np.float64), np.asarray(scatter, dtype=np.float64)


def _half_width(mass: Vector, scatter: Vector, level: float) -> float:
    """Return half of the interval's width, of groups' weights that sum to one."""
    effective = 1 / float(mass @ mass)  # as many equal groups would know as much
    if len(mass) < 2 or effective <= 1:
        return float("inf")
    variance = effective / (effective - 1) * float(scatter @ scatter)
    # With n equal groups this is Student's interval, n - 1 degrees of freedom.
    return float(stdtrit(effective - 1, (1 + level) / 2) * np.sqrt(variance))
