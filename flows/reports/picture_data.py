"""Data beside a model from which its report can be drawn again: small arrays, and objects to look at.

Models of earlier versions lack these files; their reports say so.
Shapes: K classes, T thresholds, B bins, I iterations, W weights shown.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from catalogs.files.atomic import atomic_path

__all__ = [
    "FeatureComparison",
    "Made",
    "NotableObject",
    "ReportNotes",
    "SkyMap",
    "StoredPictures",
    "WeightPictures",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class NotableObject:
    """An object that a person should look at, and why; a position in degrees, None where it is not known."""

    name: str
    ra: float | None
    dec: float | None
    why: str


@dataclass(frozen=True)
class Made:
    """When something was made, ISO 8601 in UTC, and by whom."""

    when: str
    who: str

    @classmethod
    def now(cls) -> Made:
        """Return this moment and the user who runs this process; a container may have a user without a name."""
        try:
            who = getpass.getuser()
        except (KeyError, OSError, ImportError):
            who = "an unnamed user"
        return cls(datetime.now(UTC).isoformat(timespec="seconds"), who)


@dataclass(frozen=True, kw_only=True)
class ReportNotes:
    """Notes beside a model for its report: when it was trained and by whom, and objects to look at."""

    made: Made | None = None
    objects: tuple[NotableObject, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightPictures:
    """Arrays that pictures of weights are drawn from; None where a picture cannot be drawn.

    `newton_weights` (I, W) are some weights of the largest part at each of Newton's iterations, `newton_names` (W,)
    their functions.  `pair_*` are two weights of it: the names (2,), mean (2,) and covariance (2, 2) of the Laplace and
    of the refined posterior, and draws (n, 2) of the exact one, each with its weight (n,).
    """

    newton_weights: Array | None = None
    newton_names: Array | None = None
    pair_names: Array | None = None
    pair_laplace_mean: Array | None = None
    pair_laplace_covariance: Array | None = None
    pair_refined_mean: Array | None = None
    pair_refined_covariance: Array | None = None
    pair_draws: Array | None = None
    pair_weight: Array | None = None

    def to_tree(self) -> dict[str, Array | list[str]]:
        """Return arrays, and lists of texts, that `from_tree` takes."""
        return {
            name: value.tolist() if value.dtype.kind == "U" else value
            for name, value in vars(self).items()
            if value is not None
        }

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> WeightPictures:
        """Return what `to_tree` made."""
        return cls(**{name: np.asarray(value) for name, value in tree.items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredPictures(WeightPictures):
    """Arrays that pictures of a training are drawn from; None where a picture cannot be drawn.

    For the rows that judge: `threshold` (T,) of the class's probability, with `completeness` and `purity` (K, T) of
    the objects above it (NaN for too few objects).  By magnitude and by galactic latitude: `*_centres`
    (B,), the means of bins, and `*_counts` (3, B, K), the objects of a class, those assigned to it, and both.
    """

    threshold: Array
    completeness: Array
    purity: Array
    magnitude_name: str = ""
    magnitude_centres: Array | None = None
    magnitude_counts: Array | None = None
    latitude_centres: Array | None = None
    latitude_counts: Array | None = None

    def write(self, path: Path) -> None:
        """Write the arrays, whole or not at all."""
        arrays = {name: value for name, value in vars(self).items() if value is not None}
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **arrays)

    @classmethod
    def read_from(cls, path: Path) -> StoredPictures | None:
        """Return what `write` wrote; None where there is no such file."""
        if not path.is_file():
            return None
        known = {field.name for field in fields(cls)}
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files if name in known}
        return cls(**{**arrays, "magnitude_name": str(arrays.get("magnitude_name", ""))})


@dataclass(frozen=True, kw_only=True)
class SkyMap:
    """Objects in nested HEALPix pixels (P,): all, those flagged for a look, and by assigned class (K, P)."""

    order: int
    pixels: tuple[int, ...]
    n: tuple[int, ...]
    flagged: tuple[int, ...]
    assigned: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class FeatureComparison:
    """A feature in the training set and in the target: counts (B,) in the same bins, with B - 1 edges between them.

    `low` and `high` are the least and the largest value of the labelled rows.
    """

    name: str
    edges: tuple[float, ...]
    training: tuple[int, ...]
    target: tuple[int, ...]
    low: float
    high: float
