"""Directions in which rows or functions vary: eigenvectors of a covariance, those of large variance first."""

from __future__ import annotations

__all__ = ["directions"]

import numpy as np

from blr.arrays import Matrix, Vector


def directions(covariance: Matrix, least: float) -> tuple[Vector, Matrix]:
    """Return the variances (J,), descending, and the eigenvectors (F, J) of a covariance (F, F).

    Directions with a variance of `least` times the largest or less are left out.  The sign of an eigenvector is
    arbitrary: its largest entry is made positive.
    """
    variance, direction = np.linalg.eigh(covariance)
    variance, direction = variance[::-1], direction[:, ::-1]
    kept = variance > least * max(float(variance[0]), np.finfo(np.float64).tiny)
    variance, direction = variance[kept], direction[:, kept]
    largest = np.abs(direction).argmax(axis=0)
    return variance, direction * np.sign(direction[largest, np.arange(direction.shape[1])])
