"""Confusion matrices of labels: how often a true class k is recorded as class j, C[k, j] = p(recorded j | true k).

A label that may be wrong is evidence for every class: of a record j the likelihood given the true class k is C[k, j],
so that a row's label becomes the column C[:, j], (K,).  Shapes: N rows, K classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector

__all__ = ["as_confusion", "even_confusion", "label_likelihood", "most_likely_class", "recorded_probability"]

_ROUNDING = 1e-8


def as_confusion(confusion: ArrayLike, n_classes: int) -> Matrix:
    """Return confusion matrices (K, K) or, one a row of data, (N, K, K), checked; a number is a rate for all classes.

    Raises
    ------
    ValueError
        If the shape does not fit, an entry is no probability, a matrix' rows do not sum to one, or a class is recorded
        as itself half of the time or less: labels then do not say which class is which.
    """
    C = np.asarray(confusion, dtype=np.float64)
    if C.ndim == 0:
        C = even_confusion(np.full(n_classes, float(C)))
    K = n_classes
    if C.ndim not in (2, 3) or C.shape[-2:] != (K, K):
        raise ValueError(
            f"confusion has shape {C.shape}, expected ({K}, {K}), with a row for each true class and a "
            "column for each recorded class, or one such matrix for each data row; a single number is the "
            "share of wrong labels in every class"
        )
    if not (np.isfinite(C).all() and (C >= 0).all() and np.allclose(C.sum(axis=-1), 1.0, atol=_ROUNDING)):
        raise ValueError(
            "confusion holds probabilities of the recorded class given the true one, expected numbers of 0 or more "
            f"whose rows sum to 1; got the row sums {np.unique(C.sum(axis=-1).round(6))[:5].tolist()}"
        )
    right = np.einsum("...kk->...k", C)
    if not (right > 0.5).all():
        raise ValueError(
            f"confusion leaves a class with {right.min():.3g} of its labels right, expected more than 0.5 "
            "for each class: with fewer right labels the classes could change places; correct it"
        )
    return C


def even_confusion(rate: ArrayLike) -> Matrix:
    """Return the matrices (..., K, K) of rates of wrong labels (..., K), spread evenly over the other classes."""
    e = np.asarray(rate, dtype=np.float64)
    K = e.shape[-1]
    C = np.repeat((e / (K - 1))[..., None], K, axis=-1)
    diagonal = np.arange(K)
    C[..., diagonal, diagonal] = 1 - e
    return C


def label_likelihood(recorded: Matrix, confusion: Matrix) -> Matrix:
    """Return p(recorded | true class k), (N, K), of one-hot labels (N, K).

    Raises
    ------
    ValueError
        If labels are shares of several classes, or the matrices are not one a row.
    """
    hard = (recorded == 0) | (recorded == 1)
    if not hard.all():
        row = int((~hard).any(axis=1).argmax())
        raise ValueError(
            f"confusion needs one recorded class in each row, got shares of several classes in row {row}; "
            "give labels, or leave confusion out"
        )
    if confusion.ndim == 2:
        return np.ascontiguousarray(recorded @ confusion.T)
    if len(confusion) != len(recorded):
        raise ValueError(
            f"confusion has {len(confusion)} matrices, expected one for each of the {len(recorded)} rows; "
            "give one for each row, or one (K, K) for all"
        )
    return np.asarray(np.einsum("nkj,nj->nk", confusion, recorded))


def recorded_probability(p: Matrix, confusion: Matrix | None) -> Any:
    """Return the probabilities of the recorded classes (N, K) from those of the true ones (N, K)."""
    if confusion is None:
        return p
    return p @ confusion if confusion.ndim == 2 else np.einsum("nk,nkj->nj", p, confusion)


def most_likely_class(t: Matrix) -> Vector:
    """Return the recorded classes, one-hot (N, K), of rows' likelihoods t (N, K): the class that explains them best."""
    return np.asarray(np.eye(t.shape[1])[t.argmax(axis=1)])
