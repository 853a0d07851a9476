"""Features missing at random: the normal distribution that fills them in, and integrals over it.

The mean and covariance of incomplete rows are those of largest likelihood, by EM (Dempster, Laird & Rubin 1977,
doi:10.1111/j.2517-6161.1977.tb01600.x; Little & Rubin, Statistical Analysis with Missing Data, 11.2).  Whatever
depends on which features are missing is done once a pattern, for all of its rows.
Shapes: N rows, F features; of a pattern, o features present and m missing; P patterns; S nodes.
"""

from __future__ import annotations

__all__ = ["FeatureMoments", "missing_patterns", "present_values"]

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from blr.arrays import Matrix, Vector, as_vector, require_finite
from blr.nodes import displaced, error_nodes, moving, normal_nodes

Mask = NDArray[np.bool_]

_STEPS = 1000
_TOLERANCE = 1e-9  # change of a mean or covariance in a step, in standard deviations
# The least eigenvalue of the correlations.  A combination of features that never varied is then held to vary by
# 1e-4 of theirs: above the rounding of float32 catalogues, below anything that matters.
_LEAST_VARIANCE = 1e-8


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Mean (F,) and covariance (F, F) of the features in the training set.

    `converged` says whether EM came to rest.
    """

    mean: Vector
    covariance: Matrix
    converged: bool = True

    def __post_init__(self) -> None:
        mean, covariance = as_vector(self.mean, "mean").copy(), np.array(self.covariance, dtype=np.float64)
        F = mean.size
        if covariance.shape != (F, F) or not np.array_equal(covariance, covariance.T):
            raise ValueError(
                f"the moments of {F} feature(s) need a symmetric covariance {(F, F)}, got {covariance.shape}"
            )
        require_finite(covariance, "covariance")
        _cholesky(covariance)
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
        centre, scale = _seen_moments(X, absent, w)
        Z = np.where(absent, 0.0, (X - centre) / scale)
        mean, correlation, converged = _maximise(_PatternSums.of(Z, absent, w))
        return cls(centre + scale * mean, correlation * np.outer(scale, scale), converged)

    @property
    def n_features(self) -> int:
        """F, the number of columns of X."""
        return self.mean.size

    def conditional(self, pattern: ArrayLike) -> tuple[Matrix, Matrix]:
        """Return B (m, o) and L (m, m): the features missing in a pattern (F,), given those present.

        They are normal, with mean mean_m + B (x_o − mean_o) and covariance L Lᵀ, L lower triangular.
        """
        missing = self._pattern(pattern)
        # With what is present first, the last block of the Cholesky factor is that of the conditional.
        order = np.argsort(missing, kind="stable")
        o = int(np.count_nonzero(~missing))
        L = _cholesky(self.covariance[np.ix_(order, order)])
        B = solve_triangular(L[:o, :o], L[o:, :o].T, lower=True, trans="T").T if o else np.zeros((len(L), 0))
        return B, L[o:, o:]

    def impute(self, X: ArrayLike, missing: ArrayLike) -> Matrix:
        """Return X, shape (N, F), with what is missing at its mean given what is present."""
        X, absent = present_values(X, missing, n_features=self.n_features)
        for pattern, rows in missing_patterns(absent):
            if pattern.any():
                B, _ = self.conditional(pattern)
                seen = X[np.ix_(rows, ~pattern)] - self.mean[~pattern]
                X[np.ix_(rows, pattern)] = self.mean[pattern] + seen @ B.T
        return X

    def nodes(
        self, X_rows: ArrayLike, pattern: ArrayLike, n: int, *, errors: ArrayLike | None = None
    ) -> tuple[Matrix, Vector]:
        """Return nodes (S, N, F) and weights (S,) over what one pattern (F,) misses, given what is present.

        `X_rows`, shape (N, F), are rows of that pattern; n is about the number of nodes wanted.  Each row's
        nodes have exactly its conditional mean and covariance; `blr.nodes` says how accurate integrals
        are.  With the `errors` of the rows, (N, F) or (N, F, F), the present features vary too, jointly with
        what they say about the missing ones.
        """
        missing = self._pattern(pattern)
        X, _ = present_values(X_rows, np.broadcast_to(missing, np.shape(X_rows)), n_features=self.n_features)
        seen = X[:, ~missing]
        noise = np.zeros(seen.shape) if errors is None else _of_present(errors, missing, X.shape)
        active = moving(noise, seen.shape)
        m = int(np.count_nonzero(missing))
        Z, weight = normal_nodes(m + int(active.sum()), n)
        B, L = self.conditional(missing)
        nodes = np.empty((len(Z), *X.shape))
        nodes[:, :, ~missing] = displaced(seen, noise, active, Z[:, m:])
        mean = self.mean[missing] + (nodes[:, :, ~missing] - self.mean[~missing]) @ B.T
        nodes[:, :, missing] = mean + (Z[:, :m] @ L.T)[:, None, :]
        return nodes, weight

    @staticmethod
    def error_nodes(X: ArrayLike, errors: ArrayLike, n: int) -> tuple[Matrix, Vector]:
        """Return nodes (S, N, F) and weights (S,) over the measurement errors of complete rows (N, F).

        It is `blr.nodes.error_nodes`, here beside `nodes`.
        """
        return error_nodes(X, errors, n)

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes."""
        return {"mean": self.mean, "covariance": self.covariance, "converged": self.converged}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> FeatureMoments:
        """Return the moments of `to_dict`."""
        return cls(stored["mean"], stored["covariance"], bool(stored["converged"]))

    def _pattern(self, pattern: ArrayLike) -> Mask:
        missing = np.asarray(pattern, dtype=np.bool_)
        if missing.shape != self.mean.shape:
            raise ValueError(
                f"a pattern says which of {self.n_features} features are missing, got shape {missing.shape}"
            )
        return missing


