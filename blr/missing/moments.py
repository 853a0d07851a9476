"""The moments of features, by EM where values are missing, and what they say of a missing value and of unlike rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from blr.arrays import Mask, Matrix, Places, Vector, as_vector, plain_fields, require_finite
from blr.missing.patterns import (
    BLOCK,
    Nodes,
    kept,
    missing_patterns,
    normal_nodes,
    present_values,
)

# Mean and covariance of incomplete rows, by the EM algorithm.
#
# Those of largest likelihood for a normal distribution, with features missing at random (Dempster, Laird & Rubin
# 1977, doi:10.1111/j.2517-6161.1977.tb01600.x; Little & Rubin, Statistical Analysis with Missing Data, 11.2), reached
# by leaps: two steps tell the rate at which EM creeps, and so where it is going (SQUAREM, scheme S3 of Varadhan &
# Roland 2008, doi:10.1111/j.1467-9469.2007.00585.x).
# Shapes: N rows, F features, P patterns of missing features.

_STEPS = 300
_TOLERANCE = 1e-9  # change of a mean or covariance in a step, in standard deviations
# Pseudo-rows without correlations, for each feature that a row lacks in the mean; of complete rows there are none.
# Without them, few rows with many holes have correlations by chance, and the mean would fill in better than these do.
_PSEUDO_ROWS = 2.0
# Where rows are few beside the features, EM creeps on for long.  After some leaps it stops at changes that are small
# beside the standard error of a mean.
_LEAPS, _OF_STANDARD_ERROR = 10, 1e-3
# The least eigenvalue of the correlations.  A combination of features that never varied is then held to vary by
# 1e-4 of theirs: above the rounding of float32 catalogues, below anything that matters.
_LEAST_VARIANCE = 1e-8
# The scales of features whose squares, and these features' covariances, neither overflow nor vanish.
SMALLEST_SCALE, LARGEST_SCALE = 1e-100, 1e100
# Share of a feature's variance that is left where another is present, below which that is not seen.
_BARELY = 0.05
Incomplete = tuple[Matrix, Mask, Vector]
"""Rows X (n, F), where they are missing (n, F), and their weights (n,)."""


_Alike = tuple[Places, Places, Matrix]
"""All that EM needs of the rows of P patterns with m missing features each: which are missing (P, m), and of K rows
the pattern (K,) with √w and √w z (K, F + 1), 0 where missing; for many rows stand F + 1 of the same moments."""


def likeliest_moments(parts: Iterable[Incomplete], sample: Incomplete) -> tuple[Vector, Matrix, bool]:
    """Return mean (F,), covariance (F, F), and whether EM came to rest, of all rows, which come in parts, once.

    `sample` tells their units.  Rows count by their weights.  Constant or collinear features get the least variance
    that makes the covariance positive definite, and a positive definite one gets nothing.
    """
    centre, scale = _seen_moments(*sample)
    found: dict[bytes, Matrix] = {}
    for X, missing, weight in parts:
        Z = np.where(missing, 0.0, (X - centre) / scale)
        A = np.sqrt(weight)[:, None] * np.column_stack([np.ones(len(Z)), Z])
        for pattern, rows in missing_patterns(missing):
            if not pattern.all():
                some = np.vstack([found.get(key := pattern.tobytes(), A[:0]), A[rows]])
                found[key] = some if len(some) <= 2 * A.shape[1] else np.asarray(np.linalg.qr(some, mode="r"))
    alike: dict[int, list[tuple[Places, Matrix]]] = {}
    for key in sorted(found):
        gone = np.flatnonzero(np.frombuffer(key, dtype=bool))
        alike.setdefault(len(gone), []).append((gone, found[key]))
    pieces = [
        (
            np.array([gone for gone, _ in some]),
            np.repeat(np.arange(len(some)), [len(A) for _, A in some]),
            np.vstack([A for _, A in some]),
        )
        for some in alike.values()
    ]
    mean, correlation, converged = _maximise(pieces, uninformed(*sample))
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


def _maximise(pieces: Sequence[_Alike], apart: Mask) -> tuple[Vector, Matrix, bool]:
    """Return mean and covariance where EM rests, and whether it came to rest.

    Features `apart` (F,) do not vary with the others.
    """
    F = len(apart)
    total = sum(float(A[:, 0] @ A[:, 0]) for _, _, A in pieces)
    lacking = sum(gone.shape[1] * float(A[:, 0] @ A[:, 0]) for gone, _, A in pieces) / total
    # What is kept of each covariance: nothing of features apart, and the rows' share beside the pseudo-rows.
    share = np.where(apart[:, None] == apart, total / (total + _PSEUDO_ROWS * lacking), 0.0)
    np.fill_diagonal(share, 1.0)
    # One array of F + 1 rows: the mean above the covariance.
    now = np.vstack([np.zeros(F), np.eye(F)])
    standard_error = max(1.0, total) ** -0.5
    for leaps in range(_STEPS):
        one = _step(pieces, now, share)
        two = _step(pieces, one, share)
        least = _TOLERANCE if leaps < _LEAPS else _OF_STANDARD_ERROR * standard_error
        if np.abs(two - one).max() < least:
            return two[0], two[1:], True
        # A step of EM after each leap takes back what it overdid.
        now = _step(pieces, _leap(now, one, two), share)
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


def _step(pieces: Sequence[_Alike], moments: Matrix, share: Matrix) -> Matrix:
    """Return the moments (F + 1, F) after a step of EM from `moments`; of the covariances a `share` (F, F) is kept."""
    mean, covariance = moments[0], moments[1:]
    precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    sums = [_completed(*piece, mean, precision) for piece in pieces]
    total = sum(float(A[:, 0] @ A[:, 0]) for _, _, A in pieces)
    shift = sum(first for first, _ in sums) / total
    updated = sum(second for _, second in sums) / total - np.outer(shift, shift)
    updated = share * (updated + updated.T) / 2
    lift = max(0.0, _LEAST_VARIANCE - np.linalg.eigvalsh(updated)[0])
    return np.vstack([mean + shift, updated + lift * np.eye(len(updated))])


def _completed(gone: Places, of: Places, A: Matrix, mean: Vector, precision: Matrix) -> tuple[Vector, Matrix]:
    """Return the sums (F,) and (F, F) of z − mean and its square, expected given what is present, of `_Alike`."""
    # With Λ the precision, what is missing has the covariance Λ_mm⁻¹, and the mean −Λ_mm⁻¹ Λ_mo times what is present.
    blocks = gone[:, :, None], gone[:, None, :]
    spread = np.linalg.inv(precision[blocks])
    about, where = A[:, 1:] - A[:, :1] * mean, gone[of]
    np.put_along_axis(about, where, 0.0, axis=1)
    filled = -spread[of] @ np.take_along_axis(about @ precision, where, axis=1)[:, :, None]
    np.put_along_axis(about, where, filled[:, :, 0], axis=1)
    square = about.T @ about
    np.add.at(square, blocks, np.bincount(of, A[:, 0] ** 2)[:, None, None] * spread)
    return A[:, 0] @ about, square


@np.errstate(over="ignore", invalid="ignore")
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
    scale = np.where(peak <= 16 * np.finfo(np.float64).eps * size, size, scale)
    extreme = np.flatnonzero(~((scale > SMALLEST_SCALE) & (scale < LARGEST_SCALE)))
    if extreme.size:
        raise ValueError(
            f"feature {extreme[0]} has values of the size {max(peak[extreme[0]], size[extreme[0]]):.3g}, expected "
            f"sizes between {SMALLEST_SCALE:.0e} and {LARGEST_SCALE:.0e}; mark values that stand for none as missing "
            "(NaN), or give the feature in another unit"
        )
    return centre, scale


def _weights(missing: Mask, weight: Vector) -> Matrix:
    """Return the weight of each value (n, F), 0 where it is missing."""
    return np.where(missing, 0.0, weight[:, None])


def _blocks(n: int) -> Iterator[slice]:
    """Yield blocks of rows: the copies of a block take little memory."""
    return (slice(start, start + BLOCK) for start in range(0, n, BLOCK))


# The normal distribution that fills missing features in, and integrals over it.
#
# Shapes: N rows, F features; of a pattern, o features present and m missing; S nodes.

_NODES = 33  # of the cubature over one missing feature: errs by 4e-4 in probability at a logit sd of 3
_MORE_NODES = 64  # over several, or over measurement errors: by 0.01
# Smaller eigenvalues of the correlations come from the ridge that the moments add, not from the data: of three colours
# of three bands only two are independent.
_NO_SPREAD = 1e-7
_FAR = 1e100  # standard deviations at which distances are cut, so that their squares are finite


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Mean (F,) and covariance (F, F) of the features in the training set.

    `converged` says whether EM came to rest.  `spread` (F,) is the share of its conditional standard deviation that a
    missing feature has at `nodes`, as `blr.missing.moments` finds it; None for all of it.
    """

    mean: Vector
    covariance: Matrix
    converged: bool = True
    spread: Vector | None = None

    def __post_init__(self) -> None:
        mean, covariance = as_vector(self.mean, "mean").copy(), np.array(self.covariance, dtype=np.float64)
        F = mean.size
        if covariance.shape != (F, F) or not np.array_equal(covariance, covariance.T):
            raise ValueError(
                f"the moments of {F} feature(s) need a symmetric covariance {(F, F)}, got {covariance.shape}"
            )
        require_finite(covariance, "covariance")
        _cholesky(covariance)
        if self.spread is not None and as_vector(self.spread, "spread").shape != (F,):
            raise ValueError(
                f"the moments of {F} feature(s) need a spread for each, got {np.size(self.spread)}"
            )
        for name, array in (("mean", mean), ("covariance", covariance)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def estimate(cls, X: ArrayLike, missing: ArrayLike, weight: ArrayLike | None = None) -> FeatureMoments:
        """Return the moments of largest likelihood of X, shape (N, F), where not `missing`, shape (N, F).

        Rows count `weight` times, shape (N,).  Features that are constant, or combinations of others, get the
        least variance that makes the covariance positive definite.
        """
        X, absent = present_values(X, missing)
        w = np.ones(len(X)) if weight is None else as_vector(weight, "weight")
        parts = ((X[some], absent[some], w[some]) for some in _blocks(len(X)))
        return cls(*likeliest_moments(parts, (X, absent, w)))

    @classmethod
    def estimate_of_parts(cls, parts: Iterable[Incomplete], sample: Incomplete) -> FeatureMoments:
        """Return what `estimate` does of all rows, which come in parts (X, missing, weight) and are read once.

        `sample` are some of the rows, in which each feature is present somewhere.
        """
        checked = ((*present_values(X, missing), weight) for X, missing, weight in parts)
        X, missing, weight = sample
        return cls(*likeliest_moments(checked, (*present_values(X, missing), weight)))

    @property
    def n_features(self) -> int:
        """F, the number of columns of X."""
        return self.mean.size

    @cached_property
    def held(self) -> FeatureMoments:
        """The same moments with what is missing at its conditional mean alone."""
        return FeatureMoments(self.mean, self.covariance, self.converged, np.zeros(self.n_features))

    def conditional(self, pattern: ArrayLike) -> tuple[Matrix, Matrix]:
        """Return B (m, o) and L (m, m): the features missing in a pattern (F,), given those present.

        They are normal, with mean mean_m + B (x_o − mean_o) and covariance L Lᵀ, L lower triangular.
        """
        missing = np.asarray(pattern, dtype=np.bool_)
        return kept(self._conditionals, missing, lambda: self._conditional(missing))

    @cached_property
    def precision(self) -> Matrix:
        """The inverse of the covariance (F, F): a pattern that misses m features takes m² F operations by it."""
        sd = np.sqrt(np.diag(self.covariance))
        values, vectors = np.linalg.eigh(self.covariance / np.outer(sd, sd))
        vectors /= sd[:, None]
        return np.asarray((vectors / np.maximum(values, _LEAST_VARIANCE / 2)) @ vectors.T)

    @cached_property
    def _conditionals(self) -> dict[bytes, tuple[Matrix, Matrix]]:
        return {}

    def _conditional(self, missing: Mask) -> tuple[Matrix, Matrix]:
        # The covariance of what is missing is Λ_mm⁻¹, so L is the inverse of an upper triangular root of Λ_mm: that of
        # the reversed rows and columns, reversed.  Where features follow from others, it stays a covariance.
        gone = np.flatnonzero(missing)[::-1]
        root = _cholesky(self.precision[np.ix_(gone, gone)])[::-1, ::-1]
        L = solve_triangular(root.T, np.eye(len(gone)), lower=True)
        B = -L @ (L.T @ self.precision[np.ix_(missing, ~missing)])
        B.setflags(write=False)
        L.setflags(write=False)
        return B, L

    def precision_of(self, present: Mask) -> Matrix:
        """Return the inverse of the covariance (o, o) of the features present (F,) alone."""
        shared = self.precision[np.ix_(present, ~present)]
        between = np.linalg.solve(self.precision[np.ix_(~present, ~present)], shared.T)
        return np.asarray(self.precision[np.ix_(present, present)] - shared @ between)

    def impute(self, X: ArrayLike, missing: ArrayLike, *, limits: Matrix | None = None) -> Matrix:
        """Return X, shape (N, F), with what is missing at its mean given what is present.

        `limits` (2, F): what is missing lies within them, and what a present value says of it is what the nearest value
        within them does.
        """
        X, absent = present_values(X, missing, n_features=self.n_features)
        for pattern, rows in missing_patterns(absent):
            if pattern.any():
                B, _ = self.conditional(pattern)
                seen = _within(X[np.ix_(rows, ~pattern)], limits, ~pattern) - self.mean[~pattern]
                X[np.ix_(rows, pattern)] = _within(self.mean[pattern] + seen @ B.T, limits, pattern)
        return X

    @cached_property
    def _axes(self) -> Matrix:
        """What takes standardised features to the space in which the moments are those of a sphere, (F, D)."""
        sd = np.sqrt(np.diag(self.covariance))
        values, vectors = np.linalg.eigh(self.covariance / np.outer(sd, sd))
        kept = values > _NO_SPREAD
        return np.asarray(vectors[:, kept] / np.sqrt(2 * np.count_nonzero(kept) * values[kept]))

    def whitened(self, X: ArrayLike, missing: ArrayLike) -> Matrix:
        """Return rows X, shape (N, F), where not `missing`, shape (N, F), as points (N, D) of that space.

        Features that are missing are at their conditional mean.  The mean square distance of two training rows is 1, as
        in `blr.explanation`.  D is the rank of the covariance.
        """
        sd = np.sqrt(np.diag(self.covariance))
        with np.errstate(over="ignore"):
            U = (self.impute(X, missing) - self.mean) / sd
        return np.asarray(np.clip(U, -_FAR, _FAR) @ self._axes)

    def nodes(
        self,
        X_rows: ArrayLike,
        pattern: ArrayLike,
        n: int,
        *,
        errors: ArrayLike | None = None,
        limits: Matrix | None = None,
        axes: Matrix | None = None,
    ) -> tuple[Matrix, Vector]:
        """Return nodes (S, N, F) and weights (S,) over what one pattern (F,) misses, given what is present.

        `X_rows`, shape (N, F), are rows of that pattern; n is about the number of nodes wanted.  Each row's
        nodes have exactly its conditional mean, and its conditional covariance but for the `spread` and the limits;
        `blr.missing.patterns` says how accurate integrals are.  With the one-sigma `errors` of the rows, (N, F), the
        present features vary too, jointly with what they say about the missing ones.  `limits` as of `impute`.
        `axes` (m, d), orthonormal columns: directions over which the nodes are spread, in the coordinates that the
        conditional Cholesky factor takes to the features; along others they are at the mean.  Default: all.
        """
        missing = np.asarray(pattern, dtype=np.bool_)
        X, _ = present_values(X_rows, np.broadcast_to(missing, np.shape(X_rows)), n_features=self.n_features)
        seen = X[:, ~missing]
        noise = np.zeros(seen.shape) if errors is None else np.asarray(errors, dtype=np.float64)[:, ~missing]
        active = (noise > 0).any(axis=0)
        m = int(np.count_nonzero(missing)) if axes is None else axes.shape[1]
        Z, weight = normal_nodes(m + int(active.sum()), n)
        B, L = self.conditional(missing)
        nodes = np.empty((len(Z), *X.shape))
        moved = np.repeat(seen[None], len(Z), axis=0)
        moved[:, :, active] += Z[:, None, m:] * noise[:, active]
        nodes[:, :, ~missing] = moved
        said = _within(nodes[:, :, ~missing], limits, ~missing)
        mean = self.mean[missing] + (said - self.mean[~missing]) @ B.T
        spread = Z[:, :m] @ (L if axes is None else L @ axes).T
        if self.spread is not None:
            spread *= self.spread[missing]
        nodes[:, :, missing] = _within(mean + spread[:, None, :], limits, missing)
        return nodes, weight

    def nodes_by_pattern(
        self,
        X: Matrix,
        missing: Mask,
        chosen: NDArray[np.intp],
        errors: Matrix | None,
        *,
        most: int,
        limits: Matrix | None = None,
        rule: Callable[[Mask], Rule] | None = None,
    ) -> Iterator[Nodes]:
        """Yield `nodes` of the `chosen` rows (n,) of X (N, F): rows of one pattern, with `most` nodes at once.

        `rule` gives the number of nodes and their axes for a pattern, where there are no errors.
        """
        for pattern, index in missing_patterns(missing[chosen]):
            size, axes = (_NODES if errors is None and pattern.sum() == 1 else _MORE_NODES), None
            if rule is not None and errors is None:
                size, axes, _ = rule(pattern)
            step = max(1, most // size)
            for start in range(0, len(index), step):
                rows = chosen[index[start : start + step]]
                sigma = None if errors is None else errors[rows]
                nodes, weight = self.nodes(X[rows], pattern, size, errors=sigma, limits=limits, axes=axes)
                active = 0 if sigma is None else int((sigma > 0).any(axis=0).sum())
                yield rows, nodes, weight, active + (int(pattern.sum()) if axes is None else axes.shape[1])

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes."""
        return plain_fields(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> FeatureMoments:
        """Return the moments of `to_dict`."""
        return cls(stored["mean"], stored["covariance"], bool(stored["converged"]), stored["spread"])


def _within(X: Matrix, limits: Matrix | None, features: Mask) -> Matrix:
    """Return values (..., P) of some `features` (F,) at the nearest within the limits (2, F); as they are without."""
    return X if limits is None else np.clip(X, *limits[:, features])


def _cholesky(covariance: Matrix) -> Matrix:
    try:
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the covariance of the features is not positive definite; take it from FeatureMoments.estimate"
        ) from error


# How far a missing feature is integrated: its spread in excess of what the training rows that lack it had.
#
# Training rows without a feature are fitted at its conditional mean, and so flatten the weights by themselves, as rows
# with measurement errors do (Carroll et al. 2006, doi:10.1201/9781420010138, on attenuation).  A row to classify that
# lacks the feature has an excess of variance over the training rows' mean: the conditional variance times the share of
# training rows that have the feature.  Integrated over the whole variance, logits of OpenNGC's galaxies, two thirds of
# which lack V, came out a tenth to a third too small.
#
# Few values far out also make the conditional variance larger than that of most rows.  So the standard deviation is
# that of a normal distribution with the same mean absolute deviation.
# Shapes: N rows, F features; of a pattern, o features present.

_NORMAL = np.sqrt(np.pi / 2)  # standard deviation over mean absolute deviation of a normal distribution


def excess_spread(moments: FeatureMoments, X: Matrix, missing: Mask, weight: Vector | None = None) -> Vector:
    """Return the share (F,) of its conditional standard deviation that a missing feature is integrated over.

    X (N, F) are the training rows that the moments are of, without a value where `missing` (N, F) is set; they count
    `weight` (N,) times.
    """
    w = np.ones(len(X)) if weight is None else weight
    absolute, total = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for pattern, rows in missing_patterns(missing, most=BLOCK):
        present = ~pattern
        precision = moments.precision_of(present)
        about = X[np.ix_(rows, present)] - moments.mean[present]
        # Of each present feature, given the others, in standard deviations.
        residual = about @ precision / np.sqrt(np.diag(precision))
        absolute[present] += w[rows] @ np.abs(residual)
        total[present] += w[rows].sum()
    ordinary = np.minimum(_NORMAL * absolute / np.maximum(total, np.finfo(np.float64).tiny), 1.0)
    return np.asarray(np.sqrt(total / w.sum()) * ordinary)


SlopeMoments = Callable[[Matrix, Vector], NDArray[np.float64]]
"""What gives the slopes' second moments (K, F, K, F) over points X (P, F) of some weights (P,)."""
# Points at which slopes are taken, spread over the features' distribution, and the most of them: many features ask for
# more nodes than these.
_POINTS, _MOST_POINTS = 64, 128
# The largest sum of the logit's sds along the axes, and how many nodes serve up to it: one axis, two, and more.  Of one
# axis they are odd: one lies at the mean.
_ALONG_ONE = (0.5, 7), (1.0, 9), (1.5, 11), (2.0, 13), (3.0, 17), (3.5, 25), (np.inf, 33)
_ALONG_TWO = (0.5, 16), (1.0, 24), (1.5, 32), (2.0, 48), (3.0, 64), (np.inf, 96)
_ALONG_MANY = (0.5, 32), (1.0, 48), (2.5, 64), (np.inf, 96)
# The logit's sd along a direction, below which it is held at its mean: no probability changes by more than 0.0001.
_LEAST_SD = 0.04
Rule = tuple[int, Matrix, NDArray[np.float64]]
"""Of a pattern that misses m features: number of nodes, their axes (m, d), and the covariance (K, K) of the activations
along all other directions."""


@dataclass(frozen=True, eq=False)
class ActiveSubspace:
    """A few integration nodes for each pattern of missing features, along the directions in which the logit moves.

    The directions are those of the active subspace (Constantine, Dow and Wang 2014, doi:10.1137/130916138):
    eigenvectors of E[∇a ∇aᵀ], over the members' mean activations a and the features' distribution, in the coordinates
    of what is missing; `slopes` are these second moments (K, F, K, F).  The first axis of a lattice is its regular one,
    so it lies along the first eigenvector.  The eigenvalues say how far the logit reaches, and so how many nodes
    resolve the sigmoid.  A pattern has one rule, whatever rows are asked for.

    The error of a probability in one dimension is at most 2e-5 where the logit is linear, and 0.001 in the mean on
    default models with trees and quadratics.  In more dimensions it is 0.0002 to 0.0013 in the mean and 0.003 at worst,
    on OpenNGC and on simulated stacks, as with 64 nodes spread over all directions; 0.002 in the mean where logits are
    quadratics of features missing together.
    """

    moments: FeatureMoments
    slopes: NDArray[np.float64]
    support: Matrix | None = None
    _rules: dict[bytes, Rule] = field(default_factory=dict)

    @classmethod
    def of(
        cls, moments: FeatureMoments, support: Matrix | None, slope_moments: SlopeMoments
    ) -> ActiveSubspace:
        """Return the choice by slopes at points within the `support` (2, F), as `slope_moments` finds them."""
        Z, weight = normal_nodes(moments.n_features, _POINTS)
        half = len(Z) // 2  # each point of the first half has its mirror image in the second, from the end on
        some = np.arange(0, half, max(1, half // (_MOST_POINTS // 2)))
        some = np.concatenate([some, len(Z) - 1 - some])
        Z, weight = Z[some], weight[some] / weight[some].sum()
        X = moments.mean + Z @ np.linalg.cholesky(moments.covariance).T
        return cls(moments, slope_moments(X if support is None else np.clip(X, *support), weight), support)

    def rule(self, pattern: Mask) -> Rule:
        """Return the rule of a pattern (F,); its axes are columns."""
        return kept(self._rules, pattern, lambda: self._rule(pattern))

    def nodes(self, X: Matrix, missing: Mask, chosen: NDArray[np.intp], *, most: int) -> Iterator[Nodes]:
        """Yield the nodes of the `chosen` rows (n,) of X (N, F), as `FeatureMoments.nodes_by_pattern` does.

        Outside the support slopes may be larger than these: such rows get the usual nodes, along all directions.
        """
        within = self._within(X, missing, chosen)
        for rows, rule in ((chosen[within], self.rule), (chosen[~within], None)):
            yield from self.moments.nodes_by_pattern(
                X, missing, rows, None, most=most, limits=self.support, rule=rule
            )

    def left_out(self, X: Matrix, missing: Mask, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the activations' covariances (n, K, K) along directions without `nodes`, of the `chosen` rows (n,).

        Each of these rows lacks a feature.
        """
        K = len(self.slopes)
        left_out = np.zeros((len(chosen), K, K))
        within = np.flatnonzero(self._within(X, missing, chosen))
        for pattern, rows in missing_patterns(missing[chosen[within]]):
            left_out[within[rows]] = self.rule(pattern)[2]
        return left_out

    def _within(self, X: Matrix, missing: Mask, chosen: NDArray[np.intp]) -> Mask:
        """Return whether what is present of the `chosen` rows (n,) lies in the support."""
        if self.support is None:
            return np.ones(len(chosen), dtype=bool)
        seen = np.where(missing[chosen], self.moments.mean, X[chosen])
        return np.asarray(((self.support[0] <= seen) & (seen <= self.support[1])).all(axis=1))

    def _rule(self, pattern: Mask) -> Rule:
        _, L = self.moments.conditional(pattern)
        along = L if self.moments.spread is None else self.moments.spread[pattern][:, None] * L
        slopes = self.slopes[:, pattern][..., pattern]
        value, axes = np.linalg.eigh(along.T @ np.einsum("kfkg->fg", slopes) @ along)
        axes = axes[:, ::-1]
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(len(axes))])
        # Where one of K activations that sum to zero moves against the others, this is the sd of its logit.
        K = len(self.slopes)
        reach = np.sqrt(np.maximum(value[::-1], 0.0) * K / (K - 1))
        d = max(1, int(np.count_nonzero(reach > _LEAST_SD)))
        sizes = {1: _ALONG_ONE, 2: _ALONG_TWO}.get(d, _ALONG_MANY)
        n = next(n for most, n in sizes if reach[:d].sum() <= most)
        others = along @ axes[:, d:]
        left_out = np.einsum("kflg,fg->kl", slopes, others @ others.T) if others.size else np.zeros((K, K))
        return n, axes[:, :d], left_out


_QUANTILE = 0.999


@dataclass(frozen=True, eq=False)
class Domain:
    """How unlike the training set a row is: its moments, and the distance z that one in a thousand of its rows exceeds.

    The squared Mahalanobis distance of k features present is χ² with k degrees of freedom for normal features; the
    cube root of Wilson & Hilferty (1931), doi:10.1073/pnas.17.12.684, makes it a standard normal z, comparable between
    patterns.  Real features are not normal, so the limit is the 99.9th percentile of the training set itself, not that
    of a normal distribution.
    """

    moments: FeatureMoments
    limit: float

    @classmethod
    def estimate(cls, X: ArrayLike, missing: ArrayLike, moments: FeatureMoments) -> Domain:
        """Return the domain of the training rows X, shape (N, F), where not `missing`, shape (N, F).

        Each row counts with its distance from the moments of the others: in its own it is too near, by far where
        features are nearly as many as rows.
        """
        squared, n = cls(moments, np.inf).squared_distance(X, missing)
        known = ~np.all(missing, axis=1)
        N = max(int(known.sum()), 2)
        # Mean and covariance without a row by the formula of Sherman and Morrison.
        measured = wilson_hilferty(N * squared / np.maximum(N - 1 - squared, 1e-9), n)[known]
        # At least the distance of an ordinary row (z = 0), so that few and equal training rows are not outside
        # themselves; plus a margin for rounding, which differs between batches.
        limit = max(0.0, float(np.quantile(measured, _QUANTILE))) if measured.size else np.inf
        return cls(moments, limit + 1e-9 * (1 + limit))

    def distance(self, X: ArrayLike, missing: ArrayLike) -> Vector:
        """Return z, shape (N,): 0 for a row as far out as the median, n for an "n sigma" one.

        A row without any feature is at 0.
        """
        z = wilson_hilferty(*self.squared_distance(X, missing))
        if np.any(missing):
            z[np.all(missing, axis=1)] = 0.0
        return z

    def squared_distance(self, X: ArrayLike, missing: ArrayLike) -> tuple[Vector, NDArray[np.intp]]:
        """Return the squared distances (N,) of rows, and the degrees of freedom that each has (N,)."""
        X, absent = present_values(X, missing, n_features=self.moments.n_features)
        sd, whiten, rank = self._metric
        # What is missing at its conditional mean is no farther away than what is present.
        n = np.full(len(X), rank)
        if absent.any():
            ends = self.moments.mean + sd * np.array([[-_FAR], [_FAR]])
            X = self.moments.impute(np.clip(X, *ends), absent)
            for pattern, rows in missing_patterns(absent):
                # Missing features that follow from those present take no degree of freedom away.
                L = self.moments.conditional(pattern)[1]
                n[rows] -= np.count_nonzero(np.diag(L) > np.sqrt(_NO_SPREAD) * sd[pattern])
        with np.errstate(over="ignore"):
            U = np.clip((X - self.moments.mean) / sd, -_FAR, _FAR) @ whiten.T
        return np.einsum("nk,nk->n", U, U), np.maximum(n, 1)

    def outside(self, X: ArrayLike, missing: ArrayLike) -> NDArray[np.bool_]:
        """Return which rows, shape (N,), lie beyond the training set's 99.9th percentile."""
        return self.distance(X, missing) > self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes."""
        return {**self.moments.to_dict(), "limit": self.limit}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Domain:
        """Return the domain of `to_dict`."""
        return cls(FeatureMoments.from_dict(stored), float(stored["limit"]))

    @cached_property
    def _metric(self) -> tuple[Vector, Matrix, int]:
        """The features' sd (F,), the matrix (F, F) that whitens standardised values, and the covariance's rank."""
        sd = np.sqrt(np.diag(self.moments.covariance))
        # Inverting the small triangular matrix once and multiplying all rows is faster than solving for them.
        correlation = self.moments.covariance / np.outer(sd, sd)
        whiten = solve_triangular(_cholesky(correlation), np.eye(len(sd)), lower=True)
        return sd, whiten, int(np.sum(np.linalg.eigvalsh(correlation) > _NO_SPREAD))


def wilson_hilferty(chi2: Vector, k: int | NDArray[np.intp]) -> Vector:
    """Return z, of the shape of `chi2`, as probable under N(0, 1) as `chi2` is under χ² with k degrees of freedom."""
    variance = 2 / (9 * k)
    return (np.cbrt(chi2 / k) - (1 - variance)) / np.sqrt(variance)
