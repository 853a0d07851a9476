"""Sums over the rows: the only loop over data in fitting.

A term is a tuple of arrays that add up: value, gradient, Hessian of the log likelihood, or whatever a function of a
chunk returns.  Chunk boundaries depend on the number of columns alone and parts are added in their order, so the result
does not depend on how many threads worked.  Whatever has `accumulate` may stand in for the rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.covariances import (
    Covariances,
    class_covariances,
    compiles,
    hessian_of,
    packed_grams,
    scratch_of_row,
    unpacked_blocks,
)
from blr.likelihood.likelihoods import LOGISTIC, Bernoulli, Categorical, Likelihood
from blr.threads import default_threads, ordered_map, single_threaded_blas

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
_FEW_OUTPUTS = 8  # up to which sums are by contrast, beyond by class


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


def added(parts: Iterable[Terms]) -> Terms:
    """Return the sums of the parts' terms, one part or more, in their order."""
    return reduce(lambda total, part: tuple(a + b for a, b in zip(total, part, strict=True)), parts)


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
        weight = None if self.weight is None else self.weight[start:stop]
        return self.Phi[start:stop], self.t[start:stop], weight

    def every(self, step: int) -> Rows:
        """Return every `step`-th row, contiguous, with weights that make up for the rest."""
        Phi, t = (np.ascontiguousarray(x[::step]) for x in (self.Phi, self.t))
        weight = np.full(len(Phi), float(step)) if self.weight is None else step * self.weight[::step]
        return Rows(Phi, t, weight, self.threads)

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
            return added(function(*self.chunk(i, min(i + size, stop))) for i in range(start, stop, size))

        with single_threaded_blas():
            threads = min(self.threads, len(starts))
            return added(ordered_map(group, starts, threads=threads, keep=True))


