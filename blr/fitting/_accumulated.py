"""Data that add themselves up: whatever has `n_functions` and `accumulate`, wherever the rows are.

Targets in the chunks are fractions already: (n,) shares of the second class, or (n, K) shares of the classes.
Shapes: M columns, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector
from blr.likelihood.confusion import as_confusion, label_likelihood
from blr.sums import ChunkFunction, Data, Terms

__all__ = ["Accumulated", "sample_of", "totals"]


@dataclass(frozen=True, eq=False)
class Accumulated:
    """What a problem takes over from data: themselves, the classes, the rows that they are worth, and of which kind."""

    data: Data
    classes: tuple[Any, ...]
    n_effective: float
    mislabelled: bool


@dataclass(frozen=True, eq=False)
class _Confused:
    """Data whose targets become likelihoods of what was recorded (n, K), under a confusion (K, K)."""

    data: Data
    confusion: Matrix

    @property
    def n_functions(self) -> int:
        return self.data.n_functions

    @property
    def sample(self) -> Data | None:
        rows = sample_of(self.data)
        return None if rows is None else _Confused(rows, self.confusion)

    def likelihoods(self, t: Matrix) -> Matrix:
        hard = np.stack([1 - t, t], axis=1) if t.ndim == 1 else t
        return label_likelihood(hard, self.confusion)

    def accumulate(self, function: ChunkFunction) -> Terms:
        return self.data.accumulate(lambda Phi, t, weight: function(Phi, self.likelihoods(t), weight))


def sample_of(data: Data) -> Data | None:
    """Return rows in memory that stand for all of the data, weights made up; None where data name none."""
    sample: Data | None = getattr(data, "sample", None)
    return sample


def totals(
    data: Any, *, binary: bool, classes: Sequence[Any] | None, confusion: ArrayLike | None
) -> Accumulated:
    """Return what a problem takes over from data that have `accumulate`, checked in one pass over them.

    There is no such pass where data have `n_effective`, the sum of their weights: they are known then.  Where data say
    that they are `mislabelled`, their targets are likelihoods of what was recorded (n, K) already.

    Raises
    ------
    ValueError
        If the targets of some chunk are no fractions, or do not fit the classes; if there is a confusion for data whose
        targets are likelihoods already.
    """
    names = (0, 1) if classes is None and binary else tuple(classes or ())
    known = getattr(data, "n_effective", None)
    if known is None or not names:
        known, shares, wrong = data.accumulate(_shares)
        if wrong:
            raise ValueError(
                f"got {int(wrong)} rows with wrong columns, targets or weights; expected finite columns, "
                "targets between 0 and 1 of shape (n,) or (n, K), and weights of 0 or more: correct those "
                "rows or leave them out"
            )
        K = 2 if np.ndim(shares) == 0 else len(shares)
        names = names or tuple(range(K))
        if len(names) != K or (binary and K > 2):
            raise ValueError(
                f"got targets of {K} classes, expected {len(names)}: {list(names)}; name each class once in "
                "classes=, and use 'softmax' for more than two"
            )
    mislabelled = bool(getattr(data, "mislabelled", False))
    if confusion is None:
        return Accumulated(data, names, float(known), mislabelled)
    if mislabelled:
        raise ValueError(
            "got a confusion matrix beside data that say they are mislabelled, whose targets are likelihoods of what "
            "was recorded already; leave confusion out"
        )
    matrix = as_confusion(confusion, len(names))
    if matrix.ndim > 2:
        raise ValueError(
            "a stream needs one confusion matrix for all rows, got one for each row; give shape (K, K)"
        )
    if (np.diag(matrix) == 1).all():
        return Accumulated(data, names, float(known), mislabelled=False)
    return Accumulated(_Confused(data, matrix), names, float(known), mislabelled=True)


def _shares(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
    """Return the weight of the rows, that of each class, and how many rows are not as they should be."""
    w = np.ones(len(Phi)) if weight is None else weight
    good = np.isfinite(Phi).all(axis=1) & (w >= 0) & np.isfinite(w)
    good &= ((t >= 0) & (t <= 1)).reshape(len(Phi), -1).all(axis=1)
    return float(w.sum()), w @ t, int((~good).sum())
