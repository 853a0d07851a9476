"""Predictive probabilities of K classes: E[softmax(a)] over Gaussian activations a ~ N(mean, covariance).

A common shift of a row's activations changes nothing, so only the K - 1 contrasts are integrated over.  The raw
diagonal formula softmax(m_k / sqrt(1 + π V_kk / 8)) is not shift invariant and errs by up to 0.7; it is not offered.
Each row takes the cheapest of three ways that is accurate enough for it:

- a series in the covariance (`blr.predictive._softmax_series`), with a bound on its error: most rows of a catalogue;
- K = 3, 4: a product rule on the principal axes of the contrasts, each axis with the nodes that its sd asks for;
- otherwise Sobol points, more the larger the contrasts' sd (`blr.predictive._cubature`).

Principal axes do not depend on the order of the classes.  Shapes: N rows, K classes, S draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Vector, require_finite
from blr.predictive._cubature import (
    REACHES,
    RULES,
    leading_axes,
    principal_axes,
    product_rule,
    sobol_rule,
    sobol_size,
)
from blr.predictive._softmax_series import error_by_class, softmax_series
from blr.predictive.binary import binary_exact, binary_expected_entropy

__all__ = ["softmax_exact", "softmax_fast", "softmax_monte_carlo", "softmax_pairwise", "softmax_plugin"]

_BLOCK = 2**16
_COVARIANCES = 2**22  # numbers in a block
# Error of the series, at the worst: within that of the nodes that would take its place, as found for them.
_SERIES_ERROR = {3: 2e-5, 4: 2e-5}
_SERIES_ERROR_MANY = 6e-4
_MANY = 8  # classes, beyond which some of a row mostly hardly count
_SERIES_ERROR_FEW = 2e-3  # of many classes, where nodes are few
_MOST_LEFT = 2e-4  # of variance beyond the axes that matter, in expected squares of probability
_PAIRWISE_SD = 0.7  # of a contrast: up to here the pairwise formula errs by 0.03 at most
_FAST_NODES = 256
_MOST_PRODUCT_NODES = 10_000  # beyond, Sobol points are as accurate and cheaper


def softmax_plugin(mean: ArrayLike) -> Matrix:
    """Return softmax(mean), (N, K): the probabilities at the mode, as if the weights were certain."""
    return _softmax(_matrix(mean))


def softmax_pairwise(mean: ArrayLike, covariance: ArrayLike) -> Matrix:
    """Return the pairwise probit formula with the full covariance, (N, K): fast, and rough where activations spread.

    Of random covariances, K = 3 to 10, its mean error is 0.002 at a contrast sd of 0.5, 0.008 at 1 and 0.03 from 4 on;
    its worst 0.02, 0.06 and 0.28.
    p_k ∝ 1 / Σ_j exp(-κ_kj (m_k - m_j)), κ_kj = (1 + π Var(a_k - a_j)/8)^(-1/2): for two classes that of
    `binary_probit`.  After Daunizeau (2017), arXiv:1703.00091.
    """
    m, V = _moments(mean, covariance)
    d = np.einsum("nkk->nk", V)
    variance = np.maximum(d[:, :, None] + d[:, None, :] - 2 * V, 0.0)
    logit = (m[:, None, :] - m[:, :, None]) / np.sqrt(1 + np.pi / 8 * variance)
    top = logit.max(axis=2)
    return _softmax(-top - np.log(np.exp(logit - top[:, :, None]).sum(axis=2)))


def softmax_fast(mean: ArrayLike, covariance: ArrayLike) -> Matrix:
    """Return probabilities, (N, K), within 0.035: the pairwise formula where it is that good, nodes elsewhere.

    Rows with a contrast sd above 0.7 are not left to `softmax_pairwise`: of three and four classes they go through
    `softmax_exact`, of more through 256 Sobol points, few enough to stay quick.  Two classes are those of
    `binary_probit`, which is within 0.018 everywhere.
    """
    m, V = _moments(mean, covariance)
    K, p = m.shape[1], softmax_pairwise(m, V)
    d = np.einsum("nkk->nk", V)
    spread = np.sqrt(np.maximum((d[:, :, None] + d[:, None, :] - 2 * V).max(axis=(1, 2)), 0.0))
    wide = np.flatnonzero(spread > _PAIRWISE_SD) if K > 2 else np.empty(0, dtype=np.intp)
    for start in range(0, len(wide), _BLOCK):
        rows = wide[start : start + _BLOCK]
        if K in _SERIES_ERROR:
            p[rows] = softmax_exact(m[rows], V[rows])[0]
        else:
            widest = float(spread[rows].max())
            p[rows] = sobol_rule(m[rows], principal_axes(V[rows]), _FAST_NODES, spread=widest)[0]
    return p


def softmax_exact(
    mean: ArrayLike, covariance: ArrayLike, *, most_nodes: int | None = None
) -> tuple[Matrix, Vector]:
    """Return E[softmax(a)], (N, K), and the expected entropy E[H(softmax(a))], (N,), nats.

    The error, by the largest sd of a contrast a_j - a_k: up to 4, 1e-4 for K = 3, 4 and 1e-3 for more classes; up to
    12, 5e-4 and 5e-3; it goes on growing slowly.  Two classes are those of `binary_exact`.

    Parameters
    ----------
    mean, covariance
        (N, K) and (N, K, K), of the activations; a common shift of all K, certain or not, has no influence.
    most_nodes
        Sobol points a row, at most: a part of a mixture of many need not be so exact.  512 err by some 0.005.
    """
    m, V = _moments(mean, covariance)
    N, K = m.shape
    if K == 2:
        logit = m[:, 1] - m[:, 0]
        variance = np.maximum(V[:, 0, 0] + V[:, 1, 1] - V[:, 0, 1] - V[:, 1, 0], 0.0)
        p = np.stack([binary_exact(-logit, variance), binary_exact(logit, variance)], axis=1)
        return p, binary_expected_entropy(logit, variance)
    probability, expected_entropy = np.empty((N, K)), np.empty(N)
    tolerance = _SERIES_ERROR.get(K, _SERIES_ERROR_MANY)
    if K > _MANY and most_nodes is not None:
        tolerance = _SERIES_ERROR_FEW
    size = max(64, min(_BLOCK, _COVARIANCES // K**2))
    for start in range(0, N, size):
        block = slice(start, start + size)
        series = softmax_series(m[block], V[block])
        probability[block], expected_entropy[block] = series.probability, series.expected_entropy
        hard = np.flatnonzero(series.error > tolerance)
        if K > _MANY and hard.size:
            hard = hard[error_by_class(m[block][hard], V[block][hard]) > tolerance]
        if hard.size:
            rows = start + hard
            probability[rows], expected_entropy[rows] = _integrated(
                m[rows], V[rows], series.spread[hard], most_nodes
            )
    return probability, expected_entropy


def softmax_monte_carlo(activation: ArrayLike) -> tuple[Matrix, Matrix]:
    """Return the mean of the softmax over draws of the activations (S, N, K), and its standard error, (N, K) each."""
    a = np.asarray(activation, dtype=np.float64)
    if a.ndim != 3 or len(a) < 2:
        raise ValueError(
            f"activation has shape {a.shape}; expected (S, N, K) with S at least 2 draws for each row"
        )
    require_finite(a, "activation")
    p = _softmax(a)
    return p.mean(axis=0), p.std(axis=0, ddof=1) / np.sqrt(len(p))


def _integrated(m: Matrix, V: Matrix, spread: Vector, most_nodes: int | None) -> tuple[Matrix, Vector]:
    """Return both expectations by nodes; rows that take the same ones are done together."""
    n, K = m.shape
    if K > _MANY:
        return _integrated_many(m, V, most_nodes)
    axes = principal_axes(V)
    digits, plan = _plan(axes, spread, most_nodes)
    probability, expected_entropy = np.empty((n, K)), np.empty(n)
    for code in np.unique(plan):
        rows = np.flatnonzero(plan == code)
        chosen = np.take(axes, rows, axis=2)
        if code < 0:
            expectations = sobol_rule(m[rows], chosen, -int(code), spread=float(spread[rows].max()))
        else:
            # The most nodes go on the innermost axis.
            expectations = product_rule(m[rows], chosen[::-1], tuple(digits[::-1, rows[0]].tolist()))
        probability[rows], expected_entropy[rows] = expectations
    return probability, expected_entropy


def _integrated_many(m: Matrix, V: Matrix, most_nodes: int | None) -> tuple[Matrix, Vector]:
    """Return both expectations of many classes, by Sobol points along the axes that matter."""
    probability, expected_entropy = np.empty(m.shape), np.empty(len(m))
    size = max(64, _COVARIANCES // (4 * m.shape[1] ** 2))
    for start in range(0, len(m), size):
        block = slice(start, start + size)
        for some in leading_axes(m[block], V[block], _MOST_LEFT):
            nodes = sobol_size(some.spread, len(some.axes))
            nodes = nodes if most_nodes is None else np.minimum(nodes, most_nodes)
            for number in np.unique(nodes):
                i = np.flatnonzero(nodes == number)
                chosen = np.take(some.axes, i, axis=2)
                p, entropy = sobol_rule(some.mean[i], chosen, int(number), spread=float(some.spread[i].max()))
                rows = start + some.rows[i]
                probability[rows] = p
                expected_entropy[rows] = entropy - 0.5 * (p * some.left[i]).sum(axis=1)
    return probability, expected_entropy


def _plan(axes: Matrix, spread: Vector, most_nodes: int | None) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the index into RULES of each axis, (d, n), and a code of what to do with each row, (n,).

    The code of a product rule has its rules as digits; that of Sobol points is minus their number.
    """
    d, K, _ = axes.shape
    size = sobol_size(spread, d)
    sobol = -(size if most_nodes is None else np.minimum(size, most_nodes))
    digits = np.searchsorted(REACHES, axes.max(axis=1) - axes.min(axis=1))
    if K > 4:
        return digits, sobol
    nodes = np.array([count for count, _, _ in RULES] + [_MOST_PRODUCT_NODES + 1])
    place = len(RULES) ** np.arange(d)
    return digits, np.where(nodes[digits].prod(axis=0) <= _MOST_PRODUCT_NODES, place @ digits, sobol)


def _softmax(a: Matrix) -> Matrix:
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    return e


def _matrix(mean: ArrayLike) -> Matrix:
    m = np.asarray(mean, dtype=np.float64)
    if m.ndim != 2 or m.shape[1] < 2:
        raise ValueError(
            f"mean has shape {m.shape}; expected (N, K) with K >= 2, one activation for each class"
        )
    require_finite(m, "mean")
    return m


def _moments(mean: ArrayLike, covariance: ArrayLike) -> tuple[Matrix, Matrix]:
    m, V = _matrix(mean), np.asarray(covariance, dtype=np.float64)
    if V.shape != (*m.shape, m.shape[1]):
        raise ValueError(
            f"covariance has shape {V.shape} for a mean of {m.shape}; expected {(*m.shape, m.shape[1])}"
        )
    require_finite(V, "covariance")
    return m, V
