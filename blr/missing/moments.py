"""The normal distribution that fills missing features in, and integrals over it.

Shapes: N rows, F features; of a pattern, o features present and m missing; S nodes.
"""

from __future__ import annotations

__all__ = ["FeatureMoments"]

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from blr.arrays import Matrix, Vector, as_stored, as_vector, require_finite
from blr.missing._em import Incomplete, likeliest_moments, likeliest_moments_of_parts
from blr.missing.nodes import displaced, error_nodes, moving, normal_nodes
from blr.missing.patterns import Mask, NodeRule, Nodes, kept, missing_patterns, present_values

_NODES = 32  # of the cubature over one missing feature: errs by 4e-4 in probability at a logit sd of 3
_MORE_NODES = 64  # over several, or over measurement errors: by 0.01


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Mean (F,) and covariance (F, F) of the features in the training set.

    `converged` says whether EM came to rest.  `spread` (F,) is the share of its conditional standard deviation that a
    missing feature has at `nodes`, as `blr.missing.excess` finds it; None for all of it.
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
        return cls(*likeliest_moments(X, absent, w))

    @classmethod
    def estimate_of_parts(cls, parts: Iterable[Incomplete], sample: Incomplete) -> FeatureMoments:
        """Return what `estimate` does of all rows, which come in parts (X, missing, weight) and are read once.

        `sample` are some of the rows, in which each feature is present somewhere.
        """
        checked = ((*present_values(X, missing), weight) for X, missing, weight in parts)
        X, missing, weight = sample
        return cls(*likeliest_moments_of_parts(checked, (*present_values(X, missing), weight)))

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
        missing = self._pattern(pattern)
        return kept(self._conditionals, missing, lambda: self._conditional(missing))

    @cached_property
    def _conditionals(self) -> dict[bytes, tuple[Matrix, Matrix]]:
        return {}

    def _conditional(self, missing: Mask) -> tuple[Matrix, Matrix]:
        # With what is present first, the last block of the Cholesky factor is that of the conditional.
        order = np.argsort(missing, kind="stable")
        o = int(np.count_nonzero(~missing))
        L = _cholesky(self.covariance[np.ix_(order, order)])
        B = solve_triangular(L[:o, :o], L[o:, :o].T, lower=True, trans="T").T if o else np.zeros((len(L), 0))
        C = L[o:, o:].copy()  # not a view that keeps all of L
        B.setflags(write=False)
        C.setflags(write=False)
        return B, C

    def impute(self, X: ArrayLike, missing: ArrayLike, *, limits: Matrix | None = None) -> Matrix:
        """Return X, shape (N, F), with what is missing at its mean given what is present.

        `limits` (2, F): what a present value says of the missing ones is what the nearest value within them does.
        """
        X, absent = present_values(X, missing, n_features=self.n_features)
        for pattern, rows in missing_patterns(absent):
            if pattern.any():
                B, _ = self.conditional(pattern)
                seen = _within(X[np.ix_(rows, ~pattern)], limits, ~pattern) - self.mean[~pattern]
                X[np.ix_(rows, pattern)] = self.mean[pattern] + seen @ B.T
        return X

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
        nodes have exactly its conditional mean, and its conditional covariance but for the `spread`;
        `blr.missing.nodes` says how accurate integrals are.  With the `errors` of the rows, (N, F) or (N, F, F), the
        present features vary too, jointly with what they say about the missing ones.  `limits` as of `impute`.
        `axes` (m, d), orthonormal columns: directions over which the nodes are spread, in the coordinates that the
        conditional Cholesky factor takes to the features; along others they are at the mean.  Default: all.
        """
        missing = self._pattern(pattern)
        X, _ = present_values(X_rows, np.broadcast_to(missing, np.shape(X_rows)), n_features=self.n_features)
        seen = X[:, ~missing]
        noise = np.zeros(seen.shape) if errors is None else _of_present(errors, missing, X.shape)
        active = moving(noise, seen.shape)
        m = int(np.count_nonzero(missing)) if axes is None else axes.shape[1]
        Z, weight = normal_nodes(m + int(active.sum()), n)
        B, L = self.conditional(missing)
        nodes = np.empty((len(Z), *X.shape))
        nodes[:, :, ~missing] = displaced(seen, noise, active, Z[:, m:])
        said = _within(nodes[:, :, ~missing], limits, ~missing)
        mean = self.mean[missing] + (said - self.mean[~missing]) @ B.T
        spread = Z[:, :m] @ (L if axes is None else L @ axes).T
        if self.spread is not None:
            spread *= self.spread[missing]
        nodes[:, :, missing] = mean + spread[:, None, :]
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
        rule: NodeRule | None = None,
    ) -> Iterator[Nodes]:
        """Yield `nodes` of the `chosen` rows (n,) of X (N, F): rows of one pattern, with `most` nodes at once.

        `rule` gives the number of nodes and their axes for a pattern, where there are no errors.
        """
        for pattern, index in missing_patterns(missing[chosen]):
            size, axes = (_NODES if errors is None and pattern.sum() == 1 else _MORE_NODES), None
            if rule is not None and errors is None:
                size, axes = rule(pattern)
            step = max(1, most // size)
            for start in range(0, len(index), step):
                rows = chosen[index[start : start + step]]
                sigma = None if errors is None else errors[rows]
                nodes, weight = self.nodes(X[rows], pattern, size, errors=sigma, limits=limits, axes=axes)
                active = 0 if sigma is None else int((sigma > 0).any(axis=0).sum())
                yield rows, nodes, weight, active + (int(pattern.sum()) if axes is None else axes.shape[1])

    @staticmethod
    def error_nodes(X: ArrayLike, errors: ArrayLike, n: int) -> tuple[Matrix, Vector]:
        """Return nodes (S, N, F) and weights (S,) over the measurement errors of complete rows (N, F).

        It is `blr.missing.nodes.error_nodes`, here beside `nodes`.
        """
        return error_nodes(X, errors, n)

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes."""
        return {
            "mean": self.mean,
            "covariance": self.covariance,
            "converged": self.converged,
            "spread": self.spread,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> FeatureMoments:
        """Return the moments of `to_dict`."""
        mean, own = stored["mean"], stored.get("spread") is not None
        spread = as_stored(stored, "spread", np.shape(mean)) if own else None
        return cls(mean, stored["covariance"], bool(stored["converged"]), spread)

    def _pattern(self, pattern: ArrayLike) -> Mask:
        missing = np.asarray(pattern, dtype=np.bool_)
        if missing.shape != self.mean.shape:
            raise ValueError(
                f"missing must state for each of {self.n_features} features whether it is missing, got shape "
                f"{missing.shape}"
            )
        return missing


def _within(X: Matrix, limits: Matrix | None, features: Mask) -> Matrix:
    """Return values (..., P) of some `features` (F,) at the nearest within the limits (2, F); as they are without."""
    return X if limits is None else np.clip(X, *limits[:, features])


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
