"""Functions of distances and of soft steps: radial functions, Nyström's, random Fourier features, sigmoids.

The centres of radial functions are labelled rows, chosen far from each other; distances are of standardised features.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import scipy
from numpy.random import Generator
from numpy.typing import NDArray

from blr import compiled
from blr.arrays import Matrix, Vector, as_matrix
from blr.basis._polynomial import directions
from blr.basis.base import Basis, Standardisation, positive, whole

# Distances between rows: where to put centres, and how far apart rows typically are.
#
# Both look at no more than a sample of the rows, drawn from the generator given, so that fitting a basis to a
# survey costs no more than fitting one to a field.  Shapes: N rows, F standardised features, K centres.

_CENTRE_SAMPLE = 20_000
_DISTANCE_SAMPLE = 1_000
_LLOYD_STEPS = 10
_SAME = 1e-6  # Rows nearer than this, in standard deviations, count as one place.


def squared_distances(Z: Matrix, centres: Matrix) -> Matrix:
    """Return |z_n − c_k|², shape (N, K), by one matrix product."""
    squares = np.sum(Z**2, axis=1)[:, None] - 2 * (Z @ centres.T) + np.sum(centres**2, axis=1)
    return np.maximum(squares, 0, out=squares)  # Rounding errors of the expansion may be negative.


def city_block(Z: Matrix, centres: Matrix) -> Matrix:
    """Return Σ_f |z_nf − c_kf|, shape (N, K)."""
    distance = np.zeros((len(Z), len(centres)))
    if compiled.loops is None:
        for z, c in zip(Z.T, centres.T, strict=True):
            distance += np.abs(z[:, None] - c)
    else:
        compiled.loops.city_blocks(np.ascontiguousarray(Z), np.ascontiguousarray(centres.T), distance)
    return distance


def median_distance(
    Z: Matrix, rng: Generator, distances: Callable[[Matrix, Matrix], Matrix] | None = None
) -> float:
    """Return the median distance between distinct rows of Z, shape (N, F); 1 where there is only one row."""
    Z = _sample(Z, _DISTANCE_SAMPLE, rng)
    between = np.sqrt(squared_distances(Z, Z)) if distances is None else distances(Z, Z)
    distance = between[np.triu_indices(len(Z), k=1)]
    distinct = distance[distance > _SAME]
    return float(np.median(distinct)) if distinct.size else 1.0


def spread_centres(Z: Matrix, count: int, rng: Generator) -> Matrix:
    """Return up to `count` centres, shape (K, F), that cover the rows of Z, shape (N, F).

    Seeds are drawn by k-means++ (Arthur & Vassilvitskii 2007, SODA, p. 1027) and settled by a few of Lloyd's
    steps.  There are fewer than `count` where Z has fewer distinct rows.
    """
    Z = _sample(Z, _CENTRE_SAMPLE, rng)
    centres = _seed(Z, count, rng)
    for _ in range(_LLOYD_STEPS):
        nearest = squared_distances(Z, centres).argmin(axis=1)
        size = np.bincount(nearest, minlength=len(centres))
        total = np.stack([np.bincount(nearest, z, minlength=len(centres)) for z in Z.T], axis=1)
        centres = np.where(size[:, None] > 0, total / np.maximum(size, 1)[:, None], centres)
    return centres


def _seed(Z: Matrix, count: int, rng: Generator) -> Matrix:
    chosen = [int(rng.integers(len(Z)))]
    nearest = np.full(len(Z), np.inf)
    while len(chosen) < count:
        # Exact differences, not the expansion: a duplicate must be at distance 0 to be passed over.
        np.minimum(nearest, np.sum((Z - Z[chosen[-1]]) ** 2, axis=1), out=nearest)
        cumulative = np.cumsum(np.where(nearest > _SAME**2, nearest, 0.0))
        if cumulative[-1] == 0:
            break
        pick = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        chosen.append(min(pick, len(Z) - 1))
    return Z[chosen]


def _sample(Z: Matrix, most: int, rng: Generator) -> Matrix:
    return Z if len(Z) <= most else Z[np.sort(rng.choice(len(Z), most, replace=False))]


# Functions that are local to centres, and the features themselves if asked for.
#
# A subclass computes the functions' values and derivatives, and says which widths it takes.
# Shapes: N rows, K centres, F features, M functions.

LEAST_EXPONENT = -345.0
"""Exponents below it are raised to it: squares of smaller values are subnormal numbers, up to 70 times slower."""


@dataclass(frozen=True, eq=False)
class Centred(Basis):
    """K functions, one around each row of `centres`, shape (K, F).

    `width` is in standard deviations.  With `linear`, the standardised features come after the K functions, so that the
    logit keeps a slope far from the data.
    M = 1 + K (+ F).
    """

    centres: Matrix
    width: float
    linear: bool

    def __post_init__(self) -> None:
        self._keep_points("centres", self.centres)
        object.__setattr__(self, "width", positive(self.width, "width"))
        object.__setattr__(self, "linear", bool(self.linear))

    @classmethod
    def fit(
        cls,
        X: Matrix,
        *,
        rng: Generator,
        weight: Vector | None = None,
        centres: int = 40,
        width: float | None = None,
        linear: bool = False,
    ) -> Self:
        """Return the basis with up to `centres` centres among rows like X, shape (N, F).

        The default width follows from the distances between rows.  There are fewer centres where X has fewer distinct
        rows.
        """
        count = whole(centres, "centres")
        stated = None if width is None else positive(width, "width")
        standardisation = Standardisation.learn(X, weight)
        Z = standardisation(X)
        places = spread_centres(Z, count, rng)
        return cls(standardisation, places, cls._default_width(Z, rng) if stated is None else stated, linear)

    @staticmethod
    @abstractmethod
    def _default_width(Z: Matrix, rng: Generator) -> float:
        """Return the default width for rows like standardised Z, shape (N, F)."""

    @abstractmethod
    def values(self, Z: Matrix) -> Matrix:
        """Return the local functions, shape (n, K), at standardised Z, shape (n, F)."""

    @abstractmethod
    def slopes(self, Z: Matrix) -> Matrix:
        """Return the local functions' derivatives, shape (n, K, F), at standardised Z, shape (n, F)."""

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        end = 1 + len(self.centres)
        out[:, 1:end] = self.values(Z)
        if self.linear:
            out[:, end:] = Z

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        end = 1 + len(self.centres)
        out[:, 1:end] = self.slopes(Z)
        if self.linear:
            feature = np.arange(self.n_features)
            out[:, end + feature, feature] = 1

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        local = [f"{self.kind}({k})" for k in range(1, len(self.centres) + 1)]
        return [*local, *features] if self.linear else local


