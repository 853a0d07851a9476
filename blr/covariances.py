"""Sums over all pairs of outputs: weighted Gram matrices, and covariances of the outputs of rows.

Each pair of C outputs has a symmetric matrix (M, M), and φᵀ B φ is a scalar product of the packed φφᵀ and B: of many
outputs one matrix product does what C(C+1)/2 small ones do.  Few outputs are done one pair at a time, in C where that
was built.  Shapes: n rows, M columns, C outputs, P = C(C+1)/2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import strmm

from blr import compiled
from blr.arrays import Matrix, Vector
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
    whitened = partial(_transformed_whitened, inverse_cholesky=inverse_cholesky, C=C, transform=transform)
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
    size = max(_MIN_BLOCK, _PRODUCT_NUMBERS // sum(blocks.shape))

    return partial(_packed_covariances, blocks=blocks, sd=sd, place=place, size=size, whitened=whitened)


def _packed_covariances(
    Phi: NDArray[np.floating],
    *,
    blocks: Matrix,
    sd: Matrix,
    place: NDArray[np.intp],
    size: int,
    whitened: Covariances,
) -> Matrix:
    K = sd.shape[1]
    V = np.empty((len(Phi), K * K))
    for start in range(0, len(Phi), size):
        packed = _products_of_columns(Phi[start : start + size]).T @ blocks
        np.take(packed, place, axis=1, out=V[start : start + size], mode="clip")
    terms = (np.abs(Phi) @ sd) ** 2
    cancelled = (terms > _MOST_CANCELLED * V[:, :: K + 1]).any(axis=1)
    V = V.reshape(-1, K, K)
    if cancelled.any():
        V[cancelled] = whitened(Phi[cancelled])
    return V


def _transformed_whitened(
    Phi: NDArray[np.floating], *, inverse_cholesky: NDArray[np.floating], C: int, transform: Matrix | None
) -> Matrix:
    return _transformed(_whitened_covariances(Phi, inverse_cholesky, C), transform)


def _transformed(V: Matrix, T: Matrix | None) -> Matrix:
    return V if T is None else T @ V @ T.T


def _whitened_covariances(
    Phi: NDArray[np.floating], inverse_cholesky: NDArray[np.floating], C: int
) -> Matrix:
    """Return the covariances (n, C, C) as products of whitened rows, which no cancellation makes negative."""
    packed = np.zeros((C * (C + 1) // 2, len(Phi)))
    few = C <= compiled.MOST_OUTPUTS and len(inverse_cholesky) <= _MOST_PANELS
    if compiled.loops is not None and few and Phi.dtype == inverse_cholesky.dtype:
        X, U = np.ascontiguousarray(Phi), np.ascontiguousarray(inverse_cholesky)
        compiled.loops.add_squares(X, U, packed)
        return unpack(packed.T, C)
    size = max(_MIN_BLOCK, _WHITENED_NUMBERS // inverse_cholesky.shape[1])
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
