"""Points and weights of Gaussian integrals: Sobol sequences, and cubature rules by the number of outputs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from blr import compiled
from blr.arrays import Matrix, Vector, slices
from blr.gaussian import helmert

# Sobol points as standard normal nodes, the same for all rows and on every machine.
#
# Direction numbers of Joe and Kuo (2008), doi:10.1137/070709359, file new-joe-kuo-6.21201.  SciPy has them too, but
# `scipy.stats` takes a second to import, and its scrambling may change between versions.  A fixed digital shift takes
# the points off the origin.  The normal nodes are then given mean zero and unit covariance exactly, so that an
# integrand that is nearly quadratic is integrated nearly exactly.

_BITS = 30
# Degree s, coefficients a and initial numbers m of the primitive polynomials of dimensions 2 to 21.
_DIRECTIONS: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
    (5, 11, (1, 1, 5, 1, 1)),
    (5, 13, (1, 1, 1, 3, 11)),
    (5, 14, (1, 3, 5, 5, 31)),
    (6, 1, (1, 3, 3, 9, 7, 49)),
    (6, 13, (1, 1, 1, 15, 21, 21)),
    (6, 16, (1, 3, 1, 13, 27, 49)),
    (6, 19, (1, 1, 1, 15, 7, 5)),
    (6, 22, (1, 3, 1, 15, 13, 25)),
    (6, 25, (1, 1, 5, 5, 19, 61)),
    (7, 1, (1, 3, 7, 11, 23, 15, 103)),
    (7, 4, (1, 3, 7, 13, 13, 15, 69)),
)


def _directions(dimension: int) -> NDArray[np.int64]:
    """Return the direction integers, (30,), of dimension 0, 1, ..."""
    v = np.zeros(_BITS, dtype=np.int64)
    if dimension == 0:
        v[:] = 1 << np.arange(_BITS - 1, -1, -1)
        return v
    s, a, m = _DIRECTIONS[dimension - 1]
    for i in range(_BITS):
        if i < s:
            v[i] = m[i] << (_BITS - 1 - i)
            continue
        v[i] = v[i - s] ^ (v[i - s] >> s)
        for k in range(1, s):
            if (a >> (s - 1 - k)) & 1:
                v[i] ^= v[i - k]
    return v


def sobol_points(n: int, d: int) -> NDArray[np.int64]:
    """Return the first n points of the Sobol sequence, (n, d), in units of 2^-30, d at most 21, in Gray code order."""
    index = np.arange(n)
    gray = index ^ (index >> 1)
    points = np.zeros((n, d), dtype=np.int64)
    for j in range(d):
        v = _directions(j)
        for bit in range(max(n - 1, 1).bit_length()):
            points[:, j] ^= np.where((gray >> bit) & 1, v[bit], 0)
    return points


@lru_cache(maxsize=64)
def normal_nodes(n: int, d: int) -> Matrix:
    """Return n nodes, (n, d), of equal weight for the standard normal, n a power of two and well above d.

    Beyond 21 dimensions, which are to be those of the least variance, the nodes are pseudo-random with a fixed seed.
    """
    tabulated = min(d, len(_DIRECTIONS) + 1)
    rng = np.random.default_rng(20241)
    shift = rng.integers(0, 1 << _BITS, tabulated)
    u = ((sobol_points(n, tabulated) ^ shift) + 0.5) / (1 << _BITS)
    z = np.concatenate([ndtri(u), rng.standard_normal((n, d - tabulated))], axis=1)
    z -= z.mean(axis=0)
    L = np.linalg.cholesky(z.T @ z / n)
    z = np.linalg.solve(L, z.T).T
    z.flags.writeable = False
    return np.asarray(z)


# Expected softmax of a Gaussian activation at nodes: a product rule along a few axes, Sobol points along many.
#
# An activation is a = m + B z, z ~ N(0, I), with the K - 1 columns of B the scaled principal axes of its contrasts.
# Both return E[p] and E[H(p)] = E[ln Σ e^a] - Σ_k E[p_k a_k], for which E[p_k z_j] is gathered along the way.
#
# Along one axis the rule is a trapezoid rule in u with z = c sinh(u/c): where the Gaussian is small the nodes may be
# sparse, which saves a fifth of them.  How wide an axis may be for n nodes was found by maximising the error over all
# positions of two classes, the worst case along an axis.  Shapes: n rows, K classes, d = K - 1 axes, S nodes.

STRETCH = 2.5
RULES = (
    (3, 0.0, 0.458),  # step 0: Gauss-Hermite
    (5, 0.0, 0.838),
    (7, 0.8885, 1.319),
    (9, 0.6816, 2.138),
    (11, 0.5513, 2.806),
    (13, 0.4693, 3.467),
    (17, 0.3699, 4.690),
    (21, 0.2786, 7.839),
    (27, 0.2211, 10.289),
    (35, 0.1707, 13.918),
    (45, 0.1345, 18.267),
)
"""Number of nodes, step in u, and reach: the largest range max_k B_kj - min_k B_kj of an axis j, an sd.