# Gaussian radial basis functions about centres spread over the training set.
#
# φ_k(x) = exp(−|z − c_k|² / 2s²) of the standardised features z, with one width s (Bishop 2006, PRML, 3.4).


class RBF(Centred):
    """K Gaussian bumps at `centres`, shape (K, F), of one `width` in standard deviations."""

    kind = "rbf"

    @staticmethod
    def _default_width(Z: Matrix, rng: Generator) -> float:
        # Over a range of problems in one to six dimensions its log loss was near the best of ten rules.
        return median_distance(Z, rng) / 2

    @cached_property
    def _exponent(self) -> Matrix:
        """The matrix, shape (F + 2, K), that takes (z/s, |z/s|², 1) to −|z/s − c/s|² / 2."""
        scaled = self.centres / self.width
        constant = np.full(len(self.centres), -0.5)
        return np.vstack([scaled.T, constant, -0.5 * np.sum(scaled**2, axis=1)])

    def values(self, Z: Matrix) -> Matrix:
        """Return exp(−|z − c_k|² / 2s²), shape (n, K)."""
        Z = Z / self.width
        squares = np.sum(Z**2, axis=1, keepdims=True)
        exponent = np.hstack([Z, squares, np.ones((len(Z), 1))]) @ self._exponent
        # At most 0, because the expansion of the square rounds to either side of it.
        np.clip(exponent, LEAST_EXPONENT, 0, out=exponent)
        compiled.exponentials(exponent)
        return exponent

    def slopes(self, Z: Matrix) -> Matrix:
        """Return the derivatives, shape (n, K, F)."""
        return self.values(Z)[:, :, None] * (self.centres - Z[:, None, :]) / self.width**2


