"""Sums over the rows: the only loop over data in fitting.

A term is a tuple of arrays that add up: value, gradient, Hessian of the log likelihood, or whatever a function of a
chunk returns.  Chunk boundaries depend on the number of columns alone and parts are added in their order, so the result
does not depend on how many threads worked.  Whatever has `accumulate` may stand in for the rows in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import strmm

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.likelihood.likelihoods import Bernoulli, Likelihood, pairs, unpack
from blr.likelihood.links import LOGISTIC
from blr.threads import default_threads, ordered_map, single_threaded_blas

__all__ = [
    "Chunk",
    "ChunkFunction",
    "Data",
    "Rows",
    "Terms",
    "activations",
    "added",
    "blockwise",
    "chunk_rows",
    "likelihood_terms",
    "output_covariances",
    "skewness_term",
    "squared_lengths",
    "summed",
    "thinned",
]

Terms = tuple[Any, ...]
"""Arrays or scalars that add up."""

Chunk = tuple[Matrix, Matrix, Vector | None]
"""Phi (n, M), targets (n,) or (n, K) as fractions, weight (n,) or None."""

ChunkFunction = Callable[[Matrix, Matrix, Vector | None], Terms]
"""What is summed: a function of a chunk."""

_CHUNK_BYTES = 2**21  # of Phi: with its scaled copy in the second-level cache, and Python's share small
_MIN_ROWS = 256
_GROUP = 8  # chunks added up by one thread before it hands over: larger pieces in the ordered reduction
_TASKS = 8  # groups, at least, where there are as many chunks: no thread should wait long for the last one
_BLOCK_NUMBERS = 2**20  # of scratch that a row-wise function may fill at once
_MIN_BLOCK = 16

_MOST_PANELS = 1000  # weights up to which a precision stays in the second cache
_MOST_COMPILED = 256  # columns up to which our compiled sums of products are quicker than BLAS

_DOUBLE = np.dtype(np.float64)

_scratch = threading.local()


def chunk_rows(n_functions: int) -> int:
    """Return the rows of a chunk for M columns, a power of two."""
    return int(max(_MIN_ROWS, 2 ** int(np.log2(max(1, _CHUNK_BYTES // (8 * n_functions))))))


class Data(Protocol):
    """Rows to be summed over, wherever they are."""

    @property
    def n_functions(self) -> int:
        """Columns M of the design matrix."""
        ...

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of `function(Phi, t, weight)` over all chunks."""
        ...


def added(total: Terms | None, part: Terms) -> Terms:
    """Return the terms of both; of the second where there is no first."""
    if total is None:
        return part
    return tuple(a + b for a, b in zip(total, part, strict=True))


