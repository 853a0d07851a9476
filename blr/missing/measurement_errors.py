"""Measurement errors of a target in excess of the training rows' own.

The noise of the training rows has already made the weights smaller: a fit to noisy colours predicts from colours of
the same noise. So a row of the same noise needs no correction, and a noisier row is widened by the difference of the
variances.
Shapes: n rows, F features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["excess", "training_noise"]

Floats = NDArray[np.float64]


def training_noise(errors: Floats, missing: NDArray[np.bool_], names: Sequence[str]) -> dict[str, float]:
    """Return the root mean square error of each feature in rows with errors (n, F), of those that have it."""
    return {
        name: float(np.sqrt(np.mean(errors[~missing[:, j], j] ** 2)))
        for j, name in enumerate(names)
        if not missing[:, j].all()
    }


def excess(errors: Floats, noise: Mapping[str, float], names: Sequence[str]) -> Floats:
    """Return the one-sigma errors (n, F) in excess of the training rows' `noise`, 0 where it is missing."""
    known = np.array([noise.get(name, 0.0) for name in names])
    return np.asarray(np.sqrt(np.maximum(errors**2 - known**2, 0.0)))