The error an axis is below 2.5e-5 in probability, from 21 nodes on, which only contrasts of sd above 4 ask for, 1e-4.
"""
REACHES: Vector = np.array([reach for _, _, reach in RULES])
# Axes at most, then number of Sobol points and the largest contrast sd they are for.  The largest error of 240 rows of
# all kinds was 6e-4 up to an sd of 4 and 3e-3 up to 12.
_SOBOL: tuple[tuple[int, tuple[tuple[int, float], ...]], ...] = (
    (3, ((16384, np.inf),)),
    (4, ((128, 0.5), (256, 0.7), (512, 1.0), (1024, 1.5), (2048, 2.4), (4096, np.inf))),
    (9, ((128, 0.55), (256, 0.75), (512, 1.1), (1024, 1.5), (2048, 2.1), (4096, 2.8), (8192, np.inf))),
    (
        1 << 30,
        (
            *((128, 0.55), (256, 0.75), (512, 1.1), (1024, 1.5)),
            *((2048, 1.9), (4096, 2.4), (8192, 3.0), (16384, np.inf)),
        ),
    ),
)
_SOBOL_ELEMENTS = 2**17  # activations at nodes held at a time
_SOBOL_NODES = 4096
_WIDTHS = (5, 9, 14, 20, 30, 45, 70, 1 << 30)  # numbers of axes that rows are done together with
_NO_MATTER = 1e-3  # largest expected probability of a class whose spread does not ask for nodes
_NARROW = 12.0  # contrast sd up to which e^a cannot overflow float32


@lru_cache(maxsize=64)
def axis_rule(n: int, step: float) -> tuple[Vector, Vector]:
    """Return n nodes, symmetric about 0, and their weights for the standard normal; step 0: Gauss-Hermite."""
    if step == 0.0:
        z, weight = np.polynomial.hermite_e.hermegauss(n)
        return z, weight / weight.sum()
    u = step * np.arange(-(n // 2), n // 2 + 1)
    z = STRETCH * np.sinh(u / STRETCH)
    weight = step * np.cosh(u / STRETCH) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    # Beyond the outermost nodes the softmax is nearly what it is there: they take the mass that lies outside.
    weight[[0, -1]] += (1 - weight.sum()) / 2
    return z, weight


def product_rule(mean: Matrix, axes: Matrix, rules: tuple[int, ...]) -> tuple[Matrix, Vector]:
    """Return E[p] (n, K) and E[H] (n,) for mean (n, K), axes (d, K, n), d >= 2, and one index into RULES an axis."""
    return _at_nodes(mean, axes, *product_nodes(tuple(RULES[r][:2] for r in rules)))


@lru_cache(maxsize=64)
def product_nodes(rules: tuple[tuple[int, float], ...]) -> tuple[Matrix, Vector]:
    """Return the nodes (S, d) of a product of rules, each a number and a step as of `axis_rule`, and weights (S,)."""
    chosen = [axis_rule(*rule) for rule in rules]
    index = np.indices([len(z) for z, _ in chosen]).reshape(len(chosen), -1)
    z = np.stack([z[i] for (z, _), i in zip(chosen, index, strict=True)], axis=1)
    return z, np.prod([w[i] for (_, w), i in zip(chosen, index, strict=True)], axis=0)


def sobol_size(spread: Vector, d: int) -> NDArray[np.intp]:
    """Return how many Sobol points, (n,), rows of largest contrast sd `spread` (n,) take along d axes."""
    steps = next(steps for most, steps in _SOBOL if d <= most)
    reach = np.array([r for _, r in steps])
    return np.array([size for size, _ in steps], dtype=np.intp)[np.searchsorted(reach, spread)]


def sobol_rule(mean: Matrix, axes: Matrix, size: int, *, spread: float) -> tuple[Matrix, Vector]:
    """Return E[p] (n, K) and E[H] (n,) for mean (n, K) and axes (d, K, n) at `size` Sobol points shared by all rows.

    `spread` is the largest contrast sd among the rows.  Up to 12 the activations are float32: their rounding of 1e-6 is
    far below the error of the points, the exponentials are several times faster, and none can overflow.
    """
    weight = np.full(size, 1 / size)
    dtype = np.float32 if spread <= _NARROW else np.float64
    p, expected_entropy = _at_nodes(mean, axes, normal_nodes(size, len(axes)), weight, dtype)
    return p / p.sum(axis=1, keepdims=True), expected_entropy


def _at_nodes(
    mean: Matrix, axes: Matrix, z: Matrix, w: Vector, dtype: type[np.float32 | np.float64] = np.float64
) -> tuple[Matrix, Vector]:
    """Return E[p] (n, K) and E[H] (n,) at nodes z (S, d) of weights w (S,).

    In float32 the probabilities do not quite add up to one, and e^a must not overflow.
    """
    d, K, n = axes.shape
    loads = np.ascontiguousarray(axes.transpose(2, 1, 0))
    if compiled.loops is not None and K <= compiled.MOST_OUTPUTS:
        p, entropy = np.empty((n, K)), np.empty(n)
        nodes = compiled.filled(z, w, dtype)
        compiled.loops.softmax_responses(np.ascontiguousarray(mean), loads, *nodes, p, entropy)
        return p, entropy
    Z = np.column_stack([z, np.ones(len(z))]).astype(dtype)
    a = mean - mean.max(axis=1, keepdims=True)
    loads = np.concatenate([loads, a[:, :, None]], axis=2)
    gathered, log_normaliser = np.zeros((n, K, d + 1)), np.zeros(n)
    for some in slices(len(Z), _SOBOL_NODES):
        columns: NDArray[np.floating] = np.ascontiguousarray(Z[some].T)
        weight: NDArray[np.floating] = w[some].astype(dtype)
        rows = max(1, _SOBOL_ELEMENTS // (K * len(weight)))
        for block in slices(n, rows):
            moments, log_sum = _block_at_nodes(loads[block], columns, weight)
            gathered[block] += moments
            log_normaliser[block] += log_sum
    return gathered[:, :, d], log_normaliser - np.einsum("nkj,nkj->n", loads, gathered)


def _block_at_nodes(
    loads: Matrix, columns: NDArray[np.floating], weight: NDArray[np.floating]
) -> tuple[Matrix, Vector]:
    """Return Σ_s w_s p_k (z_j, 1), (rows, K, d + 1), and Σ_s w_s ln Σ_k e^a, (rows,), in the type of the nodes."""
    rows, K, width = loads.shape
    E = (loads.reshape(rows * K, width).astype(columns.dtype) @ columns).reshape(rows, K, -1)
    log_sum = np.zeros(rows)
    if columns.dtype == np.float64:  # e^a might overflow
        top = E.max(axis=1)
        E -= top[:, None]
        log_sum += (top * weight).sum(axis=1)
    np.exp(E, out=E)
    S = E.sum(axis=1)
    log_sum += (np.log(S) * weight).sum(axis=1, dtype=np.float64)
    E *= (weight / S)[:, None]
    return (E.reshape(rows * K, -1) @ columns.T).reshape(rows, K, width).astype(np.float64), log_sum


def principal_axes(covariance: Matrix) -> Matrix:
    """Return B (d, K, n), largest axis first, with Σ_j B_j B_jᵀ the covariance (n, K, K) less its common shift."""
    n, K, _ = covariance.shape
    T = helmert(K)
    C = covariance.reshape(n, K * K) @ np.kron(T, T)
    variance, U = np.linalg.eigh(C.reshape(n, K - 1, K - 1))
    variance = variance[:, ::-1].T
    B = np.array((T @ U[:, :, ::-1]).transpose(2, 1, 0), order="C")
    # The sign of an axis is arbitrary: tied to the classes' loads, it moves with them when they change places.
    sign = np.where((B * B * B).sum(axis=1) < 0, -1.0, 1.0)
    B *= (sign * np.sqrt(np.maximum(variance, 0.0)))[:, None]
    return B


Leading = tuple[NDArray[np.intp], Matrix, Matrix, Matrix, Vector]
"""Some rows (r,) of many classes, whose activations are a = mean + axes z, and what is left of a's variance.

