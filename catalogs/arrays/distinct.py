"""How many different values, and how many repeated ones, in bounded memory.

Each value is hashed; only hashes below a threshold are kept, and the threshold halves whenever there are too many.
Equal values have equal hashes, so the kept hashes are a random sample of the *values*, each with its full count:
repeats are found even if the rows are far apart (Gibbons 2001, "distinct sampling", VLDB).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["FULL", "DistinctCounter", "hashed", "row_hashes"]

Array = np.ndarray[Any, Any]
CAPACITY = 16_384
"""Most hashes that are kept."""
FULL = 2**64 - 1
"""Largest hash."""


def hashed(values: Array) -> Array:
    """Return 64-bit hashes (n,) of numbers or texts, the same on every machine.

    Numbers are mixed as SplitMix64 does (Steele et al. 2014, doi:10.1145/2660193.2660195); texts word by word.
    """
    if values.dtype.kind in "OU":
        return _hashed_texts(values)
    plain = values.astype(np.float64) + 0.0 if values.dtype.kind == "f" else values  # -0.0 is 0.0
    if plain.dtype.kind in "mM":
        plain = plain.astype(np.int64)
    return _mixed(plain.view(np.uint64) if plain.dtype.itemsize == 8 else plain.astype(np.uint64))


def _mixed(x: Array) -> Array:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _hashed_texts(values: Array) -> Array:
    """Return the hashes (n,) of texts: of the words of eight bytes of their UTF-8, and of its length."""
    encoded = [str(value).encode("utf-8", "surrogatepass") for value in values.tolist()]
    length = np.fromiter(map(len, encoded), np.int64, len(encoded))
    start = np.cumsum(length) - length
    data = np.frombuffer(b"".join(encoded) + bytes(8), np.uint8)
    words = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))  # that begin at each byte
    total = _mixed(length.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    for at in range(0, int(length.max(initial=0)), 8):
        rows = np.flatnonzero(length > at)
        word = words[start[rows] + at].astype(np.uint64)
        spare = np.maximum(8 - (length[rows] - at), 0).astype(np.uint64) * np.uint64(8)
        total[rows] = _mixed(total[rows] * np.uint64(0x9E3779B97F4A7C15) ^ (word << spare >> spare))
    return total


def row_hashes(columns: Iterable[Array]) -> Array:
    """Return 64-bit hashes (n,) of rows, from the hashes (n,) of their values in each column."""
    total: Array = np.zeros(1, dtype=np.uint64)  # of each row, from the first column on
    for each in columns:
        # The factor is odd, so that no bit is lost; equal columns in another order are other rows.
        total = (total * np.uint64(0x9E3779B97F4A7C15) + each) ^ (total >> np.uint64(29))
    return hashed(total)


class DistinctCounter:
    """Counts different values; exact up to `capacity` of them, within about one percent beyond."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.halvings = 0
        self.n = 0
        self._kept: Array = np.empty(0, dtype=np.uint64)
        self._counts: Array = np.empty(0, dtype=np.int64)

    def add(self, values: Array) -> Array:
        """Count values (n,), none of which is missing; return their hashes (n,)."""
        self.n += len(values)
        hashes = hashed(values)
        self.add_hashes(hashes)
        return hashes

    def add_hashes(self, hashes: Array) -> None:
        """Count values by their hashes."""
        below = hashes[hashes <= FULL >> self.halvings]
        distinct, inverse = np.unique(np.concatenate([self._kept, below]), return_inverse=True)
        weight = np.concatenate([self._counts, np.ones(len(below), dtype=np.int64)])
        counts = np.bincount(inverse.ravel(), weights=weight, minlength=len(distinct)).astype(np.int64)
        while len(distinct) > self.capacity:
            self.halvings += 1
            keep = distinct <= FULL >> self.halvings
            distinct, counts = distinct[keep], counts[keep]
        self._kept, self._counts = distinct, counts

    @property
    def estimate(self) -> int:
        """Number of different values."""
        return len(self._kept) << self.halvings

    @property
    def repeated(self) -> int:
        """Number of rows in excess of one for each value."""
        return int((self._counts - 1).sum()) << self.halvings
