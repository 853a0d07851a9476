"""Objects that are unlike all labelled ones: possible new types, artefacts, and errors of the photometry.

Shapes: n rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flows.reviews._files import Outlier
from flows.reviews._rows import ReviewRows, Space

__all__ = ["OutlierSearch"]

Floats = NDArray[np.float64]
SPARE = 10
"""Candidates for each outlier that is wanted: some are on the other list, or appear twice."""


class OutlierSearch:
    """The objects farthest from all labelled ones, of those that went by; of near-duplicates the farthest alone."""

    def __init__(self, n: int, radius: float) -> None:
        self._n, self._most, self._radius = n, n * SPARE, radius
        self._rows: list[tuple[float, int, Outlier]] = []
        self._points = np.empty((0, 0))

    def add(self, rows: ReviewRows, space: Space) -> None:
        """Take the rows of a batch, with their points."""
        assert rows.points is not None  # noqa: S101  the space was asked for them
        if not len(rows.names):
            return
        distance, nearest = space.novelties(rows.points)
        least = self._rows[-1][0] if len(self._rows) == self._most else -np.inf
        order = np.argsort(-distance, kind="stable")
        order = order[distance[order] > least]
        picked = apart(rows.points[order], self._radius, self._most)
        found = [
            (float(distance[i]), int(nearest[i]), rows.outlier(int(i), float(distance[i])))
            for i in order[picked].tolist()
        ]
        points = rows.points[order[picked]]
        both = [*self._rows, *found]
        joined = np.concatenate([self._points.reshape(-1, points.shape[1]), points])
        ranked = np.argsort([-entry[0] for entry in both], kind="stable")
        kept = ranked[apart(joined[ranked], self._radius, self._most)]
        self._rows, self._points = [both[i] for i in kept.tolist()], joined[kept]

    def found(self, classes: Sequence[str], listed: set[str]) -> list[Outlier]:
        """Return the outliers, the farthest first, each object once; those that are `listed` already are left out."""
        once: dict[str, Outlier] = {}
        for _, nearest, row in self._rows:
            if row.name not in listed:
                once.setdefault(row.name, row.beside(classes[nearest]))
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
