"""The expected softmax of Gaussian activations: by a series, by cubature, and over nodes of missing values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from blr import compiled
from blr.arrays import Matrix, Vector, require_finite, slices
from blr.missing.patterns import normal_nodes
from blr.predictive._cubature import (
    REACHES,
    RULES,
    leading_axes,
    principal_axes,
    product_rule,
    sobol_rule,
    sobol_size,
)
from blr.predictive._cubature import normal_nodes as sobol_nodes
from blr.predictive.binary import binary_exact, binary_expected_entropy, binary_integrals

# Softmax of an activation known nearly exactly: the heat expansion to fourth order in its sd.
#
# For a ~ N(m, V) and L = 1/2 Σ V_jk ∂_j ∂_k, E[f(a)] = e^L f(m) = f + L f + L² f/2 + R.  R is at most sup |L³ f| / 6:
# on the way from variance 0 to V, d³E/dt³ = E[L³ f].  With the half variances D_jk = Var(a_j - a_k)/2, p = softmax(m),
#
#     e = D p,  ē = p'e,  W = D (p e),  A = (D∘D) p,  E[p_k] ≈ p_k exp(e + e²/2 - 2 e ē + 2 W - A/2)_k / normaliser,
#
# which agrees to second order in D, adds up to one, is shift invariant, and is exact for classes far behind the first.
# So is the mutual information, P'D P / 2 - 3/4 (p'A + ē² - 2 (p e)'e), with the expected P.
#
# `expanded_derivatives` takes products p_k p_l and Σ e^a for log-normal, with the covariances C_kl = (e_k - p)'V(e_l -
# p) of ln p_k and ln p_l, which is exact to second order, too, and for classes far behind. Shapes: n rows, K classes.

# R is at most _WORST s⁶, s the largest contrast sd, and _TAIL u² s⁶ where the expected probability of all but the
# first class is at most u; the entropy errs by at most four times that.  Found by maximisation over means and
# covariances, two classes being the worst case (tests/blr/predictive/test_softmax_series.py).
_WORST, _TAIL = 0.0095, 2.0
_WIDEST = 2.0  # contrast sd beyond which nothing is promised
_BLOCK_ELEMENTS = 2**15
_MOST_EXPONENT = 30.0


def softmax_series(mean: Matrix, covariance: Matrix) -> tuple[Matrix, Vector, Vector, Vector]:
    """Return the expected softmax at mean (n, K) and covariance (n, K, K) by the expansion, and how far off it may be.

    The probabilities are (n, K), the expected entropy is (n,), in nats.  Then come a bound (n,) on the probabilities'
    error and a quarter of the entropy's, infinite where nothing is promised, and the largest sd (n,) of a contrast
    a_j - a_k.  It takes about 20 ns a row and class.
    """
    n, K = mean.shape
    if compiled.loops is not None and K <= compiled.MOST_OUTPUTS:
        m, V = np.ascontiguousarray(mean), np.ascontiguousarray(covariance)
        p, h, others, spread = np.empty((n, K)), np.empty(n), np.empty(n), np.empty(n)
        compiled.loops.softmax_series(m, V, p, h, others, spread)
        return p, h, _error(others, spread), spread
    probability, entropy, error, spread = np.empty((n, K)), np.empty(n), np.empty(n), np.empty(n)
    rows = max(64, _BLOCK_ELEMENTS // K**2)
    for block in slices(n, rows):
        by_class, entropy[block], error[block], spread[block] = _expand(mean[block], covariance[block])
        probability[block] = by_class.T
    return probability, entropy, error, spread


def error_by_class(mean: Matrix, covariance: Matrix) -> Vector:
    """Return another bound on the error of the series, (n,), in which classes that hardly count hardly matter.

    It is what two classes err by at most, of each class and the most probable one, added up.
    """
    p, log_p, _ = _probabilities(mean)
    Vp = np.matmul(covariance, p[:, :, None])[:, :, 0]
    q = np.einsum("nkk->nk", covariance) - 2 * Vp + (p * Vp).sum(axis=1, keepdims=True)
    return _error_by_class(p, np.exp(np.minimum(log_p + 0.5 * q, 0.0)), covariance)


def _probabilities(mean: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return the softmax of mean (n, K), its logarithm, and the log normaliser (n, 1)."""
    top = mean.max(axis=1, keepdims=True)
    log_total = top + np.log(np.exp(mean - top).sum(axis=1, keepdims=True))
    log_p = mean - log_total
    return np.exp(log_p), log_p, log_total


