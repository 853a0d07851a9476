"""Ranges of numbers as a specification writes them: '0..5' is 0 <= x < 5, '..0' is all below 0, '5..' all from 5 on.

So are classes of a column of numbers: `early = ["..0"]` are the T types below 0.  A range holds its lower end and not
its upper one, so that neighbours share no number.
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
    """Return the ends of the range that a text is, or None; ValueError where it is empty."""
    ends = RANGE.fullmatch(text)
    if ends is None or not (ends["low"] or ends["high"]):
        return None
    low, high = float(ends["low"] or "-inf"), float(ends["high"] or "inf")
    if not low < high:
        raise ValueError(f"got the range '{text}', whose lower end is not the first; exchange the ends")
    return low, high


def as_sentinels(marks: Iterable[float | str]) -> list[Sentinel]:
    """Return marks with the ranges among them as pairs of float64, which hold both of their ends."""
    return [_as_sentinel(mark) for mark in marks]


def _as_sentinel(mark: float | str) -> Sentinel:
    ends = number_range(mark) if isinstance(mark, str) else None
    return mark if ends is None else (np.float64(ends[0]), np.nextafter(ends[1], -np.inf))


@dataclass(frozen=True)
class LabelRange:
    """The numbers x of a class k with low <= x < high, as the specification writes them."""

    text: str
    low: float
    high: float
    k: int

    def holds(self, x: float) -> bool:
        """Say whether a number is one of them."""
        return self.low <= x < self.high


def label_ranges(spellings: Sequence[Sequence[str]]) -> list[LabelRange]:
    """Return the ranges among the classes' spellings, those of class k in place k; ValueError where one is empty."""
    return [
        LabelRange(text, *ends, k)
        for k, texts in enumerate(spellings)
        for text in texts
        if (ends := number_range(text))
    ]


def label_of(spellings: Sequence[str]) -> str:
    """Return a label that is read as the class of these spellings: the first of them, or a number of a range."""
    ranges = label_ranges([spellings[:1]])
    if not ranges:
        return spellings[0]
    return repr(ranges[0].low if math.isfinite(ranges[0].low) else ranges[0].high - 1)


def overlapping(ranges: Sequence[LabelRange]) -> tuple[LabelRange, LabelRange] | None:
    """Return two ranges of different classes that share a number, or None."""
    pairs = ((a, b) for i, a in enumerate(ranges) for b in ranges[i + 1 :] if a.k != b.k)
    return next(((a, b) for a, b in pairs if max(a.low, b.low) < min(a.high, b.high)), None)
