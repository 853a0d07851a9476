"""What a census is made of: labelled rows that the model has not seen, and rows of the target.

Shapes: n labelled rows, N target rows, K classes, F features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.census._scaling import Scaling


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of known class with probabilities (n, K) of fits that have not seen them.

    `y` (n,) is the place of the class, `weight` (n,) how much a row counts, `X` (n, F) the features, NaN where one is
    missing.

    Raises
    ------
    ValueError
        If the arrays do not fit each other, or probabilities are not finite.
    """

    probability: Matrix
    y: NDArray[np.intp]
    weight: Vector
    X: Matrix

    def __post_init__(self) -> None:
        """Check the shapes."""
        n, K = _checked(self.probability, self.weight, self.X)
        if self.y.shape != (n,) or (n and not 0 <= self.y.min() <= self.y.max() < K):
            raise ValueError(
                f"got classes of shape {self.y.shape}, expected ({n},) with values from 0 to {K - 1}"
            )

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return self.probability.shape[1]

    @property
    def class_weight(self) -> Vector:
        """The weight of the rows of each class (K,)."""
        return np.asarray(np.bincount(self.y, self.weight, minlength=self.n_classes), dtype=np.float64)

    @property
    def class_rows(self) -> Vector:
        """How many rows of equal weight the rows of each class (K,) are worth: (Σw)²/Σw²; 0 without any."""
        squares = np.bincount(self.y, self.weight**2, minlength=self.n_classes)
        return self.class_weight**2 / np.maximum(squares, np.finfo(float).tiny)

    @property
    def shares(self) -> Vector:
        """The share of each class (K,) among the labelled rows."""
        return self.class_weight / self.class_weight.sum()

    @cached_property
    def scaling(self) -> Scaling:
        """The calibration that these rows ask for."""
        return Scaling.learn(self.probability, self.y, self.weight)

    @cached_property
    def calibrated(self) -> Matrix:
        """The calibrated probabilities (n, K)."""
        return self.scaling(self.probability)

    def class_weights(self, k: int, model_rows: float) -> tuple[Vector, float]:
        """Return weights (n,) of a mean over class `k`, and how many rows that mean is worth.

        The mean is that of the class's n rows and of m = `model_rows` more, which are all labelled rows by their
        calibrated probability of it: its best estimate if the model's expectation errs with variance V / m, V that of
        one row (Efron and Morris 1975, doi:10.1080/01621459.1975.10479864).  With weights u of all rows its variance is
        V (Σ u² + (m / (n + m))² / m): the model adds little where classes are well separated, for it then knows no rows
        but the class's own.
        """
        rows = float(self.class_rows[k])
        own = np.where(self.y == k, self.weight, 0.0)
        soft = self.weight * self.calibrated[:, k]
        weight = own * (rows / max(own.sum(), 1e-300)) + soft * (model_rows / max(soft.sum(), 1e-300))
        weight = weight / weight.sum()
        model = model_rows / (rows + model_rows)
        return weight, float(1 / (weight @ weight + model**2 / model_rows))


@dataclass(frozen=True, eq=False)
class TargetRows:
    """A sample of a target's `n_objects` classified objects: probabilities (N, K) at the training's class shares.

    `weight` (N,) is how many objects a row stands for, `X` (N, F) its features, NaN where one is missing.

    Raises
    ------
    ValueError
        If the arrays do not fit each other, or probabilities are not finite.
    """

    probability: Matrix
    weight: Vector
    X: Matrix
    n_objects: int

    def __post_init__(self) -> None:
        """Check the shapes."""
        _checked(self.probability, self.weight, self.X)

    @property
    def n_effective(self) -> float:
        """How many rows of equal weight the sample is worth."""
        return float(self.weight.sum() ** 2 / (self.weight**2).sum())

    def mean(self, values: Matrix) -> Vector:
        """Return the mean over objects of values (N, M)."""
        return np.asarray(self.weight @ values / self.weight.sum())


def _checked(probability: Matrix, weight: Vector, X: Matrix) -> tuple[int, int]:
    if probability.ndim != 2 or probability.shape[1] < 2 or not np.isfinite(probability).all():
        raise ValueError(
            f"got probabilities of shape {probability.shape}, expected finite numbers for two classes or "
            "more; leave out rows without probabilities"
        )
    n, K = probability.shape
    if weight.shape != (n,) or len(X) != n or (n and not (weight.min() >= 0 and weight.sum() > 0)):
        raise ValueError(
            f"got weights of shape {weight.shape} and features of shape {X.shape}, expected {n} rows in "
            "each, and weights of 0 or more that are not all zero"
        )
    return n, K
