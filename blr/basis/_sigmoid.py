"""Sigmoids of single features: soft steps at the quantiles of the training set.

φ(x) = σ((z_f − μ) / s), with σ(a) = 1 / (1 + exp(−a)) (Bishop 2006, PRML, 3.5-3.6), of each standardised feature z_f.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.basis.base import Basis, positive, whole
from blr.basis.standardisation import Standardisation

# Widths from the middle of a feature's steps: of the farthest step that takes its part of one exponential, and at which
# all of them are over.  The product of both exponentials is finite.
_FARTHEST, _OVER = 300.0, 350.0


@dataclass(frozen=True, eq=False)
class Sigmoid(Basis):
    """Step k, of K, rises at `location[k]` over `width[k]` standard deviations of the feature `feature[k]`.

    All three are of shape (K,), and M = 1 + K.
    """

    feature: NDArray[np.int64]
    location: Vector
    width: Vector

    kind = "sigmoid"
    bounded = True

    def __post_init__(self) -> None:
        self._keep("feature", self.feature, np.int64)
        self._keep("location", self.location)
        self._keep("width", self.width)
        alike = self.feature.shape == self.location.shape == self.width.shape
        known = np.all((self.feature >= 0) & (self.feature < self.n_features))
        ordered = np.all(np.diff(self.feature) >= 0)
        if not (
            alike and known and ordered and np.all(np.isfinite(self.location)) and np.all(self.width > 0)
        ):
            raise ValueError(
                f"each sigmoid needs a feature below {self.n_features}, in order, a location and a positive width, "
                f"got {self.feature}, {self.location} and {self.width}; make them with fit_basis('sigmoid', X)"
            )

    @classmethod
    def fit(
        cls,
        X: Matrix,
        *,
        weight: Vector | None = None,
        centres: int = 5,
        width: float | None = None,
    ) -> Sigmoid:
        """Return the basis with up to `centres` steps a feature, at quantiles of X, shape (N, F).

        The default width is the mean distance between a feature's steps.  A feature of few values has fewer
        steps, and a constant one has none.
        """
        count = whole(centres, "centres")
        width = None if width is None else positive(width, "width")
        standardisation = Standardisation.learn(X, weight)
        Z = standardisation(X)
        level = (np.arange(count) + 0.5) / count
        steps = [_steps(z, level) for z in Z.T]
        widths = [np.full(len(s), width or _spacing(s)) for s in steps]
        feature = np.repeat(np.arange(len(steps)), [len(s) for s in steps])
        return cls(standardisation, feature, np.concatenate(steps), np.concatenate(widths))

    @property
    def n_functions(self) -> int:
        """The intercept and one function a step."""
        return 1 + len(self.feature)

    @cached_property
    def _ramps(self) -> tuple[NDArray[np.int64], Vector, Vector, NDArray[np.int64], Vector]:
        """Feature, middle of the locations and width of the R groups of steps that share feature and width, (R,) each.

        Then each step's group, and how many widths it lies above the group's middle, (K,) each.
        """
        pairs, ramp = np.unique(np.stack([self.feature, self.width], axis=1), axis=0, return_inverse=True)
        ramp = ramp.ravel()
        count = np.bincount(ramp, minlength=len(pairs))
        middle = np.bincount(ramp, self.location, minlength=len(pairs)) / np.maximum(count, 1)
        above = (self.location - middle[ramp]) / self.width
        return pairs[:, 0].astype(np.int64), middle, pairs[:, 1], ramp, above

    def _steps(self, Z: Matrix, out: Matrix) -> None:
        feature, middle, width, ramp, above = self._ramps
        if np.abs(above).max(initial=0.0) > _FARTHEST:
            scipy.special.expit((Z[:, self.feature] - self.location) / self.width, out=out)
            return
        # σ((z - μ)/s) = 1 / (1 + e^((μ - m)/s) e^((m - z)/s)): one exponential for all steps of a feature.
        falling = (middle - np.take(Z, feature, axis=1)) / width
        np.clip(falling, -_OVER, _OVER, out=falling)
        compiled.exponentials(falling)
        odds = np.take(falling, ramp, axis=1)
        odds *= np.exp(above)
        odds += 1
        np.divide(1.0, odds, out=out)

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        self._steps(Z, out[:, 1:])

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        steps = np.empty((len(Z), len(self.feature)))
        self._steps(Z, steps)
        step = np.arange(len(self.feature))
        rise = 1 - steps
        out[:, 1 + step, self.feature] = steps * rise / self.width

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        counts = np.bincount(self.feature, minlength=len(features))
        return [f"sigmoid({f}, {k})" for f, n in zip(features, counts, strict=True) for k in range(1, n + 1)]


def _steps(z: Vector, level: Vector) -> Vector:
    return np.unique(np.quantile(z, level)) if np.ptp(z) > 0 else np.empty(0)


def _spacing(steps: Vector) -> float:
    return float(np.ptp(steps)) / (len(steps) - 1) if len(steps) > 1 else 1.0
