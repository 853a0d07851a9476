"""The quality of a labelled catalogue: what is missing, constant, double, far out, or known to give the class away.

Streamed, of bounded memory: counts of every row by `catalogs.profile.columns`, duplicates by the hashes of
`catalogs.arrays.distinct` and the cells of `catalogs.sky.neighbours`, outliers and leaks in the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.profile.columns import Choice, Profile, profile
from catalogs.sky.neighbours import NeighbourCounter
from catalogs.sky.positions import PositionUnit, positions

__all__ = ["Places", "Quality", "outlier_share", "quality"]

Array = np.ndarray[Any, Any]

SAME_PLACE = 1.0
"""Arcseconds within which two rows are one object, or two in the same place."""
FAR = 10.0
"""Distance of an outlier from the middle, in half the range between the quartiles."""
MOST = 30


@dataclass(frozen=True)
class Places:
    """The columns of the position, and their unit."""

    ra: str
    dec: str
    unit: PositionUnit = "deg"


@dataclass(frozen=True)
class Quality:
    """What a report says of the catalogue; shares are of all rows, `absent` how many files lack a column."""

    n_rows: int
    missing: dict[str, float]
    constant: tuple[str, ...]
    duplicate_columns: tuple[tuple[str, ...], ...]
    repeated_identifiers: int | None
    repeated_positions: int | None
    positions_without: int | None
    positions_out_of_range: int | None
    outliers: dict[str, float]
    n_files: int
    absent: dict[str, int]


@dataclass
class _Sky:
    """Counts positions batch by batch: those near another, those that are not there, and those out of range."""

    places: Places
    neighbours: NeighbourCounter = field(default_factory=lambda: NeighbourCounter(SAME_PLACE))
    without: int = 0
    out_of_range: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch."""
        values = batch_values(batch, [self.places.ra, self.places.dec])
        place = positions(values[self.places.ra], values[self.places.dec], self.places.unit)
        known = np.isfinite(place.ra)
        self.without += int((~known).sum())
        self.out_of_range += place.out_of_range
        self.neighbours.add(place.ra[known], place.dec[known])


def quality(
    catalog: Catalog,
    *,
    identifier: str | None = None,
    places: Places | None = None,
    limit: int | None = None,
    choice: Choice | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Quality, Profile]:
    """Return the quality of the rows, all or the first `limit`, and the profile, as of `profile`, that it is from."""
    sky = None if places is None else _Sky(places)
    also = None if sky is None else sky.add
    seen = profile(catalog, limit=limit, choice=choice, also=also, progress=progress)
    named = seen.columns.get(identifier or "")
    outliers = {name: outlier_share(seen, name) for name in seen.columns}
    row_quality = Quality(
        n_rows=seen.n_rows,
        missing={name: c.missing_share for name, c in seen.columns.items() if c.missing},
        constant=tuple(name for name, c in seen.columns.items() if c.constant),
        duplicate_columns=tuple(tuple(group) for group in seen.duplicate_columns()),
        repeated_identifiers=None if named is None else named.distinct.repeated,
        repeated_positions=None if sky is None else sky.neighbours.near_another,
        positions_without=None if sky is None else sky.without,
        positions_out_of_range=None if sky is None else sky.out_of_range,
        outliers=dict(sorted(((n, s) for n, s in outliers.items() if s > 0), key=lambda e: -e[1])[:MOST]),
        n_files=len(catalog.partitions),
        absent={c.name: c.absent for c in catalog.columns if c.absent},
    )
    return row_quality, seen


def outlier_share(seen: Profile, name: str) -> float:
    """Return the share of the sample that lies far outside of the middle half of a column of many values."""
    c = seen.columns[name]
    if not c.is_number or c.distinct.estimate < 20:
        return 0.0
    numbers = seen.numbers(name)
    known = numbers[np.isfinite(numbers)]
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
    half = max(high - low, 1e-300) / 2
    return float(np.mean(np.abs(known - middle) > FAR * half)) if high > low else 0.0