def present_values(X: ArrayLike, missing: ArrayLike, *, n_features: int | None = None) -> tuple[Matrix, Mask]:
    """Return a copy of X, (N, F), with 0 where it is missing, and the mask; raise on NaN elsewhere."""
    X, absent = np.asarray(X, dtype=np.float64), np.asarray(missing, dtype=np.bool_)
    F = np.shape(X)[-1] if n_features is None and X.ndim == 2 else n_features
    if X.ndim != 2 or absent.shape != X.shape or X.shape[1] != F:
        raise ValueError(
            f"X and missing must both have the shape (N, {F or 'F'}), got {X.shape} and {absent.shape}"
        )
    X = np.where(absent, 0.0, X)
    require_finite(X, "X")
    return X, absent


def missing_patterns(missing: Mask) -> Iterator[tuple[Mask, NDArray[np.intp]]]:
    """Yield each pattern (F,) in `missing`, (N, F), with the indices of its rows; there are few of them."""
    if len(missing) == 0:
        return
    code = np.zeros(len(missing), dtype=np.int64)
    for column in missing.T:
        # Renumbered as it grows, so that any number of features fits.
        code = 2 * code + column
        if code.max() > len(missing) + 65_536:
            code = np.unique(code, return_inverse=True)[1].ravel()
    # Small integers are sorted by radix, in time proportional to their number.
    order = np.argsort(code.astype(np.uint16) if code.max() < 65_536 else code, kind="stable")
    edges = np.flatnonzero(np.diff(code[order])) + 1
    for rows in np.split(order, edges):
        yield missing[rows[0]], rows


