"""The files of rows beside a model: held-out rows with their probabilities, labels, names, unseen rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from blr.selection.skill import Skill, paired_gain
from catalogs.files.atomic import atomic_path
from catalogs.profile.split import name_keys
from flows.errors import ModelError

__all__ = [
    "JUDGED_ROWS_FILE",
    "KNOWN_LABELS_FILE",
    "LABELLED_OBJECTS_FILE",
    "UNSEEN_ROWS_FILE",
    "ClassComparison",
    "JudgedRows",
    "KnownLabels",
    "LabelledObjects",
    "UnseenRows",
    "compare_classes",
    "compare_losses",
    "read_judged_rows",
    "read_known_labels",
    "read_labelled_identifiers",
    "read_labelled_objects",
    "read_unseen_rows",
    "write_judged_rows",
    "write_known_labels",
    "write_labelled_objects",
    "write_unseen_rows",
]

# The rows that a model was judged on, each with its loss: what champion and challenger are compared by.
#
# The fits that were judged have not seen these rows, although the final model may be fitted to them as well.  Rows that
# two models have in common are therefore new to both.  They are stored in the model's folder, as `judged_rows.parquet`.
# Shapes: N rows.

JUDGED_ROWS_FILE = "judged_rows.parquet"
MOST_ROWS = 1_000_000
"""Most rows that are kept: those whose hashes are smallest, so that two models keep the same."""


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """A hash of each object's identifier (N,), of its group in the split (N,), and its log loss (N,), nats.

    `label` and `assigned` (N,) are indices of classes: that of the object's label, and the one that the model gives it.
    Earlier versions did not keep them.
    """

    name: NDArray[np.uint64]
    group: NDArray[np.uint64]
    log_loss: NDArray[np.float64]
    label: NDArray[np.int16] | None = None
    assigned: NDArray[np.int16] | None = None

    def kept(self, most: int = MOST_ROWS) -> JudgedRows:
        """Return at most `most` rows, those of the smallest hashes, in the order of the hashes."""
        return self[np.argsort(self.name, kind="stable")[:most]]

    def __getitem__(self, rows: NDArray[np.int64]) -> JudgedRows:
        """Return some of the rows."""
        label, assigned = (None if x is None else x[rows] for x in (self.label, self.assigned))
        return JudgedRows(self.name[rows], self.group[rows], self.log_loss[rows], label, assigned)


def write_judged_rows(rows: JudgedRows, folder: Path) -> None:
    """Write the rows into a model's folder, whole or not at all."""
    kept = rows.kept()
    table = pa.table({name: column for name, column in vars(kept).items() if column is not None})
    with atomic_path(folder / JUDGED_ROWS_FILE) as temporary:
        pq.write_table(table, temporary)


def read_judged_rows(folder: Path) -> JudgedRows | None:
    """Return the rows of a model's folder; None where it has none, as models of earlier versions."""
    path = folder / JUDGED_ROWS_FILE
    if not path.exists():
        return None
    table = pq.ParquetFile(path).read()
    name, group, log_loss = (table[c].to_numpy() for c in ("name", "group", "log_loss"))
    classes = (table[c].to_numpy() if c in table.column_names else None for c in ("label", "assigned"))
    return JudgedRows(name, group, log_loss, *classes)


def compare_losses(challenger: JudgedRows, champion: JudgedRows) -> Skill | None:
    """Return by how much the challenger's log loss is smaller on the objects that both were judged on.

    An object of several rows counts once, by the mean of their losses.  None where no object is in both.
    """
    name, in_challenger, in_champion = np.intersect1d(
        challenger.name, champion.name, return_indices=True
    )  # the places of the first row of each
    if not len(name):
        return None
    own, theirs = (_mean_by_name(rows, name) for rows in (challenger, champion))
    # Objects that a split keeps together may have correlated errors: the groups of the coarser split are used.
    groups = (challenger.group[in_challenger], champion.group[in_champion])
    return paired_gain(own, theirs, group=min(groups, key=lambda g: len(np.unique(g))))


@dataclass(frozen=True, kw_only=True)
class ClassComparison:
    """A class on the objects that both models were judged on: how many have it, and the challenger's gain on them.

    Completeness is the share of these objects that a model gives the class; purity is the share of correct ones among
    the objects that it gives the class, NaN if it gives the class to no object.
    """

    gain: Skill
    completeness: tuple[float, float]  # challenger, champion
    purity: tuple[float, float]


