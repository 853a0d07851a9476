"""Functions that are local to centres, and the features themselves if asked for.

A subclass computes the functions' values and derivatives, and says which widths it takes.
Shapes: N rows, K centres, F features, M functions.
"""

from __future__ import annotations

__all__ = ["LEAST_EXPONENT", "Centred"]

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, as_matrix
from blr.basis._distances import spread_centres
from blr.basis.base import Basis, whole
from blr.basis.standardisation import Standardisation

LEAST_EXPONENT = -345.0
"""Exponents below it are raised to it: squares of smaller values are subnormal numbers, up to 70 times slower."""


@dataclass(frozen=True, eq=False)
class Centred(Basis):
    """K functions, one around each row of `centres`, shape (K, F).

    `width` is one number, or one for each feature, shape (F,), where the subclass takes those.  With `linear`, the
    standardised features come after the K functions, so that the logit keeps a slope far from the data.
    M = 1 + K (+ F).
    """

    centres: Matrix
    width: float | Vector
    linear: bool

    def __post_init__(self) -> None:
        self._keep("centres", as_matrix(self.centres, "centres"))
        width = self._checked_width(self.width, self.n_features)
        if isinstance(width, float):
            object.__setattr__(self, "width", width)
        else:
            self._keep("width", width)
        object.__setattr__(self, "linear", bool(self.linear))
        if self.centres.shape[1] != self.n_features:
            raise ValueError(
                f"centres have {self.centres.shape[1]} column(s) but the basis has {self.n_features} feature(s); "
                "give each centre one coordinate a feature"
            )

    @classmethod
    def fit(
        cls,
        X: Matrix,
        *,
        rng: Generator,
        weight: Vector | None = None,
        centres: int = 40,
        width: float | ArrayLike | None = None,
        linear: bool = False,
    ) -> Self:
        """Return the basis with up to `centres` centres among rows like X, shape (N, F).

        The default width follows from the distances between rows.  There are fewer centres where X has fewer distinct
        rows.
        """
        count = whole(centres, "centres")
        stated = None if width is None else cls._checked_width(width, X.shape[1])
        standardisation = Standardisation.learn(X, weight)
        Z = standardisation(X)
        places = spread_centres(Z, count, rng)
        return cls(standardisation, places, cls._default_width(Z, rng) if stated is None else stated, linear)

    @property
    def n_functions(self) -> int:
        """The intercept, one function a centre, and one a feature with `linear`."""
        return 1 + len(self.centres) + (self.n_features if self.linear else 0)

    @property
    def bounded(self) -> bool:
        """A local function is bounded; a linear term is not."""
        return not self.linear

    @staticmethod
    @abstractmethod
    def _checked_width(width: Any, n_features: int) -> float | Vector:
        """Return the width, one number or one for each feature; raise ValueError where it is neither."""

    @staticmethod
    @abstractmethod
    def _default_width(Z: Matrix, rng: Generator) -> float:
        """Return the default width for rows like standardised Z, shape (N, F)."""

    @abstractmethod
    def _values(self, Z: Matrix, out: Matrix) -> None:
        """Write the functions at Z, shape (n, F), into out, shape (n, K)."""

    @abstractmethod
    def _slopes(self, Z: Matrix, values: Matrix) -> Matrix:
        """Return the derivatives at Z, shape (n, K, F); `values` (n, K) are the functions' values there."""

    def values(self, Z: Matrix) -> Matrix:
        """Return the local functions, shape (n, K), at standardised Z, shape (n, F)."""
        values = np.empty((len(Z), len(self.centres)))
        self._values(Z, values)
        return values

    def slopes(self, Z: Matrix) -> Matrix:
        """Return the local functions' derivatives, shape (n, K, F), at standardised Z, shape (n, F)."""
        return self._slopes(Z, self.values(Z))

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        end = 1 + len(self.centres)
        self._values(Z, out[:, 1:end])
        if self.linear:
            out[:, end:] = Z

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        end = 1 + len(self.centres)
        out[:, 1:end] = self.slopes(Z)
        if self.linear:
            feature = np.arange(self.n_features)
            out[:, end + feature, feature] = 1

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        local = [f"{self.kind}({k})" for k in range(1, len(self.centres) + 1)]
        return [*local, *features] if self.linear else local