# Laplacian kernel functions about centres spread over the training set, with a sharp peak at each centre.
#
# φ_k(x) = exp(−Σ_f |z_f − c_kf| / s) of the standardised features z.  A random partition cuts the space along the axes;
# the function is the probability that no cut separates x from the centre (Balog et al. 2016, "The Mondrian kernel",
# arXiv:1606.05241).  So logits can bend sharply along a feature, which helps where a class ends at a threshold.


class Laplacian(Centred):
    """K functions with a peak at `centres`, shape (K, F).

    Each falls by a factor of e over a city-block distance of `width`.
    """

    kind = "laplacian"

    @staticmethod
    def _default_width(Z: Matrix, rng: Generator) -> float:
        return median_distance(Z, rng, city_block)

    def values(self, Z: Matrix) -> Matrix:
        """Return exp(−Σ_f |z_f − c_kf| / s), shape (n, K)."""
        exponent = city_block(Z, self.centres)
        exponent *= -1.0 / self.width
        np.maximum(exponent, LEAST_EXPONENT, out=exponent)
        compiled.exponentials(exponent)
        return exponent

    def slopes(self, Z: Matrix) -> Matrix:
        """Return the derivatives, shape (n, K, F); at a centre, where a slope jumps, the mean of both sides: 0."""
        return self.values(Z)[:, :, None] * np.sign(self.centres - Z[:, None, :]) / self.width


# Functions whose weights make a Gaussian process: Nyström's approximation of a kernel.
#
# With k(x) the kernel between x and the centres, and K that between the centres, φ(x) = K^(−1/2) k(x).  Under the prior
# N(0, s²) of the weights, the logits of x and x' have the covariance s² k(x)ᵀ K⁻¹ k(x').  At the centres that is the
# Gaussian process with the kernel s² k; elsewhere it is that process as predicted from the centres (Williams & Seeger
# 2001, NIPS 13, p. 682; Bishop 2006, PRML, 6.4).  Without the factor, as radial functions are, the prior favours logits
# that change together at all centres, and hardly lets neighbours differ.  The functions are in the coordinates of the
# eigenvectors of K, which changes no covariance; tiny eigenvalues are left out. Shapes: n rows, F features, c centres,
# M functions with the intercept.

_LEAST_EIGENVALUE = 1e-8
"""Eigenvalues below this share of the largest are rounding errors, and are left out."""


@dataclass(frozen=True, eq=False)
class Nystroem(Basis):
    """φ(x) = k(x)ᵀ `components`, k(x) between x and `centres`, shape (c, F); `components` (c, M − 1).

    The Laplacian kernel falls by a factor of e over a city-block distance of `width`.
    """

    centres: Matrix
    components: Matrix
    width: float

    kind = "nystroem"

    def __post_init__(self) -> None:
        self._keep_points("centres", self.centres)
        self._keep("components", as_matrix(self.components, "components"))
        object.__setattr__(self, "width", positive(self.width, "width"))
        if len(self.components) != len(self.centres):
            raise ValueError(
                f"got components of shape {self.components.shape} for {len(self.centres)} centres, expected a row of "
                "components for each centre; make them with fit_basis('nystroem', X)"
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
    ) -> Nystroem:
        """Return the functions with up to `centres` centres that cover rows like X, shape (N, F).

        The default width is that of the basis "laplacian".
        """
        local = Laplacian.fit(X, rng=rng, weight=weight, centres=centres, width=width)
        between = local.values(local.centres)
        variance, direction = directions((between + between.T) / 2, _LEAST_EIGENVALUE)
        components = direction / np.sqrt(variance)
        return cls(local.standardisation, local.centres, components, local.width)

    @cached_property
    def _local(self) -> Centred:
        """The kernel's functions about the centres."""
        return Laplacian(self.standardisation, self.centres, self.width, linear=False)

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        np.matmul(self._local.values(Z), self.components, out=out[:, 1:])

    def unmixed(self, Z: Matrix, sets: int = 1) -> Matrix:  # noqa: ARG002  rows of sets are rows like others
        """Return 1 and the kernel between the rows and the centres, (N, 1 + c)."""
        return self._local.of_standardised(Z)

    def mixed(self, U: Matrix) -> Matrix:
        """Return Φ (N, M) of `unmixed` functions."""
        return np.concatenate([U[:, :1], U[:, 1:] @ self.components], axis=1)

    def unmixed_weights(self, W: Matrix) -> Matrix:
        """Return the weights (K, 1 + c) that give U the activations which W (K, M) gives Φ."""
        return np.concatenate([W[:, :1], W[:, 1:] @ self.components.T], axis=1)

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        np.einsum("nkf,km->nmf", self._local.slopes(Z), self.components, out=out[:, 1:], optimize=True)

    def _names(self, features: Sequence[str]) -> Sequence[str]:  # noqa: ARG002  each is of all features
        return [f"nystroem({m})" for m in range(1, 1 + self.components.shape[1])]


