"""Counts of an annotated catalogue: classes with errors, flags, shares of missing features.

Threads count batches in any order.  So floating-point numbers are summed by `math.fsum`, which is exact, so that the
order does not matter.  Shapes: K classes, F features, S draws of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from blr.decisions import FLAG_MEANINGS
from flows.runs.counts import SetRecord, Tally
from flows.runs.summary import ClassEstimate, Counts, FlagCount, PredictionSets

__all__ = ["summarise", "tally_of", "total"]

Floats = NDArray[np.float64]


def tally_of(
    p: Floats,
    draws: Floats,
    flags: NDArray[np.int32],
    missing: NDArray[np.bool_],
    sets: NDArray[np.bool_] | None = None,
) -> Tally:
    """Count a batch: p (n, K), NaN where unclassified; draws (S, K); flags (n,); missing (n, F); sets (n, K)."""
    known = p[~np.isnan(p[:, 0])]
    bits = {str(flag.name): int(flag.value) for flag in FLAG_MEANINGS}
    return Tally(
        n_rows=len(p),
        n_classified=len(known),
        assigned=tuple(np.bincount(known.argmax(axis=1), minlength=p.shape[1]).tolist()),
        expected=tuple(known.sum(axis=0).tolist()),
        variance=tuple((known * (1 - known)).sum(axis=0).tolist()),
        draws=tuple(map(tuple, draws.tolist())),
        flags={name: int(np.count_nonzero(flags & bit)) for name, bit in bits.items()},
        missing=tuple(missing.sum(axis=0).tolist()),
        **({} if sets is None else _counted_sets(sets[~np.isnan(p[:, 0])])),
    )


def _counted_sets(sets: NDArray[np.bool_]) -> dict[str, tuple[int, ...]]:
    """Return the number of sets (n, K) by their size and by class."""
    sizes = np.bincount(sets.sum(axis=1), minlength=sets.shape[1] + 1)
    return {"set_sizes": tuple(sizes.tolist()), "in_sets": tuple(sets.sum(axis=0).tolist())}


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies, which does not depend on their order."""
    counted = list(tallies)
    parts = [t for t in counted if t.n_rows] or counted[:1]  # a tally without rows has no draws
    return Tally(
        n_rows=sum(t.n_rows for t in parts),
        n_classified=sum(t.n_classified for t in parts),
        assigned=tuple(map(sum, zip(*(t.assigned for t in parts), strict=True))),
        expected=_fsum([t.expected for t in parts]),
        variance=_fsum([t.variance for t in parts]),
        draws=tuple(_fsum(rows) for rows in zip(*(t.draws for t in parts), strict=True)),
        # earlier versions had fewer flags
        flags={str(flag.name): sum(t.flags.get(str(flag.name), 0) for t in parts) for flag in FLAG_MEANINGS},
        missing=tuple(map(sum, zip(*(t.missing for t in parts), strict=True))),
        set_sizes=_sum_of_sets([t.set_sizes for t in parts]),
        in_sets=_sum_of_sets([t.in_sets for t in parts]),
    )


def _sum_of_sets(counts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sum of counts; those of rows without sets are empty, and left out."""
    return tuple(map(sum, zip(*(c for c in counts if c), strict=True)))


def _fsum(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(math.fsum(column) for column in zip(*rows, strict=True))


def summarise(
    tally: Tally,
    classes: Sequence[str],
    features: Sequence[str],
    *,
    no_error: str | None = None,
    sets: SetRecord | None = None,
) -> Counts:
    """Return the counts that people read: classes with errors, shares of flags and of missing features.

    `no_error` says why the errors of the counts are not known; they are None then.  `sets` is how prediction sets were
    made.
    """
    shared = np.var(np.array(tally.draws), axis=0, ddof=1) if len(tally.draws) > 1 else np.zeros(len(classes))
    n = max(1, tally.n_rows)
    flags = {str(flag.name): (flag, tally.flags.get(str(flag.name), 0)) for flag in FLAG_MEANINGS}
    return Counts(
        n_rows=tally.n_rows,
        n_classified=tally.n_classified,
        classes={
            name: ClassEstimate(
                tally.assigned[k],
                tally.expected[k],
                *_errors(tally.variance[k], float(shared[k]), known=no_error is None),
            )
            for k, name in enumerate(classes)
        },
        no_error=no_error,
        flags={
            name: FlagCount(int(flag.value).bit_length() - 1, FLAG_MEANINGS[flag], count, count / n)
            for name, (flag, count) in flags.items()
        },
        missing={name: tally.missing[j] / n for j, name in enumerate(features)},
        sets=None if sets is None else PredictionSets.of(sets, tally.set_sizes, tally.in_sets),
    )


def _errors(
    objects: float, weights: float, *, known: bool
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return the error of a count and its two parts from their variances; None where they are not known."""
    return (
        (math.sqrt(objects + weights), math.sqrt(objects), math.sqrt(weights))
        if known
        else (None, None, None)
    )
