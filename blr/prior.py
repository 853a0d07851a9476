"""The Gaussian prior N(w | m0, S0), of any form (PRML 4.140).

Shapes: M weights a class, K classes.  A prior of M weights given to a softmax stands for the same independent
prior of each class, I_K ⊗ S0; one of K M weights, in order k M + m, may couple them in any way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, require_finite
from blr.gaussian import Gaussian

__all__ = ["GaussianPrior"]


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """A Gaussian prior of the weights.

    Parameters
    ----------
    mean
        Scalar or (M,); for a softmax also (K M,).
    covariance
        Scalar (the same variance for all weights), (M,) (variances) or (M, M); for a softmax also of K M.

    Raises
    ------
    ValueError
        If a shape does not fit, a value is not finite, or the covariance is not positive definite.
    """

    mean: Any
    covariance: Any

    def __post_init__(self) -> None:
        mean = np.array(self.mean, dtype=np.float64)
        covariance = np.array(self.covariance, dtype=np.float64)
        if mean.ndim > 1:
            raise ValueError(f"prior mean must be a scalar or a vector, got shape {mean.shape}")
        if covariance.ndim > 2 or (covariance.ndim == 2 and covariance.shape[0] != covariance.shape[1]):
            raise ValueError(
                f"prior covariance must be a scalar, (M,) or (M, M), got shape {covariance.shape}"
            )
        if mean.ndim and covariance.ndim and len(mean) != len(covariance):
            raise ValueError(f"prior mean has {len(mean)} weights but its covariance {len(covariance)}")
        require_finite(np.atleast_1d(mean), "prior mean")
        require_finite(np.atleast_1d(covariance), "prior covariance")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)
        _require_positive_definite(covariance)

    @classmethod
    def isotropic(
        cls,
        n_functions: int,
        precision: float = 1.0,
        intercept: int | None = 0,
        intercept_variance: float = 1e4,
    ) -> Self:
        """Return N(0, I / precision) over M = `n_functions` weights, the intercept's variance set apart.

        The intercept's prior is broad and fixed across compared models: its width is a factor common to all.
        """
        if not precision > 0:
            raise ValueError(f"prior precision must be positive, got {precision}")
        variance = np.full(n_functions, 1.0 / precision)
        if intercept is not None:
            variance[intercept] = intercept_variance
        return cls(np.zeros(n_functions), variance)

    @property
    def size(self) -> int | None:
        """How many weights the prior is of; None where mean and covariance are scalars."""
        for part in (self.covariance, self.mean):
            if part.ndim:
                return len(part)
        return None

    def resized(self, n: int) -> tuple[Vector, Vector | Matrix]:
        """Return the mean (n,) and the covariance, (n,) or (n, n), for n weights."""
        if self.size not in (None, n):
            raise ValueError(
                f"prior is of {self.size} weights but the model has {n}; "
                "give a prior of one per column of the design matrix (softmax: or of K times as many)"
            )
        covariance = self.covariance if self.covariance.ndim else np.full(n, float(self.covariance))
        return np.broadcast_to(self.mean, n).copy(), covariance

    def precision(self, n: int) -> Matrix:
        """Return S0⁻¹, (n, n)."""
        _, covariance = self.resized(n)
        if covariance.ndim == 1:
            return np.diag(1.0 / covariance)
        # The covariance plays the precision's part: its inverse is this Gaussian's "covariance".
        return self._inverse.covariance

    @cached_property
    def _inverse(self) -> Gaussian:
        return Gaussian(np.zeros(len(self.covariance)), self.covariance)

    def to_dict(self) -> dict[str, ArrayLike]:
        """Return mean and covariance as arrays."""
        return {"mean": self.mean, "covariance": self.covariance}


def _require_positive_definite(covariance: Matrix) -> None:
    if covariance.ndim < 2:
        smallest = float(covariance.min())
        if smallest <= 0:
            raise ValueError(
                f"prior variances must be positive, got {smallest}; leave out a weight that is fixed"
            )
        return
    if not np.allclose(covariance, covariance.T, rtol=1e-8, atol=0):
        raise ValueError("prior covariance is not symmetric; give (S + S.T) / 2 if it is meant to be")
    diagonal = np.sqrt(np.abs(np.diag(covariance)))
    if (
        np.any(np.diag(covariance) <= 0)
        or np.linalg.eigvalsh(covariance / np.outer(diagonal, diagonal))[0] <= 0
    ):
        raise ValueError(
            "prior covariance is not positive definite (smallest eigenvalue "
            f"{np.linalg.eigvalsh(covariance)[0]:.3g}); add variance along the flat direction or drop that weight"
        )
