"""Random Fourier features: a Gaussian process with a squared-exponential kernel, in finitely many functions.

Φ Φᵀ tends to exp(−|z − z'|² / 2λ²) as the frequencies grow in number (Rahimi & Recht 2007, NIPS 20).  Each frequency
has a cosine and a sine (Sutherland & Schneider 2015, UAI), and frequencies are orthogonal in groups of F (Yu et al.
2016, arXiv:1610.09072): both have smaller errors than random phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from blr.arrays import Matrix, Vector
from blr.basis._rbf import median_distance
from blr.basis.base import Basis, positive, whole
from blr.basis.standardisation import Standardisation


@dataclass(frozen=True, eq=False)
class Fourier(Basis):
    """cos(ω·z) and sin(ω·z) for D `directions` ω λ, shape (D, F), so M = 1 + 2 D.

    `lengthscale` is λ, in standard deviations.  All are divided by √D: weights of unit variance then give an
    activation of unit variance.
    """

    directions: Matrix
    lengthscale: float

    kind = "fourier"
    bounded = True

    def __post_init__(self) -> None:
        self._keep_points("directions", self.directions)
        object.__setattr__(self, "lengthscale", positive(self.lengthscale, "lengthscale"))

    @classmethod
    def fit(
        cls,
        X: Matrix,
        *,
        rng: Generator,
        weight: Vector | None = None,
        frequencies: int = 50,
        lengthscale: float | None = None,
    ) -> Fourier:
        """Return the basis with `frequencies` frequencies for features like X, shape (N, F).

        The default lengthscale is the median distance between rows over √2: the kernel is then that of
        radial functions of half the median distance, everywhere dense.
        """
        count = whole(frequencies, "frequencies")
        lengthscale = None if lengthscale is None else positive(lengthscale, "lengthscale")
        standardisation = Standardisation.learn(X, weight)
        length = lengthscale or median_distance(standardisation(X), rng) / np.sqrt(2)
        return cls(standardisation, _orthogonal_normals(count, len(standardisation.mean), rng), length)

    @property
    def n_functions(self) -> int:
        """The intercept, a cosine and a sine a frequency."""
        return 1 + 2 * len(self.directions)

    @cached_property
    def _frequencies(self) -> Matrix:
        return self.directions.T / self.lengthscale

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        D = len(self.directions)
        phase = Z @ self._frequencies
        np.cos(phase, out=out[:, 1 : 1 + D])
        np.sin(phase, out=out[:, 1 + D :])
        out[:, 1:] /= np.sqrt(D)

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        D = len(self.directions)
        phase = Z @ self._frequencies
        out[:, 1 : 1 + D] = -np.sin(phase)[:, :, None] * self._frequencies.T
        out[:, 1 + D :] = np.cos(phase)[:, :, None] * self._frequencies.T
        out /= np.sqrt(D)

    def _names(self, features: Sequence[str]) -> Sequence[str]:  # noqa: ARG002  each mixes all features
        numbers = range(1, len(self.directions) + 1)
        return [*(f"cos({k})" for k in numbers), *(f"sin({k})" for k in numbers)]


def _orthogonal_normals(count: int, dimension: int, rng: Generator) -> Matrix:
    """Return draws from N(0, I), shape (count, dimension), orthogonal within each `dimension` of them."""
    blocks = []
    for _ in range(-(-count // dimension)):
        G = rng.standard_normal((dimension, dimension))
        Q, R = np.linalg.qr(G)
        Q *= np.sign(np.diag(R))  # uniform over rotations, and the same from every LAPACK
        length = np.linalg.norm(rng.standard_normal((dimension, dimension)), axis=1)
        blocks.append(length[:, None] * Q.T)
    return np.vstack(blocks)[:count]
