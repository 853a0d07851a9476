"""The data that every candidate is fitted to: rows in memory or, where they are too many, also on the disk.

Shapes: N rows, F features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.missing.moments import FeatureMoments
from flows.training._rows import TrainingRows
from flows.training._stored_rows import StoredRows

__all__ = ["CandidateData"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CandidateData:
    """The rows that candidates are fitted to and judged on, and their features (N, F) with missing values filled.

    A missing value is `filled` by its conditional mean under the `moments`, None where they were not kept.  Where all
    rows are `stored` on the disk, `rows` are a sample of them, and fits use all stored rows.  Fits use held-out rows
    only if `held_out_too`.
    """

    rows: TrainingRows
    filled: Floats
    classes: tuple[str, ...]
    stored: StoredRows | None = None
    held_out_too: bool = False
    moments: FeatureMoments | None = None

    @property
    def n_rows(self) -> int:
        """N, the number of all rows."""
        return len(self.rows.target) if self.stored is None else self.stored.n_rows

    def held_out(self) -> Iterator[TrainingRows]:
        """Yield all held-out rows, a shard at a time where they are stored."""
        every = [self.rows] if self.stored is None else self.stored.each()
        return (replace(rows, confusion=self.rows.confusion) for rows in every if rows.held_out.any())

    @property
    def class_share(self) -> Floats:
        """Return the weighted share of each class (K,) in the rows that fits see."""
        every = [self.rows] if self.stored is None else self.stored.each(held_out_too=self.held_out_too)
        counts = sum(self._weight_of_classes(rows) for rows in every)
        return np.asarray(counts / np.sum(counts))

    def _weight_of_classes(self, rows: TrainingRows) -> NDArray[Any]:
        seen = np.ones(len(rows.target), bool) if self.held_out_too else rows.training
        weight = None if rows.weight is None else rows.weight[seen]
        return np.bincount(rows.target[seen], weights=weight, minlength=len(self.classes))
