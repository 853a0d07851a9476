"""Columns that are the label in other numbers: x = a + b y to rounding, as the complement of a vote fraction.

And the number of votes behind a fraction.  Neither can be told from a good feature by how much it says of the class
alone: a fraction that is cut in two classes leaves its copy a little less than all of it.  Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.text_numbers import holds_text, numbers_of, words_of
from catalogs.profile.columns import as_numbers
from catalogs.profile.leaks import shown_column

__all__ = ["copies_of_label", "is_number_of_votes", "label_numbers"]

Array = np.ndarray[Any, Any]
Floats = NDArray[np.float64]

FEWEST_ROWS = 20
"""Rows that have both the label and the column: in fewer, two columns may agree by chance."""
MOSTLY_NUMBERS = 0.9
"""Share of numbers among the labels, from which they are numbers."""
SINGLE = 1e-6
"""Rounding of single precision, in ranges of the column."""
COARSEST = 0.01
"""Rounding, in ranges of the column, above which an agreement to rounding says little."""
MOST_DECIMALS = 8
SHORT = 1e-4
"""Relative distance from a short number at which a coefficient is written as that."""
FEWEST_FRACTIONS = 0.5
"""Share of labels strictly between 0 and 1, from which they may be fractions of votes."""
SURE_VOTES = 0.1
"""Largest distance from a whole number of votes: by chance one row in five is as near."""


def label_numbers(values: Array) -> Floats:
    """Return labels (n,) as numbers, NaN elsewhere; texts and truth values may be numbers too."""
    if holds_text(values):
        return numbers_of(words_of(np.ma.filled(values, "")))
    return as_numbers(values) if values.dtype.kind in "biuf" else np.full(len(values), np.nan)


def copies_of_label(columns: Mapping[str, Array], label: str, numbers: Floats) -> dict[str, str]:
    """Return the columns (n,) of numbers that the `numbers` (n,) in the column `label` give, each with the formula.

    Labels that are hardly ever numbers have no copies.
    """
    if np.isfinite(numbers).mean() < MOSTLY_NUMBERS:
        return {}
    formulae = {
        name: _formula_of_label(as_numbers(values), numbers, label)
        for name, values in columns.items()
        if values.dtype.kind in "biuf"
    }
    return {name: formula for name, formula in formulae.items() if formula is not None}


def _formula_of_label(x: Floats, y: Floats, label: str) -> str | None:
    """Return a column x (n,) as a linear function of the label's numbers y (n,); None of others."""
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < FEWEST_ROWS:
        return None
    x, y = x[both], y[both]
    spread, centred = float(np.ptp(x)), y - y.mean()
    if spread == 0 or not centred.any():
        return None
    b = float(centred @ x / (centred @ centred))
    a = float(x.mean() - b * y.mean())
    rounding = _rounding(x) + abs(b) * _rounding(y)
    # The fit to rounded numbers is itself a little beside the true line.
    left = float(np.abs(x - a - b * y).max())
    if left > SINGLE * spread + min(1.2 * rounding, COARSEST * spread):
        return None
    size = "" if abs(abs(b) - 1) < SHORT else f"{abs(b):.4g} "
    term = f"{size}{shown_column(label)}"
    if abs(a) < SHORT * spread + left:
        return term if b > 0 else f"-{term}"
    return f"{a:.4g} {'+' if b > 0 else '-'} {term}"


def is_number_of_votes(x: Floats, fraction: Floats) -> bool:
    """Say whether whole numbers x (n,) times fractions (n,) are whole: of so many votes the fractions are."""
    both = np.isfinite(x) & np.isfinite(fraction)
    x, f = x[both], fraction[both]
    if len(f) < FEWEST_ROWS or f.min() < 0 or f.max() > 1 or np.ptp(x) == 0:
        return False
    if np.mean((f > 0) & (f < 1)) < FEWEST_FRACTIONS or (x != np.trunc(x)).any() or x.min() < 0:
        return False
    votes = x * f
    allowed = SINGLE * x + x * _rounding(f)
    return bool((np.abs(votes - np.round(votes)) <= np.minimum(allowed, SURE_VOTES)).all())


def _rounding(values: Floats) -> float:
    """Return half a unit of the last decimal that numbers (n,) are written with; 0 where they have too many."""
    for decimals in range(MOST_DECIMALS):
        scaled = values * 10.0**decimals
        if (np.abs(scaled - np.round(scaled)) <= SINGLE * np.maximum(1.0, np.abs(scaled))).all():
            return 0.5 * 10.0**-decimals
    return 0.0
