"""Ranges of numbers as a specification writes them: '0..5' is 0 <= x < 5, '..0' is all below 0, '5..' all from 5 on."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from catalogs.photometry import Sentinel

__all__ = ["as_sentinels", "number_range"]

NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
RANGE = re.compile(rf"\s*(?P<low>{NUMBER})?\s*\.\.\s*(?P<high>{NUMBER})?\s*", re.IGNORECASE)


def number_range(text: str) -> tuple[float, float] | None:
    """Return the ends of the range that a text is, None where it is none; ValueError where it is empty."""
    ends = RANGE.fullmatch(text)
    if ends is None or not (ends["low"] or ends["high"]):
        return None
    low, high = float(ends["low"] or "-inf"), float(ends["high"] or "inf")
    if not low < high:
        raise ValueError(f"got the range '{text}', expected its lower end first; correct it")
    return low, high


def as_sentinels(marks: Iterable[float | str]) -> list[Sentinel]:
    """Return marks with the ranges among them as pairs of float64, which hold both of their ends."""
    return [_as_sentinel(mark) for mark in marks]


def _as_sentinel(mark: float | str) -> Sentinel:
    ends = number_range(mark) if isinstance(mark, str) else None
    return mark if ends is None else (np.float64(ends[0]), np.nextafter(ends[1], -np.inf))
