"""The labelled rows beside a model, in one table of Parquet, and what is read of them.

A column is an array (N,) or (N, width).  `judged` marks the rows that judge the model, by fits that have not seen them;
`fitted` marks those that the model is fitted to.  Readers take the columns that they need.
Shapes: N rows of the file, n of those that are read, K classes, F features of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import TypedDict

from blr.arrays import Array, Floats, Mask, Places
from blr.calibration import Skill, paired_gain
from blr.census.shares import LabelledRows
from catalogs.files import atomic_path
from catalogs.profile.split import name_keys
from flows.errors import ModelError, lacks_memory
from flows.models.store import SkillSummary

Hashes = NDArray[np.uint64]

ROWS_FILE = "labelled_rows.parquet"


def write_rows(columns: Mapping[str, Array | None], folder: Path) -> None:
    """Write the columns that there are into a model's folder, whole or not at all."""
    table = pa.table({name: _stored(column) for name, column in columns.items() if column is not None})
    with atomic_path(folder / ROWS_FILE) as temporary:
        pq.write_table(table, temporary)


def _read(
    folder: Path | None, *names: str, of: str = "", classes: int | None = None, features: int | None = None
) -> dict[str, Array] | None:
    """Return columns of the rows that the column `of` marks; None where the first one, or the file, is not there."""
    path = (folder or Path()) / ROWS_FILE
    if folder is None or not path.exists():
        return None
    try:
        table = pq.ParquetFile(path)
        if names[0] not in table.schema_arrow.names:
            return None
        read = table.read([*names, *([of] if of else [])])
        columns = {name: _loaded(read[name]) for name in read.column_names}
        found = {name: columns[name][columns[of]] if of else columns[name] for name in names}
    except (pa.ArrowException, OSError, KeyError, AttributeError, ValueError) as error:
        if lacks_memory(error):
            raise
        raise ModelError(
            f"{path}: cannot be read as the table of labelled rows ({error}); train the model again"
        ) from error
    of_model = features is None or columns["X"].shape[1] == features
    if classes is not None and "probability" in columns:
        of_model &= columns["probability"].shape[1] == classes
    elif classes is not None:
        target = columns["target"]
        of_model &= bool(0 <= target.min(initial=0) <= target.max(initial=0) < classes)
    if not of_model:
        raise ModelError(
            f"{path}: got labelled rows of another model, expected {classes} classes and {features} features; "
            "train the model again"
        )
    return found


def _stored(column: Array) -> Any:
    if column.dtype.kind == "S":
        return [text.decode(errors="replace") for text in column.tolist()]
    if column.ndim > 1:
        return pa.FixedSizeListArray.from_arrays(pa.array(column.ravel()), column.shape[1])
    return column


def _loaded(column: pa.ChunkedArray) -> Array:
    if pa.types.is_string(column.type):
        return np.array([text.encode() for text in column.to_pylist()], dtype=np.bytes_)
    if pa.types.is_fixed_size_list(column.type):
        values = column.combine_chunks()
        flat = values.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat, dtype=np.float64).reshape(len(values), values.type.list_size)
    loaded: Array = column.to_numpy()
    return loaded


def _as_rows(**columns: Array) -> Array:
    """Return columns (n,) or (n, width) as one array of rows (n,)."""
    kind = [(name, column.dtype, column.shape[1:]) for name, column in columns.items()]
    rows = np.zeros(len(next(iter(columns.values()))), kind)
    for name, column in columns.items():
        rows[name] = column
    return rows


def judged_rows(folder: Path) -> Array | None:
    """Return the rows (n,) that a model was judged on, each with its loss: champion and challenger are compared by it.

    "name" is a hash of an object's identifier, "group" of its group in the split, "log_loss" is in nats.  "label" and
    "assigned" are indices of classes: that of the object's label, and the one that the model gives it.  The fits that
    were judged have not seen these rows, although the final model may be fitted to them as well.  Rows that two models
    have in common are therefore new to both.  None where the folder has no rows, or objects without names.
    """
    found = _read(folder, "name", "group", "log_loss", "target", "assigned", of="judged")
    return None if found is None else _as_rows(label=found.pop("target"), **found)


def compare_losses(challenger: Array, champion: Array) -> Skill | None:
    """Return by how much the challenger's log loss is smaller on the objects that both were judged on.

    An object of several rows counts once, by the mean of their losses.  None where no object is in both.
    """
    # The places are those of the first row of each.
    name, ours, theirs = np.intersect1d(challenger["name"], champion["name"], return_indices=True)
    if not len(name):
        return None

    def mean_loss(rows: Array) -> Floats:
        place = np.searchsorted(name, rows["name"])
        known = (place < len(name)) & (name[np.minimum(place, len(name) - 1)] == rows["name"])
        total = np.bincount(place[known], rows["log_loss"][known], minlength=len(name))
        return np.asarray(total / np.bincount(place[known], minlength=len(name)))

    losses = (mean_loss(rows) for rows in (challenger, champion))
    # Objects that a split keeps together may have correlated errors: the groups of the coarser split are used.
    groups = (challenger["group"][ours], champion["group"][theirs])
    return paired_gain(*losses, group=min(groups, key=lambda g: len(np.unique(g))))


class ClassChange(TypedDict):
    """A class on the objects that neither model has seen, and how much the challenger gains on them in log loss.

    Completeness is the share of these objects that a model gives the class; purity is the share of correct ones among
    the objects that it gives the class, None if it gives the class to no object.
    """

    name: str
    gain: SkillSummary
    completeness: float
    champion_completeness: float
    purity: float | None
    champion_purity: float | None


