"""Sums over all pairs of outputs: weighted Gram matrices, and the mean and covariance of the outputs of rows.

Each pair of C outputs has a symmetric matrix (M, M), and φᵀ B φ is a scalar product of the packed φφᵀ and B: of many
outputs one matrix product does what C(C+1)/2 small ones do.  Few outputs are done one pair at a time, in C where that
was built.

New rows' activations under N(w | m, A⁻¹), A = L Lᵀ, have the covariance z'z with z = L⁻¹ φ.  It takes most of the time
of a prediction, C² M² operations a row, and single precision halves it.  Rounding moves z by at most
(M + 2) 2⁻²⁴ |L⁻¹| |φ| (Higham 2002, Accuracy and Stability of Numerical Algorithms, 3.5; here |·| is of each entry).

- Of two classes, where z is a vector, δz bounds its move and v = z'z is the variance, a probability changes by at most
  sup|σ''|/2 = 0.0482 times 2 √v δz + δz² + (M + 2) 2⁻²⁴ v: by 5e-8 where single precision serves.  These are models of
  many labels; of few, whose variances are large, double precision is left.
- Of more classes, it moves the sd of a contrast by at most √2 times its length.  A probability changes by at most
  E|z|/4 = 0.2 of what a contrast's sd does: by 4e-5 for three and four classes and 2e-4 for more, where 1e-4 and 1e-3
  are promised, at the very worst; 1e-7 is usual.

Rows of which less is known are done in double precision.
Shapes: n or N rows, M columns, C outputs, P = C(C+1)/2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import strmm

from blr import compiled
from blr.arrays import Matrix, Vector, slices
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Likelihood, pairs, unpack

_MOST_PANELS = 1000  # weights up to which a precision stays in the second cache
_MOST_COMPILED = 256  # columns up to which our compiled sums of products are quicker than BLAS
_FEW_OUTPUTS = 8  # up to which sums over pairs of outputs are taken one by one
# Columns for each of more outputs, up to which those are taken together; very many always are.
_COLUMNS_AN_OUTPUT, _VERY_MANY = 4, 16
_MOST_CANCELLED = 1e4  # size of a variance's terms beside their sum, from which a row is whitened instead
_PRODUCT_NUMBERS = 2**18  # of products of columns, and of the pairs of outputs, held at a time
_DOUBLE = np.dtype(np.float64)
_WHITENED_NUMBERS = 2**18  # of rows whitened at a time
_MIN_BLOCK = 16
Covariances = Callable[[NDArray[np.floating]], Matrix]
"""Covariances (n, C, C) of the C outputs of rows (n, M)."""
_scratch = threading.local()
_BLOCK = 4096  # rows a block in prediction: fixed, so that a row's result depends little on its neighbours
# Of a contrast, at the worst, by rounding to single precision: of up to three outputs, and of more.
_SD_ERROR, _SD_ERROR_MANY = 2e-4, 1e-3
_FEW = 3
_UNIT = float(np.finfo(np.float32).eps) / 2
_VARIANCE_ERROR = 5e-8 / 0.0482  # of one output, which changes no probability by more than 5e-8
_SHORT = 1.0  # rows are longer than this, nearly all: an intercept alone is


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


def compiles(Phi: NDArray[np.floating]) -> bool:
    """Say whether the loops in C take these rows, and are quicker than NumPy."""
    fit = Phi.dtype == np.float64 and Phi.flags.c_contiguous and Phi.shape[1] <= _MOST_COMPILED
    return fit and compiled.loops is not None


def hessian_of(Phi: Matrix, curvature: Matrix, likelihood: Likelihood) -> Matrix:
    """Return the Hessian (C M, C M) of -ln p from the rows' packed curvature (n, P)."""
    C, M = likelihood.n_outputs, Phi.shape[1]
    if _packs(C, M):
        return unpacked_blocks(packed_grams(Phi, curvature), C, M)
    H = np.empty((C, M, C, M))
    if compiled.loops is not None and compiles(Phi):
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


def _packs(C: int, M: int) -> bool:
    """Say whether sums over all pairs of C outputs are quicker as one product with the packed φφᵀ of M columns."""
    return C > _FEW_OUTPUTS and (M <= _COLUMNS_AN_OUTPUT * C or C > _VERY_MANY)


def scratch_of_row(C: int, M: int) -> int:
    """Return how many numbers a row takes while its covariances are found."""
    return 2 * C * C if _packs(C, M) else C * C * (M + 1)


