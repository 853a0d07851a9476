"""Quantiles, and areas under ROC curves, of values that come in parts, which are never held together.

Parts are read several times.  Results are those of all values at once.  Shapes: n values of a part, m positive values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from blr.arrays import Vector

Parts = Callable[[], Iterable[Vector]]
"""Gives the parts (n,), the same ones each time; all values are finite."""

_BITS = 16
_SIGN = np.uint64(1 << 63)


def quantile(parts: Parts, q: float) -> float:
    """Return the q-quantile of all values, as `numpy.quantile` does.

    Raises
    ------
    ValueError
        If there are no values.
    """
    n = sum(len(part) for part in parts())
    if not n:
        raise ValueError("got no values, expected at least one")
    place = (n - 1) * q
    k = int(place)
    low = _ranked(parts, k)
    high = _ranked(parts, min(k + 1, n - 1))
    share = place - k
    # As NumPy does, so that the result has the same bits.
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def _ranked(parts: Parts, k: int) -> float:
    """Return the value that k others precede, digit by digit of its bits: 65,536 counters a pass."""
    found = np.uint64(0)
    for shift in range(64 - _BITS, -1, -_BITS):
        counts = np.zeros(1 << _BITS, dtype=np.int64)
        for part in parts():
            digits = _ordered(part) >> np.uint64(shift)
            mine = digits >> np.uint64(_BITS) == found
            counts += np.bincount((digits[mine] & np.uint64(0xFFFF)).astype(np.intp), minlength=1 << _BITS)
        digit = int(np.searchsorted(np.cumsum(counts), k, side="right"))
        k -= int(counts[:digit].sum())
        found = (found << np.uint64(_BITS)) | np.uint64(digit)
    bits = found ^ _SIGN if found & _SIGN else ~found
    return float(np.array([bits]).view(np.float64)[0])


def _ordered(values: Vector) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return whole numbers (n,) in the order of the values: the bits of negative ones, turned round, come first."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def auc(negative: Parts, positive: Vector) -> tuple[float, float]:
    """Return the area under the ROC curve, ties shared, and its standard deviation.

    DeLong, DeLong and Clarke-Pearson (1988), doi:10.2307/2531595, by the placement of each value among those of the
    other set.  The m positive values are held in memory.  There are two passes over the `negative` ones.
    """
    own = np.sort(np.asarray(positive, dtype=np.float64))
    n, m = 0, len(own)
    below = np.zeros(m)
    for part in negative():
        ordered = np.sort(part)
        n += len(part)
        below += np.searchsorted(ordered, own, side="left") + np.searchsorted(ordered, own, side="right")
    above = below / (2 * n)
    area = float(above.mean())
    squares = 0.0
    for part in negative():
        beaten = m - (np.searchsorted(own, part, side="left") + np.searchsorted(own, part, side="right")) / 2
        squares += float(np.sum((beaten / m - area) ** 2))
    return area, float(np.sqrt(above.var(ddof=1) / m + squares / (n - 1) / n))
