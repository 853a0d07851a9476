"""Predictions averaged over draws of the weights: what a sampled posterior says of a row (PRML 4.145 as a mean).

Shapes: N rows, M columns, K classes, C outputs, S draws of the solver's C M weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from blr.arrays import Matrix, Vector
from blr.fitting.problem import Problem
from blr.predictive.mixture import Prediction, require_logit

_NUMBERS = 2**16  # activations a block: what stays in a core's cache


def draw_probabilities(
    problem: Problem, Phi: Matrix, draws: Matrix, shift: Vector | None = None
) -> Iterator[tuple[slice, Matrix]]:
    """Yield blocks of rows: which, and their probabilities (K, n, S).

    `shift` (K,) is added to the activations, which are then to be logits.
    """
    for rows, a in _activations(problem, Phi, draws, shift):
        yield rows, _responses(problem, a)[0]


def averaged(
    problem: Problem, Phi: Matrix, draws: Matrix, shift: Vector | None = None, *, single: bool = False
) -> tuple[Prediction, Matrix]:
    """Return the prediction averaged over draws (S, C M), and the standard error (N, K) if these are independent.

    `single`: with exponentials in single precision, which changes a probability by less than 1e-6.
    """
    N, K, S = len(Phi), problem.n_classes, len(draws)
    probability, error, expected = np.empty((N, K)), np.empty((N, K)), np.empty(N)
    mean = np.empty(N) if problem.binary else np.empty((N, K))
    covariance = np.empty(N) if problem.binary else np.empty((N, K, K))
    for rows, exact in _activations(problem, Phi, draws, shift):
        a: Any = exact.astype(np.float32) if single else exact
        p, entropy = _responses(problem, a)
        probability[rows] = (share := p.mean(axis=2)).T
        square = np.einsum("kns,kns->kn", p, p) / S - share**2
        error[rows] = np.sqrt(np.maximum(square, 0.0) / max(S - 1, 1)).T
        expected[rows] = entropy.mean(axis=1)
        centre = exact.mean(axis=2)
        a = a - centre[:, :, None].astype(a.dtype)
        mean[rows] = centre[0] if problem.binary else centre.T
        if problem.binary:
            covariance[rows] = np.einsum("ns,ns->n", a[0], a[0]) / S
        else:
            covariance[rows] = np.einsum("kns,lns->nkl", a, a) / S
    if K == 2 and not problem.binary:
        # Two classes, however parameterised, are told by their difference, as `predicted` does.
        mean, covariance = mean[:, 1] - mean[:, 0], 4.0 * covariance[:, 1, 1]
    return Prediction(probability, expected, mean, covariance), error


def counts_of_draws(problem: Problem, Phi: Matrix, draws: Matrix, shift: Vector | None = None) -> Matrix:
    """Return the rows' summed probabilities (S, K) with the solver's weights at each of the draws (S, C M)."""
    counts = np.zeros((len(draws), problem.n_classes))
    for _, a in _activations(problem, Phi, draws, shift):
        p, _ = _responses(problem, a)
        counts += np.sum(p, axis=1).T
    return counts


def _activations(
    problem: Problem, Phi: Matrix, draws: Matrix, shift: Vector | None
) -> Iterator[tuple[slice, Matrix]]:
    """Yield blocks of rows and their activations, (1, n, S) or (K, n, S) less their common shift."""
    require_logit(problem.likelihood.name, shift)
    C, S = problem.likelihood.n_outputs, len(draws)
    by_output = np.ascontiguousarray(draws.reshape(S, C, -1).transpose(1, 2, 0))
    T = problem.transform - (0.0 if problem.binary else problem.transform.mean(axis=0))
    size = max(1, _NUMBERS // (S * problem.n_classes))
    for start in range(0, len(Phi), size):
        rows = slice(start, start + size)
        a = Phi[rows] @ by_output
        if problem.binary:
            yield rows, a if shift is None else a + (shift[1] - shift[0])
        else:
            a = (T @ a.reshape(C, -1)).reshape(len(T), *a.shape[1:])
            yield rows, a if shift is None else a + (shift - shift.mean())[:, None, None]


def _responses(problem: Problem, a: Any) -> tuple[Any, Any]:
    """Return probabilities (K, n, S) and their entropies (n, S), nats, of activations (1, n, S) or (K, n, S)."""
    if not problem.binary:
        moved = a - a.max(axis=0)
        p = np.exp(moved)
        total = p.sum(axis=0)
        p /= total
        return p, np.log(total) - np.einsum("kns,kns->ns", p, moved)
    if problem.likelihood.name == "logistic":
        size = np.abs(a[0])
        e = np.exp(-size)
        likely = 1 / (1 + e)
        unlikely = e * likely
        entropy = size * unlikely - np.log(likely)
        return np.where(a[0] > 0, (unlikely, likely), (likely, unlikely)), entropy
    p = problem.response(a[0])
    p = np.stack([1 - p, p])
    with np.errstate(divide="ignore", invalid="ignore"):
        return p, -np.where(p > 0, p * np.log(p), 0.0).sum(axis=0)
