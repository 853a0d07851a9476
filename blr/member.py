"""A member of a classifier: one model and its share.  Shapes: N rows, F features, M basis functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blr.arrays import Matrix, Vector
from blr.basis.base import Basis
from blr.basis.kinds import basis_from_dict
from blr.posterior.posterior import Posterior
from blr.predictive.extrapolation import CONSTANT

__all__ = ["Member", "count_draws", "shared_deviations"]


@dataclass(frozen=True, eq=False)
class Member:
    """One model: a basis on some of the features, its posterior, and its share in the average.

    `columns` index the classifier's features.
    """

    basis: Basis
    posterior: Posterior
    columns: tuple[int, ...]
    weight: float = 1.0

    def design(self, X: Matrix) -> Matrix:
        """Return Phi (N, M) of the classifier's features X (N, F)."""
        return self.basis(X[:, list(self.columns)])

    def continuations(self, X: Matrix, support: Matrix | None) -> list[tuple[float, Matrix]]:
        """Return the design matrices (N, M) that predictions mix, each with its share.

        Beyond the `support` (2, F) these are the rows as they are and the nearest points within; else one matrix.
        """
        if support is None or ((support[0] <= X) & (support[1] >= X)).all():
            return [(1.0, self.design(X))]
        return [(1 - CONSTANT, self.design(X)), (CONSTANT, self.design(np.clip(X, *support)))]

    def described(self, features: Sequence[str]) -> list[str]:
        """Return share, basis, features and posterior in words; `features` are the classifier's."""
        used = ", ".join(features[c] for c in self.columns)
        return [f"{self.weight:.3f}", self.basis.kind, used, repr(self.posterior).strip("<>")]

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes."""
        return {
            "basis": self.basis.to_dict(),
            "posterior": self.posterior.to_dict(),
            "columns": list(self.columns),
            "weight": float(self.weight),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Member:
        """Return the member of `to_dict`."""
        posterior = Posterior.from_dict(d["posterior"])
        return cls(basis_from_dict(d["basis"]), posterior, tuple(d["columns"]), d["weight"])


def shared_deviations(members: Sequence[Member], n: int) -> tuple[Matrix, ...]:
    """Return draws of each member's weights about their mean, n in all, in number proportional to its share."""
    rng = np.random.default_rng(0)  # the same for every batch and run: the draws are shared by all rows
    shares = np.array([m.weight for m in members])
    counts = np.diff(np.concatenate([[0], np.rint(np.cumsum(shares / shares.sum()) * n)])).astype(int)
    return tuple(m.posterior.deviations(k, rng) for m, k in zip(members, counts.tolist(), strict=True))


def count_draws(expected: Vector, counts: Sequence[Matrix], n_draws: int) -> Matrix:
    """Return class counts (S, K) under draws of the weights: those of each member, (n, K), about the `expected` (K,).

    Without any, as where no row has a feature, they are `n_draws` times 0.
    """
    some = counts or [np.zeros((n_draws, len(expected)))]
    return np.concatenate([expected + under - under.mean(axis=0) for under in some])
