"""Linear and polynomial basis functions, of features or of their principal directions; splines of single features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from blr import compiled
from blr.arrays import Matrix, Vector, as_vector
from blr.basis.base import Basis, Standardisation, whole

# Directions in which rows or functions vary: eigenvectors of a covariance, those of large variance first.


def directions(covariance: Matrix, least: float) -> tuple[Vector, Matrix]:
    """Return the variances (J,), descending, and the eigenvectors (F, J) of a covariance (F, F).

    Directions with a variance of `least` times the largest or less are left out.  The sign of an eigenvector is
    arbitrary: its largest entry is made positive.
    """
    variance, direction = np.linalg.eigh(covariance)
    variance, direction = variance[::-1], direction[:, ::-1]
    kept = variance > least * max(float(variance[0]), np.finfo(np.float64).tiny)
    variance, direction = variance[kept], direction[:, kept]
    largest = np.abs(direction).argmax(axis=0)
    return variance, direction * np.sign(direction[largest, np.arange(direction.shape[1])])


# The features themselves: the polynomial of degree 1.


class Linear(Basis):
    """φ = (1, z_1, …, z_F) of the standardised features z, so M = F + 1."""

    kind = "linear"

    @classmethod
    def fit(cls, X: Matrix, *, weight: Vector | None = None) -> Linear:
        """Return the linear basis of features like X, shape (N, F)."""
        return cls(Standardisation.learn(X, weight))

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        out[:, 1:] = Z

    def _derivative(self, Z: Matrix, out: Matrix) -> None:  # noqa: ARG002  the slope of a line is everywhere 1
        feature = np.arange(self.n_features)
        out[:, 1 + feature, feature] = 1

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        return features


# Polynomials of the features with all their interactions.
#
# Columns come degree by degree, and within a degree in lexicographic order of the features: 1, z₁, z₂, z₁²,
# z₁z₂, z₂², … (the order of scikit-learn's PolynomialFeatures).  They are powers of *standardised* features,
# so that they are of one size and correlate less.

# M² doubles of Hessian are 800 MB at this size.
_MOST_FUNCTIONS = 10_000


@dataclass(frozen=True, eq=False)
class Polynomial(Basis):
    """All monomials of the F standardised features up to a degree d, so M = C(F + d, d)."""

    degree: int

    kind = "polynomial"

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", whole(self.degree, "degree"))
        if self.n_functions > _MOST_FUNCTIONS:
            raise ValueError(
                f"degree {self.degree} of {self.n_features} features makes {self.n_functions} functions, more "
                f"than {_MOST_FUNCTIONS}; lower the degree, or take fewer features or another kind of basis"
            )

    @classmethod
    def fit(cls, X: Matrix, *, weight: Vector | None = None, degree: int = 2) -> Polynomial:
        """Return the polynomial basis of features like X, shape (N, F)."""
        return cls(Standardisation.learn(X, weight), degree)

    @property
    def n_functions(self) -> int:
        """The number of monomials, the constant among them."""
        return math.comb(self.n_features + self.degree, self.degree)

    @cached_property
    def _terms(self) -> tuple[tuple[int, ...], ...]:
        """Each monomial as the ascending indices of its factors: () is 1, (0, 0, 2) is z₀² z₂."""
        features = range(self.n_features)
        degrees = range(self.degree + 1)
        return tuple(term for d in degrees for term in combinations_with_replacement(features, d))

    @cached_property
    def _column(self) -> dict[tuple[int, ...], int]:
        return {term: m for m, term in enumerate(self._terms)}

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        if compiled.loops is not None and out.flags.c_contiguous:
            compiled.loops.monomials(np.ascontiguousarray(Z), out)
            return
        for m, term in enumerate(self._terms[1:], start=1):
            # All factors but the last make a monomial of lower degree, which stands further left.
            np.multiply(out[:, self._column[term[:-1]]], Z[:, term[-1]], out=out[:, m])

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        Phi = np.ones((len(Z), self.n_functions))
        self._evaluate(Z, Phi)
        for m, term in enumerate(self._terms):
            for f in set(term):
                lowered = list(term)
                lowered.remove(f)
                out[:, m, f] = term.count(f) * Phi[:, self._column[tuple(lowered)]]

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        powers = ([(features[f], len(list(group))) for f, group in groupby(term)] for term in self._terms[1:])
        return [" ".join(name if n == 1 else f"{name}^{n}" for name, n in term) for term in powers]


# Principal components of the standardised features, those of large variance favoured by the prior.
#
# Where many features vary together, few directions carry most of the information.  With one prior for all weights,
# directions of tiny variance count as much as large ones; with few labels this pulls predictions to one half.  Here
# component j, of variance λ_j, is scaled by λ_j^power.  Under a prior N(0, s²) it contributes a variance proportional
# to λ_j^(1 + 2 power) to the logit's.  Power 0 is the linear basis in rotated coordinates. Principal components: Bishop
# 2006, PRML, 12.1; priors that follow their variances: Zellner 1986's, with another power.

_MOST_POWER = 2.0
_LEAST_VARIANCE = 1e-10  # Share of the largest variance below which a component is rounding error.


@dataclass(frozen=True, eq=False)
class Principal(Basis):
    """φ_j = Σ_f z_f `components[f, j]` of the standardised features z, `components` (F, J); M = J + 1."""

    components: Matrix

    kind = "principal"

    def __post_init__(self) -> None:
        self._keep("components", self.components)
        good = self.components.ndim == 2 and len(self.components) == self.n_features
        if not (good and np.all(np.isfinite(self.components))):
            raise ValueError(
                f"components need a finite row for each of {self.n_features} feature(s), got an array of shape "
                f"{self.components.shape}; make them with fit_basis('principal', X)"
            )

    @classmethod
    def fit(cls, X: Matrix, *, weight: Vector | None = None, power: float = 0.5) -> Principal:
        """Return the components of features like X, shape (N, F), scaled by their variances to the `power`.

        One common factor makes the mean of their variances one.
        """
        if isinstance(power, bool) or not 0 <= power <= _MOST_POWER:
            raise ValueError(f"power must be a number from 0 to {_MOST_POWER:g}, got {power!r}")
        standardisation = Standardisation.learn(X, weight)
        Z = standardisation(X)
        root = np.sqrt(np.ones(len(Z)) if weight is None else np.maximum(weight, 0.0))
        covariance = (Z * root[:, None]).T @ (Z * root[:, None]) / np.square(root).sum()
        variance, direction = directions(covariance, _LEAST_VARIANCE)
        scale = variance**power
        mean = np.mean(variance * scale**2) if len(variance) else 1.0
        return cls(standardisation, direction * (scale / np.sqrt(mean)))

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        # Far out, a component is as large as the sum of |z|: blr.missing.moments reports such rows.
        np.matmul(Z, self.components, out=out[:, 1:])

    def _derivative(self, Z: Matrix, out: Matrix) -> None:  # noqa: ARG002  the slope of a plane is everywhere the same
        out[:, 1:] = self.components.T

    def _names(self, features: Sequence[str]) -> Sequence[str]:  # noqa: ARG002  each is of all features
        return [f"component({j})" for j in range(1, self.components.shape[1] + 1)]


_NEAR = 1e-6  # Knots nearer than this fraction of the feature's range are merged.


@dataclass(frozen=True, eq=False)
class BSpline(Basis):
    """B-splines of a degree between the breakpoints of each feature, in standard deviations: an additive model.

    Each feature has its own smooth curve, and features do not interact.  The B-splines of a feature sum to 1, as the
    intercept does, so the first of each feature is left out: as many are left as inner knots plus the degree.
    Recursion after de Boor (1972), doi:10.1016/0021-9045(72)90080-9, in the form of Piegl & Tiller, The NURBS Book,
    A2.2.

    `breakpoints[f]` runs from the least to the greatest training value; a feature with only one breakpoint was
    constant and has no functions.  Outside, the curve goes on as its tangent.
    """

    breakpoints: tuple[Vector, ...]
    degree: int

    kind = "bspline"

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", whole(self.degree, "degree"))
        object.__setattr__(self, "breakpoints", tuple(_checked(points) for points in self.breakpoints))
        if len(self.breakpoints) != self.n_features:
            raise ValueError(
                f"got the breakpoints of {len(self.breakpoints)} feature(s) for {self.n_features} feature(s); "
                "give one array a feature"
            )

    @classmethod
    def fit(cls, X: Matrix, *, weight: Vector | None = None, knots: int = 5, degree: int = 3) -> BSpline:
        """Return the splines with up to `knots` inner knots a feature, at quantiles of X, shape (N, F)."""
        count = whole(knots, "knots", least=0)
        standardisation = Standardisation.learn(X, weight)
        points = tuple(_breakpoints(z, count) for z in standardisation(X).T)
        return cls(standardisation, points, degree)

    def _counts(self) -> list[int]:
        return [len(points) - 2 + self.degree if len(points) > 1 else 0 for points in self.breakpoints]

    def _columns(self) -> list[slice]:
        ends = 1 + np.cumsum([0, *self._counts()])
        return [slice(int(start), int(end)) for start, end in pairwise(ends)]

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        for z, points, columns in zip(Z.T, self.breakpoints, self._columns(), strict=True):
            if len(points) > 1:
                out[:, columns] = self._curves(z, points)[:, 1:]

    def _curves(self, z: Vector, points: Vector) -> Matrix:
        knots = clamped_knots(points, self.degree)
        inside = np.clip(z, points[0], points[-1])
        values = spline_values(inside, knots, self.degree)
        beyond = np.flatnonzero(z != inside)
        if beyond.size:
            slopes = spline_slopes(inside[beyond], knots, self.degree)
            values[beyond] += slopes * (z - inside)[beyond, None]
        return values

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        for f, (points, columns) in enumerate(zip(self.breakpoints, self._columns(), strict=True)):
            if len(points) > 1:
                inside = np.clip(Z[:, f], points[0], points[-1])
                slopes = spline_slopes(inside, clamped_knots(points, self.degree), self.degree)
                out[:, columns, f] = slopes[:, 1:]

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        counts = zip(features, self._counts(), strict=True)
        return [f"bspline({name}, {k})" for name, count in counts for k in range(1, count + 1)]


def clamped_knots(breakpoints: Vector, degree: int) -> Vector:
    """Return the knots: the breakpoints, with the first and last `degree` times more."""
    return np.concatenate(
        [np.repeat(breakpoints[0], degree), breakpoints, np.repeat(breakpoints[-1], degree)]
    )


def spline_values(x: Vector, knots: Vector, degree: int) -> Matrix:
    """Return all B-splines, shape (N, number of knots − degree − 1), of x, shape (N,), within the knots."""
    span = _span(x, knots, degree)
    return _scattered(_local_values(x, knots, degree, span), span - degree, len(knots) - degree - 1)


def spline_slopes(x: Vector, knots: Vector, degree: int) -> Matrix:
    """Return the derivatives of all B-splines, of the shape of `spline_values`."""
    span = _span(x, knots, degree)
    lower = _local_values(x, knots, degree - 1, span)
    zero = np.zeros_like(x)
    # Each B-spline of the lower degree, divided by the length of its support, is added to one and subtracted from the
    # next.
    rates = [degree * lower[r] / (knots[span + r + 1] - knots[span + r + 1 - degree]) for r in range(degree)]
    local = [up - down for up, down in zip([zero, *rates], [*rates, zero], strict=True)]
    return _scattered(local, span - degree, len(knots) - degree - 1)


def _span(x: Vector, knots: Vector, degree: int) -> NDArray[np.intp]:
    """Return i with knots[i] ≤ x < knots[i + 1], the last interval closed."""
    inner = knots[degree + 1 : len(knots) - degree - 1]
    return np.searchsorted(inner, x, side="right") + degree


def _local_values(x: Vector, knots: Vector, degree: int, span: NDArray[np.intp]) -> list[Vector]:
    """Return the degree + 1 B-splines that are not 0 at x, each of shape (N,), the leftmost first."""
    left = [x - knots[span - j] for j in range(degree)]
    right = [knots[span + 1 + j] - x for j in range(degree)]
    values = [np.ones_like(x)]
    for j in range(degree):
        carried = np.zeros_like(x)
        raised = []
        for r, value in enumerate(values):
            share = value / (right[r] + left[j - r])
            raised.append(carried + right[r] * share)
            carried = left[j - r] * share
        values = [*raised, carried]
    return values


def _scattered(local: list[Vector], first: NDArray[np.intp], count: int) -> Matrix:
    out = np.zeros((len(first), count))
    row = np.arange(len(first))
    for r, values in enumerate(local):
        out[row, first + r] = values
    return out


def _breakpoints(z: Vector, count: int) -> Vector:
    low, high = float(z.min()), float(z.max())
    if low == high:
        return np.array([low])
    points = np.quantile(z, np.linspace(0, 1, count + 2))
    gap = _NEAR * (high - low)
    inner = [p for previous, p in pairwise(points[:-1]) if p - previous > gap and high - p > gap]
    return np.array([low, *inner, high])


def _checked(points: Vector) -> Vector:
    points = as_vector(points, "breakpoints").copy()
    if np.any(np.diff(points) <= 0):
        raise ValueError(f"a feature's breakpoints must increase, got {points}")
    points.setflags(write=False)
    return points
