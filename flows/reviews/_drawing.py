"""A stratified random sample of annotated catalogues, in two passes and bounded memory.

The first pass counts classes by their probability and finds the strata; the second counts the strata, and keeps of each
the objects with the smallest random numbers.  Shapes: K classes, G levels, H strata, n rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blr.census.strata import allocated, cut_levels, level_edges, uncertainty
from catalogs.expressions.expression import Expression
from flows.errors import UsageError
from flows.reviews._objects import ObjectTable
from flows.reviews._population import Bins, ClassifiedRows, ValueSample, classified_rows
from flows.reviews.audits import AuditStratum, Selection

__all__ = ["Drawing", "DrawnRow", "draw_sample"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.intp]

PER_STRATUM = 16
"""Objects of a stratum on average, from which follows how many strata there are."""
MOST_STRATA = 16


@dataclass(frozen=True)
class DrawnRow:
    """A drawn row, with all that the lists and the design say of it."""

    name: str
    ra: float
    dec: float
    stratum: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Drawing:
    """The strata, their bins, and the drawn rows in random order."""

    n_rows: int
    bins: Bins
    strata: tuple[AuditStratum, ...]
    rows: tuple[DrawnRow, ...]


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Which stratum a row is of: of each class, bin and piece (K, B, P).  `piece` (K, G) is -1 at empty levels."""

    edges: Floats
    piece: Places
    n_pieces: int
    bins: Bins

    def places(self, rows: ClassifiedRows) -> Places:
        """Return the place (n,) of each row's stratum, of K B P."""
        level = _levels(rows, self.edges)
        within = self.piece[rows.given, level]
        by = self.bins.places(rows.by, len(rows.given))
        return (rows.given * len(self.bins.names) + by) * self.n_pieces + within

    def range(self, k: int, piece: int) -> tuple[float, float]:
        """Return from where to where the probability of the class reaches in a piece."""
        levels = np.flatnonzero(self.piece[k] == piece)
        bounds = np.concatenate([[0.0], self.edges, [1.0]])
        return float(bounds[levels[0]]), float(bounds[levels[-1] + 1])


