"""What a suspected column is worth: the log loss of a quick linear fit with it and without it.

A column that tells much of the class may be the best feature there is, or the class in another form.  Both look alike,
so a person should know how much a model loses without it.  Shapes: n rows, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.likelihood.prior import GaussianPrior
from blr.posterior.laplace import fit

__all__ = ["Suspect", "losses_without", "quick_loss"]

Floats = NDArray[np.float64]

FOLDS = 5
MOST_ROWS, MOST_WEIGHTS = 2000, 800
"""Bounds on the work: a look takes seconds."""
MOST_SUSPECTS = 6
PRECISION = 0.3
"""Of the weights of standardised features: weak, and enough for classes that are separable."""
WIDEST = 8.0
"""Standard deviations at which features are clipped, so that one odd value does not decide."""


@dataclass(frozen=True)
class Suspect:
    """Why a column that is kept deserves a look, and the log losses, in nats a row, with it and without it."""

    why: str
    with_it: float | None = None
    without: float | None = None

    @property
    def shown(self) -> str:
        """The reason and the losses in words."""
        if self.with_it is None:
            return self.why
        without = (
            "no feature is left without it" if self.without is None else f"{self.without:.3f} without it"
        )
        return f"{self.why}; a quick linear fit loses {self.with_it:.3f} nats a row with it, {without}"


def losses_without(
    features: Mapping[str, Floats],
    uses: Mapping[str, set[str]],
    labels: NDArray[Any],
    suspects: Mapping[str, str],
) -> dict[str, Suspect]:
    """Return the suspected columns, each with why, and the losses where the work is bounded.

    `features` are values (n,) by name, `uses` the columns that each is made of, `labels` (n,) the classes.
    """
    K = len(set(labels.tolist()))
    bounded = [*suspects][:MOST_SUSPECTS] if (K - 1) * (1 + len(features)) <= MOST_WEIGHTS else []
    whole = quick_loss([*features.values()], labels) if bounded else None
    result = {}
    for name, why in suspects.items():
        if name not in bounded or whole is None:
            result[name] = Suspect(why)
            continue
        left = [values for feature, values in features.items() if name not in uses[feature]]
        result[name] = Suspect(why, whole, quick_loss(left, labels) if left else None)
    return result


def quick_loss(features: list[Floats], labels: NDArray[Any]) -> float | None:
    """Return the cross-validated log loss, in nats a row, of a linear fit of columns (n,); None of too few rows."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(labels))[:MOST_ROWS])
    classes, t, counts = np.unique(labels[rows].astype(str), return_inverse=True, return_counts=True)
    if len(classes) < 2 or counts.min() < 2:
        kept = np.isin(t, np.flatnonzero(counts > 1))
        rows, t = rows[kept], np.unique(t[kept], return_inverse=True)[1]
    K = len(set(t.tolist()))
    if K < 2:
        return None
    Phi = _design(np.stack([x[rows] for x in features], axis=1))
    fold = _folds(t, rng)
    loss = 0.0
    for k in range(FOLDS):
        taught, judged = fold != k, fold == k
        if judged.any():
            loss -= float(
                np.log(
                    _predicted(Phi[taught], t[taught], Phi[judged], K)[np.arange(judged.sum()), t[judged]]
                ).sum()
            )
    return loss / len(t)


def _design(X: Floats) -> Floats:
    """Return the design matrix (n, 1 + F) of standardised features, the mean where nothing was measured."""
    known = np.isfinite(X)
    n = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, X, 0.0).sum(axis=0) / n
    centred = np.where(known, X - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / n)
    Z = np.clip(centred / np.where(spread > 0, spread, 1.0), -WIDEST, WIDEST)
    return np.column_stack([np.ones(len(X)), Z])


def _folds(t: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the fold (n,) of each row, those of each class spread over all."""
    fold = np.empty(len(t), dtype=np.intp)
    for k in range(int(t.max()) + 1):
        here = np.flatnonzero(t == k)
        fold[rng.permutation(here)] = (np.arange(len(here)) + rng.integers(FOLDS)) % FOLDS
    return fold


def _predicted(Phi: Floats, t: NDArray[np.intp], new: Floats, K: int) -> Floats:
    prior = GaussianPrior.isotropic(Phi.shape[1], PRECISION)
    q = fit(Phi, t, prior, "logistic" if K == 2 else "softmax", classes=range(K), tolerance=1e-5, threads=1)
    p = q.plugin(new)
    p = np.column_stack([1 - p, p]) if p.ndim == 1 else p
    return np.clip(np.asarray(p, dtype=np.float64), 1e-9, 1.0)