def expanded_derivatives(mean: Matrix, covariance: Matrix) -> tuple[Vector, Matrix, Matrix, Vector]:
    """Return E ln Σ e^a (n,), P = E p (n, K), E[diag p - p pᵀ] (n, K, K), and about how far off P may be, (n,).

    The last is that of `Series` by pairs: each class's with the most probable one, added up.  Where it was 1e-3 the
    worst error of P and of ln Σ e^a was no more, of the curvature 5e-3; where it was 1e-4, a tenth and a fifth of that.
    """
    n, K = mean.shape
    log_sum, P, R, error = np.empty(n), np.empty((n, K)), np.empty((n, K, K)), np.empty(n)
    rows = max(16, 2 * _BLOCK_ELEMENTS // K**2)
    for block in slices(n, rows):
        log_sum[block], P[block], R[block], error[block] = _expand_derivatives(mean[block], covariance[block])
    return log_sum, P, R, error


def _expand_derivatives(mean: Matrix, V: Matrix) -> tuple[Vector, Matrix, Matrix, Vector]:
    p, log_p, log_total = _probabilities(mean)
    Vp = np.matmul(V, p[:, :, None])[:, :, 0]
    C = V - Vp[:, :, None]
    C -= (Vp - (p * Vp).sum(axis=1, keepdims=True))[:, None, :]
    q = np.maximum(np.einsum("nkk->nk", C), 0.0)
    # In C, whose products with p are zero, D_kl is (q_k + q_l)/2 - C_kl.
    q_bar, q2_bar = (p * q).sum(axis=1, keepdims=True), (p * q * q).sum(axis=1, keepdims=True)
    e = 0.5 * (q + q_bar)
    pe = p * e
    e_bar = pe.sum(axis=1, keepdims=True)
    along = np.matmul(C, np.stack([p * q, pe], axis=2))
    A = 0.25 * (q * q + 2 * q * q_bar + q2_bar) - along[:, :, 0] + np.matmul(C * C, p[:, :, None])[:, :, 0]
    W = 0.5 * (q * e_bar + (q * pe).sum(axis=1, keepdims=True)) - along[:, :, 1]
    exponent = e * (1 + 0.5 * e - 2 * e_bar) + 2 * W - 0.5 * A
    P = p * np.exp(np.clip(exponent, -_MOST_EXPONENT, _MOST_EXPONENT))
    P /= P.sum(axis=1, keepdims=True)
    CP = np.matmul(C, P[:, :, None])[:, :, 0]
    S = np.exp(np.minimum(log_p + 0.5 * q, _MOST_EXPONENT))  # at least P: ln Σ e^a is p'a + H(p) or more
    error = _error_by_class(p, np.minimum(S, 1.0), C)
    products = np.clip(C, -_MOST_EXPONENT, _WIDEST**2, out=C)  # beyond, P is negligible, or the error is not
    compiled.exponentials(products.reshape(len(products), -1))

    S_bar = S.sum(axis=1, keepdims=True)
    S /= S_bar
    spread = (S * np.matmul(products, S[:, :, None])[:, :, 0]).sum(axis=1)
    log_sum = (log_total + np.log(S_bar))[:, 0] - 0.5 * np.log(spread)

    tilted = P * np.exp(
        np.clip(0.5 * (P * CP).sum(axis=1, keepdims=True) - CP, -_MOST_EXPONENT, _MOST_EXPONENT)
    )
    products *= tilted[:, :, None]
    products *= tilted[:, None, :]
    # The rows of E[p pᵀ] add up to P.
    lacking = P - products.sum(axis=2)
    R = np.negative(products, out=products)
    R -= lacking[:, :, None] * P[:, None, :]
    R -= P[:, :, None] * (lacking - lacking.sum(axis=1, keepdims=True) * P)[:, None, :]
    k = np.arange(P.shape[1])
    R[:, k, k] += P
    return log_sum, P, R, error


def _error_by_class(p: Matrix, most: Matrix, V: Matrix) -> Vector:
    """Return the sum over classes (n,) of the error bound of two classes: each class and the most probable one.

    The bound is the smaller of _WORST s⁶ and _TAIL u² s⁶.  s is the sd of the two activations' difference, under V
    (n, K, K); u is an upper limit of the class's expected probability, `most` (n, K).
    """
    q, first = np.einsum("nkk->nk", V), np.argmax(p, axis=1)[:, None]
    beside = np.take_along_axis(V, first[:, :, None], axis=2)[:, :, 0]
    s2 = np.maximum(q + np.take_along_axis(q, first, axis=1) - 2 * beside, 0.0)
    bound = np.minimum(_WORST, _TAIL * most * most) * s2**3
    return np.asarray(np.where(s2 > _WIDEST**2, np.maximum(most, bound), bound).sum(axis=1))


def _expand(mean: Matrix, covariance: Matrix) -> tuple[Matrix, Vector, Vector, Vector]:
    a = np.array(mean.T, order="C")  # a copy, whatever the order of mean
    a -= a.max(axis=0)
    p = np.exp(a)
    total = p.sum(axis=0)
    p /= total
    # Half the contrasts' variances (K, K, n), contiguous along the rows: the arithmetic is the same for all of them.
    D = np.array(np.moveaxis(covariance, 0, -1), order="C")  # a copy, whatever the order
    half = 0.5 * np.einsum("kkn->kn", D)
    np.subtract(half, D, out=D)
    D += half[:, None]
    spread = np.sqrt(np.maximum(2 * D.reshape(-1, a.shape[1]).max(axis=0), 0.0))

    e, A, W, term = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p), np.empty_like(p)
    for D_j, p_j in zip(D, p, strict=True):
        np.multiply(D_j, p_j, out=term)
        e += term
        term *= D_j
        A += term
    pe = p * e
    for D_j, pe_j in zip(D, pe, strict=True):
        np.multiply(D_j, pe_j, out=term)
        W += term
    e_bar, e2_bar, A_bar = pe.sum(axis=0), (pe * e).sum(axis=0), (p * A).sum(axis=0)

    exponent = e * (1 + 0.5 * e - 2 * e_bar) + 2 * W - 0.5 * A
    # Rows beyond the promise may have any exponent: they must not overflow.
    P = p * np.exp(np.clip(exponent, -50.0, 50.0, out=exponent), out=exponent)
    P /= P.sum(axis=0)
    A_bar += e_bar**2
    A_bar -= 2 * e2_bar
    quadratic = np.zeros_like(e_bar)
    for D_j, P_j in zip(D, P, strict=True):
        np.multiply(D_j, P, out=term)
        quadratic += P_j * term.sum(axis=0)
    entropy = -(P * np.log(np.maximum(P, np.finfo(np.float64).tiny))).sum(axis=0)
    mutual_information = 0.5 * quadratic - 0.75 * A_bar
    return P, entropy - np.maximum(mutual_information, 0.0), _error(total - 1, spread), spread


