"""Columns that were measured mainly for some classes: their presence gives the class away, whatever they say.

A redshift that only galaxies have, or a parallax that only stars have, tells how objects were chosen.
Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from catalogs.unique_texts import unique_texts
from catalogs.values import NO_VALUES

__all__ = ["Presence", "measured", "uneven_presence"]

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
        return f"measured for {self.most_share:.0%} of '{self.most}', for {self.least_share:.0%} of '{self.least}'"


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
    """Return the columns (n,) whose presence tells classes apart, of labels (n,), '' where there is none."""
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
