"""Value, gradient and curvature of ln p(t | a), averaged over a Gaussian activation a ~ N(m, V) of each row.

A Gaussian variational posterior needs them in place of their values at a point: Newton's method on the evidence's
lower bound is IRLS with y and y(1 - y) replaced by these ("moderated IRLS").

Logistic: through the mixture of probits of Monahan and Stefanski (1992), σ(a) ≈ Σ p_i Φ(s_i a), of which all three are
elementary, so that they are exactly each other's derivatives. Other links: a trapezoid rule of graded nodes. Softmax:
nodes along the contrasts' principal axes, more where they are wide: products of Gauss-Hermite rules along few axes,
Sobol points along many, symmetric and of unit covariance, so that cubics are exact.
Shapes: N rows, C outputs, K classes, S nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from blr import compiled
from blr.arrays import Matrix, Places, Vector, slices
from blr.covariances import class_covariances, output_covariances
from blr.gaussian import helmert
from blr.likelihood.likelihoods import (
    LOGISTIC,
    Bernoulli,
    Categorical,
    Likelihood,
    MislabelledBernoulli,
    MislabelledCategorical,
    log_odds,
    pairs,
)
from blr.likelihood.targets import graded_nodes
from blr.predictive._cubature import leading_axes, normal_nodes, product_nodes
from blr.predictive.binary import MIXTURE_SCALES, MIXTURE_WEIGHTS
from blr.predictive.softmax import expanded_derivatives
from blr.sums import (
    ChunkFunction,
    Terms,
    activations,
    blockwise,
    class_sums,
    in_classes,
    in_contrasts,
    many_classes,
    summed,
)

Expected = tuple[Vector, Matrix, Matrix]
"""Value (N,), gradient (N, C), packed curvature (N, P)."""
_IMPOSSIBLE = 1e-300  # likelihood of a record that stands for none: its logarithm is finite
_WIDE = 4.0  # largest contrast sd above which single precision serves
_MANY_NODES = 64  # Sobol points, whose weights are equal, from which single precision is taken
_SINGULAR = 1e-10  # of the largest variance, added to each before a Cholesky factor of them is found
_REACH = 80.0  # of activations about their means: up to here exponentials are finite in single precision
_EXPANSION, _ROUGH_EXPANSION = 1e-4, 1e-3  # error of an expansion up to which there are no nodes
_FEW_NODES = 1024  # asked for, up to which the rough one serves
_NUMBERS = 2**18  # activations at nodes held at a time
_MOST_BY_PRINCIPAL = 9  # classes up to which nodes are along all principal axes
# Variance beyond the axes that matter, in expected squares of probability, and where nodes are few.
_MOST_LEFT, _MOST_LEFT_ROUGH = 1e-4, 1e-3
# Gauss-Hermite nodes along each axis up to an sd of the widest, for 2, 3 and 4 contrasts; then Sobol points.
_PRODUCT: dict[int, tuple[tuple[float, int], ...]] = {
    2: ((0.2, 3), (0.45, 5), (0.8, 7), (1.2, 9), (2.0, 13), (3.5, 21), (np.inf, 41)),
    3: ((0.2, 3), (0.35, 4), (0.5, 5), (0.9, 7), (1.5, 9), (2.5, 13), (np.inf, 17)),
    4: ((0.35, 3), (0.7, 5)),
}
_FEW_ALONG = {2: 11, 3: 7, 4: 3}  # along each axis, where few nodes are asked for
_IN_DOUBLE = frozenset(C for C, rules in _PRODUCT.items() if rules[-1][0] == np.inf)  # no Sobol points
_SOBOL = ((0.2, 64), (0.35, 128), (0.5, 256), (0.8, 512), (1.3, 1024), (_WIDE, 4096), (np.inf, 4096))


def expected_derivatives(
    likelihood: Likelihood, a: Matrix, V: Matrix, t: Matrix, *, most_nodes: int | None = None
) -> Expected:
    """Return the expectations for mean activations a (N, C) and covariances V (N, C, C), packed as `derivatives`.

    `most_nodes`: of a softmax, for each row; fewer than a few thousand are faster and err, each row in its own way.
    """
    if isinstance(likelihood, Categorical):
        return _softmax(likelihood, a, V, t, most_nodes)
    assert isinstance(likelihood, Bernoulli)  # noqa: S101  there are no others
    if likelihood.link is LOGISTIC:
        law = _mislabelled_logistic if isinstance(likelihood, MislabelledBernoulli) else _logistic
        return law(a[:, 0], V[:, 0, 0], t)
    m = a[:, 0]
    value, gradient, curvature = np.empty_like(m), np.empty_like(m), np.empty_like(m)
    for rows, x, w in graded_nodes(m, np.sqrt(V[:, 0, 0])):
        parts = likelihood.derivatives(x.reshape(-1, 1), np.repeat(t[rows], x.shape[1], axis=0))
        value[rows], gradient[rows], curvature[rows] = (
            np.einsum("ns,ns->n", part.reshape(x.shape), w) for part in parts
        )
    return value, gradient[:, None], curvature[:, None]


def expected_terms(
    likelihood: Likelihood, theta: Vector, inverse_cholesky: Matrix, *, most_nodes: int | None = None
) -> ChunkFunction:
    """Return the function of a chunk that gives value, gradient and Hessian of -ln p, averaged over N(theta, A⁻¹)."""
    C = likelihood.n_outputs
    if many_classes(likelihood) and type(likelihood) is Categorical:
        return _expected_class_sums(likelihood, theta, inverse_cholesky, most_nodes)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        V = output_covariances(Phi, inverse_cholesky, C)
        expected = expected_derivatives(likelihood, activations(Phi, theta, C), V, t, most_nodes=most_nodes)
        return summed(likelihood, Phi, weight, *expected)

    return blockwise(terms, C * len(theta) + C * C)


def _expected_class_sums(
    likelihood: Categorical, theta: Vector, inverse_cholesky: Matrix, most_nodes: int | None
) -> ChunkFunction:
    of_classes, weights = in_classes(likelihood, theta)
    covariances = class_covariances(inverse_cholesky, likelihood.n_outputs, likelihood.transform)
    K = likelihood.n_classes
    upper = np.ravel_multi_index(np.triu_indices(K), (K, K))

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        a = activations(Phi, weights, K)
        value, gradient, R = expected_by_class(of_classes, a, covariances(Phi), t, most_nodes=most_nodes)
        return class_sums(Phi, weight, value, gradient, R.reshape(len(R), -1)[:, upper])

    return in_contrasts(likelihood, blockwise(terms, 2 * K * K))


def expected_by_class(
    likelihood: Categorical, a: Matrix, V: Matrix, t: Matrix, *, most_nodes: int | None = None
) -> tuple[Vector, Matrix, Matrix]:
    """Return the expectations of value (N,), of gradient (N, K) and of curvature (N, K, K) by the class activations.

    `likelihood` is that of K activations a (N, K) with covariances V (N, K, K) and labels that are right.  Rows known
    well enough take an expansion, the others nodes.
    """
    log_sum, y, R, error = expanded_derivatives(a, V)
    value, gradient = np.einsum("nk,nk->n", t, a) - log_sum, t - y
    few = most_nodes is not None and most_nodes <= _FEW_NODES
    hard = np.flatnonzero(~(error <= (_ROUGH_EXPANSION if few else _EXPANSION)))
    if hard.size:
        by_nodes = _at_all_nodes(likelihood, a[hard], V[hard], t[hard], most_nodes)
        value[hard], gradient[hard], R[hard] = by_nodes
    return value, gradient, R


def _logistic(m: Vector, v: Vector, t: Vector) -> Expected:
    softplus, y, curvature = _softplus(m, v)
    value = -softplus - np.abs(m) * np.where(m >= 0, 1 - t, t)
    return value, (t - y)[:, None], curvature[:, None]


def _mislabelled_logistic(m: Vector, v: Vector, t: Matrix) -> Expected:
    # ln(t_0 + t_1 e^a) - ln(1 + e^a): the second, moved to where the odds given the record are even, less the second.
    low, high = log_odds(t)
    softplus, y, curvature = _softplus(m, v)
    possible = (t > 0).all(axis=1)
    place = np.where(possible, m + np.where(possible, high - low, 0.0), 0.0)
    moved_softplus, q, known = (np.where(possible, x, 0.0) for x in _softplus(place, v))
    q = np.where(possible, q, t[:, 1] > 0)
    value = np.maximum(low, high + m) + moved_softplus - np.maximum(m, 0.0) - softplus
    return value, (q - y)[:, None], (curvature - known)[:, None]


def _softplus(m: Vector, v: Vector) -> tuple[Vector, Vector, Vector]:
    """Return E ln(1 + e^a) less max(m, 0), and its two derivatives by m, (N,) each."""
    p, s = MIXTURE_WEIGHTS[:, None], MIXTURE_SCALES[:, None]
    far = np.abs(m)
    c = np.sqrt(1 + s**2 * v)
    u = -s * far / c
    density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
    below = ndtr(u)
    # E ln(1 + e^-|m + ...|), by parts: the integral of the mixture's own expectation.
    softplus = np.einsum("in,in->n", p * c / s, np.maximum(u * below + density, 0.0))
    lower = np.einsum("in,in->n", np.broadcast_to(p, u.shape), below)
    y = np.where(m > 0, 1 - lower, lower)
    return softplus, y, np.einsum("in,in->n", p * s / c, density)


def _blocks(rows: Places, numbers: int) -> Iterator[Places]:
    size = max(1, _NUMBERS // numbers)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _softmax(likelihood: Categorical, a: Matrix, V: Matrix, t: Matrix, most_nodes: int | None) -> Expected:
    K = likelihood.n_classes
    if K == 2:  # the logistic of the classes' difference
        load = likelihood.transform[1] - likelihood.transform[0]
        mean, variance = a @ load, np.einsum("c,ncd,d->n", load, V, load)
        mislabelled = isinstance(likelihood, MislabelledCategorical)
        law = _mislabelled_logistic(mean, variance, t) if mislabelled else _logistic(mean, variance, t[:, 1])
        value, gradient, curvature = law
        products = np.array([load[c] * load[d] for c, d in pairs(likelihood.n_outputs)])
        return value, gradient * load, curvature * products
    value, gradient, R = _at_all_nodes(likelihood, a, V, t, most_nodes)
    T = likelihood.transform
    projected = T.T @ R @ T
    curvature = np.stack([projected[:, c, d] for c, d in pairs(likelihood.n_outputs)], axis=1)
    return value, gradient @ T, curvature


def _at_all_nodes(
    likelihood: Categorical, a: Matrix, V: Matrix, t: Matrix, most_nodes: int | None
) -> tuple[Vector, Matrix, Matrix]:
    """Return value (N,), and gradient (N, K) and curvature (N, K, K) by the class activations."""
    K = likelihood.n_classes
    mislabelled = isinstance(likelihood, MislabelledCategorical)
    if K > _MOST_BY_PRINCIPAL and not mislabelled:
        T = likelihood.transform
        own = (a, V) if likelihood.n_outputs == K else (a @ T.T, T @ V @ T.T)
        return _along_leading_axes(*own, t, most_nodes)
    H = helmert(K)
    to_contrasts = H.T @ likelihood.transform  # the identity where outputs are contrasts already
    m = a @ to_contrasts.T
    B, spread = _loads(to_contrasts @ V @ to_contrasts.T, principal=most_nodes is None or K - 1 in _IN_DOUBLE)
    value, gradient, R = np.empty(len(a)), np.empty((len(a), K)), np.empty((len(a), K, K))
    for rows, (z, w) in _by_spread(spread, K - 1, most_nodes):
        # Single precision errs by some 1e-6: less than the nodes do where rows are wide, or nodes few.
        single = K - 1 not in _IN_DOUBLE and (most_nodes is not None or spread[rows].min() > _WIDE)
        widest = single and w[0] == w[-1] and len(z) >= _MANY_NODES
        at_nodes = _at_many_nodes if widest else _at_nodes
        for block in _blocks(rows, len(z) * K):
            mean, load, shares = m[block] @ H.T, H @ B[block], t[block]
            log_sum, y, R[block] = at_nodes(mean, load, z, w)
            if mislabelled:  # another normaliser, of the activations moved by ln t
                moved = np.log(np.maximum(shares, _IMPOSSIBLE))
                value[block], shares, known = at_nodes(mean + moved, load, z, w)
                R[block] -= known
            else:
                value[block] = np.einsum("nk,nk->n", shares, mean)
            value[block] -= log_sum
            gradient[block] = shares - y
    return value, gradient, R


def _loads(V: Matrix, *, principal: bool) -> tuple[Matrix, Vector]:
    """Return B (n, C, C) with B Bᵀ = V, and the widest sd (n,) or a little more.

    The axes are the principal ones, the widest last, or without order, which takes a fifth of the time.
    """
    if principal:
        variance, axes = np.linalg.eigh(V)
        sd = np.sqrt(np.maximum(variance, 0.0))
        return axes * sd[:, None, :], sd[:, -1]
    variance = np.einsum("nii->ni", V)
    floor = _SINGULAR * np.maximum(variance.max(axis=1), np.finfo(float).tiny)
    B = np.linalg.cholesky(V + floor[:, None, None] * np.eye(V.shape[1]))
    return B, np.sqrt(np.sqrt(np.einsum("nij,nij->n", V, V)))


def _along_leading_axes(
    a: Matrix, V: Matrix, t: Matrix, most_nodes: int | None
) -> tuple[Vector, Matrix, Matrix]:
    """Return what `_at_all_nodes` does of many classes: at Sobol points along the axes that matter in each row."""
    n, K = a.shape
    value, y, R = np.empty(n), np.empty((n, K)), np.empty((n, K, K))
    size = max(_MANY_NODES, _NUMBERS // K**2)
    for part in slices(n, size):
        most_left = _MOST_LEFT if most_nodes is None else _MOST_LEFT_ROUGH
        for some, mean, axes, _, spread in leading_axes(a[part], V[part], most_left):
            loads = axes.transpose(2, 1, 0)
            for chosen, (z, w) in _by_spread(spread, len(axes), most_nodes):
                for i in _blocks(chosen, len(z) * K):
                    rows = part.start + some[i]
                    value[rows], y[rows], R[rows] = _at_many_nodes(mean[i], loads[i], z, w)
    return np.einsum("nk,nk->n", t, a) - value, t - y, R


def _by_spread(
    spread: Vector, C: int, most_nodes: int | None
) -> Iterator[tuple[Places, tuple[Matrix, Vector]]]:
    """Yield the rows that share a rule, and the rule: nodes (S, C) and weights (S,)."""
    product = _PRODUCT.get(C, ())
    sobol: tuple[tuple[float, int], ...] = _SOBOL
    reach = product[-1][0] if product else 0.0
    if most_nodes is not None:
        along = min(_FEW_ALONG.get(C, 3), max(3, int(most_nodes ** (1 / C))))
        product = tuple((sd, min(n, along)) for sd, n in product)
        sobol = tuple((sd, min(n, most_nodes)) for sd, n in sobol)
    rules: list[tuple[float, Callable[[int, int], tuple[Matrix, Vector]], int]] = [
        *((sd, _product, n) for sd, n in product),
        *((sd, _sobol, n) for sd, n in sobol if sd > reach),
    ]
    chosen = np.searchsorted([sd for sd, _, _ in rules], spread)
    for i in np.unique(chosen):
        _, rule, n = rules[i]
        yield np.flatnonzero(chosen == i), rule(n, C)


def _product(n: int, C: int) -> tuple[Matrix, Vector]:
    return product_nodes(((n, 0.0),) * C)


@lru_cache(maxsize=32)
def _sobol(n: int, C: int) -> tuple[Matrix, Vector]:
    # Of unit covariance: so are these and their mirror images.
    half = normal_nodes(max(n, 4 << C.bit_length()) // 2, C)
    z = np.concatenate([half, -half])
    return z, np.full(len(z), 1.0 / len(z))


def _at_nodes(m: Matrix, B: Matrix, z: Matrix, w: Vector) -> tuple[Vector, Matrix, Matrix]:
    """Return E ln Σ e^a, E y (n, K) and E [diag y - y yᵀ] (n, K, K), a = m + B z, m (n, K), B (n, K, C)."""
    if compiled.loops is not None and m.shape[1] <= compiled.MOST_OUTPUTS:
        return _compiled_nodes(m, B, z, w, np.float64)
    a = m[:, :, None] + B @ z.T
    top = a.max(axis=1)
    a -= top[:, None]
    np.exp(a, out=a)
    total = a.sum(axis=1)
    a /= total[:, None]
    y = a @ w
    R = -((a * w) @ a.transpose(0, 2, 1))
    k = np.arange(y.shape[1])
    R[:, k, k] += y
    return (np.log(total) + top) @ w, y, R


def _at_many_nodes(m: Matrix, B: Matrix, z: Matrix, w: Vector) -> tuple[Vector, Matrix, Matrix]:
    """Return what `_at_nodes` does at many nodes of equal weight w, which the widest rows take: in float32.

    Its rounding, some 1e-6, is far below the error of the nodes there, and log sums are added up in float64.
    """
    assert w[0] == w[-1]  # noqa: S101  Sobol points
    n, K = m.shape
    if compiled.loops is not None and K <= compiled.MOST_OUTPUTS:
        return _compiled_nodes(m, B, z, w, np.float32)
    top = m.max(axis=1)
    loads = np.concatenate([B, (m - top[:, None])[:, :, None]], axis=2).astype(np.float32).reshape(n * K, -1)
    columns = np.concatenate([z.T, np.ones((1, len(z)))]).astype(np.float32)
    a = (loads @ columns).reshape(n, K, len(z))
    reach = float(np.abs(B).sum(axis=2).max()) * float(np.abs(z).max())
    if reach > _REACH:  # e^a might overflow, or all vanish
        highest = a.max(axis=1)
        a -= highest[:, None]
        top = top + np.mean(highest, axis=1, dtype=np.float64)
    np.exp(a, out=a)
    total = a.sum(axis=1)
    a *= (1 / total)[:, None]
    log_sum = top + np.mean(np.log(total, out=total), axis=1, dtype=np.float64)
    products = np.asarray(a @ a.transpose(0, 2, 1), dtype=np.float64) / len(z)
    return _of_products(log_sum, products)


def _of_products(log_sum: Vector, products: Matrix) -> tuple[Vector, Matrix, Matrix]:
    """Return E ln Σ e^a, E y and E [diag y - y yᵀ] of the first and E y yᵀ (n, K, K)."""
    y: Matrix = np.asarray(products.sum(axis=2))  # the classes' probabilities sum to one at each node
    R = -products
    k = np.arange(len(R[0]))
    R[:, k, k] += y
    return log_sum, y, R


def _compiled_nodes(
    m: Matrix, B: Matrix, z: Matrix, w: Vector, dtype: type[np.float32 | np.float64]
) -> tuple[Vector, Matrix, Matrix]:
    """Return what `_at_nodes` does, or in single precision what `_at_many_nodes` does, by the loops in C."""
    assert compiled.loops is not None  # noqa: S101  the callers have asked
    n, K = m.shape
    log_sum, products = np.empty(n), np.empty((n, K, K))
    nodes = compiled.filled(z, w, dtype)
    compiled.loops.softmax_nodes(np.ascontiguousarray(m), np.ascontiguousarray(B), *nodes, log_sum, products)
    return _of_products(log_sum, products)
