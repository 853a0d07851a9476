"""Mean and covariance of incomplete rows, by the EM algorithm.

Those of largest likelihood for a normal distribution, with features missing at random (Dempster, Laird & Rubin
1977, doi:10.1111/j.2517-6161.1977.tb01600.x; Little & Rubin, Statistical Analysis with Missing Data, 11.2), reached
by leaps: two steps tell the rate at which EM creeps, and so where it is going (SQUAREM, scheme S3 of Varadhan &
Roland 2008, doi:10.1111/j.1467-9469.2007.00585.x).
Shapes: N rows, F features, P patterns of missing features.
"""

from __future__ import annotations

__all__ = ["Incomplete", "likeliest_moments", "likeliest_moments_of_parts", "uninformed"]

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector
from blr.missing.patterns import BLOCK, Mask, missing_patterns

_STEPS = 300
_TOLERANCE = 1e-9  # change of a mean or covariance in a step, in standard deviations
# The least eigenvalue of the correlations.  A combination of features that never varied is then held to vary by
# 1e-4 of theirs: above the rounding of float32 catalogues, below anything that matters.
_LEAST_VARIANCE = 1e-8
_TOGETHER = 256  # patterns whose matrices stay in cache
# Share of a feature's variance that is left where another is present, below which that is not seen.
_BARELY = 0.05

Incomplete = tuple[Matrix, Mask, Vector]
"""Rows X (n, F), where they are missing (n, F), and their weights (n,)."""


def likeliest_moments(X: Matrix, missing: Mask, weight: Vector) -> tuple[Vector, Matrix, bool]:
    """Return mean (F,), covariance (F, F), and whether EM came to rest, of X (N, F) where not missing (N, F).

    Rows count `weight` (N,) times.  Constant or collinear features get the least variance that makes the
    covariance positive definite, and a positive definite one gets nothing.
    """
    parts = ((X[some], missing[some], weight[some]) for some in _blocks(len(X)))
    return likeliest_moments_of_parts(parts, (X, missing, weight))


def likeliest_moments_of_parts(
    parts: Iterable[Incomplete], sample: Incomplete
) -> tuple[Vector, Matrix, bool]:
    """Return what `likeliest_moments` does of all rows, which come in parts, once; `sample` tells their units."""
    centre, scale = _seen_moments(*sample)
    found: dict[bytes, _PatternSums] = {}
    for X, missing, weight in parts:
        sums = _PatternSums.of(np.where(missing, 0.0, (X - centre) / scale), missing, weight)
        for i, present in enumerate(sums.present):
            if present.any():
                one, key = sums.rows(slice(i, i + 1)), present.tobytes()
                found[key] = found[key].plus(one) if key in found else one
    ordered = [found[key] for key in sorted(found)]
    whole = _PatternSums(
        *(np.concatenate([getattr(one, name) for one in ordered]) for name in vars(ordered[0]))
    )
    mean, correlation, converged = _maximise(_in_pieces(whole), uninformed(*sample))
    return centre + scale * mean, correlation * np.outer(scale, scale), converged


def uninformed(X: Matrix, missing: Mask, weight: Vector) -> Mask:
    """Return the features (F,) that hardly vary in rows that have some other feature, though they do vary.

    `isfinite(jmag)` is 1 wherever there is a colour of J.  How the two vary together was never seen, and what EM would
    make of it fills colours in anyhow: such features are taken to be independent of the others.
    """
    centre = _seen_moments(X, missing, weight)[0]
    # Moments of feature i, in rows that have feature j as well: (F, F).
    total = first = second = np.zeros((X.shape[1], X.shape[1]))
    for some in _blocks(len(X)):
        W, present = _weights(missing[some], weight[some]), (~missing[some]).astype(np.float64)
        values = np.where(missing[some], 0.0, X[some] - centre)
        total = total + W.T @ present
        first = first + (W * values).T @ present
        second = second + (W * values**2).T @ present
    total = np.maximum(total, np.finfo(np.float64).tiny)
    variance = second / total - (first / total) ** 2
    whole = np.diag(variance)
    return np.asarray(((variance < _BARELY * whole[:, None]) & (whole > 0)[:, None]).any(axis=1))


def _maximise(pieces: Sequence[_PatternSums], apart: Mask) -> tuple[Vector, Matrix, bool]:
    """Return mean and covariance where EM rests, and whether it came to rest.

    Features `apart` (F,) do not vary with the others.
    """
    F = len(apart)
    held = apart[:, None] != apart
    # One array of F + 1 rows: the mean above the covariance.
    now = np.vstack([np.zeros(F), np.eye(F)])
    for _ in range(_STEPS):
        one = _step(pieces, now, held)
        two = _step(pieces, one, held)
        if np.abs(two - one).max() < _TOLERANCE:
            return two[0], two[1:], True
        # A step of EM after each leap takes back what it overdid.
        now = _step(pieces, _leap(now, one, two), held)
    return now[0], now[1:], False


def _leap(now: Matrix, one: Matrix, two: Matrix) -> Matrix:
    """Return where two steps of EM point to, or as far on the way as there are covariances."""
    r, v = one - now, two - 2 * one + now
    stride = max(1.0, float(np.linalg.norm(r)) / max(float(np.linalg.norm(v)), 1e-300))
    while stride > 1.1:
        leap = now + 2 * stride * r + stride**2 * v
        if np.linalg.eigvalsh(leap[1:])[0] > _LEAST_VARIANCE:
            return leap
        stride = (1 + stride) / 2
    return two


