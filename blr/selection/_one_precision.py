"""The evidence of one precision α in a quadratic model of the likelihood, in the eigenvectors of its curvature.

Of D weights, F have the precision α; that of the others is fixed, and they are solved for.  S is the curvature that is
left for the F (Schur's complement), and λ are its eigenvalues.  In its eigenvectors S + α I is diagonal: an evaluation
costs F operations, where a Cholesky factor costs D³/3:

    L(α) = 1/2 Σ c²/(λ + α) + 1/2 F ln α - 1/2 Σ ln(λ + α) - 1/2 Σ σ c/(λ + α) + constant,

c the pull of the data and σ the skewness g, both in the eigenvectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its modules load when used
import scipy.linalg
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.gaussian import cholesky_of_precision

__all__ = ["OnePrecision"]

_WIDTH = 0.125  # in ln α, of the first step of the search for an interval that holds the maximum
_CLOSE = 1e-10  # in ln α, of the maximum


@dataclass(frozen=True, eq=False)
class OnePrecision:
    """The model's evidence as a function of ln α; `centre` and `spread` are those of a normal prior on it."""

    eigenvalue: Vector  # (F,)
    pull: Vector  # (F,)
    skewness: Vector  # (F,)
    to_weights: Matrix  # (D, F): from the eigenvectors' coordinates
    held: Vector  # (D,): the mode where all F weights are zero
    centre: float
    spread: float

    @classmethod
    def of(
        cls,
        pull: Vector,
        curvature: Matrix,
        skewness: Vector,
        free: NDArray[np.bool_],
        *,
        centre: float,
        spread: float,
    ) -> OnePrecision:
        """Return it from H θ0 + gradient (D,), the curvature with the fixed precisions in it (D, D), and g (D,)."""
        rest = ~free
        L, _ = cholesky_of_precision(curvature[np.ix_(rest, rest)])
        cross = curvature[np.ix_(rest, free)]
        # The rest's weights are `apart` less `along` times those that have α.
        along, apart = (scipy.linalg.cho_solve((L, True), x) for x in (cross, pull[rest]))
        eigenvalue, Q = np.linalg.eigh(curvature[np.ix_(free, free)] - cross.T @ along)
        to_weights, held = np.zeros((len(free), len(eigenvalue))), np.zeros(len(free))
        to_weights[free], to_weights[rest], held[rest] = Q, -along @ Q, apart
        return cls(
            eigenvalue,
            Q.T @ (pull[free] - cross.T @ apart),
            to_weights.T @ skewness,
            to_weights,
            held,
            centre,
            spread,
        )

    def slope(self, log_alpha: float) -> float:
        """Return the derivative by ln α of the evidence, and of its prior."""
        alpha = np.exp(log_alpha)
        variance = 1 / (self.eigenvalue + alpha)
        mean = self.pull * variance
        change = len(mean) - alpha * float((mean * (mean - self.skewness * variance) + variance).sum())
        return 0.5 * change - (log_alpha - self.centre) / self.spread**2

    def mode(self, log_alpha: float) -> Vector:
        """Return the model's mode, (D,)."""
        return self.held + self.to_weights @ (self.pull / (self.eigenvalue + np.exp(log_alpha)))

    def best(self, start: float, low: float, high: float) -> float:
        """Return the maximum between the bounds to which the evidence climbs from the start."""
        slope = self.slope(start)
        end, width = (high, _WIDTH) if slope > 0 else (low, -_WIDTH)
        here = start
        while here != end:
            there = min(here + width, end) if slope > 0 else max(here + width, end)
            if self.slope(there) * slope <= 0:
                return float(scipy.optimize.brentq(self.slope, here, there, xtol=_CLOSE))
            here, width = there, 2 * width
        return end