@dataclass(frozen=True, eq=False)
class _PatternSums:
    """All that EM needs of the data: sums over the rows of each pattern, 0 where a feature is missing."""

    present: Matrix  # (P, F), 1 or 0
    weight: Vector  # (P,)
    first: Matrix  # (P, F), sum of z
    second: Matrix  # (P, F, F), sum of z zᵀ

    @classmethod
    def of(cls, Z: Matrix, missing: Mask, weight: Vector) -> _PatternSums:
        """Return the sums of rows Z (N, F); rows of which nothing is present say nothing."""
        parts = [(p, Z[rows], weight[rows]) for p, rows in missing_patterns(missing) if not p.all()]
        return cls(
            np.array([~p for p, _, _ in parts], dtype=np.float64),
            np.array([w.sum() for _, _, w in parts]),
            np.array([w @ z for _, z, w in parts]),
            np.array([(z * w[:, None]).T @ z for _, z, w in parts]),
        )

    def updated(self, mean: Vector, covariance: Matrix) -> tuple[Vector, Matrix]:
        """Return the moments after one step of EM, shapes (F,) and (F, F)."""
        D, n, total = self.present, self.weight, self.weight.sum()
        # R (P, F, F) regresses all features on those present: Σ_·o Σ_oo⁻¹, with Σ_oo filled up by the identity.
        block = D[:, :, None] * covariance * D[:, None, :] + np.eye(mean.size) * (1 - D)[:, None, :]
        R = np.linalg.solve(block, D[:, :, None] * covariance).transpose(0, 2, 1)
        centre = D * mean
        about = self.first - n[:, None] * centre
        cross = self.first[:, :, None] * centre[:, None, :]
        scatter = (
            self.second - cross - cross.transpose(0, 2, 1)
            + n[:, None, None] * centre[:, :, None] * centre[:, None, :]
        )  # fmt: skip
        shift = np.einsum("pfg,pg->f", R, about) / total
        spread = R @ scatter @ R.transpose(0, 2, 1) + n[:, None, None] * (covariance - R @ covariance)
        updated = spread.sum(axis=0) / total - np.outer(shift, shift)
        return mean + shift, (updated + updated.T) / 2


def _maximise(sums: _PatternSums) -> tuple[Vector, Matrix, bool]:
    F = sums.present.shape[1]
    mean, covariance = np.zeros(F), np.eye(F)
    for _ in range(_STEPS):
        old = mean, covariance
        mean, covariance = sums.updated(mean, covariance)
        covariance = _positive(covariance)
        change = max(np.abs(mean - old[0]).max(), np.abs(covariance - old[1]).max())
        if change < _TOLERANCE:
            return mean, covariance, True
    return mean, covariance, False


def _positive(covariance: Matrix) -> Matrix:
    """Return a covariance of unit-size features with all eigenvalues at least 1e-8."""
    least = np.linalg.eigvalsh(covariance)[0]
    lift = max(0.0, _LEAST_VARIANCE - least)
    return covariance + lift * np.eye(len(covariance))


def _seen_moments(X: Matrix, missing: Mask, weight: Vector) -> tuple[Vector, Vector]:
    """Return centre and scale, each (F,), of what is present: EM works in their units."""
    if weight.shape != (len(X),) or np.any(weight < 0):
        raise ValueError(
            f"weight must be {len(X)} number(s) of 0 or more, one a row, got shape {weight.shape}"
        )
    W = np.where(missing, 0.0, weight[:, None])
    total = W.sum(axis=0)
    unseen = np.flatnonzero(total == 0)
    if unseen.size:
        raise ValueError(
            f"feature(s) {unseen.tolist()} are missing in every row (of positive weight), so nothing says how to "
            "integrate them out; leave them out of the model"
        )
    origin = X[np.argmax(W > 0, axis=0), np.arange(X.shape[1])]
    centre = origin + np.sum(W * (X - origin), axis=0) / total
    deviation = np.where(W > 0, X - centre, 0.0)
    peak = np.abs(deviation).max(axis=0)
    unit = np.where(peak > 0, peak, 1.0)
    scale = unit * np.sqrt(np.sum(W * (deviation / unit) ** 2, axis=0) / total)
    # A constant's own size is the only scale it has.
    size = np.where(centre == 0, 1.0, np.abs(centre))
    return centre, np.where(peak <= 16 * np.finfo(np.float64).eps * size, size, scale)


def _of_present(errors: ArrayLike, missing: Mask, shape: tuple[int, ...]) -> Matrix:
    C = np.asarray(errors, dtype=np.float64)
    if C.shape == shape:
        return C[:, ~missing]
    if C.shape == (*shape, shape[-1]):
        return C[:, ~missing][:, :, ~missing]
    raise ValueError(f"errors must have the shape {shape} or {(*shape, shape[-1])}, got {C.shape}")


def _cholesky(covariance: Matrix) -> Matrix:
    try:
        root = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the covariance of the features is not positive definite; take it from FeatureMoments.estimate"
        ) from error
    return root