The mean (r, K) includes half of the variance that is left, since that of e^a counts; the axes are (d, K, r), what is
left is (r, K).  The last is the largest sd (r,) of a contrast of classes that matter.
"""


def leading_axes(mean: Matrix, covariance: Matrix, most_left: float) -> Iterator[Leading]:
    """Yield the axes that matter of mean (n, K) and covariance (n, K, K), for rows of like many axes together.

    The axes are columns of a pivoted Cholesky factor.  A class counts by S, what its expected probability is at most.
    Axes are added until Σ S² of the variance that is left is below `most_left`: a class that is hardly ever probable
    enters by E e^a alone, which is exact to first order in S.
    """
    n, K = mean.shape
    log_p = mean - mean.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    p = np.exp(log_p)
    Vp = np.matmul(covariance, p[:, :, None])[:, :, 0]
    C = covariance - Vp[:, :, None]
    C -= (Vp - (p * Vp).sum(axis=1, keepdims=True))[:, None, :]
    left = np.maximum(np.einsum("nkk->nk", C), 0.0)
    S = np.exp(np.minimum(log_p + 0.5 * left, 0.0))
    spread = _spread_of(C, S > _NO_MATTER)
    axes, count, some = np.zeros((K - 1, n, K)), np.full(n, K - 1), np.arange(n)
    for d in range(K - 1):
        enough = (S[some] ** 2 * left[some]).sum(axis=1) < most_left
        count[some[enough]] = d
        some = some[~enough]
        if not some.size:
            break
        pivot = np.argmax(S[some] * left[some], axis=1)
        axis = C[some, :, pivot] - np.einsum("ink,in->nk", axes[:d, some], axes[:d, some, pivot])
        axis /= np.sqrt(left[some, pivot])[:, None]
        axes[d, some] = axis
        left[some] = np.maximum(left[some] - axis**2, 0.0)
        left[some, pivot] = 0.0
    width = np.minimum(np.array(_WIDTHS)[np.searchsorted(_WIDTHS, count)], K - 1)
    for d in np.unique(width):
        rows = np.flatnonzero(width == d)
        moved = mean[rows] + 0.5 * left[rows]
        yield rows, moved, axes[:d, rows].transpose(0, 2, 1), left[rows], spread[rows]


def _spread_of(C: Matrix, counts: NDArray[np.bool_]) -> Vector:
    """Return the largest sd (n,) of a difference of two classes that count (n, K), under covariances C (n, K, K)."""
    v = np.where(counts, np.einsum("nkk->nk", C), -np.inf)
    contrast = v[:, :, None] + v[:, None, :]
    contrast -= 2 * C
    return np.sqrt(np.maximum(contrast.max(axis=(1, 2)), 0.0))