def _products_of_columns(Phi: NDArray[np.floating]) -> Matrix:
    """Return the packed φφᵀ, (M(M+1)/2, n), pairs (i, j >= i) in row order, in a thread's own scratch."""
    n, M = Phi.shape
    X, out, start = np.ascontiguousarray(Phi.T), _buffer((M * (M + 1) // 2, n)), 0
    for i in range(M):
        np.multiply(X[i], X[i:], out=out[start : start + M - i])
        start += M - i
    return cast("Matrix", out)


def packed_grams(Phi: Matrix, r: Matrix) -> Matrix:
    """Return the packed Φᵀ diag(r_p) Φ, (M(M+1)/2, P), for all columns p of r (n, P)."""
    M = Phi.shape[1]
    Q = M * (M + 1) // 2
    grams, size = np.zeros((Q, r.shape[1])), max(_MIN_BLOCK, _PRODUCT_NUMBERS // (Q + r.shape[1]))
    for start in range(0, len(Phi), size):
        grams += _products_of_columns(Phi[start : start + size]) @ r[start : start + size]
    return grams


def _place_in_packed(n: int) -> NDArray[np.intp]:
    """Return where each entry of a symmetric matrix (n, n) is among the packed ones."""
    i, j = np.triu_indices(n)
    place = np.empty((n, n), dtype=np.intp)
    place[i, j] = place[j, i] = np.arange(len(i))
    return place


def unpacked_grams(packed: Matrix, M: int) -> Matrix:
    """Return the symmetric matrices (P, M, M) that are the columns of `packed`."""
    return packed[_place_in_packed(M)].transpose(2, 0, 1)


def unpacked_blocks(packed: Matrix, C: int, M: int) -> Matrix:
    """Return the symmetric matrix (C M, C M) whose blocks (c, d), symmetric too, are the columns of `packed`."""
    by_columns = packed[_place_in_packed(M).ravel()].reshape(M, M, -1)
    return by_columns[:, :, _place_in_packed(C)].transpose(2, 0, 3, 1).reshape(C * M, C * M)


def output_covariances(
    Phi: NDArray[np.floating], inverse_cholesky: NDArray[np.floating], n_outputs: int
) -> Matrix:
    """Return the covariance (n, C, C) of the C activations of each row under a precision L Lᵀ, given L⁻¹ (D, D).

    Blocks (M, M) of L⁻¹ above the diagonal are taken for zero.  Both in single precision are multiplied in that, where
    outputs are few.
    """
    return class_covariances(inverse_cholesky, n_outputs)(Phi)


def class_covariances(
    inverse_cholesky: NDArray[np.floating], n_outputs: int, transform: Matrix | None = None
) -> Covariances:
    """Return `output_covariances` as a function of the rows, for many calls; of T a (K) instead of a by `transform` T.

    Of many outputs V_cd = φ' (A⁻¹)_cd φ comes from one product of the packed φφᵀ with the packed blocks of A⁻¹.  Rows
    whose terms cancel there, as those of collinear columns do, are whitened as all are with few outputs.
    """
    C = n_outputs
    M = len(inverse_cholesky) // C
    whitened = partial(_whitened_covariances, inverse_cholesky=inverse_cholesky, C=C, transform=transform)
    if not _packs(C, M):
        return whitened
    U = inverse_cholesky.astype(np.float64, copy=False)
    if transform is not None:
        U = np.matmul(transform, U.reshape(C * M, C, M)).reshape(C * M, -1)
    K = U.shape[1] // M
    S = (U.T @ U).reshape(K, M, K, M)
    c, d = np.triu_indices(K)
    i, j = np.triu_indices(M)
    blocks = S[c, i[:, None], d, j[:, None]] + S[c, j[:, None], d, i[:, None]]  # (Q, P)
    blocks[i == j] *= 0.5
    sd = np.sqrt(np.einsum("cmcm->mc", S))
    place = _place_in_packed(K).ravel()
    return partial(_packed_covariances, blocks=blocks, sd=sd, place=place, whitened=whitened)


def _packed_covariances(
    Phi: NDArray[np.floating], *, blocks: Matrix, sd: Matrix, place: Any, whitened: Covariances
) -> Matrix:
    K = sd.shape[1]
    V = np.empty((len(Phi), K * K))
    size = max(_MIN_BLOCK, _PRODUCT_NUMBERS // sum(blocks.shape))
    for start in range(0, len(Phi), size):
        packed = _products_of_columns(Phi[start : start + size]).T @ blocks
        np.take(packed, place, axis=1, out=V[start : start + size], mode="clip")
    terms = (np.abs(Phi) @ sd) ** 2
    cancelled = (terms > _MOST_CANCELLED * V[:, :: K + 1]).any(axis=1)
    V = V.reshape(-1, K, K)
    if cancelled.any():
        V[cancelled] = whitened(Phi[cancelled])
    return V


def _whitened_covariances(
    Phi: NDArray[np.floating], *, inverse_cholesky: NDArray[np.floating], C: int, transform: Matrix | None
) -> Matrix:
    """Return the covariances (n, C, C) as products of whitened rows, which no cancellation makes negative."""
    packed = np.zeros((C * (C + 1) // 2, len(Phi)))
    few = C <= compiled.MOST_OUTPUTS and len(inverse_cholesky) <= _MOST_PANELS
    if compiled.loops is not None and few and Phi.dtype == inverse_cholesky.dtype:
        X, U = np.ascontiguousarray(Phi), np.ascontiguousarray(inverse_cholesky)
        compiled.loops.add_squares(X, U, packed)
    else:
        size = max(_MIN_BLOCK, _WHITENED_NUMBERS // inverse_cholesky.shape[1])
        for rows in slices(len(Phi), size):
            _add_squares(Phi[rows], inverse_cholesky, packed[:, rows])
    V = unpack(packed.T, C)
    return V if transform is None else transform @ V @ transform.T


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
            # The product with a triangle is half the work; in double precision it is no quicker.
            if single and b == c:
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


@dataclass(frozen=True, eq=False)
class OutputMoments:
    """The moments of C activations of weights (C M,) in order c M + m, as a function of rows Phi."""

    gaussian: Gaussian
    n_outputs: int

    def __call__(self, Phi: Matrix, *, single: bool = False) -> tuple[Matrix, Matrix]:
        """Return mean (N, C) and covariance (N, C, C) of rows Phi (N, M).

        `single`: with covariances in single precision where that is known to change no probability by more than 5e-8 of
        one output, and the sd of no contrast by more than 2e-4 of up to three outputs, 1e-3 of more.
        """
        C = self.n_outputs
        weights = np.ascontiguousarray(self.gaussian.mean.reshape(C, -1).T)
        mean, covariance = np.empty((len(Phi), C)), np.empty((len(Phi), C, C))
        for block in slices(len(Phi), _BLOCK):
            np.matmul(Phi[block], weights, out=mean[block])
            covariance[block] = self._covariance(Phi[block], single=single)
        return mean, covariance

    def _covariance(self, Phi: Matrix, *, single: bool) -> Matrix:
        if not single or (self.n_outputs == 1 and self._reach_of_one < _SHORT):
            return self._exact(Phi)
        if self.n_outputs == 1:
            rows = Phi.astype(np.float32)
            near = _row_products(rows, rows) <= np.float32(self._reach_of_one**2)  # not where this overflows
        else:
            near = np.einsum("nm,nm->n", Phi, Phi) <= self._reach**2
            with np.errstate(over="ignore"):  # of rows that are not near
                rows = Phi.astype(np.float32)
        if near.all():
            return self._rough(rows)
        V = np.empty((len(Phi), self.n_outputs, self.n_outputs))
        V[near], V[~near] = self._rough(rows[near]), self._exact(Phi[~near])
        return V

    @cached_property
    def _exact(self) -> Covariances:
        """The covariances of rows: of many outputs kept, since few rows are predicted at a time where values lack."""
        return class_covariances(self.gaussian.inverse_cholesky, self.n_outputs)

    @cached_property
    def _rough(self) -> Covariances:
        """The covariances of rows in single precision."""
        return class_covariances(self.gaussian.inverse_cholesky.astype(np.float32), self.n_outputs)

    @cached_property
    def _reach_of_one(self) -> float:
        """The length of φ up to which single precision serves one output, less what its own rounding may hide."""
        U = self.gaussian.inverse_cholesky
        unit = (len(U) + 2) * _UNIT
        size, moved = float(np.linalg.norm(U, 2)), unit * float(np.linalg.norm(np.abs(U), 2))
        error = (2 * size + moved) * moved + unit * size**2  # of the variance, for |φ| = 1
        return (1 - unit) * float(np.sqrt(_VARIANCE_ERROR / error))

    @cached_property
    def _reach(self) -> float:
        """The length of φ up to which single precision serves."""
        by_output = np.split(np.abs(self.gaussian.inverse_cholesky), self.n_outputs, axis=1)
        size = np.sqrt(2 * sum(np.linalg.norm(U, 2) ** 2 for U in by_output))
        allowed = _SD_ERROR if self.n_outputs <= _FEW else _SD_ERROR_MANY
        return float(allowed / ((by_output[0].shape[1] + 2) * _UNIT * size))