def blockwise(function: ChunkFunction, per_row: int) -> ChunkFunction:
    """Return `function`, applied to blocks of a chunk of which each row takes `per_row` numbers of scratch."""
    size = max(_MIN_BLOCK, _BLOCK_NUMBERS // per_row)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        if len(Phi) <= size:
            return function(Phi, t, weight)
        parts = (slice(i, i + size) for i in range(0, len(Phi), size))
        return added(function(Phi[p], t[p], None if weight is None else weight[p]) for p in parts)

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


def evenly_spread(data: Data, most: int) -> tuple[int, Matrix]:
    """Return the number of rows, and the design of `most` to 2 `most` of them, evenly spread (n, M)."""

    def terms(Phi: Matrix, _t: Matrix, _weight: Vector | None) -> Terms:
        return len(Phi), [Phi[:: max(1, len(Phi) // most)]]

    n, parts = data.accumulate(terms)
    rows = np.concatenate(parts)
    return int(n), rows[:: max(1, len(rows) // most)]


def activations(Phi: Matrix, theta: Vector, n_outputs: int) -> Matrix:
    """Return the activations (n, C) of weights theta (C M,), flat in order c M + m."""
    return Phi @ np.ascontiguousarray(theta.reshape(n_outputs, -1).T)


def likelihood_terms(likelihood: Likelihood, theta: Vector, *, hessian: bool = True) -> ChunkFunction:
    """Return the function of a chunk that gives value, gradient (D,) and, unless told not to, Hessian (D, D) of -ln p.

    theta is flat in order c M + m, c the output.  The gradient is that of +ln p (PRML 4.91, 4.109 turned).
    """
    if many_classes(likelihood):
        return _softmax_sums(likelihood, theta, hessian=hessian)
    C = likelihood.n_outputs
    plain = type(likelihood) is Bernoulli and likelihood.link is LOGISTIC

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        if plain and compiles(Phi):
            return _logistic_sums(Phi, theta, t, weight, hessian=hessian)
        derivatives = likelihood.derivatives(activations(Phi, theta, C), t)
        return summed(likelihood, Phi, weight, *derivatives, hessian=hessian)

    return terms


def many_classes(likelihood: Likelihood) -> TypeGuard[Categorical]:
    """Say whether a softmax in contrasts has so many classes that sums are taken by class, and then contrasted."""
    if not isinstance(likelihood, Categorical):
        return False
    return likelihood.contrasts and likelihood.n_outputs > _FEW_OUTPUTS


def in_classes(likelihood: Categorical, theta: Vector) -> tuple[Categorical, Vector]:
    """Return the same likelihood of all K activations, and its weights (K M,) for the contrasts' theta (C M,)."""
    T = likelihood.transform
    return replace(likelihood, contrasts=False), (T @ theta.reshape(T.shape[1], -1)).ravel()


def in_contrasts(likelihood: Categorical, terms: ChunkFunction) -> ChunkFunction:
    """Return `terms` by the contrasts' weights (C M,), where its gradient (K M,) is by the classes'.

    The Hessian, where there is one, is packed as that of `class_sums`.
    """
    T = likelihood.transform
    K, C = T.shape

    def contrasted(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        found, M = terms(Phi, t, weight), Phi.shape[1]
        out = found[0], (T.T @ found[1].reshape(K, -1)).ravel()
        if len(found) == len(out):
            return out
        half = (T.T @ unpacked_blocks(found[2], K, M).reshape(K, M * K * M)).reshape(C * M, K, M)
        return (*out, np.matmul(T.T, half).reshape(C * M, C * M))

    return contrasted


def class_sums(
    Phi: Matrix, weight: Vector | None, value: Vector, gradient: Matrix, curvature: Matrix | None = None
) -> Terms:
    """Return what `summed` does, by classes, the Hessian as packed sums of φφᵀ (M(M+1)/2, P)."""
    if weight is not None:
        value, gradient = weight * value, weight[:, None] * gradient
    total = float(value.sum()), (gradient.T @ Phi).ravel()
    if curvature is None:
        return total
    return (*total, packed_grams(Phi, curvature if weight is None else weight[:, None] * curvature))


def _softmax_sums(likelihood: Categorical, theta: Vector, *, hessian: bool) -> ChunkFunction:
    """Return what `likelihood_terms` does of many classes: by class, where a row's curvature is diag y - y yᵀ."""
    of_classes, weights = in_classes(likelihood, theta)
    K = likelihood.n_classes

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        a = activations(Phi, weights, K)
        return class_sums(
            Phi, weight, *(of_classes.derivatives(a, t) if hessian else of_classes.slopes(a, t)[:2])
        )

    return in_contrasts(likelihood, blockwise(terms, K * K if hessian else 4 * K))


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
    return (*total, hessian_of(Phi, curvature, likelihood)) if hessian else total


def skewness_term(likelihood: Likelihood, theta: Vector, inverse_cholesky: Matrix) -> ChunkFunction:
    """Return the function of a chunk that gives g = d/dθ tr(H(θ) A⁻¹), A held fixed, (D,).

    For two classes g = Σ c3 h φ, c3 = y(1-y)(1-2y), h = φᵀA⁻¹φ.  -g/2 is the pull of the third derivatives: A⁻¹ times
    it is the shift of the posterior mean from the mode, and it is what makes the evidence's gradient exact.
    """
    if many_classes(likelihood):
        of_classes, weights = in_classes(likelihood, theta)
        covariances = class_covariances(inverse_cholesky, likelihood.n_outputs, likelihood.transform)
        skewness = _skewness(of_classes, weights, covariances)
        T = likelihood.transform
        return lambda Phi, t, weight: ((T.T @ skewness(Phi, t, weight)[0].reshape(len(T), -1)).ravel(),)
    return _skewness(likelihood, theta, class_covariances(inverse_cholesky, likelihood.n_outputs))


def _skewness(likelihood: Likelihood, theta: Vector, covariances: Covariances) -> ChunkFunction:
    C = likelihood.n_outputs

    def term(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        g = likelihood.curvature_gradient(activations(Phi, theta, C), t, covariances(Phi))
        if weight is not None:
            g = weight[:, None] * g
        return ((g.T @ Phi).ravel(),)

    return blockwise(term, scratch_of_row(C, len(theta) // C))
