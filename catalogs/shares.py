"""Columns that are shares of one whole: probabilities of classes, fractions of votes, which sum to 1, or to 100 %.

Somebody, or some program, has answered a question about the object; the answers to a question are columns whose names
begin alike.  Parts of light, as bulge and disk, have names that do not.  Shapes: n rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from catalogs.name_words import name_words

__all__ = ["shares_of_one"]

MOST_ANSWERS = 12
WHOLES = (1.0, 100.0)
CLOSE, NEARLY_ALL = 0.02, 0.95
"""Share of the whole by which a sum may be off, and of the rows in which it is not."""
FEWEST_ROWS = 20
NUMBERED = re.compile(r"\d$")
"""Ends of the names of a histogram's bins, which are measurements; answers have names."""


def shares_of_one(rows: Mapping[str, NDArray[np.float64]]) -> dict[str, str]:
    """Return the columns (n,) that sum to a whole with others of names that begin alike, each with one of these."""
    for_whole: dict[tuple[str, float], list[str]] = {}
    for name, values in rows.items():
        known = values[np.isfinite(values)]
        whole = next(
            (w for w in WHOLES if known.size and known.min() >= 0 and known.max() <= w * (1 + CLOSE)), None
        )
        if whole is None or known.min() == known.max() or NUMBERED.search(name):
            continue
        # Every beginning may be the question's: 'smooth or featured' is answered by 'featured or disk'.
        for beginning in list(accumulate(name_words(name), "{} {}".format))[:-1]:
            for_whole.setdefault((beginning, whole), []).append(name)
    found: dict[str, str] = {}
    for (_, whole), names in for_whole.items():
        if 2 <= len(names) <= MOST_ANSWERS and _sums_to(whole, [rows[name] for name in names]):
            found |= {name: next(n for n in names if n != name) for name in names}
    return found


def _sums_to(whole: float, columns: list[NDArray[np.float64]]) -> bool:
    total = np.sum(columns, axis=0)
    known = total[np.isfinite(total)]
    return known.size >= FEWEST_ROWS and bool(np.mean(np.abs(known - whole) < CLOSE * whole) >= NEARLY_ALL)
