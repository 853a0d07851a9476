"""Principal components of the standardised features, those of large variance favoured by the prior.

Where many features vary together, few directions carry most of the information.  With one prior for all weights,
directions of tiny variance count as much as large ones; with few labels this pulls predictions to one half.  Here
component j, of variance λ_j, is scaled by λ_j^power.  Under a prior N(0, s²) it contributes a variance proportional to
λ_j^(1 + 2 power) to the logit's.  Power 0 is the linear basis in rotated coordinates.
Principal components: Bishop 2006, PRML, 12.1; priors that follow their variances: Zellner 1986's, with another power.
"""

from __future__ import annotations

__all__ = ["Principal"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector
from blr.basis._directions import directions
from blr.basis.base import Basis
from blr.basis.standardisation import Standardisation

_MOST_POWER = 2.0
_LEAST_VARIANCE = 1e-10  # Share of the largest variance below which a component is rounding error.


@dataclass(frozen=True, eq=False)
class Principal(Basis):
    """φ_j = Σ_f z_f `components[f, j]` of the standardised features z, `components` (F, J); M = J + 1."""

    components: Matrix

    kind = "principal"
    bounded = False

    def __post_init__(self) -> None:
        self._keep("components", self.components)
        good = self.components.ndim == 2 and len(self.components) == self.n_features
        if not (good and np.all(np.isfinite(self.components))):
            raise ValueError(
                f"components need a finite row for each of {self.n_features} feature(s), got an array of shape "
                f"{self.components.shape}; make them with fit_basis('principal', X)"
            )

    @classmethod
    def fit(cls, X: Matrix, *, weight: Vector | None = None, power: float = 0.5) -> Principal:
        """Return the components of features like X, shape (N, F), scaled by their variances to the `power`.

        One common factor makes the mean of their variances one.
        """
        if isinstance(power, bool) or not 0 <= power <= _MOST_POWER:
            raise ValueError(
                f"power must be a number from 0 to {_MOST_POWER:g}, got {power!r}; 0 treats all directions alike"
            )
        standardisation = Standardisation.learn(X, weight)
        Z = standardisation(X)
        root = np.sqrt(np.ones(len(Z)) if weight is None else np.maximum(weight, 0.0))
        covariance = (Z * root[:, None]).T @ (Z * root[:, None]) / np.square(root).sum()
        variance, direction = directions(covariance, _LEAST_VARIANCE)
        scale = variance**power
        mean = np.mean(variance * scale**2) if len(variance) else 1.0
        return cls(standardisation, direction * (scale / np.sqrt(mean)))

    @property
    def n_functions(self) -> int:
        """The intercept and one function a component."""
        return self.components.shape[1] + 1

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        # Far out, a component is as large as the sum of |z|: blr.missing.domain reports such rows.
        np.matmul(Z, self.components, out=out[:, 1:])

    def _derivative(self, Z: Matrix, out: Matrix) -> None:  # noqa: ARG002  the slope of a plane is everywhere the same
        out[:, 1:] = self.components.T

    def _names(self, features: Sequence[str]) -> Sequence[str]:  # noqa: ARG002  each is of all features
        return [f"component({j})" for j in range(1, self.components.shape[1] + 1)]