def _step(pieces: Sequence[_PatternSums], moments: Matrix, held: Mask) -> Matrix:
    """Return the moments (F + 1, F) after one step of EM from `moments`; covariances `held` (F, F) stay 0."""
    mean, covariance = moments[0], moments[1:]
    sums = [piece.completed(mean, covariance) for piece in pieces]
    total = sum(float(piece.weight.sum()) for piece in pieces)
    shift = sum(first for first, _ in sums) / total
    updated = sum(second for _, second in sums) / total - np.outer(shift, shift)
    updated[held] = 0.0
    return np.vstack([mean + shift, _positive((updated + updated.T) / 2)])


def _positive(covariance: Matrix) -> Matrix:
    """Return a covariance of unit-size features with all eigenvalues at least 1e-8."""
    least = np.linalg.eigvalsh(covariance)[0]
    lift = max(0.0, _LEAST_VARIANCE - least)
    return covariance + lift * np.eye(len(covariance))


@dataclass(frozen=True, eq=False)
class _PatternSums:
    """All that EM needs of the data: sums over the rows of each pattern, 0 where a feature is missing."""

    present: Matrix  # (P, F), 1 or 0
    weight: Vector  # (P,)
    first: Matrix  # (P, F), sum of z
    second: Matrix  # (P, F, F), sum of z zᵀ

    @classmethod
    def of(cls, Z: Matrix, missing: Mask, weight: Vector) -> _PatternSums:
        """Return the sums over rows Z (N, F) with their patterns (N, F) and weights (N,)."""
        parts = [(p, Z[rows], weight[rows]) for p, rows in missing_patterns(missing)]
        return cls(
            np.array([~p for p, _, _ in parts], dtype=np.float64),
            np.array([w.sum() for _, _, w in parts]),
            np.array([w @ z for _, z, w in parts]),
            np.array([(z * w[:, None]).T @ z for _, z, w in parts]),
        )

    def rows(self, some: slice) -> _PatternSums:
        """Return the sums of some of the patterns."""
        return _PatternSums(self.present[some], self.weight[some], self.first[some], self.second[some])

    def plus(self, other: _PatternSums) -> _PatternSums:
        """Return the sums over the rows of both, of the same patterns."""
        sums = ((self.weight, other.weight), (self.first, other.first), (self.second, other.second))
        return _PatternSums(self.present, *(a + b for a, b in sums))

    def completed(self, mean: Vector, covariance: Matrix) -> tuple[Vector, Matrix]:
        """Return the sums (F,) and (F, F) of z − mean and its square, expected given what is present."""
        D, n = self.present, self.weight
        # R (P, F, F) regresses all features on those present: Σ_·o Σ_oo⁻¹, with Σ_oo filled up by the identity.
        block = D[:, :, None] * covariance * D[:, None, :] + np.eye(mean.size) * (1 - D)[:, None, :]
        R = np.linalg.solve(block, D[:, :, None] * covariance).transpose(0, 2, 1)
        centre = D * mean
        about = self.first - n[:, None] * centre
        cross = centre[:, :, None] * (self.first - n[:, None] * centre / 2)[:, None, :]
        scatter = self.second - cross - cross.transpose(0, 2, 1)
        square = R @ scatter @ R.transpose(0, 2, 1) + n[:, None, None] * (covariance - R @ covariance)
        return np.einsum("pfg,pg->f", R, about), square.sum(axis=0)


def _in_pieces(whole: _PatternSums) -> list[_PatternSums]:
    """Return the sums of so many patterns at a time as stay in cache."""
    edges = range(_TOGETHER, len(whole.weight), _TOGETHER)
    pieces = [np.split(array, edges) for array in vars(whole).values()]
    return [_PatternSums(*arrays) for arrays in zip(*pieces, strict=True)]


def _seen_moments(X: Matrix, missing: Mask, weight: Vector) -> tuple[Vector, Vector]:
    """Return centre and scale, each (F,), of what is present: EM works in their units."""
    if weight.shape != (len(X),) or np.any(weight < 0):
        raise ValueError(
            f"weight must be {len(X)} number(s) of 0 or more, one for each row, got shape {weight.shape}"
        )
    seen = ~missing & (weight > 0)[:, None]
    unseen = np.flatnonzero(~seen.any(axis=0))
    if unseen.size:
        raise ValueError(
            f"feature(s) {unseen.tolist()} are missing in every row of positive weight, so their "
            "distribution is unknown and they cannot be integrated out; leave them out of the model"
        )
    F = X.shape[1]
    origin = X[seen.argmax(axis=0), np.arange(F)]
    total = shift = peak = square = np.zeros(F)
    for some in _blocks(len(X)):
        W = _weights(missing[some], weight[some])
        total = total + W.sum(axis=0)
        shift = shift + np.sum(W * (X[some] - origin), axis=0)
    centre = origin + shift / total
    for some in _blocks(len(X)):
        deviation = np.where(seen[some], X[some] - centre, 0.0)
        peak = np.maximum(peak, np.abs(deviation).max(axis=0))
    unit = np.where(peak > 0, peak, 1.0)
    for some in _blocks(len(X)):
        deviation = np.where(seen[some], X[some] - centre, 0.0)
        square = square + np.sum(_weights(missing[some], weight[some]) * (deviation / unit) ** 2, axis=0)
    scale = unit * np.sqrt(square / total)
    # A constant's own size is the only scale it has.
    size = np.where(centre == 0, 1.0, np.abs(centre))
    return centre, np.where(peak <= 16 * np.finfo(np.float64).eps * size, size, scale)


def _weights(missing: Mask, weight: Vector) -> Matrix:
    """Return the weight of each value (n, F), 0 where it is missing."""
    return np.where(missing, 0.0, weight[:, None])


def _blocks(n: int) -> Iterator[slice]:
    """Yield blocks of rows: the copies of a block take little memory."""
    return (slice(start, start + BLOCK) for start in range(0, n, BLOCK))
