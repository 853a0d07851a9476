"""Laplacian kernel functions about centres spread over the training set, with a sharp peak at each centre.

φ_k(x) = exp(−Σ_f |z_f − c_kf| / s) of the standardised features z.  A random partition cuts the space along the axes;
the function is the probability that no cut separates x from the centre (Balog et al. 2016, "The Mondrian kernel",
arXiv:1606.05241).  So logits can bend sharply along a feature, which helps where a class ends at a threshold.
"""

from __future__ import annotations

__all__ = ["Laplacian"]

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its modules load when used
from numpy.random import Generator

from blr import compiled
from blr.arrays import Matrix
from blr.basis._centred import LEAST_EXPONENT, Centred
from blr.basis._distances import median_city_block
from blr.basis.base import positive


@dataclass(frozen=True, eq=False)
class Laplacian(Centred):
    """K functions with a peak at `centres`, shape (K, F).

    Each falls by a factor of e over a city-block distance of `width`.
    """

    width: float

    kind = "laplacian"

    @staticmethod
    def _default_width(Z: Matrix, rng: Generator) -> float:
        return median_city_block(Z, rng)

    @staticmethod
    def _checked_width(width: Any, n_features: int) -> float:
        if np.ndim(width) != 0:
            raise ValueError(f"width must be one number for all of {n_features} feature(s), got {width}")
        return positive(np.asarray(width).item(), "width")

    def _values(self, Z: Matrix, out: Matrix) -> None:
        exponent = scipy.spatial.distance.cdist(Z, self.centres, "cityblock")
        exponent *= -1.0 / self.width
        np.maximum(exponent, LEAST_EXPONENT, out=exponent)
        compiled.exponentials(exponent)
        out[:] = exponent

    def _slopes(self, Z: Matrix, values: Matrix) -> Matrix:
        # At a centre, where the slope jumps, the mean of both sides: 0.
        return values[:, :, None] * np.sign(self.centres - Z[:, None, :]) / self.width
