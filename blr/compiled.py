"""The inner loops in C, if a compiler could build them: see `blr/loops/loops.c`.

Each loop has an equivalent in NumPy in the module that calls it, with the same result up to rounding.  NumPy is used
where the loops were not built or the environment variable BLR_COMPILED is 0.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from blr.arrays import Matrix, Vector

try:
    import blr._loops as _loops  # noqa: PLR0402  not a name of the package
except ImportError:  # no compiler, or one without vectors
    loops = None
else:
    loops = None if os.environ.get("BLR_COMPILED") == "0" else _loops

MOST_OUTPUTS = 0 if loops is None else loops.most_outputs
"""Largest number of classes or outputs that the loops accept; NumPy accepts any number."""

_BYTES = 32  # of a vector


def filled(z: Matrix, w: Vector, dtype: type[np.float32 | np.float64]) -> tuple[Any, Any]:
    """Return nodes z (S, d) as (d, S'), and their weights (S',): the last vector is filled with nodes of no weight."""
    more = -len(z) % (_BYTES // np.dtype(dtype).itemsize)
    nodes = np.concatenate([z, np.zeros((more, z.shape[1]))]).T.astype(dtype, order="C")
    return nodes, np.concatenate([w, np.zeros(more)]).astype(dtype)


def exponentials(x: Matrix) -> None:
    """Put e^x in the place of x (N, M), contiguous and from -708 to 708: a few units in the last place off."""
    if loops is None:
        np.exp(x, out=x)
    else:
        loops.exponentials(x)


def arcsinhs(x: Matrix) -> None:
    """Put arcsinh x in the place of x (N, M), contiguous: a few units in the last place off."""
    if loops is None:
        np.arcsinh(x, out=x)
    else:
        loops.arcsinhs(x)
