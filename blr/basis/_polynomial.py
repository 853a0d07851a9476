"""Polynomials of the features with all their interactions.

Columns come degree by degree, and within a degree in lexicographic order of the features: 1, z₁, z₂, z₁²,
z₁z₂, z₂², … (the order of scikit-learn's PolynomialFeatures).  They are powers of *standardised* features,
so that they are of one size and correlate less.
"""

from __future__ import annotations

__all__ = ["Polynomial"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, groupby

import numpy as np

from blr.arrays import Matrix, Vector
from blr.basis.base import Basis, whole
from blr.basis.standardisation import Standardisation

# M² doubles of Hessian are 800 MB at this size.
_MOST_FUNCTIONS = 10_000


@dataclass(frozen=True, eq=False)
class Polynomial(Basis):
    """All monomials of the F standardised features up to a degree d, so M = C(F + d, d)."""

    degree: int

    kind = "polynomial"
    bounded = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", whole(self.degree, "degree"))
        if self.n_functions > _MOST_FUNCTIONS:
            raise ValueError(
                f"degree {self.degree} of {self.n_features} features makes {self.n_functions} functions, more "
                f"than {_MOST_FUNCTIONS}; lower the degree, or take fewer features or another kind of basis"
            )

    @classmethod
    def fit(cls, X: Matrix, *, weight: Vector | None = None, degree: int = 2) -> Polynomial:
        """Return the polynomial basis of features like X, shape (N, F)."""
        return cls(Standardisation.learn(X, weight), degree)

    @property
    def n_functions(self) -> int:
        """The number of monomials, the constant among them."""
        return math.comb(self.n_features + self.degree, self.degree)

    @cached_property
    def _terms(self) -> tuple[tuple[int, ...], ...]:
        """Each monomial as the ascending indices of its factors: () is 1, (0, 0, 2) is z₀² z₂."""
        features = range(self.n_features)
        degrees = range(self.degree + 1)
        return tuple(term for d in degrees for term in combinations_with_replacement(features, d))

    @cached_property
    def _column(self) -> dict[tuple[int, ...], int]:
        return {term: m for m, term in enumerate(self._terms)}

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        for m, term in enumerate(self._terms[1:], start=1):
            # All factors but the last make a monomial of lower degree, which stands further left.
            np.multiply(out[:, self._column[term[:-1]]], Z[:, term[-1]], out=out[:, m])

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        Phi = np.ones((len(Z), self.n_functions))
        self._evaluate(Z, Phi)
        for m, term in enumerate(self._terms):
            for f in set(term):
                lowered = list(term)
                lowered.remove(f)
                out[:, m, f] = term.count(f) * Phi[:, self._column[tuple(lowered)]]

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        return [" ".join(_powers(term, features)) for term in self._terms[1:]]


def _powers(term: tuple[int, ...], features: Sequence[str]) -> list[str]:
    counts = [(features[f], len(list(group))) for f, group in groupby(term)]
    return [name if count == 1 else f"{name}^{count}" for name, count in counts]
