"""Data beside a model from which its report can be drawn again: small arrays, and objects to look at.

Models of earlier versions lack these files; their reports say so.
Shapes: K classes, T thresholds, B bins.
"""

from __future__ import annotations

import getpass
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from catalogs.files.atomic import atomic_path
from flows.documents import read_document, write_document

__all__ = [
    "BoundaryPicture",
    "FeatureComparison",
    "Made",
    "NotableObject",
    "ReportNotes",
    "ReportParts",
    "SkyMap",
    "StoredPictures",
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
class BoundaryPicture:
    """Probabilities over a grid of two features, the others at their mean given these two.

    Grid of ny times nx nodes: `x` (nx,), `y` (ny,), `moderated` (ny, nx, K).  Labelled objects: `point_x`, `point_y`,
    and `point_class`, index into the classes, each (n,).
    """

    x_name: str
    y_name: str
    x: Array
    y: Array
    moderated: Array
    point_x: Array
    point_y: Array
    point_class: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredPictures:
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


Stored = TypeVar("Stored", BoundaryPicture, StoredPictures)


@dataclass(frozen=True, eq=False)
class ReportParts:
    """Files beside a model for its report; None or empty where an earlier version did not write them."""

    boundary: BoundaryPicture | None = None
    pictures: StoredPictures | None = None
    notes: ReportNotes = field(default_factory=ReportNotes)

    def write(self, folder: Path) -> None:
        """Write the parts into a model's folder."""
        for picture, name in ((self.boundary, BOUNDARY), (self.pictures, PICTURES)):
            if picture is not None:
                arrays = {key: value for key, value in vars(picture).items() if value is not None}
                with atomic_path(folder / name) as temporary, temporary.open("wb") as stream:
                    np.savez_compressed(stream, allow_pickle=False, **arrays)
        write_document(folder / NOTES, self.notes)

    @classmethod
    def read_from(cls, folder: Path) -> ReportParts:
        """Return the parts in a model's folder."""
        notes = folder / NOTES
        return cls(
            _arrays(BoundaryPicture, folder / BOUNDARY),
            _arrays(StoredPictures, folder / PICTURES),
            read_document(ReportNotes, notes) if notes.is_file() else ReportNotes(),
        )


BOUNDARY, PICTURES, NOTES = "boundary.npz", "pictures.npz", "report-notes.json"


def _arrays(kind: type[Stored], path: Path) -> Stored | None:
    """Return the arrays in a file, without those that only earlier versions needed; None where there is no file."""
    if not path.is_file():
        return None
    known = {field.name for field in fields(kind)}
    with np.load(path, allow_pickle=False) as stored:
        arrays: dict[str, Any] = {name: stored[name] for name in stored.files if name in known}
    texts = {name: str(value) for name, value in arrays.items() if name.endswith("_name")}
    return kind(**(arrays | texts))


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
