"""What a report shows, as it is stored: numbers, tables and the data of pictures."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from blr.candidates.candidate import CandidateRow
from blr.census.results import Census
from catalogs.files.atomic import atomic_path
from flows.documents import read_document, write_document
from flows.models.description import Metrics, ModelDescription
from flows.models.listing import skill_words
from flows.runs.counts import Counts

__all__ = [
    "BoundaryPicture",
    "Classification",
    "FeatureComparison",
    "Made",
    "NotableObject",
    "ReportNotes",
    "ReportParts",
    "SkyMap",
    "StoredPictures",
    "TrainReport",
    "judged_objects",
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


@dataclass(frozen=True, kw_only=True)
class Classification(Counts):
    """What `classify` found in catalogues: the counts of all their objects, and what belongs to pictures."""

    catalogue: str
    drifted: tuple[str, ...] = ()  # features whose distribution is far from the training's
    sky: SkyMap | None = None  # None where positions are not known
    features: tuple[FeatureComparison, ...] = ()
    census: Census | None = None  # None where none was taken
    label_shares: Mapping[str, float] = field(default_factory=dict)  # of the classes among the model's labels

    @classmethod
    def of(cls, name: str, counts: Counts) -> Classification:
        """Return what a report shows of counts, of one file or of all, which it calls `name`."""
        return cls(catalogue=name, **{f.name: getattr(counts, f.name) for f in fields(Counts)})


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """A model, what lies beside it for its report, catalogues that it classified, and sentences of the training."""

    model: ModelDescription
    parts: ReportParts = field(default_factory=ReportParts)
    classifications: tuple[Classification, ...] = ()
    # Columns that the features use and that may give the class away, each set with how.
    leaks: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # what a reader should know: what was left out and why
    attribution: tuple[str, ...] = ()

    @property
    def metrics(self) -> Metrics:
        """How good the model is."""
        return self.model.metrics

    @property
    def has_skill(self) -> bool:
        """Whether the model is known to predict better than the class shares alone."""
        return self.metrics.skill.is_shown

    @property
    def skill_words(self) -> str:
        """The sentence on the model's skill."""
        return skill_words(self.metrics.skill, self.metrics.judged_by)

    @property
    def is_mixture(self) -> bool:
        """Whether the model is a mixture of candidates, each with a share."""
        return self.model.selected_by in ("average", "stack")

    @property
    def chosen(self) -> CandidateRow:
        """The selected candidate."""
        return self.model.candidates[self.model.selected]

    @property
    def n_training(self) -> int:
        """Rows that the fits saw."""
        return sum(self.model.training.training_counts)

    @property
    def n_held_out(self) -> int:
        """Rows that no fit saw."""
        return sum(self.model.training.held_out_counts)


def judged_objects(report: TrainReport) -> str:
    """Return the objects that judge: "held-out objects", or "left-out objects"."""
    return f"{report.metrics.judged_by} objects"
