"""Laplacian kernel functions about centres spread over the training set: what forests of random cuts see.

φ_k(x) = exp(−Σ_f |z_f − c_kf| / s) of the standardised features z.  The probability that no cut of a random partition
along the axes falls between x and the centre is this function (Balog et al. 2016, "The Mondrian kernel",
arXiv:1606.05241), so that logits may bend sharply along each feature, as classes do that a threshold ends.
"""

from __future__ import annotations

__all__ = ["Laplacian"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import cdist

from blr.arrays import Matrix
from blr.basis._centred import Centred
from blr.basis._distances import median_city_block
from blr.basis.base import positive

# A value below 1e-150 counts as 0: squares of smaller ones are subnormal numbers, which are up to 70 times slower.
_LEAST_EXPONENT = -345.0


@dataclass(frozen=True, eq=False)
class Laplacian(Centred):
    """K functions with a peak at `centres`, shape (K, F), that fall by e over a city-block distance of `width`."""

    width: float

    kind = "laplacian"

    @staticmethod
    def _usual_width(Z: Matrix, rng: Generator) -> float:
        return median_city_block(Z, rng)

    @staticmethod
    def _width_of(width: Any, n_features: int) -> float:
        if np.ndim(width) != 0:
            raise ValueError(f"width must be one number for all of {n_features} feature(s), got {width}")
        return positive(np.asarray(width).item(), "width")

    def _values(self, Z: Matrix, out: Matrix) -> None:
        exponent = cdist(Z, self.centres, "cityblock")
        exponent *= -1.0 / self.width
        np.maximum(exponent, _LEAST_EXPONENT, out=exponent)
        np.exp(exponent, out=out)

    def _slopes(self, Z: Matrix, values: Matrix) -> Matrix:
        # At a centre, where the slope jumps, the mean of both sides: 0.
        return values[:, :, None] * np.sign(self.centres - Z[:, None, :]) / self.width
