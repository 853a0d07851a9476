"""Softmax of an activation known nearly exactly: the heat expansion to fourth order in its sd.

For a ~ N(m, V) and L = 1/2 Σ V_jk ∂_j ∂_k, E[f(a)] = e^L f(m) = f + L f + L² f/2 + R.  R is at most sup |L³ f| / 6: on
the way from variance 0 to V, d³E/dt³ = E[L³ f].  With the half variances D_jk = Var(a_j - a_k)/2, p = softmax(m),

    e = D p,  ē = p'e,  W = D (p e),  A = (D∘D) p,  E[p_k] ≈ p_k exp(e + e²/2 - 2 e ē + 2 W - A/2)_k / normaliser,

which agrees to second order in D, adds up to one, is shift invariant, and is exact for classes far behind the first.
So is the mutual information, P'D P / 2 - 3/4 (p'A + ē² - 2 (p e)'e), with the expected P.

`expanded_derivatives` takes products p_k p_l and Σ e^a for log-normal, with the covariances C_kl = (e_k - p)'V(e_l - p)
of ln p_k and ln p_l, which is exact to second order, too, and for classes far behind.
Shapes: n rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blr import compiled
from blr.arrays import Matrix, Vector

__all__ = ["Series", "error_by_class", "expanded_derivatives", "softmax_series"]

# R is at most _WORST s⁶, s the largest contrast sd, and _TAIL u² s⁶ where the expected probability of all but the
# first class is at most u; the entropy errs by at most four times that.  Found by maximisation over means and
# covariances, two classes being the worst case (tests/blr/predictive/test_softmax_series.py).
_WORST, _TAIL = 0.0095, 2.0
_WIDEST = 2.0  # contrast sd beyond which nothing is promised
_BLOCK_ELEMENTS = 2**15
_MOST_EXPONENT = 30.0


@dataclass(frozen=True, eq=False)
class Series:
    """Expected softmax of n rows and how far off it may be.

    `probability` (n, K); `expected_entropy` (n,), nats; `error` (n,), a bound on the probabilities' error and a quarter
    of the entropy's, infinite where nothing is promised; `spread` (n,), the largest sd of a contrast a_j - a_k.
    """

    probability: Matrix
    expected_entropy: Vector
    error: Vector
    spread: Vector


def softmax_series(mean: Matrix, covariance: Matrix) -> Series:
    """Return the expansion at mean (n, K) and covariance (n, K, K), about 20 ns a row and class."""
    n, K = mean.shape
    if compiled.loops is not None and K <= compiled.MOST_OUTPUTS:
        m, V = np.ascontiguousarray(mean), np.ascontiguousarray(covariance)
        p, h, others, spread = np.empty((n, K)), np.empty(n), np.empty(n), np.empty(n)
        compiled.loops.softmax_series(m, V, p, h, others, spread)
        return Series(p, h, _error(others, spread), spread)
    out = Series(np.empty((n, K)), np.empty(n), np.empty(n), np.empty(n))
    rows = max(64, _BLOCK_ELEMENTS // K**2)
    for start in range(0, n, rows):
        block = slice(start, start + rows)
        p, h, error, spread = _expand(mean[block], covariance[block])
        out.probability[block] = p.T
        out.expected_entropy[block], out.error[block], out.spread[block] = h, error, spread
    return out


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
    for start in range(0, n, rows):
        block = slice(start, start + rows)
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
    """Return the bound of two classes, of each and the first of them, added up (n,).

    It is _WORST s⁶ or _TAIL u² s⁶, where `most` (n, K) is what the expected probability is at most, u.
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
    D = _half_contrast_variances(covariance)
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


def _half_contrast_variances(covariance: Matrix) -> Matrix:
    """Return D, (K, K, n), contiguous along the rows: the arithmetic is the same for all of them."""
    D = np.array(np.moveaxis(covariance, 0, -1), order="C")  # a copy, whatever the order
    half = 0.5 * np.einsum("kkn->kn", D)
    np.subtract(half, D, out=D)
    D += half[:, None]
    return D


def _error(odds_of_others: Vector, spread: Vector) -> Vector:
    s2 = np.minimum(spread, _WIDEST) ** 2
    # E[1 - p of the first class] at most, all the way from variance 0 to V.
    others = odds_of_others * np.exp(0.5 * s2)
    bound = s2**3 * np.minimum(_WORST, _TAIL * others**2)
    return np.where(spread <= _WIDEST, bound, np.inf)