def draw_sample(
    tables: Sequence[ObjectTable],
    classes: Sequence[str],
    n: int,
    *,
    seed: int,
    by: Expression | None = None,
    n_bins: int = 3,
    edges: Sequence[float] | None = None,
    selections: Sequence[Selection] = (),
) -> Drawing:
    """Return `n` rows drawn from strata of class, probability and bin; UsageError where there are too few for those."""
    level_at = level_edges(sorted({s.threshold for s in selections}))
    counts, probability, sample = _survey(tables, classes, by, level_at, seed)
    n_rows = int(counts.sum())
    if not n_rows:
        raise UsageError(
            "OUT: no row has a class, so nothing can be drawn; the flag UNCLASSIFIABLE tells why"
        )
    bins = Bins.of(by.text, sample, n_bins, edges) if by is not None else Bins()
    share = np.maximum(probability.sum(axis=(0, 1)) / n_rows, 1 / n)
    deviation = uncertainty(probability / np.maximum(counts, 1)[..., None], share)
    begins = np.zeros(counts.shape, dtype=bool)
    for s in selections:
        begins[classes.index(s.class_name), np.searchsorted(level_at, s.threshold, side="right")] = True
    wanted = min(n // PER_STRATUM, MOST_STRATA) // len(bins.names)
    piece = cut_levels(counts, deviation, wanted, begins)
    cuts = _Cuts(level_at, piece, int(piece.max()) + 1, bins)
    return _drawn(tables, classes, n, seed, by, cuts, share)


def _levels(rows: ClassifiedRows, edges: Floats) -> Places:
    given = rows.probability[np.arange(len(rows.given)), rows.given]
    return np.searchsorted(edges, given, side="right")


def _survey(
    tables: Sequence[ObjectTable], classes: Sequence[str], by: Expression | None, edges: Floats, seed: int
) -> tuple[Counts, Floats, ValueSample]:
    """Return rows (K, G) and sums of probabilities (K, G, K) by class and level, and values of the expression."""
    K, G = len(classes), len(edges) + 1
    counts, probability = np.zeros(K * G, dtype=np.int64), np.zeros((K * G, K))
    sample = ValueSample.empty(np.random.default_rng([seed, 1]))
    for rows in _all_rows(tables, classes, by):
        cell = rows.given * G + _levels(rows, edges)
        counts += np.bincount(cell, minlength=K * G)
        for k in range(K):
            probability[:, k] += np.bincount(cell, weights=rows.probability[:, k], minlength=K * G)
        if rows.by is not None:
            sample.add(rows.by)
    return counts.reshape(K, G), probability.reshape(K, G, K), sample


def _all_rows(
    tables: Sequence[ObjectTable], classes: Sequence[str], by: Expression | None
) -> Iterator[ClassifiedRows]:
    for table in tables:
        yield from classified_rows(table, classes, by)


def _drawn(
    tables: Sequence[ObjectTable],
    classes: Sequence[str],
    n: int,
    seed: int,
    by: Expression | None,
    cuts: _Cuts,
    share: Floats,
) -> Drawing:
    """Count the strata, and draw of each."""
    K, B = len(classes), len(cuts.bins.names)
    most = K * B * cuts.n_pieces
    counts, probability = np.zeros(most, dtype=np.int64), np.zeros((most, K))
    lowest = _Lowest(n, most)
    rng = np.random.default_rng([seed, 0])
    for rows in _all_rows(tables, classes, by):
        place = cuts.places(rows)
        counts += np.bincount(place, minlength=most)
        for k in range(K):
            probability[:, k] += np.bincount(place, weights=rows.probability[:, k], minlength=most)
        lowest.add(rows, place, rng.random(len(place)))
    filled = np.flatnonzero(counts)
    mean = probability[filled] / counts[filled, None]
    try:
        sizes = allocated(counts[filled], uncertainty(mean, share), n)
    except ValueError as error:
        raise UsageError(
            f"--n: got {n} objects for {len(filled)} strata of class, probability and bin, expected at least "
            f"two for each stratum; draw {2 * len(filled)} or more, or use fewer bins"
        ) from error
    strata, picked = [], []
    for h, (at, size) in enumerate(zip(filled.tolist(), sizes.tolist(), strict=True)):
        k, rest = divmod(at, B * cuts.n_pieces)
        b, piece = divmod(rest, cuts.n_pieces)
        low, high = cuts.range(k, piece)
        strata.append(
            AuditStratum(
                class_given=classes[k],
                low=low,
                high=high,
                bin=cuts.bins.names[b],
                n_rows=int(counts[at]),
                n_drawn=size,
            )
        )
        picked += [(key, row) for key, row in lowest.rows(at, size, h)]
    order = rng.permutation(len(picked))
    return Drawing(int(counts.sum()), cuts.bins, tuple(strata), tuple(picked[i][1] for i in order))


class _Lowest:
    """The rows with the smallest random numbers of each place, `n` at most: a random sample of any smaller size."""

    def __init__(self, n: int, places: int) -> None:
        self._n = n
        self._heaps: list[list[tuple[float, DrawnRow]]] = [[] for _ in range(places)]
        self._largest = np.full(places, np.inf)

    def add(self, rows: ClassifiedRows, place: Places, key: Floats) -> None:
        """Take the rows of a batch, their places and random numbers (n,)."""
        for i in np.flatnonzero(key < self._largest[place]).tolist():
            at = int(place[i])
            heap, entry = self._heaps[at], (-float(key[i]), _row(rows, i))
            if len(heap) < self._n:
                heapq.heappush(heap, entry)
            elif entry > heap[0]:
                heapq.heapreplace(heap, entry)
            if len(heap) == self._n:
                self._largest[at] = -heap[0][0]

    def rows(self, place: int, size: int, stratum: int) -> list[tuple[float, DrawnRow]]:
        """Return that many rows of a place, as of this stratum."""
        first = sorted(self._heaps[place], reverse=True)[:size]
        return [(-key, DrawnRow(r.name, r.ra, r.dec, stratum, r.probabilities)) for key, r in first]


def _row(rows: ClassifiedRows, i: int) -> DrawnRow:
    return DrawnRow(
        str(rows.names[i]),
        float(rows.ra[i]),
        float(rows.dec[i]),
        -1,
        tuple(rows.probability[i].tolist()),
    )