def compare_classes(challenger: Array, champion: Array, names: Sequence[str]) -> tuple[ClassChange, ...]:
    """Return how two models of the same classes do on the objects that both have, class by class.

    A class without such objects is left out.  If an object has several rows, the first one counts.
    """
    _, ours, theirs = np.intersect1d(challenger["name"], champion["name"], return_indices=True)
    new, old = challenger[ours], champion[theirs]
    changes = []
    for k in np.unique(new["label"]).tolist():
        here = new["label"] == k
        given = [rows["assigned"] == k for rows in (new, old)]
        right = [int((some & here).sum()) for some in given]
        purity = [r / int(some.sum()) if some.any() else None for r, some in zip(right, given, strict=True)]
        losses = (rows["log_loss"][here] for rows in (new, old))
        change = ClassChange(
            name=names[k],
            gain=SkillSummary.of(paired_gain(*losses, group=new["group"][here])),
            completeness=right[0] / int(here.sum()),
            champion_completeness=right[1] / int(here.sum()),
            purity=purity[0],
            champion_purity=purity[1],
        )
        changes.append(change)
    return tuple(changes)


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """Objects whose class a label says, so that a census counts the same objects of a target as they are labelled.

    A row of a target is such an object if it has the identifier and, in single precision, all features of it: numbers
    that name other objects in another catalogue match nothing.  `key` (N,) are hashes of identifier and features in
    order, each once; `features` (N,) hashes of the features alone, `target` (N,) the index of the class.
    """

    key: Hashes
    features: Hashes
    target: Places

    @classmethod
    def read(cls, folder: Path | None, *, classes: int) -> Self | None:
        """Return the labels of a model's folder; None where it has none."""
        found = _read(folder, "key", "features", "target", classes=classes)
        return None if found is None else cls.of(**found)

    @classmethod
    def of(cls, key: Hashes, features: Hashes, target: Places) -> Self:
        """Return the labels of rows with the hashes of `row_keys`; an object with two classes is left out."""
        named = np.flatnonzero(key)
        named = named[np.lexsort((target[named], key[named]))]
        key, features, target = key[named], features[named], target[named]
        start = np.flatnonzero(np.r_[True, key[1:] != key[:-1]][: len(key)])
        end = np.r_[start[1:], len(key)][: len(start)] - 1
        one = target[start] == target[end]  # sorted by class within an object
        return cls(key[start[one]], features[start[one]], target[start[one]])

    @cached_property
    def _some_object_has(self) -> Mask:
        """Whether the hash of an object's features ends like this: one look in a small table tells most rows."""
        found = np.zeros(int(_ENDS) + 1, dtype=np.bool_)
        found[self.features & _ENDS] = True
        return found

    def classes(self, X: Floats, identifiers: Callable[[Places], Array]) -> Places:
        """Return the class (n,) of rows with features X (n, F), -1 where it is not known.

        `identifiers` returns those of some rows by number, as numbers or texts: it is asked only for rows with the
        features of an object.
        """
        found = np.full(len(X), -1, dtype=np.intp)
        if not len(self.key) or not len(X):
            return found
        features = _of_features(X)
        rows = np.flatnonzero(self._some_object_has[features & _ENDS])  # of all others, next to none
        if len(rows):
            key = _keys(identifiers(rows), features[rows])
            place = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
            found[rows] = np.where(self.key[place] == key, self.target[place], -1)
        return found


def row_keys(identifiers: Array, X: Floats) -> tuple[Hashes, Hashes]:
    """Return the hashes of identifier and features, and of the features alone, (N,) each.

    `identifiers` (N,) are "" for objects without one, whose first hash is 0; X (N, F) is NaN where one is missing.
    """
    features, named = _of_features(X), np.flatnonzero(identifiers != "")
    key = np.zeros(len(X), dtype=np.uint64)
    key[named] = _keys(identifiers[named], features[named])
    return key, features


_ENDS = np.uint64(2**20 - 1)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


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


def labelled_objects(folder: Path | None, *, classes: int, features: int) -> Array:
    """Return the labelled objects (n,) that a model was fitted to: what people are shown as like another object.

    "identifier" is UTF-8, empty where objects have none.  "position" (2,) is right ascension and declination in
    degrees, NaN where it is not known.  "target" is the index of the class, "X" (F,) the features, NaN where one is
    missing.  There are no objects where the model's folder has lost them.
    """
    nothing = {"identifier": np.empty(0, np.bytes_), "position": np.empty((0, 2))}
    nothing |= {"target": np.empty(0, np.intp), "X": np.empty((0, features))}
    found = _read(folder, *nothing, of="fitted", classes=classes, features=features)
    return _as_rows(**(nothing if found is None else found))


def read_labelled_identifiers(folder: Path) -> list[str] | None:
    """Return the identifiers of a model's labelled objects, '' where they have none; None without the file."""
    try:
        found = _read(folder, "identifier", of="fitted")
    except ModelError:
        return None
    return None if found is None else [name.decode() for name in found["identifier"].tolist()]


def unseen_rows(folder: Path | None, *, classes: int, features: int) -> LabelledRows | None:
    """Return the labelled rows that judge a model of a folder, whose probabilities calibrate class counts.

    The probabilities are moderated, of fits that have not seen the rows, at the class shares of the training.  Rows
    without probabilities or weight are left out.  None if there is no folder, or no such file in it, as with votes for
    labels.
    """
    names = ("probability", "target", "weight", "X")
    found = _read(folder, *names, of="judged", classes=classes, features=features)
    if found is None:
        return None
    known = np.isfinite(found["probability"]).all(axis=1) & (found["weight"] > 0)
    return LabelledRows(*(column[known] for column in found.values()))
