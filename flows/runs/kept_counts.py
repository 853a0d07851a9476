"""The counts of files as later runs read them: rounded for many files, so that their table is small.

Counts are rounded before they are summed, so that a summary is the same whether the counts of a file are new or read
from the table.  Shapes: K classes, S draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from dataclasses import replace
from heapq import nsmallest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.runs.counts import FeatureCounts, FileCounts, Tally
from flows.runs.outputs import Output

__all__ = ["are_many", "as_kept", "draws_of", "steps_of"]

MOST_LISTED = 100
"""Most files that manifest and summary list in JSON; more are in a table."""
MOST_DOUBTFUL = 1000
"""Most doubtful objects that are kept, of all files together."""
LEVELS = 15
"""Steps on each side of zero to which the draws of a class are rounded."""
DIGITS = 24
"""Binary digits of rounded sums: as many as a number in single precision has."""


def are_many(outputs: Sized) -> bool:
    """Say whether there are so many outputs that a table lists them."""
    return len(outputs) > MOST_LISTED


def as_kept(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Return outputs with the counts that a later run will read: the counts of many files are rounded.

    Sums of features and variances have 24 binary digits.  Each class's draws are rounded to 15 steps on either side of
    the expected count.  The rounding errors of files are independent, so they hardly change the spread of a sum over a
    hundred files.  The thousand most doubtful objects of all files are kept.
    """
    if not are_many(outputs):
        return tuple(outputs)
    objects = (one for o in outputs if o.summary is not None for one in o.summary.doubtful)
    first = nsmallest(MOST_DOUBTFUL, ((-one.mutual_information, one.id) for one in objects))
    last = first[-1] if first else (math.inf, "")

    def kept(counts: FileCounts) -> FileCounts:
        doubtful = tuple(d for d in counts.doubtful if (-d.mutual_information, d.id) <= last)
        return replace(
            counts,
            tally=_rounded_tally(counts.tally),
            drift=_rounded_drift(counts.drift),
            left_behind=(),
            doubtful=doubtful,
        )

    return tuple(o if o.summary is None else replace(o, summary=kept(o.summary)) for o in outputs)


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    """Return numbers rounded to 24 binary digits; a number that was rounded before does not change."""
    mantissa, exponent = np.frexp(np.array(values, dtype=float))
    return tuple(np.ldexp(np.rint(np.ldexp(mantissa, DIGITS)), exponent - DIGITS).tolist())


def _rounded_drift(drift: FeatureCounts | None) -> FeatureCounts | None:
    if drift is None:
        return None
    return replace(drift, total=_rounded(drift.total), squares=_rounded(drift.squares))


def _rounded_tally(tally: Tally) -> Tally:
    steps, codes = steps_of(tally)
    return replace(tally, variance=_rounded(tally.variance), draws=draws_of(tally.expected, steps, codes))


def steps_of(tally: Tally) -> tuple[list[float], NDArray[Any]]:
    """Return the step of each class, a power of two, and the draws (S, K) as numbers of steps from the expected count.

    A step is the smallest by which no draw is more than 15 steps away.  So draws that were rounded before do not
    change.
    """
    K = len(tally.expected)
    deviation = np.array(tally.draws, dtype=float).reshape(-1, K) - np.array(tally.expected)
    largest = np.abs(deviation).max(axis=0, initial=0.0)
    exponent = np.frexp(np.where(largest > 0, largest, 1.0) / LEVELS)[1] - 1
    step = np.ldexp(1.0, exponent)
    step = np.where(np.rint(largest / step) > LEVELS, 2 * step, step)
    return step.tolist(), np.rint(deviation / step).astype(np.int8)


def draws_of(
    expected: Sequence[float], steps: Sequence[float], codes: NDArray[Any]
) -> tuple[tuple[float, ...], ...]:
    """Return the draws (S, K) from the expected counts (K,), the steps (K,) and the numbers of steps (S, K)."""
    return tuple(map(tuple, (np.array(expected) + np.array(steps) * codes).tolist()))
