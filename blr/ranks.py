"""Ranks of values, ties sharing their mean rank.

`scipy.stats` has them too, and takes a second to import, which every command would wait for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Vector

__all__ = ["mid_ranks"]


def mid_ranks(x: ArrayLike) -> Vector:
    """Return the rank of each value (N,), from 1 to N; equal values have the mean of their ranks."""
    _, place, count = np.unique(np.asarray(x, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place])
