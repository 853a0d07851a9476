"""Do probabilities mean what they say?  Proper scores and their parts, reliability, skill beside the class shares.

Conventions.  p (N, K) with truth t as class indices (N,) or shares of each class (N, K); or p (N,), the probability of
one class, with the outcome t (N,), 0 or 1 or in between.  Weights (N,) are relative.  Bins hold equal weight; rows of
equal p are never parted.

Skill is a paired comparison with an interval, of rows that no fit has seen: held out, of cross-validation folds, or
left out one at a time.  A verdict on the computation says nothing of it.  Shapes: N rows, K classes, G groups of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from blr.arrays import Matrix, Places, Table, Vector, require_finite

_REPLICAS = 200
_ROUNDING = 1e-9
"""How far beyond 0 and 1 the rounding of a quadrature's sum may bring a probability: 4e-16 were seen."""
_FEWEST = 10
LEVEL = 0.95
_SLOPES = 2.0 ** np.linspace(-3, 3, 37)
_MOST_ROWS = 5000  # of a calibration line; of more, every n-th
# Standard deviation of the offsets' prior: of rows without an error they would be infinite.
_OFFSET_SPREAD = 1.0


def log_loss(p: ArrayLike, t: ArrayLike, *, weight: ArrayLike | None = None) -> float:
    """Return the mean of -Σ_k t_k ln p_k, nats.  As in scikit-learn, p is kept from 0 by the machine precision."""
    P, T, w = _checked(p, t, weight)
    return float(w @ log_losses(P, T))


def log_losses(p: ArrayLike, t: ArrayLike) -> Vector:
    """Return -Σ_k t_k ln p_k of each row (N,) in nats."""
    P, T, _ = _checked(p, t, None)
    eps = np.finfo(np.float64).eps
    losses: Vector = -(T * np.log(np.clip(P, eps, 1 - eps))).sum(axis=1)
    return losses


def brier_score(p: ArrayLike, t: ArrayLike, *, weight: ArrayLike | None = None) -> float:
    """Return the mean of Σ_k (p_k - t_k)², between 0 and 2; of one probability (N,), the mean of (p - t)²."""
    P, T, w = _checked(p, t, weight)
    both = 2.0 if np.ndim(p) == 1 else 1.0
    return float(w @ ((P - T) ** 2).sum(axis=1)) / both


def brier_parts(
    p: ArrayLike, t: ArrayLike, *, bins: int = 15, weight: ArrayLike | None = None
) -> dict[str, float]:
    """Return the parts of `brier_score` on at most `bins` bins of equal weight a class, summed over the classes.

    Score = reliability - resolution + uncertainty + within_variance - within_covariance (Murphy 1973,
    doi:10.1175/1520-0450(1973)012<0595:ANVPOT>2.0.CO;2; the terms within bins, which are left out where forecasts
    take few values, after Stephenson et al. 2008, doi:10.1175/2007WAF2006116.1).

    `reliability`: mean square of a bin's mean p less its share seen, 0 is best; `resolution`: variance of the bins'
    shares, large is best; `uncertainty`: variance of the outcome.
    """
    P, T, w = _checked(p, t, weight)
    columns = [1] if np.ndim(p) == 1 else range(P.shape[1])
    total = np.zeros(5)
    for k in columns:
        q, o = P[:, k], T[:, k]
        place = _equal_mass(q, w, bins)
        mass, said, seen = _bin_means(place, w, q, o)
        within = w * (q - said[place])
        share = float(w @ o)
        between = mass @ (said - seen) ** 2, mass @ (seen - share) ** 2
        total += [*between, w @ (o - share) ** 2, within @ q, 2 * (within @ o)]
    names = ("reliability", "resolution", "uncertainty", "within_variance", "within_covariance")
    return dict(zip(names, total.tolist(), strict=True))


def calibration_error(
    p: ArrayLike, t: ArrayLike, *, bins: int = 15, weight: ArrayLike | None = None
) -> float:
    """Return the expected calibration error, Σ_b mass_b `|mean p - share seen|`, on bins of equal weight.

    With p (N, K), the mean over the classes, each against the rest (of two classes both are the same).  Even perfect
    probabilities score above 0, by about sqrt(bins / N) / 3: see the interval.
    """
    P, T, w = _checked(p, t, weight)
    return _calibration_error(P, T, w, [_equal_mass(q, w, bins) for q in P.T])


