"""The rows that a model was judged on, each with its loss: what champion and challenger are compared by.

The fits that were judged have not seen these rows, although the final model may be fitted to them as well.  Rows that
two models have in common are therefore new to both.  They are stored in the model's folder, as `judged_rows.parquet`.
Shapes: N rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from blr.selection.skill import Skill, paired_gain
from catalogs.files.atomic import atomic_path

__all__ = [
    "JUDGED_ROWS_FILE",
    "ClassComparison",
    "JudgedRows",
    "compare_classes",
    "compare_losses",
    "read_judged_rows",
    "write_judged_rows",
]

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
