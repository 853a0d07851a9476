"""What every basis is: functions φ_m(x) of the standardised features, and their derivatives.

A kind of basis computes its functions for one block of standardised rows. Checks, blocks, the intercept and the chain
rule through the standardisation are done here for all kinds.

Every basis works on standardised features z = (x − mean) / scale, of zero mean and unit variance in the training set,
so that one prior and one default width serve magnitudes, ratios and fluxes alike.  Features with heavy tails may go
through an arcsinh first, which is linear for most values and logarithmic in the tails (Lupton, Gunn & Szalay 1999,
doi:10.1086/301004).  Shapes: N rows, M functions, F features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr import compiled
from blr.arrays import Matrix, NamedMatrix, Vector, as_matrix, as_vector, features_of, slices

# Rows at a time: a block of Φ this tall stays in cache while its columns are written, and its matrix products
# are so small that BLAS starts no threads for them.
_BLOCK = 1024
_SHARED = ("standardisation", "features")
# Values farther out than this many sd are cut, so that their powers stay finite; `blr.missing.moments` reports them.
_LIMIT = 1e15
# Quartiles of a normal distribution lie 1.349 standard deviations apart.
_QUARTILES = 1.349
# Where the quartiles are closer than this share of the standard deviation, the column has only few values.
_NARROWEST = 1e-3
# Share of rows with one value from which all other values count as rare.
_COMMON = 0.75
# At most this many rows are read to find that value.
_MOST_ROWS = 100_000
_MOST_UNITS = 1e150  # times the sample's range: the square is finite
Accumulate = Callable[[Callable[[Matrix, Matrix, Vector | None], tuple[Any, ...]]], tuple[Any, ...]]
"""Sums a function of (X, targets, weight) over chunks of rows, as `blr.sums.Data.accumulate` does."""
_LARGEST = 1e300  # arcsinh of larger ones is the same to 1 %, and infinite ones have none


@dataclass(frozen=True, eq=False)
class Basis(ABC):
    """M functions of F features; function 0 is the constant 1.

    A subclass names its `kind`, learns its fields in a classmethod `fit(X, *, options)` (with an option `rng`
    where it draws), and writes `_evaluate`, `_derivative` and `_names`.  Its fields are scalars, strings, arrays and
    tuples of arrays, so that `to_dict` needs no help.

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

    @cached_property
    def n_functions(self) -> int:
        """M, the number of columns of Φ."""
        return len(self.names())

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

    def of_standardised(self, Z: Matrix, sets: int = 1) -> Matrix:  # noqa: ARG002  trees take less time for sets
        """Return Φ (N, M) of features Z (N, F) that this basis's `standardisation` has standardised already.

        With `sets`, as many sets of N / sets rows lie one behind the other in Z.  Row i of all sets differs in few
        features, as do the nodes of an integral over what is missing.
        """
        return self._by_blocks(Z, lambda block: block)

    def unmixed(self, Z: Matrix, sets: int = 1) -> Matrix:
        """Return functions U (N, L) of standardised features: the columns of Φ = `mixed(U)` are linear in them.

        U and `unmixed_weights` give mean activations without Φ, which saves a product of matrices.  Most bases have
        U = Φ.  Z and `sets` are as in `of_standardised`.
        """
        return self.of_standardised(Z, sets)

    def mixed(self, U: Matrix) -> Matrix:
        """Return Φ (N, M) of the `unmixed` functions U (N, L)."""
        return U

    def unmixed_weights(self, W: Matrix) -> Matrix:
        """Return the weights (K, L) that give U the activations which W (K, M) gives Φ."""
        return W

    def _by_blocks(self, rows: Matrix, standardise: Callable[[Matrix], Matrix]) -> Matrix:
        Phi = np.empty((len(rows), self.n_functions))
        for block in slices(len(rows), _BLOCK):
            Phi[block, 0] = 1
            self._evaluate(standardise(rows[block]), Phi[block])
        return Phi

    def jacobian(self, X: ArrayLike) -> Matrix:
        """Return ∂φ_m / ∂x_f, shape (N, M, F), at the features X, shape (N, F)."""
        rows = self._rows(X)
        J = np.zeros((len(rows), self.n_functions, self.n_features))
        for block in slices(len(rows), _BLOCK):
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
        named = stored.get("features")
        return cls(Standardisation.from_dict(stored), features=None if named is None else tuple(named), **own)

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
            raise ValueError(f"got {columns} column(s) of {name}, expected {self.n_features} column(s)")

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