def compare_classes(challenger: JudgedRows, champion: JudgedRows) -> dict[int, ClassComparison]:
    """Return the two models' results by class, by the class's index; classes that no common object has are left out.

    Both models have the same classes.  The result is empty if an earlier version made one of them.  If an object
    has several rows, the first one counts.
    """
    _, ours, theirs = np.intersect1d(challenger.name, champion.name, return_indices=True)
    pair = challenger[ours], champion[theirs]
    label = pair[0].label
    if label is None or any(rows.assigned is None for rows in pair):
        return {}
    assigned = [np.asarray(rows.assigned) for rows in pair]
    compared = {}
    for k in np.unique(label).tolist():
        here = label == k
        n_right = [int(np.count_nonzero(a[here] == k)) for a in assigned]
        n_assigned = [int(np.count_nonzero(a == k)) for a in assigned]
        gain = paired_gain(pair[0].log_loss[here], pair[1].log_loss[here], group=pair[0].group[here])
        n = int(np.count_nonzero(here))
        compared[k] = ClassComparison(
            gain=gain,
            completeness=(n_right[0] / n, n_right[1] / n),
            purity=(_share(n_right[0], n_assigned[0]), _share(n_right[1], n_assigned[1])),
        )
    return compared


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _mean_by_name(rows: JudgedRows, name: NDArray[np.uint64]) -> NDArray[np.float64]:
    place = np.searchsorted(name, rows.name)
    known = (place < len(name)) & (name[np.minimum(place, len(name) - 1)] == rows.name)
    total = np.bincount(place[known], rows.log_loss[known], minlength=len(name))
    return np.asarray(total / np.bincount(place[known], minlength=len(name)))


# The labels that a training read, so that a census counts the same objects of a target as they are labelled.
#
# A row of a target is such an object if it has the identifier and, in single precision, all features of it: numbers
# that name other objects in another catalogue match nothing.  Both are kept as hashes, as `known_labels.parquet` beside
# the model.  Shapes: N labelled objects, n rows of a target, F features of the model.

KNOWN_LABELS_FILE = "known_labels.parquet"
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)

Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """Objects whose class a label says.

    `key` (N,) are hashes of identifier and features in order, each once; `features` (N,) hashes of the features alone,
    `target` (N,) the index of the class.
    """

    key: Hashes
    features: Hashes
    target: NDArray[np.intp]

    @classmethod
    def of(cls, identifiers: Array, X: Floats, target: NDArray[np.intp]) -> KnownLabels:
        """Return the labels of objects: identifiers (N,), "" without one; X (N, F), NaN where one is missing.

        An object without an identifier, or with two classes, is left out.
        """
        named = np.flatnonzero(identifiers != "")
        features = _of_features(X[named])
        key, target = _keys(identifiers[named], features), target[named]
        order = np.lexsort((target, key))
        key, features, target = key[order], features[order], target[order]
        first = np.r_[True, key[1:] != key[:-1]][: len(key)]
        start = np.flatnonzero(first)
        end = np.r_[start[1:], len(key)][: len(start)] - 1
        one = target[start] == target[end]  # sorted by class within an object
        return cls(key[start[one]], features[start[one]], target[start[one]])

    def classes(self, X: Floats, identifiers: Callable[[NDArray[np.intp]], Array]) -> NDArray[np.intp]:
        """Return the class (n,) of rows with features X (n, F), -1 where it is not known.

        `identifiers` returns those of some rows by number, as numbers or texts: it is asked only for rows with the
        features of an object.
        """
        found = np.full(len(X), -1, dtype=np.intp)
        if not len(self.key) or not len(X):
            return found
        features = _of_features(X)
        rows = np.flatnonzero(np.isin(features, self.features))
        if len(rows):
            key = _keys(identifiers(rows), features[rows])
            place = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
            found[rows] = np.where(self.key[place] == key, self.target[place], -1)
        return found