def calibration_error_interval(
    p: ArrayLike, t: ArrayLike, *, rng: np.random.Generator, bins: int = 15
) -> tuple[float, float]:
    """Return a 90 % bootstrap interval of `calibration_error` over the rows.

    Absolute values grow under resampling, so the interval is reflected about the estimate, which takes most of that
    bias out, and ends at 0 at the least.
    """
    P, T, w = _checked(p, t, None)
    places = [_equal_mass(q, w, bins) for q in P.T]
    N, replicas = len(w), []
    for _ in range(_REPLICAS):
        drawn = w * np.bincount(rng.integers(N, size=N), minlength=N)
        replicas.append(_calibration_error(P, T, drawn / drawn.sum(), places))
    low, high = 2 * _calibration_error(P, T, w, places) - np.quantile(replicas, [0.95, 0.05])
    return max(float(low), 0.0), max(float(high), 0.0)


def calibration_line(
    p: ArrayLike, t: ArrayLike, *, group: ArrayLike | None = None
) -> tuple[dict[str, float], int]:
    """Return the slope and the offset of calibration (Cox 1958, doi:10.1093/biomet/45.3-4.562), and whose offset it is.

    `slope`, from `slope_low` to `slope_high` at 95 %: probabilities are too sure below 1, too cautious above; the ends
    are 1/8 and 8 at the most.  `excess`, ± `excess_error`, is the mean stated less the seen share of the class whose
    excess is largest in standard errors; that class comes second.

    The true classes have the logits b ln p_k + c_k, with one slope b and an offset c_k a class.  The slope's interval
    is that of the profile likelihood, which holds where rows without an error make the best slope infinite.

    `p` (N, K) are of rows that no fit saw.  Rows of an equal `group` (N,) count as one.  Classes of fewer than ten
    rows are pooled for the slope.
    """
    P, T, _ = _checked(p, t, None)
    labels = np.arange(len(P)) if group is None else np.asarray(group)
    step = -(-len(P) // _MOST_ROWS)
    P, T, labels = P[::step], T[::step], labels[::step]
    place = np.unique(labels, return_inverse=True)[1].ravel()
    independent = (place.max() + 1) / len(P)
    excess = (P - T).mean(axis=0)
    sums = np.stack([np.bincount(place, weights=column) for column in (P - T - excess).T])
    error = np.sqrt((sums**2).sum(axis=1)) / len(P)
    k = int(np.argmax(np.abs(excess) / np.maximum(error, 1e-12)))
    rare = T.sum(axis=0) < _FEWEST
    if rare.sum() > 1 and len(rare) > 2:
        P, T = (np.column_stack([x[:, ~rare], x[:, rare].sum(axis=1)]) for x in (P, T))
    best = 2 * independent * _profile(np.log(np.maximum(P, 1e-12)), T)
    near = best > best.max() - ndtri((1 + LEVEL) / 2) ** 2
    ends = np.flatnonzero(near)[[0, -1]]
    low, high = _SLOPES[np.clip(ends + np.array([-1, 1]), 0, len(_SLOPES) - 1)] * 0.5 + _SLOPES[ends] * 0.5
    found = (_SLOPES[int(best.argmax())], low, high, excess[k], error[k])
    names = ("slope", "slope_low", "slope_high", "excess", "excess_error")
    return {name: float(x) for name, x in zip(names, found, strict=True)}, k


def _profile(Z: Matrix, T: Matrix) -> Vector:
    """Return the log likelihood of each slope at its best offsets, with logits Z (N, K) and shares T (N, K)."""
    K = Z.shape[1]
    found, c = np.empty(len(_SLOPES)), np.zeros(K)
    for i, slope in enumerate(_SLOPES):
        for _ in range(30):
            a = slope * Z + c
            a -= a.max(axis=1, keepdims=True)
            p = np.exp(a)
            p /= p.sum(axis=1, keepdims=True)
            gradient = (T - p).sum(axis=0) - c / _OFFSET_SPREAD**2
            H = np.diag(p.sum(axis=0) + _OFFSET_SPREAD**-2) - p.T @ p
            move = np.linalg.solve(H, gradient)
            c = c + move * min(1.0, 2.0 / max(np.abs(move).max(), 1e-12))
            if np.abs(move).max() < 1e-5:
                break
        found[i] = (T * np.log(np.maximum(p, 1e-300))).sum() - 0.5 * c @ c / _OFFSET_SPREAD**2
    return found


def reliability_curve(
    p: ArrayLike, t: ArrayLike, *, bins: int = 15, weight: ArrayLike | None = None, level: float = 0.9
) -> Table:
    """Return the reliability curve of one probability p (N,) of an outcome t (N,) on bins of equal weight.

    Columns, all (B,): `predicted` the mean p, `observed` the share seen with its interval `low` to `high`, `mass` the
    share of the weight, `count` the rows.  Intervals are Wilson's score intervals (Brown, Cai and DasGupta 2001,
    doi:10.1214/ss/1009213286).  With weights the number of rows of a bin is the effective one, (Σw)² / Σw².
    """
    if np.ndim(p) != 1:
        raise ValueError(f"p has shape {np.shape(p)}; expected (N,); give the probabilities of one class")
    P, T, w = _checked(p, t, weight)
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; give the interval's probability, between 0 and 1, such as 0.9")
    place = _equal_mass(P[:, 1], w, bins)
    mass, said, seen = _bin_means(place, w, P[:, 1], T[:, 1])
    low, high = _wilson(seen, mass**2 / np.bincount(place, weights=w**2), level)
    columns = (said, seen, low, high, mass, np.bincount(place))
    return Table(zip(("predicted", "observed", "low", "high", "mass", "count"), columns, strict=True))


def share_interval(count: ArrayLike, n: ArrayLike, *, level: float = 0.95) -> tuple[Vector, Vector]:
    """Return the ends of Wilson's interval of a share, `count` of `n` objects, of equal shapes; 0 to 1 where n is 0."""
    count, n = np.broadcast_arrays(np.asarray(count, np.float64), np.asarray(n, np.float64))
    some = np.maximum(n, np.finfo(np.float64).tiny)
    low, high = _wilson(count / some, np.where(n > 0, n, 1.0), level)
    return np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0)


