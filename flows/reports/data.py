"""What a report shows, as it is stored: numbers, tables and the data of pictures."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from blr.census.results import Census
from blr.classifier import Classifier
from catalogs.files.atomic import atomic_path
from flows.documents import read_document, write_document
from flows.models.description import ModelDescription
from flows.reports.remarks import leak_words, training_remarks
from flows.runs.counts import Counts, SkyCounts

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


BOUNDARY, PICTURES, NOTES = "boundary.npz", "pictures.npz", "report-notes.json"


def _arrays(kind: type[Stored], path: Path) -> Stored | None:
    """Return the arrays in a file; None where there is no file."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
    texts = {name: str(value) for name, value in arrays.items() if name.endswith("_name")}
    return kind(**(arrays | texts))


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
    sky: SkyCounts | None = None  # None where positions are not known
    features: tuple[FeatureComparison, ...] = ()
    census: Census | None = None  # None where none was taken
    label_shares: Mapping[str, float] = field(default_factory=dict)  # of the classes among the model's labels

    @classmethod
    def of(cls, name: str, counts: Counts) -> Classification:
        """Return what a report shows of counts, of one file or of all, which it calls `name`."""
        shown = {f.name: getattr(counts, f.name) for f in fields(Counts)}
        return cls(**(shown | {"catalogue": name, "model": "", "left_behind": ()}))


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """A model, what lies beside it for its report, catalogues that it classified, and sentences of the training."""

    model: ModelDescription
    boundary: BoundaryPicture | None = None
    pictures: StoredPictures | None = None
    notes: ReportNotes = field(default_factory=ReportNotes)
    classifications: tuple[Classification, ...] = ()
    remarks: tuple[str, ...] = ()  # what a reader should know: what was left out and why
    attribution: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: ModelDescription, *, remarks: Sequence[str] = (), **parts: Any) -> TrainReport:
        """Return the report of a model, with what was noted of its training behind the `remarks`."""
        return cls(model=model, remarks=(*remarks, *training_remarks(model.training)), **parts)

    @classmethod
    def read(cls, model: ModelDescription, **parts: Any) -> TrainReport:
        """Return the report of a model with what lies beside it; a trial has no folder."""
        if model.path is None:
            return cls.of(model, **parts)
        folder = Path(model.path)
        notes = folder / NOTES
        return cls.of(
            model,
            boundary=_arrays(BoundaryPicture, folder / BOUNDARY),
            pictures=_arrays(StoredPictures, folder / PICTURES),
            notes=read_document(ReportNotes, notes) if notes.is_file() else ReportNotes(),
            **parts,
        )

    def write_parts(self, folder: Path) -> None:
        """Write what `read` reads into a model's folder."""
        for picture, name in ((self.boundary, BOUNDARY), (self.pictures, PICTURES)):
            if picture is not None:
                arrays = {key: value for key, value in vars(picture).items() if value is not None}
                with atomic_path(folder / name) as temporary, temporary.open("wb") as stream:
                    np.savez_compressed(stream, allow_pickle=False, **arrays)
        write_document(folder / NOTES, self.notes)

    @property
    def leaks(self) -> dict[str, str]:
        """Columns that the features use and that may give the class away, each set with how."""
        return {
            columns: words for q in self.model.training.quality for columns, words in leak_words(q).items()
        }


# The picture of a soft decision boundary: a classifier's probabilities over two of its features.
#
# The other features have their mean given these two, so that each node of the grid is a plausible object.
# Shapes: N training rows, F features, K classes.

NODES: Final = (41, 31)
MOST_POINTS: Final = 800
FEWEST_VALUES: Final = 10
"""Different values of a feature that make a good axis."""
# The picture is wider than the bulk of the data by this share, to show how confidence decreases outside.
MARGIN: Final = 0.3

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def boundary_picture(
    classifier: Classifier, X: Floats, missing: Mask, labels: NDArray[np.intp], *, names: Sequence[str]
) -> BoundaryPicture | None:
    """Return the picture over the two features that separate the classes most; None with fewer than two that vary.

    Features of few values, as yes or no, come last.
    `X` (N, F) and `missing` are training rows, `labels` (N,) their class indices, `names` the features'.
    """
    telling = separation(X, missing, labels)
    if np.count_nonzero(telling) < 2:
        return None
    few = [np.unique(X[~missing[:, j], j]).size < FEWEST_VALUES for j in range(len(telling))]
    pair = tuple(sorted(range(len(telling)), key=lambda j: (few[j], -telling[j]))[:2])
    x, y = (_axis(X[~missing[:, j], j], n) for j, n in zip(pair, NODES, strict=True))
    grid = np.zeros((y.size, x.size, X.shape[1]))
    grid[:, :, pair[0]], grid[:, :, pair[1]] = np.meshgrid(x, y)
    rows = grid.reshape(-1, X.shape[1])
    unknown = np.ones(rows.shape, dtype=bool)
    unknown[:, pair] = False
    scores = classifier.score(classifier.moments.impute(rows, unknown), np.zeros_like(unknown))
    shown = np.flatnonzero(~missing[:, pair].any(axis=1))
    if shown.size > MOST_POINTS:  # evenly spaced, so that no seed is needed
        shown = shown[np.linspace(0, shown.size - 1, MOST_POINTS).astype(np.intp)]
    return BoundaryPicture(
        x_name=names[pair[0]],
        y_name=names[pair[1]],
        x=x,
        y=y,
        moderated=scores.probability.reshape(y.size, x.size, -1),
        point_x=X[shown, pair[0]],
        point_y=X[shown, pair[1]],
        point_class=labels[shown],
    )


def separation(X: Floats, missing: Mask, labels: NDArray[np.intp]) -> Floats:
    """Return, for each feature (F,), the share of its variance that lies between the classes' means.

    It is computed from the rows that have the feature, and multiplied by the share of these rows: a feature that few
    objects have makes a poor axis.
    """
    share = np.zeros(X.shape[1])
    for j in range(X.shape[1]):
        known = ~missing[:, j]
        values, classes = X[known, j], labels[known]
        if values.size and np.ptp(values) > 0:
            counts = np.bincount(classes)
            means = np.bincount(classes, weights=values) / np.maximum(counts, 1)
            between = np.sum(counts * (means - values.mean()) ** 2)
            share[j] = known.mean() * between / np.sum((values - values.mean()) ** 2)
    return share


def _axis(values: Floats, n: int) -> Floats:
    """Return n nodes over the bulk of the values and a margin, but not beyond the smallest and largest value."""
    low, high = np.quantile(values, (0.005, 0.995))
    if low == high:
        return np.linspace(values.min(), values.max(), n)
    margin = MARGIN * (high - low)
    return np.linspace(max(low - margin, values.min()), min(high + margin, values.max()), n)
