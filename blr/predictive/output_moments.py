"""Mean and covariance of new rows' activations under N(w | m, A⁻¹), A = L Lᵀ: z = L⁻¹ φ gives the covariance as z'z.

The covariance takes most of the time of a prediction, C² M² operations a row, and single precision halves it.  Rounding
moves z by at most (M + 2) 2⁻²⁴ |L⁻¹| |φ| (Higham 2002, Accuracy and Stability of Numerical Algorithms, 3.5; here |·| is
of each entry).

- Of two classes, where z is a vector, δz bounds its move and v = z'z is the variance, a probability changes by at most
  sup|σ''|/2 = 0.0482 times 2 √v δz + δz² + (M + 2) 2⁻²⁴ v: by 5e-8 where single precision serves.  These are models of
  many labels; of few, whose variances are large, double precision is left.
- Of more classes, it moves the sd of a contrast by at most √2 times its length.  A probability changes by at most
  E|z|/4 = 0.2 of what a contrast's sd does: by 4e-5 for three and four classes and 2e-4 for more, where 1e-4 and 1e-3
  are promised, at the very worst; 1e-7 is usual.

Rows of which less is known are done in double precision.  Shapes: N rows, M columns, C outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blr.arrays import Matrix
from blr.covariances import Covariances, class_covariances, squared_lengths
from blr.gaussian import Gaussian

_BLOCK = 4096  # rows a block in prediction: fixed, so that a row's result depends little on its neighbours
# Of a contrast, at the worst, by rounding to single precision: of up to three outputs, and of more.
_SD_ERROR, _SD_ERROR_MANY = 2e-4, 1e-3
_FEW = 3
_UNIT = float(np.finfo(np.float32).eps) / 2
_VARIANCE_ERROR = 5e-8 / 0.0482  # of one output, which changes no probability by more than 5e-8
_SHORT = 1.0  # rows are longer than this, nearly all: an intercept alone is


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
        for start in range(0, len(Phi), _BLOCK):
            block = slice(start, start + _BLOCK)
            np.matmul(Phi[block], weights, out=mean[block])
            covariance[block] = self._covariance(Phi[block], single=single)
        return mean, covariance

    def _covariance(self, Phi: Matrix, *, single: bool) -> Matrix:
        C = self.n_outputs
        if not single:
            return self._exact(Phi)
        if C == 1:
            return self._variance(Phi)
        near = np.einsum("nm,nm->n", Phi, Phi) <= self._reach**2
        if near.all():
            return self._rough(Phi.astype(np.float32))
        V = np.empty((len(Phi), C, C))
        V[near] = self._rough(Phi[near].astype(np.float32))
        V[~near] = self._exact(Phi[~near])
        return V

    def _variance(self, Phi: Matrix) -> Matrix:
        """Return the variance (N, 1, 1) of one output, in single precision where that serves."""
        reach = self._reach_of_one
        if reach < _SHORT:
            return self._exact(Phi)
        rows = Phi.astype(np.float32)
        far = ~(squared_lengths(rows) <= np.float32(reach**2))  # also where single precision overflows
        if not far.any():
            return self._rough(rows)
        V = np.empty((len(Phi), 1, 1))
        V[~far] = self._rough(rows[~far])
        V[far] = self._exact(Phi[far])
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
