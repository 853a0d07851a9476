"""Classes of a column of numbers: `early = ["..0"]` are the T types below 0, `late = ["0.."]` those from 0 on.

A range holds its lower end and not its upper one, so that neighbours share no number; an end that is not there is open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flows.number_ranges import number_range

__all__ = ["LabelRange", "label_of", "label_ranges", "overlapping"]


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
    """Return two ranges of different classes that share a number, None where there are none."""
    pairs = ((a, b) for i, a in enumerate(ranges) for b in ranges[i + 1 :] if a.k != b.k)
    return next(((a, b) for a, b in pairs if max(a.low, b.low) < min(a.high, b.high)), None)