def _scale_of_rare(X: Matrix, weight: Vector | None) -> Vector:
    """Return the scale (F,) of the features of which most rows have one value, 0 for the other features."""
    # A value that more than half of the rows have is the median.
    common = np.median(X[:: -(-len(X) // _MOST_ROWS)], axis=0)
    rare = common != X
    share = np.average(rare, axis=0, weights=weight)
    scale = np.zeros(X.shape[1])
    for f in np.flatnonzero((share > 0) & (share < 1 - _COMMON)).tolist():
        rows = rare[:, f]
        distance = np.abs(X[rows, f] - common[f])
        peak = distance.max()
        mean_square = np.average((distance / peak) ** 2, weights=None if weight is None else weight[rows])
        scale[f] = 0.5 * peak * np.sqrt(mean_square)
    return scale


Softening = tuple[Vector, Vector]
"""Centre and width (F,) of the map y = arcsinh((x − centre) / width)."""


def learn_softening(X: Matrix) -> Softening:
    """Return the softening about the median of each column of X, shape (N, F), in units of its robust spread.

    The spread is that of the quartiles; of a column whose quartiles nearly agree, the standard deviation.
    """
    low, middle, high = np.percentile(X, [25, 50, 75], axis=0)
    robust, spread = (high - low) / _QUARTILES, Standardisation.learn(X).scale
    return middle, np.where(robust > _NARROWEST * spread, robust, spread)


def softened(X: Matrix, softening: Softening | None) -> Matrix:
    """Return the softened features, shape (N, F), of X, shape (N, F)."""
    if softening is None:
        return X
    centre, width = softening
    with np.errstate(over="ignore"):
        Y = (X - centre) / width
    Y = np.ascontiguousarray(np.clip(Y, -_LARGEST, _LARGEST, out=Y))
    compiled.arcsinhs(Y)
    return Y


@dataclass(frozen=True, eq=False)
class Standardisation:
    """The map z = (x − mean) / scale, mean and scale (F,); with a `softening`, of the softened x."""

    mean: Vector
    scale: Vector
    softening: Softening | None = None

    def __post_init__(self) -> None:
        given = [(self.mean, self.scale), *([] if self.softening is None else [self.softening])]
        pairs = [(as_vector(place, "mean").copy(), as_vector(unit, "scale").copy()) for place, unit in given]
        for pair in pairs:  # stored arrays may be views of a file
            if any(x.shape != pairs[0][0].shape for x in pair) or not np.all(pair[1] > 0):
                raise ValueError(
                    f"a standardisation needs one mean and one positive scale a feature, got {pair[0]} and {pair[1]}; "
                    "learn them with Standardisation.learn(X)"
                )
            for array in pair:
                array.setflags(write=False)
        object.__setattr__(self, "mean", pairs[0][0])
        object.__setattr__(self, "scale", pairs[0][1])
        object.__setattr__(self, "softening", pairs[1] if len(pairs) > 1 else None)

    @classmethod
    def learn(cls, X: ArrayLike, weight: Vector | None = None) -> Standardisation:
        """Return the map that gives X, shape (N, F), zero mean and unit variance; scale 1 where X is constant.

        A feature of which more than three quarters of the rows have one value has half the root-mean-square distance
        of the other rows from that value for its scale: its standard deviation would put the few others tens of units
        out (as Gelman et al. 2008 scale indicators, doi:10.1214/08-AOAS191).  A row of `weight` (N,) 2 counts as two
        rows.
        """
        X = as_matrix(X, "X")
        # Relative to one row, so that a large offset loses no digits.
        mean = X[0] + np.average(X - X[0], axis=0, weights=weight)
        deviation = X - mean
        # Divided by the largest first: squares of very large or small features leave the range of floats.
        peak = np.abs(deviation).max(axis=0)
        unit = np.where(peak > 0, peak, 1.0)
        scale = unit * np.sqrt(np.average((deviation / unit) ** 2, axis=0, weights=weight))
        scale = np.maximum(scale, _scale_of_rare(X, weight))
        # Not "== 0": the mean of equal numbers may differ from them by a rounding error, which is not a scale.
        constant = peak <= 16 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean, np.where(constant, 1.0, scale))

    @classmethod
    def learn_by_sums(
        cls, accumulate: Accumulate, sample: ArrayLike, softening: Softening | None = None
    ) -> Standardisation:
        """Return the map that `learn` gives of all rows, from two passes over rows that are never held together.

        `accumulate` sums a function of (X, targets, weight) over chunks of the rows, X (n, F) with the softening not
        yet applied.  `sample` (S, F) are some of the rows: they show which value is common.
        """
        some = softened(as_matrix(sample, "sample"), softening)
        origin, common = some[0].copy(), np.median(some[:: -(-len(some) // _MOST_ROWS)], axis=0)
        peak = np.abs(some - origin).max(axis=0)
        unit = np.where(peak > 0, peak, 1.0)

        def first(X: Matrix, _t: Matrix, weight: Vector | None) -> tuple[float, Vector]:
            w = np.ones(len(X)) if weight is None else weight
            return float(w.sum()), w @ (softened(X, softening) - origin)

        total, shift = accumulate(first)
        mean = origin + shift / total

        def second(X: Matrix, _t: Matrix, weight: Vector | None) -> tuple[Vector, Vector, Vector]:
            w, Y = np.ones(len(X)) if weight is None else weight, softened(X, softening)
            rare = common != Y
            away = np.clip((Y - mean) / unit, -_MOST_UNITS, _MOST_UNITS)
            apart = np.clip((Y - common) / unit, -_MOST_UNITS, _MOST_UNITS)
            return w @ away**2, w @ rare, w @ apart**2

        squares, rare, apart = accumulate(second)
        scale = unit * np.sqrt(squares / total)
        few = (rare > 0) & (rare / total < 1 - _COMMON)
        of_rare = 0.5 * unit * np.sqrt(apart / np.where(rare > 0, rare, 1.0))
        scale = np.where(few, np.maximum(scale, of_rare), scale)
        constant = scale <= 16 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean, np.where(constant | (scale == 0), 1.0, scale), softening)

    def slope(self, X: Matrix) -> Matrix:
        """Return dz/dx, shape (N, F) or (F,), at X, shape (N, F)."""
        if self.softening is None:
            return 1 / self.scale
        centre, width = self.softening
        return 1 / np.hypot(width, X - centre) / self.scale

    def to_dict(self) -> dict[str, Vector]:
        """Return the arrays that `from_dict` takes; those of the softening only where there is one."""
        soft = zip(("softening_centre", "softening_width"), self.softening or (), strict=False)
        return {"mean": self.mean, "scale": self.scale, **dict(soft)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Standardisation:
        """Return the map of `to_dict`."""
        soft = None
        if "softening_centre" in stored:
            soft = stored["softening_centre"], stored["softening_width"]
        return cls(stored["mean"], stored["scale"], soft)

    def __call__(self, X: Matrix) -> Matrix:
        """Return the standardised features, shape (N, F), of X, shape (N, F)."""
        return _standardised(X, self.mean, self.scale, self.softening)

    def of_sets(self, X: Matrix, sets: int) -> Matrix:
        """Return the same, shape (N, F), of `sets` as in `Basis.of_standardised`: what all sets share is done once."""
        points = X.reshape(sets, -1, X.shape[1])
        Z = np.repeat(self(points[0])[None], sets, axis=0)
        row, f = np.nonzero((points != points[0]).any(axis=0))
        if f.size:
            softening = None if self.softening is None else (self.softening[0][f], self.softening[1][f])
            Z[:, row, f] = _standardised(points[:, row, f], self.mean[f], self.scale[f], softening)
        return Z.reshape(X.shape)


def _standardised(X: Matrix, mean: Vector, scale: Vector, softening: Softening | None) -> Matrix:
    with np.errstate(over="ignore"):
        Z = softened(X, softening) - mean
        Z /= scale
    return np.clip(Z, -_LIMIT, _LIMIT, out=Z)
