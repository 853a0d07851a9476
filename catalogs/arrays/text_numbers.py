"""Numbers that are written as text, with texts among them that say why a number is missing: '-', 'N/A', '>23.1'.

Shapes: n rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.values import NO_VALUES

__all__ = ["LIMITS", "holds_text", "is_mark", "numbers_of", "numbers_or_texts", "words_of"]

Array = np.ndarray[Any, Any]

LIMITS = (">", "<")
"""As a mark, every text that begins with it: limits are written so, each with its own number."""


def holds_text(values: Array) -> bool:
    """Say whether a column is one of texts."""
    return values.dtype.kind in "OSUT"


def words_of(values: Array) -> Array:
    """Return texts (n,) without the blanks around them."""
    return np.array([*(str(v).strip() for v in values.tolist()), None], dtype=object)[:-1]


def is_mark(words: Array, mark: str) -> NDArray[np.bool_]:
    """Return which words (n,) are a mark: equal to it, or a limit that it is the sign of."""
    sign = mark.strip()
    if sign in LIMITS:
        return np.array([word.startswith(sign) for word in words.tolist()], dtype=bool)
    return np.asarray(words == sign, dtype=bool)


def numbers_of(words: Array) -> NDArray[np.float64]:
    """Return the numbers (n,) that words hold, NaN where they hold none."""
    return np.array([_number(word) for word in words.tolist()], dtype=np.float64)


def numbers_or_texts(words: Array, there: NDArray[np.bool_]) -> Array:
    """Return numbers (n,), NaN where none is `there`; the words, '' there, where any is no number.

    Where none is there at all, none can say which of the two they are.
    """
    if not there.any():
        return np.zeros(len(words), NO_VALUES)
    numbers = np.full(len(words), np.nan)
    try:
        numbers[there] = [float(word) for word in words[there].tolist()]
    except ValueError:
        return np.where(there, words, "")
    return numbers


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return np.nan
