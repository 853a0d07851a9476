"""How the values of a column are distributed: counts in bins, the mean and the spread."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Distribution"]


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Values of a column over some rows, in B bins; whoever counts other rows in the same bins can compare."""

    edges: tuple[float, ...]  # (B - 1,) between the bins
    counts: tuple[int, ...]  # (B,) rows
    mean: float
    sd: float
    missing: float  # share of the rows without a value
