"""Ranges of numbers in a specification: '0..5' is 0 <= x < 5, '..0' is all below 0, '5..' all from 5 on.

They define classes of a column of numbers: `early = ["..0"]` are the T types below 0.  A range includes its lower end
and excludes its upper end, so that adjacent ranges have no number in common.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from catalogs.sky.photometry import Sentinel

__all__ = ["LabelRange", "as_sentinels", "label_of", "label_ranges", "number_range", "overlapping"]

NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
RANGE = re.compile(rf"\s*(?P<low>{NUMBER})?\s*\.\.\s*(?P<high>{NUMBER})?\s*", re.IGNORECASE)


def number_range(text: str) -> tuple[float, float] | None:
    """Return the ends of the range in a text, None where the text is not a range; ValueError for an empty range."""
    ends = RANGE.fullmatch(text)
    if ends is None or not (ends["low"] or ends["high"]):
        return None
    low, high = float(ends["low"] or "-inf"), float(ends["high"] or "inf")
    if not low < high:
        raise ValueError(f"got the range '{text}', whose lower end is not the first; exchange the ends")
    return low, high


def as_sentinels(marks: Iterable[float | str]) -> list[Sentinel]:
    """Return marks; a range among them becomes a pair of float64, which both belong to it."""
    return [_as_sentinel(mark) for mark in marks]


def _as_sentinel(mark: float | str) -> Sentinel:
    ends = number_range(mark) if isinstance(mark, str) else None
    return mark if ends is None else (np.float64(ends[0]), np.nextafter(ends[1], -np.inf))


@dataclass(frozen=True)
class LabelRange:
    """A range of the class with index k: the numbers x with low <= x < high; `text` is its form in the file."""

    text: str
    low: float
    high: float
    k: int

    def holds(self, x: float) -> bool:
        """Say whether a number is in the range."""
        return self.low <= x < self.high


def label_ranges(spellings: Sequence[Sequence[str]]) -> list[LabelRange]:
    """Return the ranges among the spellings of all classes; `spellings[k]` are those of class k.

    ValueError where a range is empty.
    """
    return [
        LabelRange(text, *ends, k)
        for k, texts in enumerate(spellings)
        for text in texts
        if (ends := number_range(text))
    ]


def label_of(spellings: Sequence[str]) -> str:
    """Return a label for the class with these spellings: the first one, or a number in it if it is a range."""
    ranges = label_ranges([spellings[:1]])
    if not ranges:
        return spellings[0]
    return repr(ranges[0].low if math.isfinite(ranges[0].low) else ranges[0].high - 1)


def overlapping(ranges: Sequence[LabelRange]) -> tuple[LabelRange, LabelRange] | None:
    """Return two ranges of different classes that have a number in common; None where there are no such ranges."""
    pairs = ((a, b) for i, a in enumerate(ranges) for b in ranges[i + 1 :] if a.k != b.k)
    return next(((a, b) for a, b in pairs if max(a.low, b.low) < min(a.high, b.high)), None)
