"""Laplacian kernel functions about centres spread over the training set: what forests of random cuts see.

φ_k(x) = exp(−Σ_f |z_f − c_kf| / s) of the standardised features z.  The probability that no cut of a random partition
along the axes falls between x and the centre is this function (Balog et al. 2016, "The Mondrian kernel",
arXiv:1606.05241), so that logits may bend sharply along each feature, as classes do that a threshold ends.
"""

from __future__ import annotations

__all__ = ["Laplacian"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import cdist

from blr.arrays import Matrix, Vector, as_matrix
from blr.basis._distances import median_city_block, spread_centres
from blr.basis.base import Basis, positive, whole
from blr.basis.standardisation import Standardisation

# A value below 1e-150 counts as 0: squares of smaller ones are subnormal numbers, which are up to 70 times slower.
_LONGEST = 345.0


@dataclass(frozen=True, eq=False)
class Laplacian(Basis):
    """K functions with a peak at `centres`, shape (K, F), that fall by e over a city-block distance of `width`.

    With `linear`, the standardised features follow them, so that the logit keeps a slope far from the data:
    M = 1 + K (+ F).
    """

    centres: Matrix
    width: float
    linear: bool

    kind = "laplacian"

    def __post_init__(self) -> None:
        self._keep("centres", as_matrix(self.centres, "centres"))
        object.__setattr__(self, "width", positive(np.asarray(self.width).item(), "width"))
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
        width: float | None = None,
        linear: bool = False,
    ) -> Laplacian:
        """Return the basis with up to `centres` centres among rows like X, shape (N, F).

        The default width is the median city-block distance between rows.  There are fewer centres where X has
        fewer distinct rows.
        """
        count = whole(centres, "centres")
        width = None if width is None else positive(width, "width")
        standardisation = Standardisation.learn(X, weight)
        Z = standardisation(X)
        places = spread_centres(Z, count, rng)
        return cls(standardisation, places, median_city_block(Z, rng) if width is None else width, linear)

    @property
    def n_functions(self) -> int:
        """The intercept, one function a centre, and one a feature with `linear`."""
        return 1 + len(self.centres) + (self.n_features if self.linear else 0)

    @property
    def bounded(self) -> bool:
        """A peak is bounded; a linear term is not."""
        return not self.linear

    def _peaks(self, Z: Matrix) -> Matrix:
        exponent = cdist(Z, self.centres, "cityblock")
        exponent *= -1.0 / self.width
        np.maximum(exponent, -_LONGEST, out=exponent)
        return np.exp(exponent, out=exponent)

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        end = 1 + len(self.centres)
        out[:, 1:end] = self._peaks(Z)
        if self.linear:
            out[:, end:] = Z

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        # At a centre, where there is none, the mean of both sides: 0.
        end = 1 + len(self.centres)
        away = np.sign(self.centres - Z[:, None, :])
        out[:, 1:end] = self._peaks(Z)[:, :, None] * away / self.width
        if self.linear:
            feature = np.arange(self.n_features)
            out[:, end + feature, feature] = 1

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        peaks = [f"laplacian({k})" for k in range(1, len(self.centres) + 1)]
        return [*peaks, *features] if self.linear else peaks