@dataclass(frozen=True, eq=False)
class Fourier(Basis):
    """cos(ω·z) and sin(ω·z) for D `directions` ω λ, shape (D, F), so M = 1 + 2 D.

    A Gaussian process with a squared-exponential kernel, in finitely many functions: Φ Φᵀ tends to
    exp(−|z − z'|² / 2λ²) as the frequencies grow in number (Rahimi & Recht 2007, NIPS 20).  Each frequency has a cosine
    and a sine (Sutherland & Schneider 2015, UAI), and frequencies are orthogonal in groups of F (Yu et al. 2016,
    arXiv:1610.09072): both have smaller errors than random phases.

    `lengthscale` is λ, in standard deviations.  All are divided by √D: weights of unit variance then give an
    activation of unit variance.
    """

    directions: Matrix
    lengthscale: float

    kind = "fourier"

    def __post_init__(self) -> None:
        self._keep_points("directions", self.directions)
        object.__setattr__(self, "lengthscale", positive(self.lengthscale, "lengthscale"))

    @classmethod
    def fit(
        cls,
        X: Matrix,
        *,
        rng: Generator,
        weight: Vector | None = None,
        frequencies: int = 50,
        lengthscale: float | None = None,
    ) -> Fourier:
        """Return the basis with `frequencies` frequencies for features like X, shape (N, F).

        The default lengthscale is the median distance between rows over √2: the kernel is then that of
        radial functions of half the median distance, everywhere dense.
        """
        count = whole(frequencies, "frequencies")
        lengthscale = None if lengthscale is None else positive(lengthscale, "lengthscale")
        standardisation = Standardisation.learn(X, weight)
        length = lengthscale or median_distance(standardisation(X), rng) / np.sqrt(2)
        return cls(standardisation, _orthogonal_normals(count, len(standardisation.mean), rng), length)

    @cached_property
    def _frequencies(self) -> Matrix:
        return self.directions.T / self.lengthscale

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        D = len(self.directions)
        phase = Z @ self._frequencies
        np.cos(phase, out=out[:, 1 : 1 + D])
        np.sin(phase, out=out[:, 1 + D :])
        out[:, 1:] /= np.sqrt(D)

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        D = len(self.directions)
        phase = Z @ self._frequencies
        out[:, 1 : 1 + D] = -np.sin(phase)[:, :, None] * self._frequencies.T
        out[:, 1 + D :] = np.cos(phase)[:, :, None] * self._frequencies.T
        out /= np.sqrt(D)

    def _names(self, features: Sequence[str]) -> Sequence[str]:  # noqa: ARG002  each mixes all features
        numbers = range(1, len(self.directions) + 1)
        return [*(f"cos({k})" for k in numbers), *(f"sin({k})" for k in numbers)]


