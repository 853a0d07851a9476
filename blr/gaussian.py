"""N(w | m, A⁻¹) through the Cholesky factor of its precision A = L Lᵀ.

Quadratic forms, determinants and samples come from L; the covariance is formed only when asked for.
Shapes: D weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from blr.arrays import Matrix, Vector


def cholesky_of_precision(A: Matrix) -> tuple[Matrix, float]:
    """Return the lower factor L of a positive definite A (D, D), and the jitter that it took.

    A is scaled to unit diagonal first, so features of scale 1e-12 and 1e12 may stand side by side.  Collinear
    ones leave A singular to rounding: the diagonal is then raised by the least power of ten of the machine
    precision that lets the factorisation pass, and that relative amount is returned (0 where none was needed).

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite within 1e-6 of its diagonal.
    """
    diagonal = np.diag(A)
    if not np.all(np.isfinite(diagonal)) or np.any(diagonal < 0):
        raise np.linalg.LinAlgError(
            f"precision has diagonal {diagonal}; every entry must be positive and finite: give a positive "
            "definite matrix"
        )
    # A column of zeros without a prior does not determine its weight: the jitter takes the place of a scale.
    scale = np.where(diagonal > 0, np.sqrt(diagonal), 1.0)
    inverse_scale, jitter = 1.0 / scale, 0.0
    while jitter < 1e-6:
        C = A * inverse_scale[:, None]
        C *= inverse_scale
        C.flat[:: len(C) + 1] += jitter
        # In place: the transpose of a symmetric matrix has the order of columns that LAPACK asks for.
        L, status = scipy.linalg.lapack.dpotrf(C.T, lower=1, clean=1, overwrite_a=1)
        if status == 0:
            L *= scale[:, None]
            return L, jitter
        jitter = max(10 * jitter, len(C) * np.finfo(float).eps)
    raise np.linalg.LinAlgError(
        "precision is not positive definite, expected a matrix whose eigenvalues are all positive; add a "
        "larger prior precision"
    )


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A Gaussian of mean (D,) and precision (D, D)."""

    mean: Vector
    precision: Matrix

    @cached_property
    def _factor(self) -> tuple[Matrix, float]:
        return cholesky_of_precision(self.precision)

    @property
    def cholesky(self) -> Matrix:
        """Lower L with L Lᵀ = A, (D, D)."""
        return self._factor[0]

    @property
    def jitter(self) -> float:
        """What was added to A's unit-scaled diagonal to factorise it: 0 unless weights are collinear."""
        return self._factor[1]

    @cached_property
    def inverse_cholesky(self) -> Matrix:
        """L⁻¹, lower, (D, D): kept because a product is several times faster than a triangular solve."""
        inverse: Matrix
        inverse, status = scipy.linalg.lapack.dtrtri(self.cholesky, lower=1)
        assert status == 0  # noqa: S101  a Cholesky factor has no zero on its diagonal
        return np.ascontiguousarray(inverse)  # else the loops in C copy it for each block of rows

    @cached_property
    def covariance(self) -> Matrix:
        """A⁻¹, (D, D)."""
        U = self.inverse_cholesky
        return U.T @ U

    def about(self, mean: Vector) -> Gaussian:
        """Return the Gaussian of this precision about another mean (D,), with what was computed of the precision."""
        other = Gaussian(mean, self.precision)
        kept = {"_factor", "inverse_cholesky", "covariance"}
        vars(other).update({name: value for name, value in vars(self).items() if name in kept})
        return other

    def solve(self, b: Vector) -> Vector:
        """Return A⁻¹ b for b (D,)."""
        z = scipy.linalg.solve_triangular(self.cholesky, b, lower=True, check_finite=False)
        x: Vector = scipy.linalg.solve_triangular(self.cholesky, z, lower=True, trans=1, check_finite=False)
        return x

    @property
    def log_det_precision(self) -> float:
        """Return ln det A."""
        return 2.0 * float(np.log(np.diag(self.cholesky)).sum())

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws, (n, D)."""
        return self.mean + rng.standard_normal((n, len(self.mean))) @ self.inverse_cholesky

    def log_density(self, w: Vector) -> float:
        """Return ln N(w | m, A⁻¹)."""
        z = self.cholesky.T @ (w - self.mean)
        return 0.5 * (self.log_det_precision - len(z) * np.log(2 * np.pi) - float(z @ z))
