"""Counts of the labelled rows, over all rows at once or summed over shards.

Shapes: N rows, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from flows.training._rows import TrainingRows

__all__ = ["RowCounts"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowCounts:
    """Numbers of training rows (K,) and held-out rows (K,) by class, and the missing and extreme values of features.

    `training_weight` (K,) sums the weights of the training rows.  `missing` (F,) counts rows without the feature,
    `missing_in_training` (F,) training rows without it.  `low` and `high` (F,) are its smallest and largest value; inf
    and -inf for a feature without values.
    """

    training: NDArray[np.intp]
    held_out: NDArray[np.intp]
    training_weight: Floats
    missing: NDArray[np.intp]
    missing_in_training: NDArray[np.intp]
    low: Floats
    high: Floats

    @classmethod
    def of(cls, rows: TrainingRows, n_classes: int) -> RowCounts:
        """Return the counts of rows in memory."""
        training, target = rows.training, rows.target
        weight = None if rows.weight is None else rows.weight[training]
        return cls(
            np.bincount(target[training], minlength=n_classes),
            np.bincount(target[rows.held_out], minlength=n_classes),
            np.bincount(target[training], weights=weight, minlength=n_classes).astype(np.float64),
            rows.missing.sum(axis=0),
            rows.missing[training].sum(axis=0),
            np.where(rows.missing, np.inf, rows.X).min(axis=0, initial=np.inf),
            np.where(rows.missing, -np.inf, rows.X).max(axis=0, initial=-np.inf),
        )

    @classmethod
    def of_all(cls, shards: Iterable[TrainingRows], n_classes: int) -> RowCounts:
        """Return the counts of the rows of all shards."""
        return reduce(cls._plus, (cls.of(rows, n_classes) for rows in shards))

    def _plus(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.training + other.training,
            self.held_out + other.held_out,
            self.training_weight + other.training_weight,
            self.missing + other.missing,
            self.missing_in_training + other.missing_in_training,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def n_rows(self) -> int:
        """N, the number of all rows."""
        return self.n_training + self.n_held_out

    @property
    def n_training(self) -> int:
        """The number of training rows of all classes."""
        return int(self.training.sum())

    @property
    def n_held_out(self) -> int:
        """The number of held-out rows of all classes."""
        return int(self.held_out.sum())
