"""Predictions averaged over draws of the weights: what a sampled posterior says of a row (PRML 4.145 as a mean).

Shapes: N rows, M columns, K classes, C outputs, S draws of the solver's C M weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blr.arrays import Matrix, Vector
from blr.mixture import Prediction, require_logit
from blr.problem import Problem

__all__ = ["averaged", "draw_probabilities"]

_NUMBERS = 2**20  # activations a block


def draw_probabilities(
    problem: Problem, Phi: Matrix, draws: Matrix, shift: Vector | None = None
) -> Iterator[tuple[slice, Matrix, Matrix]]:
    """Yield blocks of rows: which, their activations (n, S) or (n, S, K), and probabilities (n, S, K).

    `shift` (K,) is added to the activations, which are then to be logits.
    """
    require_logit(problem.likelihood.name, shift)
    C, S = problem.likelihood.n_outputs, len(draws)
    by_output = np.ascontiguousarray(draws.reshape(S, C, -1).transpose(2, 0, 1).reshape(-1, S * C))
    size = max(1, _NUMBERS // (S * problem.n_classes))
    for start in range(0, len(Phi), size):
        rows = slice(start, start + size)
        a = (Phi[rows] @ by_output).reshape(-1, S, C)
        a = a[:, :, 0] if problem.binary else a @ problem.transform.T
        if shift is not None:
            a = a + (shift[1] - shift[0] if problem.binary else shift)
        if not problem.binary:
            a = a - a.mean(axis=2, keepdims=True)  # the common shift says nothing
        p = problem.response(a if problem.binary else a.reshape(-1, problem.n_classes))
        yield rows, a, np.stack([1 - p, p], axis=2) if problem.binary else p.reshape(a.shape)


def averaged(
    problem: Problem, Phi: Matrix, draws: Matrix, shift: Vector | None = None
) -> tuple[Prediction, Matrix]:
    """Return the prediction averaged over draws (S, C M), and the standard error (N, K) if these are independent."""
    N, K, S = len(Phi), problem.n_classes, len(draws)
    probability, error, expected = np.empty((N, K)), np.empty((N, K)), np.empty(N)
    mean = np.empty(N) if problem.binary else np.empty((N, K))
    covariance = np.empty(N) if problem.binary else np.empty((N, K, K))
    for rows, a, p in draw_probabilities(problem, Phi, draws, shift):
        probability[rows] = p.mean(axis=1)
        error[rows] = p.std(axis=1) / np.sqrt(max(S - 1, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            expected[rows] = -np.where(p > 0, p * np.log(p), 0.0).sum(axis=2).mean(axis=1)
        mean[rows] = a.mean(axis=1)
        d = a - mean[rows][:, None]
        covariance[rows] = np.mean(d**2, axis=1) if problem.binary else np.einsum("nsk,nsl->nkl", d, d) / S
    if K == 2 and not problem.binary:
        # Two classes, however parameterised, are told by their difference, as `predicted` does.
        mean, covariance = mean[:, 1] - mean[:, 0], 4.0 * covariance[:, 1, 1]
    return Prediction(probability, expected, mean, covariance), error