def _error(odds_of_others: Vector, spread: Vector) -> Vector:
    s2 = np.minimum(spread, _WIDEST) ** 2
    # E[1 - p of the first class] at most, all the way from variance 0 to V.
    others = odds_of_others * np.exp(0.5 * s2)
    bound = s2**3 * np.minimum(_WORST, _TAIL * others**2)
    return np.where(spread <= _WIDEST, bound, np.inf)


# Predictive probabilities of K classes: E[softmax(a)] over Gaussian activations a ~ N(mean, covariance).
#
# A common shift of a row's activations changes nothing, so only the K - 1 contrasts are integrated over.  The raw
# diagonal formula softmax(m_k / sqrt(1 + π V_kk / 8)) is not shift invariant and errs by up to 0.7; it is not offered.
# Each row takes the cheapest of three ways that is accurate enough for it:
#
# - a series in the covariance (`blr.predictive.softmax`), with a bound on its error: most rows of a catalogue;
# - K = 3, 4: a product rule on the principal axes of the contrasts, each axis with the nodes that its sd asks for;
# - otherwise Sobol points, more the larger the contrasts' sd (`blr.predictive._cubature`).
#
# Principal axes do not depend on the order of the classes.  Shapes: N rows, K classes, S draws.

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


def _contrasts(V: Matrix) -> Matrix:
    """Return the variances (N, K, K) of differences of two activations with covariances V (N, K, K)."""
    d = np.einsum("nkk->nk", V)
    return d[:, :, None] + d[:, None, :] - 2 * V


