"""Samples with known inclusion probabilities, spread over a space, in which no two objects are near-duplicates.

Three steps, each with probabilities that are known given the step before, so that their product makes weights by which
totals are estimated without bias (two-phase sampling; Särndal, Swensson & Wretman 1992, section 9.3):

1. Of rows with the same name, one is kept.
2. Of rows nearer to each other than a radius, one is kept: each row draws an exponential waiting time whose rate is
   its size, and is kept if its time is the shortest within the radius, with a probability of its size divided by
   the sum of theirs (a hard core of Matérn's second type, 1960, doi:10.1007/978-1-4615-7892-5).
3. Of those the local pivotal method draws (Grafström, Lundström & Schelin 2012,
   doi:10.1111/j.1541-0420.2011.01699.x): neighbours compete, so that the sample is spread.

Shapes: n rows, D dimensions, H strata, P pairs.
"""

from __future__ import annotations

import numpy as np
import scipy  # its modules load when used

from blr.arrays import Matrix, Places, Vector

EVEN = 0.1
"""Share of the probability that all rows have alike, so that no weight is larger than ten times the mean."""
_MOST_PAIRS = 4_000_000  # pairs of near rows that are looked at: of more, the radius is halved
_HALVINGS = 20
_DECIDED = 1e-9  # distance of a probability from 0 or 1 within which its row is decided
_NEIGHBOURS = 8  # neighbours of a row that are found at once


def spread_sample(
    size: Vector,
    first: Vector,
    points: Matrix,
    groups: Places,
    strata: Places,
    quota: Places,
    *,
    radius: float,
    rng: np.random.Generator,
) -> tuple[Places, Vector, float]:
    """Return drawn rows (m,), the probability (m,) with which each was drawn of all there were, and the radius.

    Rows are drawn in proportion to `size` (n,) at points (n, D), no two of them nearer than the radius.
    `first` (n,) is the probability with which each row came here, `groups` (n,) is equal for rows of one object.  Of
    each of the H `strata` (n,), the `quota` (H,) is drawn.  There are fewer where fewer are left; the radius is halved
    until twice as many as wanted are expected to be left in each stratum, or, of few rows, half of those to spare.
    """
    H = len(quota)
    # Strata of different sizes compete with the probabilities that their quotas give.
    total = np.bincount(strata, weights=size / first, minlength=H)
    rate = size / first * (quota / np.where(total > 0, total, 1.0))[strata]
    some = np.flatnonzero(rate > 0)
    if not some.size:
        return some, np.empty(0), radius
    # Of each group the row whose exponential clock is the first: it is drawn in proportion to its size.
    order = np.lexsort((rng.exponential(size=len(some)) / rate[some], groups[some]))
    kept = some[np.sort(order[np.unique(groups[some][order], return_index=True)[1]])]
    chance = first[kept] * rate[kept] / np.bincount(groups[some], weights=rate[some])[groups[kept]]
    radius, pairs = _near_pairs(points[kept], rate[kept], strata[kept], quota, radius)
    # Rows stay whose clock is before all their pairs'.
    clock, stays = rng.exponential(size=len(kept)) / rate[kept], np.ones(len(kept), dtype=bool)
    stays[np.where(clock[pairs[:, 0]] > clock[pairs[:, 1]], pairs[:, 0], pairs[:, 1])] = False
    kept, chance = kept[stays], (chance * _first_share(rate[kept], pairs))[stays]
    drawn, probability = [], np.empty(len(kept))
    for h in range(H):
        mine = np.flatnonzero(strata[kept] == h)
        probability[mine] = inclusion_probabilities(size[kept[mine]] / chance[mine], int(quota[h]))
        drawn.append(mine[local_pivotal(probability[mine], points[kept[mine]], rng)])
    chosen = np.concatenate(drawn)
    return kept[chosen], (chance * probability)[chosen], radius


def informed_sizes(information: Vector, mean: Vector) -> Vector:
    """Return sizes (n,) of mean 1: mutual information (n,) over its `mean` (n,), and a part that is alike for all."""
    some = mean > 0
    return np.where(some, (1 - EVEN) * information / np.where(some, mean, 1.0) + EVEN, 1.0)


