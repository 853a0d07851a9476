"""Functions whose weights make a Gaussian process: Nyström's approximation of a kernel.

With k(x) the kernel between x and the centres, and K that between the centres, φ(x) = K^(−1/2) k(x).  Under the
prior N(0, s²) of the weights, the logits of x and x' have the covariance s² k(x)ᵀ K⁻¹ k(x').  At the centres that is
the Gaussian process with the kernel s² k; elsewhere it is that process as predicted from the centres (Williams &
Seeger 2001, NIPS 13, p. 682; Bishop 2006, PRML, 6.4).  Without the factor, as radial functions are, the prior favours
logits that change together at all centres, and hardly lets neighbours differ.  The functions are in the coordinates of
the eigenvectors of K, which changes no covariance; tiny eigenvalues are left out.
Shapes: n rows, F features, c centres, M functions with the intercept.
"""

from __future__ import annotations

__all__ = ["Nystroem"]

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from blr.arrays import Matrix, Vector, as_matrix
from blr.basis._centred import Centred
from blr.basis._directions import directions
from blr.basis._laplacian import Laplacian
from blr.basis.base import Basis, positive
from blr.basis.rbf import RBF

_KERNELS: dict[str, type[Laplacian | RBF]] = {"laplacian": Laplacian, "gaussian": RBF}
_LEAST_EIGENVALUE = 1e-8
"""Eigenvalues below this share of the largest are rounding errors, and are left out."""


@dataclass(frozen=True, eq=False)
class Nystroem(Basis):
    """φ(x) = k(x)ᵀ `components`, k(x) between x and `centres`, shape (c, F); `components` (c, M − 1).

    The "laplacian" kernel falls by a factor of e over a city-block distance of `width`; the "gaussian" one is
    exp(−d² / (2 width²)) of the Euclidean distance d, in standard deviations of the features.
    """

    centres: Matrix
    components: Matrix
    width: float
    kernel: str

    kind = "nystroem"
    bounded = True

    def __post_init__(self) -> None:
        self._keep("centres", as_matrix(self.centres, "centres"))
        self._keep("components", as_matrix(self.components, "components"))
        object.__setattr__(self, "width", positive(self.width, "width"))
        _function(self.kernel)
        if self.centres.shape[1] != self.n_features or len(self.components) != len(self.centres):
            raise ValueError(
                f"got centres of shape {self.centres.shape} and components of shape {self.components.shape}, expected "
                f"{self.n_features} column(s) of centres and a row of components for each centre; make them with "
                "fit_basis('nystroem', X)"
            )

    @classmethod
    def fit(
        cls,
        X: Matrix,
        *,
        rng: Generator,
        weight: Vector | None = None,
        centres: int = 100,
        width: float | None = None,
        kernel: str = "laplacian",
    ) -> Nystroem:
        """Return the functions with up to `centres` centres that cover rows like X, shape (N, F).

        The default width is that of the kernel's own basis, "laplacian" or "rbf".
        """
        local = _function(kernel).fit(X, rng=rng, weight=weight, centres=centres, width=width)
        between = local.values(local.centres)
        variance, direction = directions((between + between.T) / 2, _LEAST_EIGENVALUE)
        components = direction / np.sqrt(variance)
        return cls(local.standardisation, local.centres, components, positive(local.width, "width"), kernel)

    @property
    def n_functions(self) -> int:
        """The intercept, and one function for each direction in which the kernel's values at the centres vary."""
        return 1 + self.components.shape[1]

    @cached_property
    def _local(self) -> Centred:
        """The kernel's functions about the centres."""
        return _function(self.kernel)(self.standardisation, self.centres, self.width, linear=False)

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        np.matmul(self._local.values(Z), self.components, out=out[:, 1:])

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        np.einsum("nkf,km->nmf", self._local.slopes(Z), self.components, out=out[:, 1:], optimize=True)

    def _names(self, features: Sequence[str]) -> Sequence[str]:  # noqa: ARG002  each is of all features
        return [f"nystroem({m})" for m in range(1, self.n_functions)]


def _function(kernel: str) -> type[Laplacian | RBF]:
    """Return the basis of the kernel's functions; raise ValueError where there is no such kernel."""
    if kernel not in _KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(map(repr, _KERNELS))}, got {kernel!r}")
    return _KERNELS[kernel]