def _sum(function: ChunkFunction, chunks: Iterable[Chunk]) -> Terms:
    total: Terms | None = None
    for chunk in chunks:
        total = added(total, function(*chunk))
    if total is None:
        raise ValueError("there are no rows to sum over; give at least one")
    return total


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in memory: Phi (N, M), t (N,) or (N, K), weight (N,) or None."""

    Phi: Matrix
    t: Matrix
    weight: Vector | None = None
    threads: int = field(default_factory=default_threads)

    @property
    def n_functions(self) -> int:
        """Columns of Phi."""
        return int(self.Phi.shape[1])

    def chunk(self, start: int, stop: int) -> Chunk:
        """Return the rows from `start` to `stop`."""
        return (
            self.Phi[start:stop],
            self.t[start:stop],
            None if self.weight is None else self.weight[start:stop],
        )

    def every(self, step: int) -> Rows:
        """Return every `step`-th row, contiguous, with weights that make up for the rest."""
        weight = (
            np.full(len(self.Phi[::step]), float(step)) if self.weight is None else step * self.weight[::step]
        )
        return Rows(
            np.ascontiguousarray(self.Phi[::step]), np.ascontiguousarray(self.t[::step]), weight, self.threads
        )

    def chosen(self, rows: NDArray[np.bool_]) -> Rows:
        """Return the rows of a mask (N,)."""
        weight = None if self.weight is None else self.weight[rows]
        return Rows(self.Phi[rows], self.t[rows], weight, self.threads)

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of `function` over fixed chunks, on threads, reduced in order."""
        n, size = len(self.Phi), chunk_rows(self.n_functions)
        together = size * max(1, min(_GROUP, n // size // _TASKS))
        starts = range(0, n, together)

        def group(start: int) -> Terms:
            stop = min(start + together, n)
            return _sum(function, (self.chunk(i, min(i + size, stop)) for i in range(start, stop, size)))

        with single_threaded_blas():
            total: Terms | None = None
            threads = min(self.threads, len(starts))
            for part in ordered_map(group, starts, threads=threads, keep=True):
                total = added(total, part)
        assert total is not None  # noqa: S101  as_matrix refuses empty data
        return total


def blockwise(function: ChunkFunction, per_row: int) -> ChunkFunction:
    """Return `function`, applied to blocks of a chunk of which each row takes `per_row` numbers of scratch."""
    size = max(_MIN_BLOCK, _BLOCK_NUMBERS // per_row)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        if len(Phi) <= size:
            return function(Phi, t, weight)
        parts = (slice(i, i + size) for i in range(0, len(Phi), size))
        return _sum(function, ((Phi[p], t[p], None if weight is None else weight[p]) for p in parts))

    return terms


def thinned(function: ChunkFunction, step: int) -> ChunkFunction:
    """Return `function`, applied to one row drawn from each `step` consecutive ones of a chunk.

    Drawn by position alone, with a fixed seed: a sorted catalogue is sampled evenly, and threads change nothing.
    """
    if step <= 1:
        return function

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        start = np.arange(0, len(Phi), step)
        rows = np.minimum(start + np.random.default_rng(0).integers(0, step, len(start)), len(Phi) - 1)
        return function(Phi[rows], t[rows], None if weight is None else weight[rows])

    return terms


def _buffer(shape: tuple[int, int], dtype: np.dtype[Any] = _DOUBLE) -> Any:
    """Return a thread's own scratch matrix: fresh large arrays cost more in page faults than in arithmetic."""
    held: Matrix | None = getattr(_scratch, "matrix", None)
    if held is None or held.size < shape[0] * shape[1]:
        held = _scratch.matrix = np.empty(shape[0] * shape[1])
    return held.view(dtype)[: shape[0] * shape[1]].reshape(shape)


def _weighted_gram(Phi: Matrix, r: Vector, *, positive: bool) -> Matrix:
    """Return Φᵀ diag(r) Φ."""
    scaled = _buffer(Phi.shape)
    if positive:  # A Gram matrix of one array is a rank-k update, half the work
        np.multiply(Phi, np.sqrt(r)[:, None], out=scaled)
        return scaled.T @ scaled
    np.multiply(Phi, r[:, None], out=scaled)
    gram = scaled.T @ Phi
    return 0.5 * (gram + gram.T)


def activations(Phi: Matrix, theta: Vector, n_outputs: int) -> Matrix:
    """Return the activations (n, C) of weights theta (C M,), flat in order c M + m."""
    return Phi @ np.ascontiguousarray(theta.reshape(n_outputs, -1).T)


def likelihood_terms(likelihood: Likelihood, theta: Vector, *, hessian: bool = True) -> ChunkFunction:
    """Return the function of a chunk that gives value, gradient (D,) and, unless told not to, Hessian (D, D) of -ln p.

    theta is flat in order c M + m, c the output.  The gradient is that of +ln p (PRML 4.91, 4.109 turned).
    """
    C = likelihood.n_outputs
    plain = type(likelihood) is Bernoulli and likelihood.link is LOGISTIC

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        if plain and _compiles(Phi):
            return _logistic_sums(Phi, theta, t, weight, hessian=hessian)
        derivatives = likelihood.derivatives(activations(Phi, theta, C), t)
        return summed(likelihood, Phi, weight, *derivatives, hessian=hessian)

    return terms


def _compiles(Phi: NDArray[np.floating]) -> bool:
    """Say whether the loops in C take these rows, and are quicker than NumPy."""
    fit = Phi.dtype == np.float64 and Phi.flags.c_contiguous and Phi.shape[1] <= _MOST_COMPILED
    return fit and compiled.loops is not None


def _logistic_sums(Phi: Matrix, theta: Vector, t: Vector, weight: Vector | None, *, hessian: bool) -> Terms:
    """Return what `summed` does of two classes: one sweep, in which rows stay in the first cache."""
    assert compiled.loops is not None  # noqa: S101  `_compiles` has asked
    M = Phi.shape[1]
    gradient, H = np.empty(M), np.empty((M, M)) if hessian else None
    shares = np.ascontiguousarray(t, dtype=np.float64)
    weights = None if weight is None else np.ascontiguousarray(weight, dtype=np.float64)
    value = compiled.loops.logistic_sums(Phi, np.ascontiguousarray(theta), shares, weights, gradient, H)
    return (value, gradient) if H is None else (value, gradient, H)


def summed(
    likelihood: Likelihood,
    Phi: Matrix,
    weight: Vector | None,
    value: Vector,
    gradient: Matrix,
    curvature: Matrix,
    *,
    hessian: bool = True,
) -> Terms:
    """Return the sums over a chunk of the rows' value (n,), gradient (n, C) and packed curvature (n, P)."""
    if weight is not None:
        value, gradient, curvature = weight * value, weight[:, None] * gradient, weight[:, None] * curvature
    total = float(value.sum()), (gradient.T @ Phi).ravel()
    return (*total, _hessian(Phi, curvature, likelihood)) if hessian else total


def _hessian(Phi: Matrix, curvature: Matrix, likelihood: Likelihood) -> Matrix:
    C, M = likelihood.n_outputs, Phi.shape[1]
    H = np.empty((C, M, C, M))
    if compiled.loops is not None and _compiles(Phi):
        grams = np.empty((len(pairs(C)), M, M))
        compiled.loops.weighted_grams(Phi, np.ascontiguousarray(curvature), grams)
        for gram, (c, d) in zip(grams, pairs(C), strict=True):
            H[c, :, d, :] = H[d, :, c, :] = gram
        return H.reshape(C * M, C * M)
    for p, (c, d) in enumerate(pairs(C)):
        positive = c == d and likelihood.log_concave
        # Rounding can leave a curvature of -1e-17 where a class is certain.
        r = np.maximum(curvature[:, p], 0.0) if positive else curvature[:, p]
        H[c, :, d, :] = H[d, :, c, :] = _weighted_gram(Phi, r, positive=positive)
    return H.reshape(C * M, C * M)


def output_covariances(
    Phi: NDArray[np.floating], inverse_cholesky: NDArray[np.floating], n_outputs: int
) -> Matrix:
    """Return the covariance (n, C, C) of the C activations of each row under a precision L Lᵀ, given L⁻¹ (D, D).

    Blocks (M, M) of L⁻¹ above the diagonal are taken for zero.  Both in single precision are multiplied in that.
    """
    C = n_outputs
    packed = np.zeros((C * (C + 1) // 2, len(Phi)))
    few = C <= compiled.MOST_OUTPUTS and len(inverse_cholesky) <= _MOST_PANELS
    if compiled.loops is not None and few and Phi.dtype == inverse_cholesky.dtype:
        X, U = np.ascontiguousarray(Phi), np.ascontiguousarray(inverse_cholesky)
        compiled.loops.add_squares(X, U, packed)
        return unpack(packed.T, C)
    size = chunk_rows(inverse_cholesky.shape[1])
    for start in range(0, len(Phi), size):
        rows = slice(start, start + size)
        _add_squares(Phi[rows], inverse_cholesky, packed[:, rows])
    return unpack(packed.T, C)


def _add_squares(Phi: NDArray[np.floating], U: NDArray[np.floating], packed: Matrix) -> None:
    """Add Σ_b z_bc'z_bd of the rows' whitened activations z_bc = U_bc φ to `packed` (P, n).

    Whitened, not φ'A⁻¹φ itself: squares cannot go negative, however ill A is conditioned.
    """
    n, M = Phi.shape
    C = len(U) // M
    Z = _buffer((C * n, M), Phi.dtype).reshape(C, n, M)
    single = Phi.dtype == np.float32
    for b in range(C):
        for c in range(b + 1):  # U is lower triangular
            block = U[b * M : (b + 1) * M, c * M : (c + 1) * M]
            if (
                single and b == c
            ):  # the product with a triangle is half the work; in double precision it is no quicker
                np.copyto(Z[c], Phi)
                strmm(1.0, block.T, Z[c].T, trans_a=1, overwrite_b=1)
            else:
                np.matmul(Phi, block.T, out=Z[c])
        for p, (c, d) in enumerate(pairs(C)):
            if d <= b:
                packed[p] += _row_products(Z[c], Z[d]) if single else np.einsum("nm,nm->n", Z[c], Z[d])


def _row_products(X: NDArray[np.float32], Y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return Σ_m x_nm y_nm of each row, (n,): quicker than np.einsum, which does not use BLAS here."""
    return np.asarray((X * Y) @ np.ones(X.shape[1], X.dtype))


def squared_lengths(Phi: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return |φ|² of each row, (n,)."""
    return _row_products(Phi, Phi)


def skewness_term(likelihood: Likelihood, theta: Vector, inverse_cholesky: Matrix) -> ChunkFunction:
    """Return the function of a chunk that gives g = d/dθ tr(H(θ) A⁻¹), A held fixed, (D,).

    For two classes g = Σ c3 h φ, c3 = y(1-y)(1-2y), h = φᵀA⁻¹φ.  -g/2 is the pull of the third derivatives: A⁻¹ times
    it is the shift of the posterior mean from the mode, and it is what makes the evidence's gradient exact.
    """
    C = likelihood.n_outputs

    def term(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        V = output_covariances(Phi, inverse_cholesky, C)
        g = likelihood.curvature_gradient(activations(Phi, theta, C), t, V)
        if weight is not None:
            g = weight[:, None] * g
        return ((g.T @ Phi).ravel(),)

    return blockwise(term, C * len(theta) + C * C)
