"""The counts of files as later runs find them again: of many files with fewer digits, for a small table.

The rounding is done before anything is summed up, so that a summary is the same whether the counts of a file were made
now or read from the table.  Shapes: K classes, S draws.
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
"""Doubtful objects that are kept of all files together."""
LEVELS = 15
"""Steps on each side of zero to which the draws of a class are rounded."""
DIGITS = 24
"""Binary digits of sums, those of a number in single precision."""


def are_many(outputs: Sized) -> bool:
    """Say whether so many outputs are in a table."""
    return len(outputs) > MOST_LISTED


def as_kept(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Return outputs with their counts as they can be read again: of many files, as the table has them.

    Sums of features and variances have 24 binary digits.  Each class's draws are rounded to 15 steps on either side of
    what is expected; the errors of files are independent, so that they hardly move the spread of the sum of a hundred.
    Of the doubtful objects the first thousand of all files are kept.
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
    """Return numbers with fewer binary digits; a number that has no more stays as it is."""
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
    """Return the step of each class, a power of two, and the draws in steps from what is expected, (S, K).

    A step is the smallest by which no draw is more than 15 steps away.  So draws that are whole steps stay as they are.
    """
    K = len(tally.expected)
    apart = np.array(tally.draws, dtype=float).reshape(-1, K) - np.array(tally.expected)
    most = np.abs(apart).max(axis=0, initial=0.0)
    exponent = np.frexp(np.where(most > 0, most, 1.0) / LEVELS)[1] - 1
    step = np.ldexp(1.0, exponent)
    step = np.where(np.rint(most / step) > LEVELS, 2 * step, step)
    return step.tolist(), np.rint(apart / step).astype(np.int8)


def draws_of(
    expected: Sequence[float], steps: Sequence[float], codes: NDArray[Any]
) -> tuple[tuple[float, ...], ...]:
    """Return the draws (S, K) that are so many steps (S, K) away from what is expected (K,)."""
    return tuple(map(tuple, (np.array(expected) + np.array(steps) * codes).tolist()))
