"""Completeness and purity of each class, with intervals, from the objects that judge a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blr.calibration import share_interval

__all__ = ["ClassPerformance", "Share", "class_performance"]

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of some objects with its 95 % interval; `value` is None where there are no such objects."""

    value: float | None
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, count: int, n: int) -> Share:
        """Return the share `count` of `n` objects, with Wilson's interval."""
        low, high = share_interval(count, n, level=LEVEL)
        return cls(value=count / n if n else None, low=float(low), high=float(high), n=n)

    @property
    def range(self) -> str:
        """The interval in words."""
        return f"{self.low:.1%} to {self.high:.1%}"

    def __str__(self) -> str:
        """Return the share with its interval."""
        return "–" if self.value is None else f"{self.value:.1%} ({self.range})"


@dataclass(frozen=True, kw_only=True)
class ClassPerformance:
    """One class: its share of the objects, its completeness, and the purity of the objects that are assigned to it.

    Guesses by class shares alone would have the `share` as completeness and as purity.
    """

    name: str
    n: int
    n_assigned: int
    share: float
    completeness: Share
    purity: Share


def class_performance(
    confusion: Sequence[Sequence[int]], classes: Sequence[str]
) -> tuple[ClassPerformance, ...]:
    """Return the performance on each class, of the counts (K, K) by class and by assigned class; none without."""
    if not confusion:  # a model of an earlier version
        return ()
    counts = np.asarray(confusion, dtype=np.int64).reshape(len(classes), len(classes))
    total = max(1, int(counts.sum()))
    return tuple(
        ClassPerformance(
            name=name,
            n=int(counts[k].sum()),
            n_assigned=int(counts[:, k].sum()),
            share=float(counts[k].sum() / total),
            completeness=Share.of(int(counts[k, k]), int(counts[k].sum())),
            purity=Share.of(int(counts[k, k]), int(counts[:, k].sum())),
        )
        for k, name in enumerate(classes)
    )
