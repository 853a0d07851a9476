"""Anderson's acceleration of a fixed-point iteration over Gaussians: steps of the last few iterations, combined.

Where a full step overshoots, as on separable data, halved steps swing to and fro.  The combination of the last points
whose residuals cancel best leaps to where they would come to rest (Walker and Ni 2011, doi:10.1137/10078356X).
D weights; a point is a mean (D,) with a precision (D, D), a residual how far its image lies from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from blr.arrays import Matrix, Vector
from blr.gaussian import Gaussian

__all__ = ["Acceleration"]

_DEPTH = 5
_LARGEST = 1000  # weights above which the history would take gigabytes


@dataclass(eq=False)
class Acceleration:
    """The last points and residuals, measured in the coordinates in which `scale` is the standard normal."""

    scale: Gaussian
    _points: list[tuple[Vector, Matrix]] = field(default_factory=list)
    _residuals: list[tuple[Vector, Matrix]] = field(default_factory=list)
    _white: list[Vector] = field(default_factory=list)

    def add(self, q: Gaussian, direction: Vector, A: Matrix) -> None:
        """Remember a point and its image: mean plus `direction` (D,), precision A (D, D)."""
        if len(direction) > _LARGEST:
            return
        residual = (direction, A - q.precision)
        U = self.scale.inverse_cholesky
        spread = (U @ residual[1] @ U.T).ravel() / np.sqrt(2)  # as in the Kullback-Leibler divergence
        for kept, new in (
            (self._points, (q.mean, q.precision)),
            (self._residuals, residual),
            (self._white, np.concatenate([self.scale.cholesky.T @ direction, spread])),
        ):
            kept.append(new)  # type: ignore[arg-type]
            del kept[: -_DEPTH - 1]

    def proposal(self) -> Gaussian | None:
        """Return where the remembered points lead; None before there are two, or if that is no Gaussian."""
        if len(self._points) < 2:
            return None
        changes = np.stack([b - a for a, b in zip(self._white, self._white[1:], strict=False)], axis=1)
        share = np.linalg.lstsq(changes, self._white[-1], rcond=1e-10)[0]
        mean, precision = (x + r for x, r in zip(self._points[-1], self._residuals[-1], strict=True))
        for j, s in enumerate(share.tolist()):
            for points in (self._points, self._residuals):
                mean = mean - s * (points[j + 1][0] - points[j][0])
                precision = precision - s * (points[j + 1][1] - points[j][1])
        found = Gaussian(mean, precision)
        try:
            _ = found.cholesky
        except (np.linalg.LinAlgError, ValueError):
            return None
        return found
