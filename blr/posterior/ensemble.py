"""Predictions averaged over draws of the weights: what a sampled posterior says of a row (PRML 4.145 as a mean).

Shapes: N rows, M columns, K classes, C outputs, S draws of the solver's C M weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.covariances import output_covariances
from blr.fitting.problem import Problem
from blr.predictive.mixture import Prediction, require_logit

_LANES = 8  # draws come in whole vectors
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


@dataclass(frozen=True, eq=False)
class PairedDraws:
    """Draws of weights, of which each node of an integral over features takes others.

    `twice` (C, 2 S, M) are draws about their mean, by output, in a random order, the same again behind them; `root` U
    (C M, C M), lower triangular, has their covariance U'U.
    """

    twice: NDArray[np.float32]
    root: NDArray[np.float32]

    @classmethod
    def of(cls, draws: Matrix, n_outputs: int) -> PairedDraws:
        """Return the draws (S, C M) in the order in which nodes take them; some twice, so that S is a multiple of 8."""
        S, D = draws.shape
        away = draws - draws.mean(axis=0)
        R = np.linalg.qr(away[:, ::-1], mode="r") / np.sqrt(S)
        U = np.concatenate([R, np.zeros((D - len(R), D))])[::-1, ::-1]
        # Those of a chain are neighbours: each node takes some of all chains.
        order = np.random.default_rng(7).permutation(S)
        whole = away[np.resize(order, -(-S // _LANES) * _LANES)].reshape(-1, n_outputs, D // n_outputs)
        by_output = np.ascontiguousarray(whole.transpose(1, 0, 2), np.float32)
        return cls(np.concatenate([by_output, by_output], axis=1), np.ascontiguousarray(U, np.float32))

    @property
    def n_draws(self) -> int:
        """S, a multiple of 8."""
        return self.twice.shape[1] // 2

    def covariances(self, Phi: Matrix) -> NDArray[np.float64]:
        """Return the outputs' covariances (N, C, C) over all draws, of rows Phi (N, M)."""
        return output_covariances(Phi.astype(np.float32), self.root, len(self.twice))

    def activations(self, Phi: NDArray[np.float64], n: int) -> NDArray[np.float32]:
        """Return the outputs (T, N, C, J) about their mean, of about n draws at each node of Phi (T, N, M)."""
        C, S = len(self.twice), self.n_draws
        J = min(S, max(2 * _LANES, -(-n // _LANES) * _LANES))
        out = np.empty((*Phi.shape[:2], C, J), np.float32)
        for t, (at_node, of_node) in enumerate(zip(Phi.astype(np.float32), out, strict=True)):
            start = t * J % S
            W = self.twice[:, start : start + J].transpose(0, 2, 1)
            np.matmul(at_node, W, out=of_node.transpose(1, 0, 2))
        return out


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
