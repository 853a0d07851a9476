"""The features themselves: the polynomial of degree 1."""

from __future__ import annotations

__all__ = ["Linear"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector
from blr.basis.base import Basis
from blr.basis.standardisation import Standardisation


@dataclass(frozen=True, eq=False)
class Linear(Basis):
    """φ = (1, z_1, …, z_F) of the standardised features z, so M = F + 1."""

    kind = "linear"
    bounded = False

    @classmethod
    def fit(cls, X: Matrix, *, weight: Vector | None = None) -> Linear:
        """Return the linear basis of features like X, shape (N, F)."""
        return cls(Standardisation.learn(X, weight))

    @property
    def n_functions(self) -> int:
        """The intercept and one function a feature."""
        return self.n_features + 1

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        out[:, 1:] = Z

    def _derivative(self, Z: Matrix, out: Matrix) -> None:  # noqa: ARG002  the slope of a line is everywhere 1
        feature = np.arange(self.n_features)
        out[:, 1 + feature, feature] = 1

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        return features
