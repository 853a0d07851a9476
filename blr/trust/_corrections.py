"""What the Laplace approximation leaves out, to the next order: the shift of the mean, and of the evidence.

With ψ the negative log posterior, Σ = A⁻¹ its inverse Hessian at the mode and ψ_ijk, ψ_ijkl its further derivatives
(Tierney and Kadane 1986, doi:10.1080/01621459.1986.10478240; Shun and McCullagh 1995,
doi:10.1111/j.2517-6161.1995.tb02060.x):

    E[w] - w_MAP  ≈  δ = -1/2 Σ g,   g_i = ψ_ijk Σ_jk
    Δ ln p(D)     ≈  -1/8 ψ_ijkl Σ_ij Σ_kl + 1/8 gᵀ Σ g + 1/12 ψ_ijk ψ_lmn Σ_il Σ_jm Σ_kn

The first two terms of the evidence are sums over rows; the third is the squared length of a tensor with D³ entries.
Of few rows it is a sum over pairs of them; of many rows some slices of the tensor are held at a time.
Shapes: D = C M weights in the solver's coordinates, C outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from blr.arrays import Matrix, Vector
from blr.covariances import class_covariances, unpacked_blocks
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.likelihood.likelihoods import Categorical, Likelihood
from blr.sums import ChunkFunction, Data, Terms, activations, blockwise, thinned

_FLOPS = 3e9  # for the tensor's slices: beyond, rows are drawn
_DIRECTIONS = 64  # slices of the tensor: all of them up to here, beyond a random orthonormal set
_SLICE_COLUMNS, _FEWEST_COLUMNS = (
    256,
    16,
)  # of each slice, likewise; of very many weights as few as the work allows
_CUBE = 10  # products that a cube of a pair of rows costs beside its scalar product
_HELD = 2**22  # numbers of the tensor held at a time, by a thread


@dataclass(frozen=True, eq=False)
class Corrections:
    """The mean's shift δ (D,), its length in posterior sd, the evidence's second-order term in nats.

    Of `n_rows` in all, `rows` were used for the tensor.
    """

    shift: Vector
    shift_norm: float
    second_order: float
    rows: int
    n_rows: int


def corrections(data: Data, likelihood: Likelihood, gaussian: Gaussian) -> Corrections:
    """Return the corrections to the Laplace approximation `gaussian` of the posterior that has this likelihood.

    The third term is exact where pairs of rows are few, or weights and rows are.  Elsewhere it comes from random
    slices, and from every n-th row, drawn by position: products of a row with itself, which would bias the square, are
    taken out and those of all rows put in.  It is unbiased there.
    """
    U = gaussian.inverse_cholesky
    g, fourth, squares, n = data.accumulate(_row_sums(likelihood, gaussian.mean, U))
    z = U @ g
    triple = _triple(likelihood, gaussian)
    sunset, rows = triple.squared_length(data, float(squares), int(n))
    second_order = -float(fourth) / 8 + float(z @ z) / 8 + sunset / 12
    return Corrections(-0.5 * (U.T @ z), 0.5 * float(np.sqrt(z @ z)), second_order, rows, int(n))


def _row_sums(likelihood: Likelihood, theta: Vector, U: Matrix) -> ChunkFunction:
    """Return g (D,), the fourth derivatives on Σ and Σ, the rows' own squared third derivatives, and their number."""
    C = likelihood.n_outputs
    covariances = class_covariances(U, C)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        a, V = activations(Phi, theta, C), covariances(Phi)
        w = np.ones(len(Phi)) if weight is None else weight
        g = w[:, None] * likelihood.curvature_gradient(a, t, V)
        fourth = float(w @ likelihood.fourth_on(a, t, V))
        squares = float(w**2 @ likelihood.third_squared(a, t, V))
        return (g.T @ Phi).ravel(), fourth, squares, len(Phi)

    return blockwise(terms, C * len(theta) + 4 * (C + 1) ** 2)