def _wilson(share: Vector, n: Vector, level: float) -> tuple[Vector, Vector]:
    z2 = ndtri((1 + level) / 2) ** 2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def _calibration_error(P: Matrix, T: Matrix, w: Vector, places: list[Places]) -> float:
    gaps = (np.bincount(b, weights=w * (q - o)) for q, o, b in zip(P.T, T.T, places, strict=True))
    return float(np.mean([np.abs(gap).sum() for gap in gaps]))


def _equal_mass(q: Vector, w: Vector, bins: int) -> Places:
    """Return the bin of each row, (N,), at most `bins` of about equal weight; equal q fall into one bin."""
    if bins < 1:
        raise ValueError(f"bins is {bins}; give a number of bins, at least 1")
    inverse = np.unique(q, return_inverse=True)[1]
    mass = np.bincount(inverse, weights=w)
    # A value belongs where the middle of its mass lies.
    middle = np.cumsum(mass) - mass / 2
    raw = np.minimum((middle * bins).astype(np.intp), bins - 1)
    compact = np.unique(raw, return_inverse=True)[1]
    return np.asarray(compact[inverse], dtype=np.intp)


def _bin_means(place: Places, w: Vector, q: Vector, o: Vector) -> tuple[Vector, Vector, Vector]:
    """Return the mass, the mean of q and the mean of o of each bin."""
    mass = np.bincount(place, weights=w).astype(np.float64)
    return mass, np.bincount(place, weights=w * q) / mass, np.bincount(place, weights=w * o) / mass


def _checked(p: ArrayLike, t: ArrayLike, weight: ArrayLike | None) -> tuple[Matrix, Matrix, Vector]:
    """Return p and t of rows that have a weight as (N, K) shares, and the weights, which add up to one."""
    P = np.asarray(p, dtype=np.float64)
    if P.ndim not in (1, 2) or P.size == 0:
        raise ValueError(f"p has shape {P.shape}; expected (N,) or (N, K) with at least one row")
    require_finite(P, "p")
    if P.min() < -_ROUNDING or P.max() > 1 + _ROUNDING:
        raise ValueError(f"p lies between {P.min()} and {P.max()}; expected probabilities between 0 and 1")
    P = np.clip(P, 0.0, 1.0)
    T = _shares(P, np.asarray(t))
    if P.ndim == 1:
        P = np.stack([1 - P, P], axis=1)
    w = np.ones(len(P)) if weight is None else np.asarray(weight, dtype=np.float64)
    if w.shape != (len(P),) or not np.all(np.isfinite(w)) or w.min() < 0 or w.sum() == 0:
        raise ValueError(f"weight must be ({len(P)},), finite, >= 0, not all zero; got shape {w.shape}")
    keep = w > 0
    return P[keep], T[keep], w[keep] / w.sum()


