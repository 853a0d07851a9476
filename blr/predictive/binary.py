"""Predictive probability of two classes: E[f(a)] over a Gaussian activation a ~ N(mean, variance).

Three methods share the exact logistic integral.  The narrowest activations (sd up to 0.2) go through the Taylor series
about the mean, to the eighth derivative.  With y = σ(m) and s = y (1 - y), y' = s and s' = s (1 - 2y): every even
derivative of σ is s (1 - 2y) times a polynomial in s, every odd one s times another.  H' = -a σ', so the n-th
derivative of the entropy H is -(m σ⁽ⁿ⁾ + (n - 1) σ⁽ⁿ⁻¹⁾).

Narrow ones (sd up to 2) go through the trapezoid rule in z = (a - mean)/sd: with step h it errs by 2 exp(-2π²/h²) for
the Gaussian and, for the pole of σ at iπ, by about exp(π²/(2 sd²) - 2π²/(h sd)) (Trefethen & Weideman 2014,
doi:10.1137/130932132), 2e-9 here.  Nodes go in pairs ±z.  With u = e^(m + z sd) and d = e^(m - z sd) of a pair,
s = u + d, t = u - d and q = u d = e^2m,

    σ(u) + σ(d) = (s + 2q) / (s + q + 1),   σ(u) - σ(d) = t / (s + q + 1),   (1 + u)(1 + d) = s + q + 1:

one division a pair.  On equal steps s and t obey x_k+1 = 2 cosh(step sd) x_k - x_k-1: a node costs no exponential.
Both are in C; NumPy takes the rule for the narrowest too, node by node.

Wide ones go through the mixture of probit functions of Monahan and Stefanski (1992),

    σ(a) ≈ Σ p_i Φ(s_i a),   E[σ(a)] ≈ Σ p_i Φ(s_i mean / sqrt(1 + s_i² variance)),   within 2e-9.

The mixture also gives the expected entropy: dH(σ(a))/da = -a σ'(a), so H(σ(a)) ≈ Σ (p_i/s_i) N(s_i a | 0, 1), a sum of
Gaussians whose expectation is elementary, within 5e-8.  Shapes: N rows, S draws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtr

from blr import compiled
from blr.arrays import Matrix, Vector, require_finite, slices
from blr.likelihood.likelihoods import LINKS
from blr.likelihood.targets import graded_nodes

_P = (
    *(0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818),
    *(0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354),
)
_S = (
    *(1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391),
    *(0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306),
)
MIXTURE_WEIGHTS, MIXTURE_SCALES = np.array(_P), np.array(_S)
"""Weights and inverse scales of the Monahan-Stefanski mixture for the logistic distribution."""
_BLOCK = 8192  # rows a block: a dozen arrays of it stay in a core's cache
_NARROWEST = 0.2  # largest sd of the series: its first term left out is 7e-10 at most there
_NARROW = ((0.5, 0.95), (1.0, 0.75), (2.0, 0.45))  # largest sd, and the step of z that it takes
_FARTHEST = 6.3  # |z| of the outermost node, at most: beyond 5.7 lie 1e-8 of the mass


def binary_probit(mean: Vector, variance: Vector) -> Vector:
    """Return σ(κ mean), κ = (1 + π variance/8)^(-1/2), (N,): PRML (4.153-4.155), within 0.018 of the integral.

    MacKay (1992), doi:10.1162/neco.1992.4.5.720.
    """
    return np.asarray(expit(mean / np.sqrt(1 + np.pi / 8 * _variance(mean, variance))))


def binary_exact(mean: Vector, variance: Vector, *, link: str = "logistic") -> Vector:
    """Return E[f(a)], (N,), within 1e-8 for the logistic and probit links, 1e-7 for others.

    The logistic result keeps its relative accuracy in the lower tail: 1e-8 up to an sd of 2, 0.4 % at worst beyond.

    Parameters
    ----------
    mean, variance
        Of the activation, (N,).
    link
        A name in `blr.likelihood.likelihoods.LINKS`; the probit link is Φ(mean / sqrt(1 + variance)) (PRML 4.152).
    """
    variance = _variance(mean, variance)
    if link == "logistic":
        lower, _ = _logistic(-np.abs(mean), variance, with_entropy=False)
        return np.where(mean > 0, 1 - lower, lower)
    if link == "probit":
        return np.asarray(ndtr(mean / np.sqrt(1 + variance)))
    chosen = LINKS[link]
    return _quadrature(mean, variance, lambda a: np.exp(chosen.log_cdf(a)))


def binary_expected_entropy(mean: Vector, variance: Vector, *, link: str = "logistic") -> Vector:
    """Return E[H(f(a))], (N,), nats, within 5e-8: H(E[f]) less this is the mutual information.

    For an sd up to 2 both come from the same nodes, so the difference is not negative beyond rounding and keeps its
    relative accuracy however small it is.
    """
    variance = _variance(mean, variance)
    if link == "logistic":
        return _logistic(-np.abs(mean), variance, with_entropy=True)[1]
    chosen = LINKS[link]

    def of_link(a: Matrix) -> Matrix:
        # x e^x is 0 at -inf, where the product would be NaN.
        terms = [np.exp(x) * np.maximum(x, -800.0) for x in (chosen.log_cdf(a), chosen.log_sf(a))]
        return -(terms[0] + terms[1])

    return _quadrature(mean, variance, of_link)


def binary_integrals(mean: Vector, variance: Vector, *, link: str = "logistic") -> tuple[Vector, Vector]:
    """Return what `binary_exact` and `binary_expected_entropy` do, of the logistic link in one pass over the nodes."""
    if link != "logistic":
        expected = binary_expected_entropy(mean, variance, link=link)
        return binary_exact(mean, variance, link=link), expected
    variance = _variance(mean, variance)
    lower, expected = _logistic(-np.abs(mean), variance, with_entropy=True)
    return np.where(mean > 0, 1 - lower, lower), expected


def _logistic(m: Vector, variance: Vector, *, with_entropy: bool) -> tuple[Vector, Vector]:
    """Return E[σ(a)] and E[H(σ(a))], (N,) each, at means m <= 0; without entropy the second is not filled."""
    probability, expected_entropy = np.empty_like(m), np.empty_like(m)
    edges = np.array([_NARROWEST**2, *(sd**2 for sd, _ in _NARROW)])
    for block in slices(len(m), _BLOCK):
        v = variance[block]
        first, last = np.searchsorted(edges, [v.min(), v.max()])
        regime = None if first == last else np.searchsorted(edges, v)
        for r in range(first, last + 1):
            # Most blocks are of one kind: those are not gathered row by row.
            rows = block if regime is None else block.start + np.flatnonzero(regime == r)
            expectations = _expectations(m[rows], variance[rows], r, with_entropy=with_entropy)
            probability[rows], expected_entropy[rows] = expectations
    return probability, expected_entropy


def _expectations(m: Vector, variance: Vector, regime: int, *, with_entropy: bool) -> tuple[Vector, Vector]:
    if regime > len(_NARROW):
        return _wide(m, variance, with_entropy=with_entropy)
    step = _NARROW[max(regime - 1, 0)][1]
    z = step * np.arange(int(_FARTHEST / step) + 1, dtype=np.float64)
    weight: Vector = np.exp(-(z**2) / 2)
    weight /= weight[0] + 2 * weight[1:].sum()
    if compiled.loops is None:
        return _at_nodes(m, np.sqrt(variance), z, weight)
    probability, entropy = np.empty_like(m), np.empty_like(m)
    means, variances = np.ascontiguousarray(m), np.ascontiguousarray(variance)
    nodes = (z, weight) if regime else (None, None)  # without: the series
    compiled.loops.logistic_integral(means, variances, *nodes, probability, entropy if with_entropy else None)
    return probability, entropy


def _at_nodes(m: Vector, sd: Vector, z: Vector, weight: Vector) -> tuple[Vector, Vector]:
    """Return both expectations at pairs of nodes ±z (S,), by NumPy."""
    probability, entropy = np.zeros_like(m), np.zeros_like(m)
    for node, w in zip([*-z[:0:-1], *z], [*weight[:0:-1], *weight], strict=True):
        a = m + node * sd
        e = np.exp(-np.abs(a))
        unlikely = e / (1 + e)
        probability += w * np.where(a > 0, 1 / (1 + e), unlikely)
        entropy += w * (np.abs(a) * unlikely + np.log1p(e))
    return probability, entropy


def _wide(m: Vector, variance: Vector, *, with_entropy: bool) -> tuple[Vector, Vector]:
    """Return both expectations by the probit mixture.

    The mixture's tails are Gaussian, σ's are not.  Since σ(a) = e^a σ(-a), E[σ] at (m, v) is exp(m + v/2) times E[σ] at
    (-m - v, v): where m < -v, that moves the evaluation to the side on which the relative error is small.
    """
    tilt = m + variance < 0
    x = np.where(tilt, -(m + variance), m)
    probability, expected_entropy = np.zeros_like(m), np.zeros_like(m)
    scale, y = np.empty_like(m), np.empty_like(m)
    for p, s in zip(_P, _S, strict=True):
        np.multiply(variance, s**2, out=scale)
        scale += 1
        np.sqrt(scale, out=scale)
        np.divide(s, scale, out=scale)
        np.multiply(scale, x, out=y)
        probability += p * ndtr(y, out=y)
        if with_entropy:
            np.multiply(scale, m, out=y)
            # There exp(-y²/2) is 0, and the square of what lies farther may overflow.
            np.maximum(y, -1e3, out=y)
            y *= y
            y *= -0.5
            expected_entropy += p / s**2 * scale * np.exp(y, out=y)
    probability *= np.exp(np.where(tilt, m + variance / 2, 0.0))
    return probability, expected_entropy / np.sqrt(2 * np.pi)


def _quadrature(mean: Vector, variance: Vector, integrand: Callable[[Matrix], Matrix]) -> Vector:
    """Return E[integrand(a)], (N,), at graded nodes."""
    out = np.empty_like(mean)
    for rows, a, w in graded_nodes(mean, np.sqrt(variance)):
        out[rows] = np.einsum("ns,ns->n", integrand(a), w)
    return out


def _variance(mean: Vector, variance: Vector) -> Vector:
    require_finite(mean, "mean")  # features of 1e200 overflow here
    require_finite(variance, "variance")
    return np.maximum(variance, 0.0)  # a difference of large numbers may round to less