def widest_contrast(V: Matrix) -> Vector:
    """Return the largest sd (N,) of a difference of two activations with covariances V (N, K, K)."""
    return np.sqrt(np.maximum(_contrasts(V).max(axis=(1, 2)), 0.0))


def softmax_plugin(mean: Matrix) -> Matrix:
    """Return softmax(mean), (N, K): the probabilities at the mode, as if the weights were certain."""
    return np.asarray(softmax(mean, axis=1))


def softmax_pairwise(mean: Matrix, covariance: Matrix) -> Matrix:
    """Return the pairwise probit formula with the full covariance, (N, K): fast, and rough where activations spread.

    Of random covariances, K = 3 to 10, its mean error is 0.002 at a contrast sd of 0.5, 0.008 at 1 and 0.03 from 4 on;
    its worst 0.02, 0.06 and 0.28.
    p_k ∝ 1 / Σ_j exp(-κ_kj (m_k - m_j)), κ_kj = (1 + π Var(a_k - a_j)/8)^(-1/2): for two classes that of
    `binary_probit`.  After Daunizeau (2017), arXiv:1703.00091.
    """
    m, V = mean, covariance
    require_finite(m, "mean")
    require_finite(V, "covariance")
    variance = np.maximum(_contrasts(V), 0.0)
    logit = (m[:, None, :] - m[:, :, None]) / np.sqrt(1 + np.pi / 8 * variance)
    top = logit.max(axis=2)
    return np.asarray(softmax(-top - np.log(np.exp(logit - top[:, :, None]).sum(axis=2)), axis=1))


def softmax_fast(mean: Matrix, covariance: Matrix) -> Matrix:
    """Return probabilities, (N, K), within 0.035: the pairwise formula where it is that good, nodes elsewhere.

    Rows with a contrast sd above 0.7 are not left to `softmax_pairwise`: of three and four classes they go through
    `softmax_exact`, of more through 256 Sobol points, few enough to stay quick.  Two classes are those of
    `binary_probit`, which is within 0.018 everywhere.
    """
    m, V = mean, covariance
    K, p, spread = m.shape[1], softmax_pairwise(m, V), widest_contrast(V)
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
    mean: Matrix, covariance: Matrix, *, most_nodes: int | None = None
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
    m, V = mean, covariance
    require_finite(m, "mean")
    require_finite(V, "covariance")
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
    for block in slices(N, size):
        probability[block], expected_entropy[block], error, spread = softmax_series(m[block], V[block])
        hard = np.flatnonzero(error > tolerance)
        if K > _MANY and hard.size:
            hard = hard[error_by_class(m[block][hard], V[block][hard]) > tolerance]
        if hard.size:
            rows = block.start + hard
            probability[rows], expected_entropy[rows] = _integrated(
                m[rows], V[rows], spread[hard], most_nodes
            )
    return probability, expected_entropy


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
    for block in slices(len(m), size):
        for some, mean, axes, left, spread in leading_axes(m[block], V[block], _MOST_LEFT):
            nodes = sobol_size(spread, len(axes))
            nodes = nodes if most_nodes is None else np.minimum(nodes, most_nodes)
            for number in np.unique(nodes):
                i = np.flatnonzero(nodes == number)
                chosen = np.take(axes, i, axis=2)
                p, entropy = sobol_rule(mean[i], chosen, int(number), spread=float(spread[i].max()))
                rows = block.start + some[i]
                probability[rows] = p
                expected_entropy[rows] = entropy - 0.5 * (p * left[i]).sum(axis=1)
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


# E[softmax(a)] and E[H] over activations whose moments are known at nodes, each node with inner points of its own.
#
# A row's activations at node s are m_s + B_s z, z standard normal with few inner points: their errors average out over
# the nodes.  Single precision.  Shapes: S nodes of n rows, T of them with loads, K classes, C outputs, J inner points.