def inclusion_probabilities(size: Vector, n: int) -> Vector:
    """Return min(1, c size), shape of `size`, which sum to n, or all 1 where there are no more than n."""
    if n < 1 or n >= len(size):
        return np.full(len(size), float(n > 0))
    order = np.argsort(-size, kind="stable")
    # The largest k are certain, and the others share what is left.
    rest = np.cumsum(size[order][::-1])[::-1]
    left = n - np.arange(n)
    k = int(np.argmax(size[order][:n] * left < rest[:n] * (1 + 1e-12)))
    return np.minimum(1.0, size * (left[k] / rest[k]))


def local_pivotal(probability: Vector, points: Matrix, rng: np.random.Generator) -> Places:
    """Return the rows drawn with these inclusion probabilities (n,) at points (n, D), spread over the space.

    A row that is undecided competes with its nearest undecided neighbour until one of both is decided.  The sum of the
    probabilities is the number drawn, if it is whole.
    """
    p = np.array(probability, dtype=np.float64)
    undecided = _Undecided(points, np.flatnonzero((p > _DECIDED) & (p < 1 - _DECIDED)))
    while len(undecided.rows) > 1:
        i = undecided.random_row(rng)
        j = undecided.nearest(i)
        # One of both is decided, and each keeps its probability in expectation.
        total, u = p[i] + p[j], rng.random()
        if total < 1:
            p[i], p[j] = (0.0, total) if u * total < p[j] else (total, 0.0)
        else:
            p[i], p[j] = (1.0, total - 1) if u * (2 - total) < 1 - p[j] else (total - 1, 1.0)
        for row in (i, j):
            if not _DECIDED < p[row] < 1 - _DECIDED:
                undecided.remove(row)
    for row in undecided.rows:
        p[row] = float(rng.random() < p[row])
    return np.flatnonzero(p > 0.5)


class _Undecided:
    """Rows that are not decided, and the nearest of them: neighbours are found again when all of a row's are gone."""

    def __init__(self, points: Matrix, rows: Places) -> None:
        self._points = points
        self.rows = rows.tolist()
        self._place = {row: place for place, row in enumerate(self.rows)}
        self._near = self._neighbours()

    def _neighbours(self) -> dict[int, list[int]]:
        """Return the nearest rows of each row, the nearest first, perhaps itself among them."""
        rows = np.array(self.rows, dtype=np.intp)
        if len(rows) < 2:
            return {}
        points = self._points[rows]
        _, index = scipy.spatial.cKDTree(points).query(points, k=min(_NEIGHBOURS, len(rows)))
        return dict(zip(self.rows, rows[index].tolist(), strict=True))

    def random_row(self, rng: np.random.Generator) -> int:
        return self.rows[int(rng.integers(len(self.rows)))]

    def nearest(self, row: int) -> int:
        """Return the undecided row that is nearest to this one; there are two or more."""
        while True:
            for other in self._near[row]:
                if other != row and other in self._place:
                    return other
            self._near = self._neighbours()

    def remove(self, row: int) -> None:
        place, last = self._place.pop(row), self.rows.pop()
        if last != row:
            self.rows[place] = last
            self._place[last] = place


def _first_share(size: Vector, pairs: Places) -> Vector:
    """Return the probability (n,) that a row's clock is before those of its pairs (P, 2)."""
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return np.asarray(size / (size + np.bincount(both[:, 0], size[both[:, 1]], minlength=len(size))))


def _near_pairs(
    points: Matrix, size: Vector, strata: Places, quota: Places, radius: float
) -> tuple[float, Places]:
    """Return the radius, halved as often as it has to be, and the pairs (P, 2) of rows within it; none for 0."""
    there, nothing = np.bincount(strata, minlength=len(quota)), np.empty((0, 2), dtype=np.intp)
    wanted = np.minimum(np.minimum(2 * quota, there), (quota + there) / 2)
    if len(size) <= 1:
        return radius, nothing
    tree = scipy.spatial.cKDTree(points)
    for _ in range(_HALVINGS):
        if tree.count_neighbors(tree, radius) <= 2 * _MOST_PAIRS:
            pairs = tree.query_pairs(radius, output_type="ndarray").astype(np.intp).reshape(-1, 2)
            left = np.bincount(strata, weights=_first_share(size, pairs), minlength=len(quota))
            if (left >= wanted).all():
                return radius, pairs
        radius /= 2
    return 0.0, nothing
