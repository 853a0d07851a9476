"""Bins of the values of an expression: edges between bins of as many values each, and the bins' names.

Bin 0 is below the first edge; a value at an edge is in the bin above it.  Shapes: n values, E edges, E + 1 bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["even_edges", "names_between", "places_between"]

Floats = NDArray[np.float64]


def even_edges(values: Floats, n_bins: int) -> tuple[float, ...]:
    """Return the edges (E,) between `n_bins` bins of about as many finite values (n,) each, to six digits.

    Fewer where many values are equal; none where all are.
    """
    known = values[np.isfinite(values)]
    inner = np.quantile(known, np.arange(1, n_bins) / n_bins) if len(known) else np.empty(0)
    rounded = {float(f"{edge:.6g}") for edge in inner.tolist()}
    return tuple(sorted(edge for edge in rounded if edge > known.min()))


def names_between(edges: Sequence[float], text: str) -> tuple[str, ...]:
    """Return the names (E + 1,) of the bins of an expression, such as 16 <= r < 18; none without an edge."""
    if not edges:
        return ()
    inner = (f"{low:g} <= {text} < {high:g}" for low, high in pairwise(edges))
    return (f"{text} < {edges[0]:g}", *inner, f"{text} >= {edges[-1]:g}")


def places_between(edges: Sequence[float], values: Floats, *, missing: int) -> NDArray[np.intp]:
    """Return the bin (n,) of each value; `missing` for one that is not finite."""
    place = np.searchsorted(np.asarray(edges, dtype=np.float64), values, side="right")
    return np.where(np.isfinite(values), place, missing).astype(np.intp)