def _of_features(X: Floats) -> Hashes:
    """Return a hash (n,) of each row (n, F) in single precision; all NaN are one value, and -0.0 is 0.0."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = X.astype(np.float32) + np.float32(0)
    bits = np.where(np.isnan(single), np.float32(np.nan), single).view(np.uint32).astype(np.uint64)
    total = np.zeros(len(X), dtype=np.uint64)
    for column in bits.T:
        total = (total ^ column) * _PRIME
        total ^= total >> _SHIFT
    return total


def _keys(identifiers: Array, features: Hashes) -> Hashes:
    key = (name_keys([identifiers]) ^ features) * _PRIME
    return np.asarray(key ^ (key >> _SHIFT), dtype=np.uint64)


def write_known_labels(known: KnownLabels, folder: Path) -> None:
    """Write the labels into a model's folder, whole or not at all."""
    table = pa.table({"key": known.key, "features": known.features, "target": known.target.astype(np.int32)})
    with atomic_path(folder / KNOWN_LABELS_FILE) as temporary:
        pq.write_table(table, temporary)


def read_known_labels(folder: Path, *, classes: int) -> KnownLabels | None:
    """Return the labels of a model's folder; None where it has none, as models of earlier versions.

    Raises
    ------
    ModelError
        If the file cannot be read, or is not of so many classes.
    """
    path = folder / KNOWN_LABELS_FILE
    if not path.exists():
        return None
    columns: list[Any]
    try:
        table = pq.ParquetFile(path).read()
        columns = [table[name].to_numpy() for name in ("key", "features", "target")]
    except (pa.ArrowException, KeyError) as error:
        raise ModelError(
            f"{path}: cannot be read as the table of known labels ({error}); train the model again"
        ) from error
    key, features, target = columns
    if len(target) and not 0 <= target.min() <= target.max() < classes:
        raise ModelError(
            f"{path}: got labels of {target.max() + 1} classes, expected {classes} for this model; train the model "
            "again"
        )
    return KnownLabels(key.astype(np.uint64), features.astype(np.uint64), target.astype(np.intp))


# The labelled objects that a model was fitted to: what people are shown when they ask what an object is like.
#
# They lie beside the model, as `labelled_objects.parquet`.  Shapes: N objects, F features of the model.

LABELLED_OBJECTS_FILE = "labelled_objects.parquet"
MOST_OBJECTS = 1_000_000
"""Most objects that are kept: evenly spaced ones."""


@dataclass(frozen=True, eq=False)
class LabelledObjects:
    """Objects with labels.

    `identifier` (N,) is UTF-8, empty where objects have none.  `position` (N, 2) is right ascension and declination in
    degrees, NaN where it is not known.  `target` (N,) is the index of the class, `X` (N, F) the features, NaN where one
    is missing.
    """

    identifier: NDArray[np.bytes_]
    position: Floats
    target: NDArray[np.intp]
    X: Floats

    def but(self, identifier: str) -> LabelledObjects:
        """Return the objects with another identifier than this one; 7.0 is 7 too."""
        spellings = [identifier.encode(), identifier.removesuffix(".0").encode()]
        others = ~np.isin(self.identifier, spellings)
        return self if others.all() else self._of(np.flatnonzero(others))

    def _of(self, rows: NDArray[np.intp]) -> LabelledObjects:
        return LabelledObjects(self.identifier[rows], self.position[rows], self.target[rows], self.X[rows])

    def kept(self, most: int = MOST_OBJECTS) -> LabelledObjects:
        """Return at most so many objects, evenly spaced."""
        n = len(self.target)
        if n <= most:
            return self
        return self._of(np.linspace(0, n - 1, most).round().astype(np.intp))


def write_labelled_objects(objects: LabelledObjects, folder: Path) -> None:
    """Write the objects into a model's folder, whole or not at all."""
    kept = objects.kept()
    names = [text.decode(errors="replace") for text in kept.identifier.tolist()]
    table = pa.table(
        {
            "identifier": names,
            "ra": kept.position[:, 0],
            "dec": kept.position[:, 1],
            "target": kept.target,
            "features": pa.FixedSizeListArray.from_arrays(pa.array(kept.X.ravel()), kept.X.shape[1]),
        }
    )
    with atomic_path(folder / LABELLED_OBJECTS_FILE) as temporary:
        pq.write_table(table, temporary)


def read_labelled_identifiers(folder: Path) -> list[str] | None:
    """Return the objects' identifiers, '' where they have none; None of a model of an earlier version."""
    path = folder / LABELLED_OBJECTS_FILE
    try:
        return [name or "" for name in pq.ParquetFile(path).read(columns=["identifier"])[0].to_pylist()]
    except (OSError, pa.ArrowException, IndexError):
        return None


