"""Anderson's acceleration of a fixed-point iteration over Gaussians: steps of the last few iterations, combined.

Where a full step overshoots, as on separable data, halved steps swing to and fro.  The combination of the last points
whose residuals cancel best leaps to where they would come to rest (Walker and Ni 2011, doi:10.1137/10078356X).
D weights; a point is a mean (D,) with a precision (D, D), its image what the iteration makes of it, and the residual
the difference of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from blr.arrays import Matrix, Vector
from blr.gaussian import Gaussian

__all__ = ["Acceleration"]

_DEPTH = 5
_LARGEST = 1000  # weights above which the history would take gigabytes
_DIRECTIONS = 32  # random ones along which residuals of a precision are measured: all of them cost D³


@dataclass(eq=False)
class Acceleration:
    """The images of the last points, and their residuals in the coordinates in which `scale` is the standard normal."""

    scale: Gaussian
    _images: list[tuple[Vector, Matrix]] = field(default_factory=list)
    _residuals: list[Vector] = field(default_factory=list)

    @cached_property
    def _directions(self) -> tuple[Matrix, Matrix]:
        """Return orthogonal directions (D, R) in white coordinates, and their images under Uᵀ.

        Their common length keeps the lengths of what is projected on them, on average.
        """
        D = len(self.scale.mean)
        if D <= _DIRECTIONS:
            white = np.eye(D)
        else:
            drawn = np.random.default_rng(0).standard_normal((D, _DIRECTIONS))
            white = np.linalg.qr(drawn)[0] * np.sqrt(D / _DIRECTIONS)
        return white, self.scale.inverse_cholesky.T @ white

    def add(self, q: Gaussian, direction: Vector, A: Matrix) -> None:
        """Remember a point and its image: mean plus `direction` (D,), precision A (D, D)."""
        if len(direction) > _LARGEST:
            return
        _, along = self._directions
        # U (A - Q) Uᵀ seen along the directions: half its squared norm is the Kullback-Leibler divergence's.
        spread = self.scale.inverse_cholesky @ ((A - q.precision) @ along)
        white = np.concatenate([self.scale.cholesky.T @ direction, spread.ravel() / np.sqrt(2)])
        self._images.append((q.mean + direction, A))
        self._residuals.append(white)
        del self._images[: -_DEPTH - 1], self._residuals[: -_DEPTH - 1]

    def proposal(self) -> Gaussian | None:
        """Return where the remembered points lead; None before there are two, or if that is no Gaussian."""
        if len(self._images) < 2:
            return None
        residuals = np.stack(self._residuals, axis=1)
        changes = np.diff(residuals, axis=1)
        share = np.linalg.lstsq(changes, residuals[:, -1], rcond=1e-10)[0]
        # The last image, less its shares of the changes from each image to the next.
        weight = np.diff(share, prepend=0.0, append=1.0)
        means, precisions = zip(*self._images, strict=True)
        extrapolated = Gaussian(_combined(weight, means), _combined(weight, precisions))
        try:
            _ = extrapolated.cholesky
        except (np.linalg.LinAlgError, ValueError):
            return None
        return extrapolated


def _combined(weight: Vector, arrays: Sequence[Matrix]) -> Matrix:
    """Return Σ w x, without a new array for each product."""
    total, product = weight[0] * arrays[0], np.empty_like(arrays[0])
    for w, x in zip(weight[1:], arrays[1:], strict=True):
        total += np.multiply(w, x, out=product)
    return total