def _shares(P: Matrix, t: NDArray[np.generic]) -> Matrix:
    """Return the truth as (N, K) shares."""
    if t.shape == P.shape:
        T = t.astype(np.float64)
        if not (T.min() >= 0 and T.max() <= 1):
            raise ValueError(f"t lies between {T.min()} and {T.max()}; expected 0 to 1")
        return np.stack([1 - T, T], axis=1) if P.ndim == 1 else T
    if P.ndim == 2 and t.shape == P.shape[:1]:
        index = t.astype(np.intp)
        if np.array_equal(index, t) and index.min() >= 0 and index.max() < P.shape[1]:
            return np.asarray(np.eye(P.shape[1])[index])
        raise ValueError(f"t holds {np.unique(t)[:5]} ...; expected class indices 0 to {P.shape[1] - 1}")
    raise ValueError(f"t has shape {t.shape} for p of {P.shape}; expected class indices (N,), or p's shape")


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
    group: ArrayLike | None = None,
    left_out: bool = False,
) -> Skill:
    """Return the gain in log loss over the class shares, as `paired_gain` does.

    `probability` (N, K) is by models that have not seen the row, `outcome` class indices (N,) or shares of each class
    (N, K), such as of votes.  `class_shares` are those of the rows that were fitted: (K,), or (N, K) where they differ
    by row, as between folds.  `left_out`: the models have seen the other rows.
    ValueError if shapes differ, or a probability or a share is not between 0 and 1.
    """
    base = log_losses(np.broadcast_to(class_shares, np.shape(probability)), outcome)
    mistaken = float(base.mean()) - mistaken_loss(probability) if left_out else None
    return paired_gain(log_losses(probability, outcome), base, group=group, mistaken=mistaken)


def mistaken_loss(probability: ArrayLike) -> float:
    """Return the typical loss of a row of another class than its most probable one, by probabilities (N, K)."""
    rest = 1 - np.asarray(probability, dtype=np.float64).max(axis=1)
    return float(-np.log(np.maximum(rest, np.finfo(np.float64).eps)).mean())


def paired_gain(
    loss: Vector, baseline: Vector, *, group: ArrayLike | None = None, mistaken: float | None = None
) -> Skill:
    """Return by how much the losses (N,) are smaller than others of the same rows, with Student's 95 % interval.

    The difference is taken row by row, since both find the same rows hard.  Rows of an equal `group` (N,) belong
    together, as duplicates and neighbours do, and count as one observation (variance of the groups' sums, Liang and
    Zeger 1986, doi:10.1093/biomet/73.1.13).

    `mistaken` is the gain of a mistaken row, where each row was left out of a fit to the others.  Rows that happen to
    be easy make both fit and judgement too sure: that doubles the variance (Nadeau and Bengio 2003,
    doi:10.1023/A:1024068626366).  Of few rows none may be mistaken, so that one more is counted.
    """
    gain, n = baseline - loss, len(loss)
    mean = float(gain.mean())
    place = np.unique(np.arange(n) if group is None else np.asarray(group), return_inverse=True)[1].ravel()
    # The groups' weight and their weighted sum of deviations, (G,) each.
    each = np.full(n, 1 / n), (gain - mean) / n
    mass, scatter = (np.bincount(place, weights=x).astype(float) for x in each)
    effective, half = 1 / float(mass @ mass), float("inf")  # as many equal groups would know as much
    if len(mass) >= 2 and effective > 1:
        variance = effective / (effective - 1) * float(scatter @ scatter)
        if mistaken is not None:
            variance = 2 * (variance + ((mistaken - mean) / (len(mass) + 1)) ** 2)
        # With n equal groups this is Student's interval, n - 1 degrees of freedom.
        half = float(stdtrit(effective - 1, (1 + LEVEL) / 2) * np.sqrt(variance))
    ends = {"gain": mean, "low": mean - half, "high": mean + half}
    return Skill(**ends, baseline=float(baseline.mean()), level=LEVEL, n=n, n_groups=len(mass))
