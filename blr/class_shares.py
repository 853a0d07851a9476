"""Class shares of a target from probabilities under the training shares, and what activations move by for them.

For targets where p(features | class) is that of the training set.  Where p(class | features) is, see `shift`.
Shapes: N rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, as_vector

_EM_STEPS = 1000


def em_shares(
    odds: Matrix, weight: Vector, start: Vector, tolerance: float = 1e-7
) -> tuple[Vector, int, bool]:
    """Return the shares (K,) that are most probable, by EM from `start`; the steps, and whether they sufficed.

    `odds` (N, K) are the probabilities over the shares that they hold for.  Saerens, Latinne and Decaestecker (2002),
    doi:10.1162/089976602753284446.
    """
    shares, total = start.copy(), weight.sum()
    for n_iter in range(1, _EM_STEPS + 1):
        new = shares * (odds.T @ (weight / (odds @ shares))) / total
        change = np.abs(new - shares).max()
        shares = new
        if change < tolerance:
            return shares, n_iter, True
    return shares, _EM_STEPS, False


def log_prior_shift(prior: ArrayLike, training_prior: ArrayLike) -> Vector:
    """Return ln of new over old class shares (K,), each first brought to sum to one: what activations move by."""
    new, old = as_vector(prior, "prior"), as_vector(training_prior, "training_prior")
    if len(new) != len(old) or min(new.min(), old.min()) <= 0:
        raise ValueError(f"expected a positive share of each of {len(old)} classes, got {new} and {old}")
    return np.asarray(np.log(new / new.sum()) - np.log(old / old.sum()))


@dataclass(frozen=True, eq=False)
class ClassPriors:
    """Class shares of a target (K,), and ln of them over the training shares: the shift of the activations."""

    prior: Vector
    log_shift: Vector
    n_iter: int
    converged: bool


def class_priors(
    probability: ArrayLike, training_prior: ArrayLike, *, tolerance: float = 1e-10
) -> ClassPriors:
    """Return the class shares of a target from its objects' probabilities under a model of the training shares.

    EM of Saerens, Latinne and Decaestecker (2002), doi:10.1162/089976602753284446.  `probability` is (N, K), rows with
    NaN left out; `training_prior` (K,).

    Raises
    ------
    ValueError
        If `p` is not (N, K), or the training shares are not K positive numbers.

    Examples
    --------
    >>> p = [[0.9, 0.1]] * 70 + [[0.1, 0.9]] * 30
    >>> shares = blr.class_priors(p, training_prior=[0.5, 0.5])
    >>> shares.prior.round(2).tolist()
    [0.75, 0.25]
    """
    p = np.asarray(probability, dtype=np.float64)
    if p.ndim != 2:
        raise ValueError(f"probability has shape {p.shape}, expected (N, K), one column for each class")
    p = p[~np.isnan(p).any(axis=1)]
    old = as_vector(training_prior, "training_prior")
    if p.ndim != 2 or p.shape[1] != len(old) or len(p) == 0 or old.min() <= 0:
        raise ValueError(
            f"expected probabilities (N, {len(old)}) of some rows and a positive share of each class, got "
            f"{p.shape[0]} usable rows of shape {np.shape(probability)} and shares {old}"
        )
    old = old / old.sum()
    prior, n_iter, converged = em_shares(p / old, np.ones(len(p)), old, tolerance)
    floor = 0.5 / len(p)  # a share of half an object: no class is excluded for ever
    return ClassPriors(prior, log_prior_shift(np.maximum(prior, floor), old), n_iter, converged)
