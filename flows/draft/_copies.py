"""Columns that order the rows as another one does: they say nothing that it does not say.  Shapes: n rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from blr.arrays import mid_ranks

__all__ = ["near_copies", "places_by_order"]

Floats = NDArray[np.float64]

SAME_ORDER = 0.9995
"""Rank correlation from which one of two columns says nothing new: a velocity of recession and its redshift."""
MOST_COMPARED, ROWS_COMPARED, FEWEST_COMPARED = 60, 2000, 50


def near_copies(rows: Mapping[str, Floats], names: Sequence[str]) -> dict[str, str]:
    """Return the columns (n,) that order the rows as an earlier one does, each with that one."""
    ranked: dict[str, Floats] = {}
    copies: dict[str, str] = {}
    for name in names[:MOST_COMPARED]:
        x = rows[name][:ROWS_COMPARED]
        for other, y in ranked.items():
            if _ordered_alike(x, y):
                copies[name] = other
                break
        else:
            ranked[name] = x
    return copies


def places_by_order(rows: Mapping[str, Floats], coordinates: Mapping[str, Floats]) -> dict[str, str]:
    """Return the columns (n,) that order the rows as one of the coordinates (n,) does, each with that one.

    No measurement follows a coordinate so closely, but the same place in another unit does, or at another time.
    """
    found: dict[str, str] = {}
    for name, x in rows.items():
        for other, y in coordinates.items():
            if (
                name not in coordinates
                and name not in found
                and _ordered_alike(x[:ROWS_COMPARED], y[:ROWS_COMPARED])
            ):
                found[name] = other
    return found


def _ordered_alike(x: Floats, y: Floats) -> bool:
    """Say whether one column orders the rows (n,) as another does, which has values in nearly all of its rows."""
    both = np.isfinite(x) & np.isfinite(y)
    enough = both.sum() >= FEWEST_COMPARED and both.sum() >= 0.9 * np.isfinite(x).sum()
    return bool(enough) and _same_order(x[both], y[both])


def _same_order(x: Floats, y: Floats) -> bool:
    if np.ptp(x) == 0 or np.ptp(y) == 0:  # the spread of equal numbers may be their rounding
        return False
    a, b = mid_ranks(x), mid_ranks(y)
    return abs(float(np.corrcoef(a, b)[0, 1])) > SAME_ORDER