_LANES = 8  # inner points come in whole vectors, of which none is left in part
# Points of a lattice, over two outputs, from which it errs less than as many of a Sobol sequence.
_RESOLVED = 24
# Sd of a logit, for each inner point, beyond which these do not resolve the sigmoid.
_WIDE_NODE = 0.5
_NUMBERS = 2**18  # activations at inner points held at a time


InnerPoints = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Points (S, C, J) and their weights (J,), in single precision."""


@lru_cache(maxsize=64)
def inner_points(
    S: int, outputs: Sequence[int], sizes: Sequence[int], narrow: Sequence[bool]
) -> list[InnerPoints]:
    """Return the inner points of members with so many outputs C and about so many points J a node; all are tuples.

    Of two outputs they are those of a lattice, where they are enough and lie at many nodes or the logits are `narrow`.
    Else they are stretches of one Sobol sequence, each point with its mirror image.
    """
    sizes = [-(-J // _LANES) * _LANES for J in sizes]
    total = max(2, sum(sizes) // 2 * S)
    points = sobol_nodes(1 << (total - 1).bit_length(), max(outputs))
    order = np.random.default_rng(5).permutation(S)
    start, inner = 0, []
    for C, J, near in zip(outputs, sizes, narrow, strict=True):
        half = points[start : start + S * J // 2, :C].reshape(S, J // 2, C)[order]
        start += S * J // 2
        if C == 2 and J >= _RESOLVED and (near or S > 1):
            nodes, weight = normal_nodes(C, J)
            z, weight = np.repeat(nodes[weight > 0].T[None], S, axis=0), weight[weight > 0]
        else:
            z, weight = np.concatenate([half, -half], axis=1).transpose(0, 2, 1), np.full(J, 1 / J)
        inner.append((np.ascontiguousarray(z, dtype=np.float32), weight.astype(np.float32)))
    return inner


Moments = tuple[Matrix, Vector, Matrix, Matrix]
"""What mixes linearly: probabilities (n, K), expected entropies (n,), and means (n, K) of activations and of a a'."""


def no_moments(n: int, K: int) -> Moments:
    """Return the sums of nothing, of n rows and K classes."""
    return np.zeros((n, K)), np.zeros(n), np.zeros((n, K)), np.zeros((n, K, K))


@lru_cache
def logit_points(J: int) -> InnerPoints:
    """Return the inner points (J,) of a logit, and their weights: those of the trapezoid rule."""
    z, weight = normal_nodes(1, J)
    return z[:, 0].astype(np.float32), weight.astype(np.float32)


def no_logits(n: int) -> tuple[Matrix, Vector, Vector, Vector]:
    """Return the sums of nothing, of n rows of two classes: `Moments`, but the last two are (n,), of the logit."""
    return np.zeros((n, 2)), np.zeros(n), np.zeros(n), np.zeros(n)


