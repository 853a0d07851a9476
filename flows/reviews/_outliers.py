"""Objects that are unlike all labelled ones: possible new types, artefacts, and errors of the photometry.

Shapes: n rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # its modules load when used
from numpy.typing import NDArray

from blr.explanation.novelty import MOST_COMPARED, relative
from flows.reviews._files import Outlier
from flows.reviews._rows import ReviewRows, Space

__all__ = ["OutlierSearch"]

Floats = NDArray[np.float64]
SEARCHED = 100_000
"""Objects among which outliers are looked for, at random: a type that is 0.3 % of a release is among them 300 times."""
SPARE = 10
"""Candidates for each outlier that is wanted: some are on the other list, or appear twice."""


class OutlierSearch:
    """The objects most unlike all labelled ones; of near-duplicates one alone.

    First `sample` all rows, then `add` them.
    """

    def __init__(self, n: int, radius: float, rng: np.random.Generator) -> None:
        self._n, self._most, self._radius, self._rng = n, n * SPARE, radius, rng
        self._rows: list[tuple[float, int, Outlier]] = []
        self._points = np.empty((0, 0))
        self._keys, self._sampled = np.empty(0), np.empty((0, 0))
        self._tree: scipy.spatial.cKDTree | None = None
        self._n_rows = 0

    def sample(self, rows: ReviewRows) -> None:
        """Take rows of a batch into the random sample of all, with which each is compared."""
        assert rows.points is not None  # noqa: S101  the space was asked for them
        self._n_rows += len(rows.names)
        keys = np.concatenate([self._keys, self._rng.random(len(rows.names))])
        points = np.concatenate([self._sampled.reshape(-1, rows.points.shape[1]), rows.points])
        kept = np.argsort(keys, kind="stable")[:MOST_COMPARED]
        self._keys, self._sampled = keys[kept], points[kept]

    def add(self, rows: ReviewRows, space: Space) -> None:
        """Take the rows of a batch, with their points."""
        assert rows.points is not None  # noqa: S101  the space was asked for them
        looked_at = np.flatnonzero(self._rng.random(len(rows.names)) * self._n_rows < SEARCHED)
        if not looked_at.size:
            return
        self._tree = scipy.spatial.cKDTree(self._sampled) if self._tree is None else self._tree
        points = rows.points[looked_at]
        distance, nearest = space.distances(points)
        novelty = relative(distance, points, self._tree)
        least = self._rows[-1][0] if len(self._rows) == self._most else -np.inf
        order = np.argsort(-novelty, kind="stable")
        order = order[novelty[order] > least]
        picked = order[apart(points[order], self._radius, self._most)]
        found = [
            (
                float(novelty[i]),
                int(nearest[i]),
                rows.outlier(int(looked_at[i]), float(novelty[i]), float(distance[i])),
            )
            for i in picked.tolist()
        ]
        points = points[picked]
        both = [*self._rows, *found]
        joined = np.concatenate([self._points.reshape(-1, points.shape[1]), points])
        ranked = np.argsort([-entry[0] for entry in both], kind="stable")
        kept = ranked[apart(joined[ranked], self._radius, self._most)]
        self._rows, self._points = [both[i] for i in kept.tolist()], joined[kept]

    def found(self, classes: Sequence[str], listed: set[str]) -> list[Outlier]:
        """Return the outliers, the most unlike first, each object once; those that are `listed` are left out."""
        once: dict[str, Outlier] = {}
        for _, nearest, row in self._rows:
            if row.name not in listed:
                once.setdefault(row.name, row.beside(classes[nearest] if nearest < len(classes) else ""))
        return [*once.values()][: self._n]


def apart(points: Floats, radius: float, most: int) -> NDArray[np.intp]:
    """Return the first points (m,) of (n, D) farther than the radius from all chosen before; `most` at most."""
    left, chosen = np.arange(len(points)), list[int]()
    while left.size and len(chosen) < most:
        first = left[0]
        chosen.append(int(first))
        difference = points[left] - points[first]
        far = np.einsum("nd,nd->n", difference, difference) > radius**2
        left = left[far]
    return np.array(chosen, dtype=np.intp)