def _orthogonal_normals(count: int, dimension: int, rng: Generator) -> Matrix:
    """Return draws from N(0, I), shape (count, dimension), orthogonal within each `dimension` of them."""
    blocks = []
    for _ in range(-(-count // dimension)):
        G = rng.standard_normal((dimension, dimension))
        Q, R = np.linalg.qr(G)
        Q *= np.sign(np.diag(R))  # uniform over rotations, and the same from every LAPACK
        length = np.linalg.norm(rng.standard_normal((dimension, dimension)), axis=1)
        blocks.append(length[:, None] * Q.T)
    return np.vstack(blocks)[:count]


# Widths from the middle of a feature's steps: of the farthest step that takes its part of one exponential, and at which
# all of them are over.  The product of both exponentials is finite.
_FARTHEST, _OVER = 300.0, 350.0


@dataclass(frozen=True, eq=False)
class Sigmoid(Basis):
    """Soft steps of single features: step k, of K, rises at `location[k]` over `width[k]` sds of `feature[k]`.

    φ(x) = σ((z_f − μ) / s), with σ(a) = 1 / (1 + exp(−a)) (Bishop 2006, PRML, 3.5-3.6), of each feature z_f.
    All three are of shape (K,), and M = 1 + K.
    """

    feature: NDArray[np.int64]
    location: Vector
    width: Vector

    kind = "sigmoid"

    def __post_init__(self) -> None:
        self._keep("feature", self.feature, np.int64)
        self._keep("location", self.location)
        self._keep("width", self.width)
        known = np.all((self.feature >= 0) & (self.feature < self.n_features))
        if not (known and self.feature.shape == self.location.shape == self.width.shape):
            raise ValueError(
                f"each sigmoid needs a feature below {self.n_features}, a location and a width, got {self.feature}, "
                f"{self.location} and {self.width}; make them with fit_basis('sigmoid', X)"
            )

    @classmethod
    def fit(
        cls,
        X: Matrix,
        *,
        weight: Vector | None = None,
        centres: int = 5,
        width: float | None = None,
    ) -> Sigmoid:
        """Return the basis with up to `centres` steps a feature, at quantiles of X, shape (N, F).

        The default width is the mean distance between a feature's steps.  A feature of few values has fewer
        steps, and a constant one has none.
        """
        count = whole(centres, "centres")
        width = None if width is None else positive(width, "width")
        standardisation = Standardisation.learn(X, weight)
        Z = standardisation(X)
        level = (np.arange(count) + 0.5) / count
        steps = [np.unique(np.quantile(z, level)) if np.ptp(z) > 0 else np.empty(0) for z in Z.T]
        spacing = [np.ptp(s) / (len(s) - 1) if len(s) > 1 else 1.0 for s in steps]
        widths = [np.full(len(s), width or apart) for s, apart in zip(steps, spacing, strict=True)]
        feature = np.repeat(np.arange(len(steps)), [len(s) for s in steps])
        return cls(standardisation, feature, np.concatenate(steps), np.concatenate(widths))

    @cached_property
    def _ramps(self) -> tuple[NDArray[np.int64], Vector, Vector, NDArray[np.int64], Vector]:
        """Feature, middle of the locations and width of the R groups of steps that share feature and width, (R,) each.

        Then each step's group, and how many widths it lies above the group's middle, (K,) each.
        """
        pairs, ramp = np.unique(np.stack([self.feature, self.width], axis=1), axis=0, return_inverse=True)
        ramp = ramp.ravel()
        count = np.bincount(ramp, minlength=len(pairs))
        middle = np.bincount(ramp, self.location, minlength=len(pairs)) / np.maximum(count, 1)
        above = (self.location - middle[ramp]) / self.width
        return pairs[:, 0].astype(np.int64), middle, pairs[:, 1], ramp, above

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        feature, middle, width, ramp, above = self._ramps
        if np.abs(above).max(initial=0.0) > _FARTHEST:
            scipy.special.expit((Z[:, self.feature] - self.location) / self.width, out=out[:, 1:])
            return
        # σ((z - μ)/s) = 1 / (1 + e^((μ - m)/s) e^((m - z)/s)): one exponential for all steps of a feature.
        falling = (middle - np.take(Z, feature, axis=1)) / width
        np.clip(falling, -_OVER, _OVER, out=falling)
        compiled.exponentials(falling)
        odds = np.take(falling, ramp, axis=1)
        odds *= np.exp(above)
        odds += 1
        np.divide(1.0, odds, out=out[:, 1:])

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        Phi = np.empty((len(Z), self.n_functions))
        self._evaluate(Z, Phi)
        steps = Phi[:, 1:]
        out[:, 1 + np.arange(len(self.feature)), self.feature] = steps * (1 - steps) / self.width

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        counts = np.bincount(self.feature, minlength=len(features))
        return [f"sigmoid({f}, {k})" for f, n in zip(features, counts, strict=True) for k in range(1, n + 1)]
