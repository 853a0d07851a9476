"""How many objects have another one within an arcsecond, in bounded memory, however far apart the rows are.

Space around the unit sphere is divided into cubic cells, so that the poles and 0h need no special treatment.  An object
belongs to the cell that it is in.  It is also a guest in each other cell that is nearer than the radius, so that a pair
across an edge is found.  Only the cells with the smallest hashes are kept, fewer of them whenever there are too many
objects, but each with all of its objects: so the kept cells are a random sample of the sky ("distinct sampling",
Gibbons 2001, VLDB, of places).
Shapes: n rows, P places.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import scipy  # its modules load when used
from numpy.typing import NDArray

from catalogs.arrays.texts import FULL, hashed

__all__ = ["NeighbourCounter"]

Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]

CAPACITY = 200_000
"""Most places that are kept; they take 10 MB."""
CELLS = 60.0
"""Size of a cell in radii, so that few objects are guests anywhere."""


class NeighbourCounter:
    """Counts rows with another row within `radius` arcseconds; exact up to `capacity` places, an estimate beyond."""

    def __init__(self, radius: float = 1.0, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.halvings = 0
        self._chord = 2 * np.sin(np.radians(radius / 3600) / 2)
        self._place: Floats = np.empty((0, 3))
        self._key: Hashes = np.empty(0, dtype=np.uint64)  # hash of place and cell together
        self._cell: Hashes = np.empty(0, dtype=np.uint64)
        self._rows: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._owned: NDArray[np.bool_] = np.empty(0, dtype=bool)

    def add(self, ra: Floats, dec: Floats) -> None:
        """Count rows (n,), positions in degrees, all known."""
        lon, lat = np.radians(ra), np.radians(dec)
        place = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
        size = CELLS * self._chord
        own = np.floor(place / size).astype(np.int64)
        ends = [np.floor((place + side * self._chord) / size).astype(np.int64) for side in (-1, 1)]
        self._keep(place, own, owned=True)
        for corner in product((0, 1), repeat=3):
            cell = np.stack([ends[side][:, axis] for axis, side in enumerate(corner)], axis=1)
            self._keep_guests(place, cell, own, ends, corner)
        while len(self._key) > self.capacity:
            self.halvings += 1
            self._keep_only(self._cell <= FULL >> self.halvings)

    def _keep_guests(
        self, place: Floats, cell: Any, own: Any, ends: list[Any], corner: tuple[int, ...]
    ) -> None:
        """Keep rows as guests of the cell at a corner of the cube around them, unless an earlier corner had it."""
        other = (cell != own).any(axis=1)
        for axis, side in enumerate(corner):
            # Where the cube does not cross an edge along an axis, the upper corner is in the same cell as the lower
            # one.
            other &= (ends[0][:, axis] != ends[1][:, axis]) | (side == 0)
        if other.any():
            self._keep(place[other], cell[other], owned=False)

    def _keep(self, place: Floats, cell: Any, *, owned: bool) -> None:
        hashes = _combined(*(hashed(cell[:, axis]) for axis in range(3)))
        kept = hashes <= FULL >> self.halvings
        place, hashes = place[kept], hashes[kept]
        key = _combined(*(hashed(place[:, axis]) for axis in range(3)), hashes)
        joined = np.concatenate([self._key, key])
        distinct_keys, first, inverse = np.unique(joined, return_index=True, return_inverse=True)
        rows = np.concatenate([self._rows, np.ones(len(key), dtype=np.int64)])
        self._rows = np.bincount(inverse.ravel(), weights=rows, minlength=len(distinct_keys)).astype(np.int64)
        self._key = distinct_keys
        self._place = np.concatenate([self._place, place])[first]
        self._cell = np.concatenate([self._cell, hashes])[first]
        self._owned = np.concatenate([self._owned, np.full(len(key), owned)])[first]

    def _keep_only(self, kept: NDArray[np.bool_]) -> None:
        self._place, self._key, self._cell = self._place[kept], self._key[kept], self._cell[kept]
        self._rows, self._owned = self._rows[kept], self._owned[kept]

    @property
    def near_another(self) -> int:
        """Number of rows with another row within the radius or at the same place."""
        if not self._owned.any():
            return 0
        # Each place is in the tree once, whatever its cells, and is its own nearest neighbour: so the second nearest
        # counts.
        places = np.unique(self._place, axis=0)
        distance, _ = scipy.spatial.KDTree(places).query(
            self._place[self._owned], k=2, distance_upper_bound=self._chord * (1 + 1e-12)
        )
        near = np.isfinite(np.asarray(distance)[:, 1]) | (self._rows[self._owned] > 1)
        return int(self._rows[self._owned][near].sum()) << self.halvings


def _combined(*hashes: Hashes) -> Hashes:
    """Return one hash (n,) that depends on several hashes and their order."""
    total = hashes[0]
    for other in hashes[1:]:
        total = hashed(total * np.uint64(0x9E3779B97F4A7C15) + other)
    return total