@dataclass(frozen=True, eq=False)
class _Triple:
    """The third derivative as a sum over rows, Σ_n T_n ⊗ ψ_n ψ_n ψ_n, and its squared length in the metric Σ.

    ψ = B φ are the columns whitened by the outputs' mean precision, so that sums of products of them lose no digits to
    collinear columns; U (D, D) whitens what is left.
    """

    likelihood: Likelihood
    gaussian: Gaussian
    base: Matrix
    U: Matrix

    @property
    def theta(self) -> Vector:
        return self.gaussian.mean

    @property
    def n_functions(self) -> int:
        return len(self.theta) // self.likelihood.n_outputs

    @property
    def numbers_per_direction(self) -> int:
        M, C = self.n_functions, self.likelihood.n_outputs
        return (M * (M + 1) // 2) * (C * (C + 1) // 2)

    def squared_length(self, data: Data, own: float, n: int) -> tuple[float, int]:
        """Return |Σ_n x_n|² and the rows used; `own` is Σ_n |x_n|² over all n rows."""
        D = len(self.theta)
        m = min(D, _DIRECTIONS)
        of_slices = 2.0 * n * m * self.numbers_per_direction
        step = max(1, int(np.ceil(of_slices / _FLOPS)))
        columns = D
        if D > _SLICE_COLUMNS:
            columns = int(np.clip(_FLOPS / (4.0 * m * D**2), _FEWEST_COLUMNS, _SLICE_COLUMNS))
        of_pairs = (n * self._cubes_per_row) ** 2 * (D + _CUBE)
        if of_pairs < min(of_slices, _FLOPS) + 4.0 * m * D**2 * columns:
            return self._over_pairs(data), n
        rng = np.random.default_rng(0)
        first, second = _frame(D, m, rng), _frame(D, columns, rng)
        block = max(1, _HELD // self.numbers_per_direction)
        total, drawn, used = 0.0, 0.0, 0
        for start in range(0, m, block):
            B = self.U.T @ first[:, start : start + block]
            G, drawn, used = data.accumulate(thinned(self._slices(B), step))
            total += self._contracted(G, B.shape[1], self.U.T @ second)
        total *= D / m * D / second.shape[1]
        if used == n or used < 2:
            return total, used
        return (total - drawn) * (n * (n - 1.0)) / (used * (used - 1.0)) + own, used

    @property
    def _cubes_per_row(self) -> int:
        return len(self.likelihood.transform) if isinstance(self.likelihood, Categorical) else 1

    def _over_pairs(self, data: Data) -> float:
        """Return |Σ_n x_n|² from all pairs of rows: x_n is a sum of cubes, and (u⊗u⊗u)·(v⊗v⊗v) = (u·v)³."""
        U = self.gaussian.inverse_cholesky

        def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
            u, v = self.likelihood.third_cubes(activations(Phi, self.theta, self.likelihood.n_outputs), t)
            u = u if weight is None else weight[:, None] * u
            return [u.ravel()], [np.einsum("njc,nm->njcm", v, Phi).reshape(u.size, -1) @ U.T]

        u, X = (np.concatenate(parts) for parts in data.accumulate(terms))
        total, size = 0.0, max(1, _HELD // len(X))
        for start in range(0, len(X), size):
            some = slice(start, start + size)
            G = X[some] @ X[start:].T  # each pair of blocks once: those beside the diagonal count twice
            twice = np.where(np.arange(G.shape[1]) < len(G), 1.0, 2.0)
            total += float(u[some] @ (G * G * G) @ (twice * u[start:]))
        return total

    def _slices(self, B: Matrix) -> ChunkFunction:
        """Return the tensor's slices along directions B (D, m), (M(M+1)/2, P m); the rows' own squares; the rows."""
        likelihood, C, M, m = self.likelihood, self.likelihood.n_outputs, self.n_functions, B.shape[1]
        i, j = np.triu_indices(M)
        by_output = B.reshape(C, M, m)
        covariances = class_covariances(self.U, C)

        def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
            a, Psi = activations(Phi, self.theta, C), Phi @ self.base.T
            W = likelihood.curvature_along(a, t, np.stack([Psi @ b for b in by_output], axis=1))
            w = np.ones(len(Phi)) if weight is None else weight
            own = w**2 @ likelihood.third_squared(a, t, covariances(Psi))
            return (Psi[:, i] * Psi[:, j]).T @ (w[:, None] * W.reshape(len(Phi), -1)), float(own), len(Phi)

        return blockwise(terms, len(i) + (C * (C + 1) // 2 + 2 * C) * m + C * len(self.theta))

    def _contracted(self, G: Matrix, m: int, B: Matrix) -> float:
        """Return Σ |Uᵀ-whitened slice|² over m slices, each on the columns of B (D, r) only."""
        C, M = self.likelihood.n_outputs, self.n_functions
        packed, total = G.reshape(M * (M + 1) // 2, -1, m), 0.0
        for s in range(m):
            total += float(np.sum((self.U @ (unpacked_blocks(packed[:, :, s], C, M) @ B)) ** 2))
        return total


def _triple(likelihood: Likelihood, gaussian: Gaussian) -> _Triple:
    C = likelihood.n_outputs
    M = len(gaussian.mean) // C
    blocks = gaussian.precision.reshape(C, M, C, M)
    L, _ = cholesky_of_precision(np.einsum("cmcn->mn", blocks) / C)
    base = scipy.linalg.solve_triangular(L, np.eye(M), lower=True, check_finite=False)
    U = (gaussian.inverse_cholesky.reshape(C * M, C, M) @ L).reshape(C * M, C * M)
    return _Triple(likelihood, gaussian, base, U)


def _frame(D: int, m: int, rng: np.random.Generator) -> Matrix:
    """Return m orthonormal directions (D, m): the axes where they are all, else random ones."""
    if m == D:
        return np.eye(D)
    Q, _ = np.linalg.qr(rng.standard_normal((D, m)))
    return Q