def add_logits(
    sums: tuple[Matrix, Vector, Vector, Vector], mean: Matrix, sd: Matrix, inner: InnerPoints, share: Matrix
) -> None:
    """Add logits of a mean and an sd (S, n) at S nodes to the sums of n rows of two classes, `share` (S, n) times.

    Rows with a very wide logit take the integral that is exact for any variance, not the `logit_points`.
    """
    z, weight = inner
    wide = np.flatnonzero(sd.max(axis=0) > _WIDE_NODE * len(z))
    if len(wide):
        m, s, w = mean[:, wide], sd[:, wide], share[:, wide]
        y, entropy = (x.reshape(w.shape) for x in binary_integrals(m.ravel(), s.ravel() ** 2))
        _add(sums, wide, w, (np.stack([1 - y, y], axis=2), entropy, m, m**2 + s**2))
        share = share.copy()
        share[:, wide] = 0.0
    if compiled.loops is not None:
        compiled.loops.logistic_mixture(mean, sd, z, weight, share, *sums)
        return
    for rows in slices(mean.shape[1], max(1, _NUMBERS // (len(mean) * len(z)))):
        m, s, w = mean[:, rows], sd[:, rows], share[:, rows]
        a = m.astype(np.float32)[..., None] + s.astype(np.float32)[..., None] * z
        both, size = expit(np.stack([-a, a])), np.abs(a)
        entropy = np.log1p(np.exp(-size)) + size * both.min(axis=0)
        _add(sums, rows, w, ((both @ weight).transpose(1, 2, 0), entropy @ weight, m, m**2 + s**2))


def _add(
    sums: Sequence[NDArray[np.float64]],
    rows: slice | NDArray[np.intp],
    share: Matrix,
    terms: Sequence[NDArray[np.floating]],
) -> None:
    """Add terms (S, n, ...) at nodes to the sums of some rows, `share` (S, n) times."""
    for total, x in zip(sums, terms, strict=True):
        total[rows] += np.einsum("sn,sn...->n...", share, x)


def add_nodes(
    sums: Moments,
    m: NDArray[np.float64],
    few: NDArray[np.float64],
    to_all: Matrix,
    inner: InnerPoints,
    share: Matrix,
) -> None:
    """Add activations at nodes to the sums of n rows, each as often as `share` (S, n) says.

    Parameters
    ----------
    m
        Mean activations (S, n, K).
    few, to_all
        Loads at some of the nodes (T, n, K, C), and what takes them to all, (S, T).
    inner
        The inner points of the S nodes.
    """
    S, n, K = m.shape
    if compiled.loops is not None and K <= compiled.MOST_OUTPUTS:
        at_all = (to_all @ few.reshape(len(few), -1)).reshape(S, *few.shape[1:])
        arrays = np.ascontiguousarray(m), at_all, *inner, np.ascontiguousarray(share)
        compiled.loops.softmax_mixture(*arrays, *sums)
        return
    p, entropy, mean, second = sums
    C, J = inner[0].shape[1:]
    size, single = max(1, _NUMBERS // (S * K * max(C, J))), to_all.astype(np.float32)
    for rows in slices(n, size):
        own, w = few[:, rows].transpose(1, 0, 3, 2).astype(np.float32), share[:, rows]
        by_row = (single @ own.reshape(*own.shape[:2], -1)).reshape(-1, S, C, K)
        B = by_row.transpose(1, 0, 3, 2)
        for total, x in zip((p, entropy), _in_numpy(m[:, rows], B, inner, w), strict=True):
            total[rows] += x
        mean[rows] += np.einsum("sn,snk->nk", w, m[:, rows])
        for by_row in (m[:, rows, None].transpose(1, 0, 2, 3), B.transpose(1, 0, 3, 2)):
            weighted = w.T[:, :, None, None].astype(by_row.dtype) * by_row
            left, right = (x.reshape(len(by_row), -1, K) for x in (weighted, by_row))
            second[rows] += left.transpose(0, 2, 1) @ right


def _in_numpy(
    m: NDArray[np.float64], B: NDArray[np.float32], inner: InnerPoints, share: Matrix
) -> tuple[Matrix, Vector]:
    """Return the sums of p (n, K) and H (n,) of rows that stay in the cache; m (S, n, K), B (S, n, K, C)."""
    z, weight = inner
    centred = (m - m.max(axis=2, keepdims=True)).astype(np.float32)
    E = B @ z[:, None] + centred[..., None]
    top = E.max(axis=2)
    E -= top[:, :, None]
    np.exp(E, out=E)
    total = E.sum(axis=2)
    E *= (1 / total)[:, :, None]
    y = E @ weight
    loaded = E @ (z * weight).transpose(0, 2, 1)[:, None]
    entropy = (top + np.log(total)) @ weight
    entropy -= np.einsum("snk,snk->sn", centred, y) + np.einsum("snkc,snkc->sn", B, loaded)
    return np.einsum("snk,sn->nk", y, share), np.einsum("sn,sn->n", entropy, share)


def cholesky_factors(V: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return lower factors (C, C, N) of covariances (N, C, C), row after row of all of them at once.

    A pivot of nothing has a column of zeros.
    """
    C = V.shape[1]
    A = np.ascontiguousarray(V.transpose(1, 2, 0))
    L = np.zeros_like(A)
    for j in range(C):
        pivot = A[j, j] - np.einsum("kn,kn->n", L[j, :j], L[j, :j])
        root = np.sqrt(np.maximum(pivot, 0.0))
        L[j, j] = root
        inverse = np.divide(1.0, root, out=np.zeros_like(root), where=root > 1e-12)
        for i in range(j + 1, C):
            L[i, j] = (A[i, j] - np.einsum("kn,kn->n", L[i, :j], L[j, :j])) * inverse
    return L
