"""From probabilities to decisions: uncertainty in nats, flags, costs and reject option, what a review would catch.

At K = 2 and a threshold of 1/2 moderation never changes the class; under any other cost, threshold or K it can, so
costs go on the moderated probabilities (PRML §1.5).  Shapes: N rows, K classes.  Rows of NaN, which have no
probabilities, are never flagged and always rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag
from functools import reduce
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Vector

REJECTED = -1
"""The decision for a row whose cheapest decision costs more than the rejection."""
_FEW = 8  # classes, up to which NumPy adds one after the other


class Flag(IntFlag):
    """Bits of `blr_flags`.  A bit never changes its meaning; users may set the bits 16 to 23.

    Examples
    --------
    >>> blr.Flag(5).name
    'LOW_CONFIDENCE|FLIPPED'
    >>> blr.Flag.CLOSE_CALL in blr.Flag(5)
    False
    """

    LOW_CONFIDENCE = 1 << 0
    CLOSE_CALL = 1 << 1
    FLIPPED = 1 << 2
    OUT_OF_DOMAIN = 1 << 3
    MISSING_INPUT = 1 << 4
    UNCLASSIFIABLE = 1 << 5
    UNTRUSTED_MODEL = 1 << 6
    UNCERTAIN_INPUT = 1 << 7
    NOT_DETECTED = 1 << 8
    BEYOND_LABELS = 1 << 9


FLAG_MEANINGS: Mapping[Flag, str] = MappingProxyType(
    {
        Flag.LOW_CONFIDENCE: "probability of the class against its runner-up is near 0.5",
        Flag.CLOSE_CALL: "the two most probable classes are nearly as probable as each other",
        Flag.FLIPPED: "the class would be another one if the fit had no uncertainty",
        Flag.OUT_OF_DOMAIN: "unlike the training set, in its features or in how unsure the fit is there",
        Flag.MISSING_INPUT: "some feature was missing: probabilities average over all that it may be",
        Flag.UNCLASSIFIABLE: "no probabilities: no feature is measured, or it is outside the selection",
        Flag.UNTRUSTED_MODEL: "its probabilities may be computed wrongly by more than 0.05",
        Flag.UNCERTAIN_INPUT: "measurement errors moved a probability by more than 0.1",
        Flag.NOT_DETECTED: "the object was observed in some band and not detected there",
        Flag.BEYOND_LABELS: "some feature is beyond the range of the labelled rows",
    }
)
"""Meaning of each bit, as it is written into the outputs."""
WORTH_A_LOOK = int(
    Flag.LOW_CONFIDENCE | Flag.CLOSE_CALL | Flag.FLIPPED | Flag.OUT_OF_DOMAIN | Flag.UNCERTAIN_INPUT
)
"""Bits of objects that a person should look at."""


def entropy(p: ArrayLike) -> Vector:
    """Return H(p) = -Σ p ln p over the last axis of p (..., K), nats, shape (...)."""
    p = np.asarray(p, dtype=np.float64)
    # The floor makes 0 ln 0 = 0 without a mask; NaN passes through.
    terms = p * np.log(np.maximum(p, np.finfo(np.float64).tiny))
    # A sum over so few takes NumPy ten times as long along rows, and is the same.
    few = p.shape[-1] < _FEW
    total: Vector = reduce(np.add, np.moveaxis(terms, -1, 0)) if few else terms.sum(axis=-1)
    return 0.0 - total  # so that a certain row has no -0.0


def mutual_information(p: ArrayLike, expected_entropy: ArrayLike) -> Vector:
    """Return H(p) - E[H], (N,), nats, of p (N, K): what labels could still teach; rounding below 0 is clipped."""
    return np.maximum(entropy(p) - np.asarray(expected_entropy, dtype=np.float64), 0.0)


def most_probable(p: Matrix) -> NDArray[np.intp]:
    """Return the class (N,) of the largest of p (N, K), the first of equal ones; 0 where all are NaN."""
    # NumPy takes ten times as long for rows of two.
    return (p[:, 1] > p[:, 0]).astype(np.intp) if p.shape[1] == 2 else p.argmax(axis=1)


def pairwise_confidence(p: ArrayLike) -> Vector:
    """Return p₁ / (p₁ + p₂) of the two largest of p (N, K), shape (N,): from 1/2 up, whatever K."""
    first, second = _two_largest(_probabilities(p))
    return first / (first + second)


def flag_confidence(
    p: ArrayLike, *, low_confidence: float = 0.7, close_call: float = 0.1
) -> NDArray[np.int32]:
    """Return LOW_CONFIDENCE and CLOSE_CALL of p (N, K) as bits, (N,).

    LOW_CONFIDENCE: a pairwise confidence below `low_confidence`.
    CLOSE_CALL: the two largest probabilities are at most `close_call` apart.
    """
    first, second = _two_largest(_probabilities(p))
    # Multiplied out, so that NaN compares false instead of warning.
    low = first < low_confidence * (first + second)
    close = first - second <= close_call
    return low * np.int32(Flag.LOW_CONFIDENCE) | close * np.int32(Flag.CLOSE_CALL)


def flag_flipped(moderated: ArrayLike, plugin: ArrayLike) -> NDArray[np.int32]:
    """Return FLIPPED, (N,), where the largest of `moderated` (N, K) is not the largest of `plugin` (N, K)."""
    p, p0 = _probabilities(moderated), _probabilities(plugin)
    flipped = (most_probable(p) != most_probable(p0)) & ~np.isnan(p @ np.ones(p.shape[1]))
    return np.where(flipped, np.int32(Flag.FLIPPED), np.int32(0))


def decide(p: ArrayLike, cost: ArrayLike, *, reject: float | None = None) -> NDArray[np.intp]:
    """Return the decision of least expected cost, (N,), `REJECTED` where even that costs more than `reject`.

    Parameters
    ----------
    p
        Probabilities (N, K), moderated ones: expected cost is linear in them.
    cost
        (K, D), cost[k, d] of decision d where the truth is k: the loss matrix of PRML (1.80).  Usually D = K.
    reject
        What a rejected row costs; None: no row with probabilities is rejected.

    Raises
    ------
    ValueError
        If shapes do not fit, rows do not sum to one, or a cost is not finite.  Rows with NaN are rejected.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.4, 0.6]]
    >>> blr.decide(p, [[0, 1], [1, 0]]).tolist()  # cost[k, d]: of decision d where the class is k
    [0, 1]
    >>> blr.decide(p, [[0, 1], [1, 0]], reject=0.3).tolist()
    [0, -1]
    """
    p, cost = _probabilities(p), np.asarray(cost, dtype=np.float64)
    if cost.ndim != 2 or len(cost) != p.shape[1]:
        raise ValueError(
            f"cost has shape {cost.shape}; expected ({p.shape[1]}, number of decisions), one row for each true class"
        )
    if not np.isfinite(cost).all():
        raise ValueError("cost holds NaN or infinity; give a large number for what must not happen")
    if reject is not None and np.isnan(reject):
        raise ValueError("reject is NaN; give the cost of a rejected row, or None to reject none")
    wrong = (np.abs(p.sum(axis=1) - 1) > 1e-4) | (p < -1e-4).any(axis=1)  # NaN is neither
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"p of row {row} is {p[row].tolist()}, which sums to {p[row].sum():.6g} ({int(wrong.sum())} such rows); "
            "expected probabilities of all classes, which sum to 1"
        )
    expected = p @ cost
    decision = expected.argmin(axis=1)
    lost = np.isnan(expected).any(axis=1)
    if reject is not None:
        lost |= expected.min(axis=1) > reject
    return np.where(lost, REJECTED, decision)


def risk_coverage(confidence: ArrayLike, wrong: ArrayLike) -> tuple[Vector, Vector, Vector]:
    """Return the error rate among the rows kept, as ever less certain ones are kept: coverage, risk and threshold.

    `confidence` and `wrong` are (N,), the latter 0 or 1 or in between.  At each distinct confidence c, falling: the
    fraction of rows with confidence >= c, the fraction of those that are wrong, and c; all (T,).
    """
    c, count, errors = _by_confidence(confidence, wrong)
    kept, lost = np.cumsum(count[::-1]), np.cumsum(errors[::-1])
    return kept / kept[-1], lost / kept, c[::-1]


def errors_caught(confidence: ArrayLike, wrong: ArrayLike, fractions: ArrayLike) -> Vector:
    """Return the share of all errors found when the least certain of the rows are reviewed, one per fraction.

    Rows of equal confidence are reviewed in random order; what is returned is the expectation over it.
    Without any error, the share is 1.
    """
    _, count, errors = _by_confidence(confidence, wrong)
    f = np.asarray(fractions, dtype=np.float64)
    if errors.sum() == 0:
        return np.ones_like(f)
    reviewed = np.concatenate([[0.0], np.cumsum(count) / count.sum()])
    caught = np.concatenate([[0.0], np.cumsum(errors) / errors.sum()])
    return np.asarray(np.interp(f, reviewed, caught))


def _by_confidence(confidence: ArrayLike, wrong: ArrayLike) -> tuple[Vector, Vector, Vector]:
    """Return the distinct confidences, rising, and the number of rows and of errors at each."""
    c, w = np.asarray(confidence, dtype=np.float64), np.asarray(wrong, dtype=np.float64)
    if c.ndim != 1 or c.shape != w.shape or np.isnan(c).any() or not ((w >= 0) & (w <= 1)).all():
        raise ValueError(
            f"got confidence of shape {c.shape} and wrong of {w.shape}, expected (N,) for both without NaN, and wrong "
            "between 0 and 1; leave out the rows that have no probabilities or no label"
        )
    values, place = np.unique(c, return_inverse=True)
    count = np.bincount(place).astype(np.float64)
    return values, count, np.bincount(place, weights=w).astype(np.float64)


def _two_largest(p: Matrix) -> tuple[Vector, Vector]:
    """Return the largest and the second largest of each row; a row with NaN gives NaN."""
    first, second = np.maximum(p[:, 0], p[:, 1]), np.minimum(p[:, 0], p[:, 1])
    for k in range(2, p.shape[1]):
        second = np.maximum(second, np.minimum(first, p[:, k]))
        first = np.maximum(first, p[:, k])
    return first, second


def _probabilities(p: ArrayLike) -> Matrix:
    p = np.asarray(p, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"p has shape {p.shape}; expected (N, K) with K >= 2, one column for each class")
    return p
