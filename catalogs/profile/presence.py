"""Columns that were measured mainly for some classes: their presence gives the class away, whatever their values.

A redshift that only galaxies have, or a parallax that only stars have, tells how objects were chosen.

Columns that are shares of one whole, as fractions of votes, which sum to 1 or to 100 %, give it away too.  Their names
begin alike; parts of light, as bulge and disk, have names that do not.  Shapes: n rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.name_words import name_words
from catalogs.arrays.unique_texts import unique_texts
from catalogs.arrays.values import NO_VALUES

__all__ = ["Presence", "measured", "shares_of_one", "uneven_presence"]

MOST_ANSWERS = 12
WHOLES = (1.0, 100.0)
CLOSE, NEARLY_ALL = 0.02, 0.95
"""Share of the whole by which a sum may be off, and of the rows in which it is not."""
FEWEST_ROWS = 20
NUMBERED = re.compile(r"\d$")
"""Ends of the names of a histogram's bins, which are measurements; answers have names."""

Array = np.ndarray[Any, Any]

UNEVEN = 0.5
"""Difference of the measured shares of two classes from which a column's presence tells them apart."""
FEWEST = 12
"""Rows of a class below which its share says nothing."""


@dataclass(frozen=True)
class Presence:
    """The classes in which a column is measured most and least often, with the shares of their rows."""

    most: str
    most_share: float
    least: str
    least_share: float

    @property
    def shown(self) -> str:
        """The difference in words."""
        return (
            f"measured for {self.most_share:.0%} of class '{self.most}' and {self.least_share:.0%} of class "
            f"'{self.least}'"
        )


def measured(values: Array) -> Array:
    """Return which values (n,) are there: finite numbers, texts that are not empty."""
    if values.dtype == NO_VALUES:
        return np.zeros(len(values), dtype=bool)
    there = ~np.ma.getmaskarray(values)
    data = np.ma.getdata(values)
    if data.dtype.kind == "f":
        return np.asarray(there & np.isfinite(data))
    if data.dtype.kind in "mM":
        return np.asarray(there & ~np.isnat(data))
    return np.asarray(there & (data != "")) if data.dtype.kind in "OUS" else there


def uneven_presence(columns: Mapping[str, Array], labels: Array) -> dict[str, Presence]:
    """Return the columns (n,) whose presence tells classes apart, of labels (n,), '' where it is missing."""
    texts, inverse, counts = unique_texts(labels)
    usable = np.flatnonzero([bool(text) and n >= FEWEST for text, n in zip(texts, counts, strict=True)])
    if len(usable) < 2:
        return {}
    uneven = {}
    for name, values in columns.items():
        share = np.bincount(inverse, weights=measured(values), minlength=len(texts)) / counts
        most, least = usable[share[usable].argmax()], usable[share[usable].argmin()]
        if share[most] - share[least] >= UNEVEN:
            uneven[name] = Presence(texts[most], float(share[most]), texts[least], float(share[least]))
    return uneven


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
    shares: dict[str, str] = {}
    for (_, whole), names in for_whole.items():
        if 2 <= len(names) <= MOST_ANSWERS and _sums_to(whole, [rows[name] for name in names]):
            shares |= {name: next(n for n in names if n != name) for name in names}
    return shares


def _sums_to(whole: float, columns: list[NDArray[np.float64]]) -> bool:
    total = np.sum(columns, axis=0)
    known = total[np.isfinite(total)]
    return known.size >= FEWEST_ROWS and bool(np.mean(np.abs(known - whole) < CLOSE * whole) >= NEARLY_ALL)