def read_labelled_objects(folder: Path, *, classes: int, features: int) -> LabelledObjects | None:
    """Return the objects of a model's folder; None where it has none, as models of earlier versions.

    ModelError where the file is not of so many `classes` and `features`.
    """
    path = folder / LABELLED_OBJECTS_FILE
    if not path.exists():
        return None
    try:
        table = pq.ParquetFile(path).read()
        X = table["features"].combine_chunks()
        width = X.type.list_size
        objects = LabelledObjects(
            np.array([text.encode() for text in table["identifier"].to_pylist()], dtype=np.bytes_),
            np.stack([table[name].to_numpy() for name in ("ra", "dec")], axis=1),
            table["target"].to_numpy(),
            np.asarray(X.flatten().to_numpy(zero_copy_only=False), dtype=np.float64).reshape(len(X), width),
        )
    except (pa.ArrowException, KeyError, AttributeError, ValueError) as error:
        raise ModelError(
            f"{path}: cannot be read as the table of labelled objects ({error}); train the model again"
        ) from error
    if width != features or (len(objects.target) and not 0 <= objects.target.max() < classes):
        raise ModelError(
            f"{path}: got objects of {width} features and {objects.target.max(initial=-1) + 1} classes, "
            f"expected {features} and {classes} for this model; train the model again"
        )
    return objects


# Labelled rows with the probabilities of fits that have not seen them: what counts of classes are calibrated by.
#
# They are the held-out rows, or all rows where none is held out, each by the fits without it.  They lie beside the
# model, as `unseen_rows.parquet`.  Shapes: N rows, K classes, F features of the model.

UNSEEN_ROWS_FILE = "unseen_rows.parquet"
MOST_UNSEEN = 200_000
"""Most rows that are kept: evenly spaced ones, since a row more changes no interval then."""


@dataclass(frozen=True, eq=False)
class UnseenRows:
    """Labelled rows that the judged fits have not seen.

    `probability` (N, K) is moderated, at the class shares of the training, NaN for a row that cannot be classified.
    `target` (N,) is the index of the class, `weight` (N,) how much a row counts.  `X` (N, F) are the features, NaN
    where one is missing.
    """

    probability: Floats
    target: NDArray[np.intp]
    weight: Floats
    X: Floats

    def kept(self, most: int = MOST_UNSEEN) -> UnseenRows:
        """Return at most so many rows, evenly spaced."""
        n = len(self.target)
        if n <= most:
            return self
        rows = np.linspace(0, n - 1, most).round().astype(np.intp)
        return UnseenRows(self.probability[rows], self.target[rows], self.weight[rows], self.X[rows])


def write_unseen_rows(rows: UnseenRows, folder: Path) -> None:
    """Write the rows into a model's folder, whole or not at all."""
    kept = rows.kept()
    table = pa.table(
        {
            "probability": _vectors(kept.probability),
            "target": kept.target,
            "weight": kept.weight,
            "features": _vectors(kept.X),
        }
    )
    with atomic_path(folder / UNSEEN_ROWS_FILE) as temporary:
        pq.write_table(table, temporary)


def _vectors(values: Floats) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def read_unseen_rows(folder: Path, *, classes: int, features: int) -> UnseenRows | None:
    """Return the rows of a model's folder; None where it has none, as models of earlier versions.

    ModelError where the file is not of so many `classes` and `features`.
    """
    path = folder / UNSEEN_ROWS_FILE
    if not path.exists():
        return None
    try:
        table = pq.ParquetFile(path).read()
        probability, X = _matrix(table["probability"]), _matrix(table["features"])
        target, weight = table["target"].to_numpy(), table["weight"].to_numpy()
    except (pa.ArrowException, KeyError, AttributeError, ValueError) as error:
        raise ModelError(
            f"{path}: cannot be read as the table of rows that no fit has seen ({error}); train the model again"
        ) from error
    fits = probability.shape[1] == classes and X.shape[1] == features
    if not fits or (len(target) and not 0 <= target.min() <= target.max() < classes):
        raise ModelError(
            f"{path}: got rows of {probability.shape[1]} classes and {X.shape[1]} features, expected "
            f"{classes} and {features} for this model; train the model again"
        )
    return UnseenRows(probability, target, weight, X)


def _matrix(column: pa.ChunkedArray) -> Floats:
    values = column.combine_chunks()
    return np.asarray(values.flatten().to_numpy(zero_copy_only=False), dtype=np.float64).reshape(
        len(values), values.type.list_size
    )
