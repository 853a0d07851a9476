"""What every basis is: functions φ_m(x) of the standardised features, and their derivatives.

A kind of basis computes its functions for one block of standardised rows. Checks, blocks, the intercept and the chain
rule through the standardisation are done here for all kinds.  Shapes: N rows, M functions, F features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, NamedMatrix, as_matrix, features_of
from blr.basis.standardisation import Standardisation

# Rows at a time: a block of Φ this tall stays in cache while its columns are written, and its matrix products
# are so small that BLAS starts no threads for them.
_BLOCK = 1024

_SHARED = ("standardisation", "features")


@dataclass(frozen=True, eq=False)
class Basis(ABC):
    """M functions of F features; function 0 is the constant 1.

    A subclass names its `kind`, learns its fields in a classmethod `fit(X, *, options)` (with an option `rng`
    where it draws), and writes `_evaluate`, `_derivative`, `_names`, `n_functions` and `bounded`.  Its fields
    are scalars, strings, arrays and tuples of arrays, so that `to_dict` needs no help.

    Examples
    --------
    >>> basis = blr.fit_basis("polynomial", {"u_r": [1.0, 2.0, 4.0]}, degree=2)
    >>> basis.names()
    ('1', 'u_r', 'u_r^2')
    >>> basis({"u_r": [1.0, 2.0]}).shape
    (2, 3)
    """

    kind: ClassVar[str]
    learnt_from_labels: ClassVar[bool] = False
    """Whether the functions were learnt from the labels: their evidence then compares with no other."""
    not_stored: ClassVar[tuple[str, ...]] = ()
    """Fields that `to_dict` leaves out."""
    standardisation: Standardisation
    features: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Names of the F columns, where the basis was fitted to a table: of another table it takes those."""

    @property
    def n_features(self) -> int:
        """F, the number of columns that X must have."""
        return self.standardisation.mean.size

    @property
    @abstractmethod
    def n_functions(self) -> int:
        """M, the number of columns of Φ."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether Φ stays bounded far from the data, so that the logit's variance finds no outliers."""

    def __call__(self, X: ArrayLike) -> Matrix:
        """Return the design matrix Φ, shape (N, M), of the features X, shape (N, F), an array or a table.

        With the functions' names, where the features have names: a posterior fitted to it knows them.
        """
        rows = self._rows(X)
        Phi = self._by_blocks(rows, self.standardisation)
        return Phi if self.features is None else NamedMatrix.of(Phi, self.names())

    def training_design(self, X: ArrayLike) -> Matrix:
        """Return Φ (N, M) of the rows X (N, F) that the basis was fitted to, as a fit of weights needs it."""
        return self(X)

    def of_standardised(self, Z: Matrix) -> Matrix:
        """Return Φ (N, M) of features Z (N, F) that this basis's `standardisation` has standardised already."""
        return self._by_blocks(Z, lambda block: block)

    def _by_blocks(self, rows: Matrix, standardise: Callable[[Matrix], Matrix]) -> Matrix:
        Phi = np.empty((len(rows), self.n_functions))
        Phi[:, 0] = 1
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._evaluate(standardise(rows[block]), Phi[block])
        return Phi

    def jacobian(self, X: ArrayLike) -> Matrix:
        """Return ∂φ_m / ∂x_f, shape (N, M, F), at the features X, shape (N, F)."""
        rows = self._rows(X)
        J = np.zeros((len(rows), self.n_functions, self.n_features))
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._derivative(self.standardisation(rows[block]), J[block])
        slope = self.standardisation.slope(rows)
        J *= slope if slope.ndim == 1 else slope[:, None, :]
        return J

    def names(self, feature_names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the M functions' names, in terms of the F features' names, by default those of `features`."""
        if feature_names is None:
            feature_names = self.features or [f"x{f + 1}" for f in range(self.n_features)]
        if len(feature_names) != self.n_features:
            raise ValueError(
                f"got {len(feature_names)} feature name(s) but the basis was fitted to {self.n_features} "
                "feature(s); name each column of X once"
            )
        return ("1", *self._names(feature_names))

    def to_dict(self) -> dict[str, Any]:
        """Return everything that `from_dict` needs, as scalars, strings, lists and arrays."""
        own = {name: getattr(self, name) for name in self._own_fields()}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        named = {} if self.features is None else {"features": list(self.features)}
        return {"kind": self.kind, **self.standardisation.to_dict(), **plain, **named}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return the basis that `to_dict` described."""
        if stored.get("kind") != cls.kind:
            raise ValueError(
                f"expected a stored {cls.kind} basis, got kind {stored.get('kind')!r}; use basis_from_dict"
            )
        expected = {"kind", "mean", "scale", *cls._own_fields()}
        if set(stored) - {"softening_centre", "softening_width", "features"} != expected:
            raise ValueError(
                f"a stored {cls.kind} basis has the keys {sorted(expected)}, got {sorted(stored)}; "
                "it was not written by this version's to_dict"
            )
        own = {name: stored[name] for name in cls._own_fields()}
        features = stored.get("features")
        return cls(
            Standardisation.from_dict(stored), features=None if features is None else tuple(features), **own
        )

    @abstractmethod
    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        """Write φ_1 … φ_{M−1} of standardised Z, shape (n, F), into out[:, 1:]; out[:, 0] is 1 already."""

    @abstractmethod
    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        """Write ∂φ_m / ∂z_f at Z, shape (n, F), into out, shape (n, M, F), where it is not 0."""

    @abstractmethod
    def _names(self, features: Sequence[str]) -> Sequence[str]:
        """Return the names of φ_1 … φ_{M−1}."""

    @classmethod
    def _own_fields(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls) if f.name not in (*_SHARED, *cls.not_stored))

    def _keep(self, name: str, array: ArrayLike, dtype: type = np.float64) -> None:
        """Replace a field by a read-only copy, since stored arrays may be views of a file."""
        copy: NDArray[Any] = np.array(array, dtype=dtype)
        copy.setflags(write=False)
        object.__setattr__(self, name, copy)

    def _keep_points(self, name: str, points: ArrayLike) -> None:
        """Replace a field by a read-only copy of points (K, F); ValueError where they are not of F features."""
        self._keep(name, as_matrix(points, name))
        columns = getattr(self, name).shape[1]
        if columns != self.n_features:
            raise ValueError(
                f"got {columns} column(s) of {name}, expected {self.n_features} column(s): one for each feature"
            )

    def _rows(self, X: ArrayLike) -> Matrix:
        if not isinstance(X, np.ndarray):
            X = features_of(X, self.features)
        # A batch without rows (an empty partition) is no error: it gives a design matrix without rows.
        empty = np.ndim(X) == 2 and np.shape(X)[0] == 0
        rows = np.empty(np.shape(X)) if empty else as_matrix(X, "X")
        if rows.shape[1] != self.n_features:
            raise ValueError(
                f"X has {rows.shape[1]} column(s) but the basis was fitted to {self.n_features} feature(s); "
                "give the same features in the same order"
            )
        return rows


def whole(value: Any, name: str, *, least: int = 1) -> int:
    """Return `value` as an int, or raise ValueError unless it is a whole number of `least` or more."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of {least} or more, got {value!r}")
    return int(value)


def positive(value: Any, name: str) -> float:
    """Return `value` as a float, or raise ValueError unless it is a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a positive number, in standard deviations, got {value!r}")
    return float(value)
