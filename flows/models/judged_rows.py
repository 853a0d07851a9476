"""The rows that a model was judged on, each with its loss: what champion and challenger are compared by.

No fit that was judged has seen these rows, though the model that is kept may be fitted to them.  Rows that two models
have in common are therefore new to both.  They lie beside the model, as `judged_rows.parquet`.  Shapes: N rows.
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
    "JudgedRows",
    "compare_losses",
    "read_judged_rows",
    "write_judged_rows",
]

JUDGED_ROWS_FILE = "judged_rows.parquet"
MOST_ROWS = 1_000_000
"""Most rows that are kept: those whose hashes are smallest, so that two models keep the same."""


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """A hash of each object's identifier (N,), of its group in the split (N,), and its log loss (N,), nats."""

    name: NDArray[np.uint64]
    group: NDArray[np.uint64]
    log_loss: NDArray[np.float64]

    def kept(self, most: int = MOST_ROWS) -> JudgedRows:
        """Return the rows in the order of their hashes, and no more than so many."""
        order = np.argsort(self.name, kind="stable")[:most]
        return JudgedRows(self.name[order], self.group[order], self.log_loss[order])


def write_judged_rows(rows: JudgedRows, folder: Path) -> None:
    """Write the rows into a model's folder, whole or not at all."""
    kept = rows.kept()
    table = pa.table({"name": kept.name, "group": kept.group, "log_loss": kept.log_loss})
    with atomic_path(folder / JUDGED_ROWS_FILE) as temporary:
        pq.write_table(table, temporary)


def read_judged_rows(folder: Path) -> JudgedRows | None:
    """Return the rows of a model's folder; None where it has none, as models of earlier versions."""
    path = folder / JUDGED_ROWS_FILE
    if not path.exists():
        return None
    table = pq.read_table(path)
    return JudgedRows(*(table[column].to_numpy() for column in ("name", "group", "log_loss")))


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
    # Objects that a split keeps together may share an error: the coarser of the two splits counts.
    groups = (challenger.group[in_challenger], champion.group[in_champion])
    return paired_gain(own, theirs, group=min(groups, key=lambda g: len(np.unique(g))))


def _mean_by_name(rows: JudgedRows, name: NDArray[np.uint64]) -> NDArray[np.float64]:
    place = np.searchsorted(name, rows.name)
    known = (place < len(name)) & (name[np.minimum(place, len(name) - 1)] == rows.name)
    total = np.bincount(place[known], rows.log_loss[known], minlength=len(name))
    return np.asarray(total / np.bincount(place[known], minlength=len(name)))
