"""Prediction sets: the classes that an object's probabilities do not exclude; the true one is kept at a stated rate.

Class-conditional (Mondrian) conformal prediction: class k is in the set of an object where the probability of k is at
least the one that a share `level` of k's own labelled rows reach.  So the rate holds in each class, and does not change
with the shares of the classes.  Of all such rules, thresholds on the probability of the class give the smallest sets
(Sadinle, Lei and Wasserman 2019, doi:10.1080/01621459.2017.1395341).

The labelled rows' probabilities are of fits without them.  These fits differ a little from one another and from the one
that is served, so the rate is that of cross-conformal prediction (Vovk 2015, doi:10.1007/s10472-013-9368-4): close to
`level` in measurements, without the proof that a split sample has.  Nothing is drawn at random.
Shapes: N rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from blr.arrays import Matrix, Vector

NO_SET = -1  # the bits of a row without probabilities: all of them, since no class can be excluded
_SMALLEST = 1e-300


@dataclass(frozen=True, eq=False)
class SetRule:
    """When a class is in a set: where its probability is at least `least` (K,); 0 for always, for want of rows.

    `rows` (K,) are the labelled rows of each class, `effective` (K,) what they count as where their weights differ.
    """

    level: float
    least: Vector
    rows: NDArray[np.intp]
    effective: Vector

    @property
    def spread(self) -> Vector:
        """Standard deviation (K,) of the rate from one labelled sample to another (Beta; Vovk 2012); NaN if none.

        That of the rate over one large catalogue, in each class; 0 for a class that is in every set.
        """
        sd = np.sqrt(self.level * (1 - self.level) / (self.effective + 2))
        return np.where(self.least > 0, sd, 0.0)

    def contains(self, probability: Matrix) -> NDArray[np.bool_]:
        """Return which classes are in the sets, (N, K); all of a row without probabilities (NaN)."""
        return ~(probability < self.least)


def learn_sets(
    probability: Matrix, target: NDArray[np.intp], *, level: float, weight: Vector | None = None
) -> SetRule:
    """Return the rule of labelled rows with probabilities (N, K) of fits without them; `target` (N,) are their classes.

    The least probability is between the two rows of the class around its quantile, so that the mean rate is `level`
    itself.  `weight` (N,) is how many objects a row stands for.  Rows without
    probabilities (NaN) are left out: the rate is of objects that have them.  A class of which fewer rows count than
    level / (1 - level) is in every set.
    """
    n, K = probability.shape
    w = np.ones(n) if weight is None else weight
    known = np.isfinite(probability).all(axis=1) & (w > 0)
    rows = [known & (target == k) for k in range(K)]
    thresholds = [_quantile(probability[of_k, k], w[of_k], 1 - level) for k, of_k in enumerate(rows)]
    return SetRule(
        level,
        np.array(thresholds),
        np.array([int(of_k.sum()) for of_k in rows], dtype=np.intp),
        np.array([w[k].sum() ** 2 / (w[k] ** 2).sum() if k.any() else 0.0 for k in rows]),  # Kish
    )


def _quantile(p: Vector, w: Vector, share: float) -> float:
    """Return the probability below which the `share` of a class's rows lies, a new one counted among them; 0 if none.

    The new row weighs as much as a drawn row does on average, sum(w^2) / sum(w), and may lie anywhere.  Between two
    rows the logit runs with one over their places: where the number of rows grows exponentially with the logit, as in
    the tail of a class, the mean share below is then exact, however few they are.
    """
    if not p.size:
        return 0.0
    order = np.argsort(p, kind="stable")
    place = np.cumsum(w[order]) / (w.sum() + (w**2).sum() / w.sum())
    if share < place[0] * (1 - 1e-12):
        return 0.0
    a_least = logit(_SMALLEST)
    a = logit(np.clip(p[order], _SMALLEST, 1 - 1e-16))
    a_share = float(np.interp(-1 / share, -1 / place, a))
    # Rows that are alike have the same probability: a threshold there keeps all of them, whatever the rounding.
    return float(expit(a_share)) * (1 - 1e-9) if a_share > a_least else 0.0


def set_bits(contained: NDArray[np.bool_], probability: Matrix) -> NDArray[np.int32]:
    """Return sets (N, K) as integers (N,): bit k for class k, and `NO_SET` for rows without probabilities (NaN).

    K is at most 31: the last of 32 bits is the sign's.
    """
    bits = contained @ (1 << np.arange(contained.shape[1], dtype=np.int64))
    return np.where(np.isnan(probability[:, 0]), NO_SET, bits).astype(np.int32)
