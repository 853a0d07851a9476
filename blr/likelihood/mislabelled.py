"""Likelihoods of labels that may be wrong: of a record the sum over the true classes, ln Σ_k t_k y_k(a).

t_k = p(record | true class k), a row's own (N, K): see `confusion`.  The logistic and the softmax are differences of
two normalisers,

    ln Σ_k t_k y_k = ln Σ_k exp(a_k + ln t_k) - ln Σ_k exp(a_k),

so that all derivatives are differences of cumulants, of the classes given the record, q ∝ t y, and before it, y.
For other links of two classes they follow from the law of total cumulance.  None is log-concave.  Without noise t is
one-hot, and everything is that of `likelihoods`.  Shapes and signs are those of `likelihoods`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from blr.arrays import Matrix, Vector
from blr.likelihood.likelihoods import Bernoulli, Categorical, Likelihood, make_likelihood
from blr.likelihood.links import LOGISTIC, Derivatives


def log_odds(t: Matrix) -> tuple[Vector, Vector]:
    """Return ln t of both classes, (N,) each, of likelihoods t (N, 2); -inf where a class is impossible."""
    with np.errstate(divide="ignore"):
        log_t = np.log(t)
    return log_t[:, 0], log_t[:, 1]


@dataclass(frozen=True)
class MislabelledBernoulli(Bernoulli):
    """Two classes: ln[t_0 (1 - f(a)) + t_1 f(a)], t (N, 2)."""

    @property
    def log_concave(self) -> bool:
        """Never, beside labels that may be wrong."""
        return False

    def log_likelihood(self, a: Matrix, t: Matrix) -> Vector:
        """Return ln p(record | a), (N,)."""
        x, (low, high) = a[:, 0], log_odds(t)
        if self.link is LOGISTIC:
            return _logistic_value(x, low, high)
        return np.asarray(np.logaddexp(low + self.link.log_sf(x), high + self.link.log_cdf(x)))

    def derivatives(self, a: Matrix, t: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Return value (N,), gradient and curvature (N, 1)."""
        x = a[:, 0]
        if self.link is LOGISTIC:
            low, high = log_odds(t)
            y, q = expit(x), expit(x + (high - low))
            return _logistic_value(x, low, high), (q - y)[:, None], (y * expit(-x) - q * (1 - q))[:, None]
        first, second, _, _ = self._cumulants(x, t)
        return self.log_likelihood(a, t), first[:, None], -second[:, None]

    def higher(self, a: Vector, t: Matrix) -> tuple[Vector, Vector]:
        """Return the third and fourth derivative of ln p, (N,) each."""
        _, _, third, fourth = self._cumulants(a, t)
        return third, fourth

    def _cumulants(self, a: Vector, t: Matrix) -> Derivatives:
        """Return the derivatives of ln(e^g0 + e^g1), g the logarithms of the two sides: the law of total cumulance."""
        low, high = log_odds(t)
        up, down = self.link.log_cdf_derivatives(a), self.link.log_sf_derivatives(a)
        q = np.where(t[:, 1] == 0, 0.0, 1.0)
        both = (t > 0).all(axis=1)
        sides = (self.link.log_cdf(a) + high)[both] - (self.link.log_sf(a) + low)[both]
        q[both] = expit(sides)
        # A side that is out of the question has no say, whatever its derivatives are there.
        f1, f2, f3, f4 = (np.where(q > 0, x, 0.0) for x in up)
        s1, s2, s3, s4 = (np.where(q < 1, x, 0.0) for x in down)
        r, odd = q * (1 - q), 1 - 2 * q
        d1, d2, d3 = (np.where(r > 0, f - s, 0.0) for f, s in ((f1, s1), (f2, s2), (f3, s3)))

        def mean(f: Vector, s: Vector) -> Vector:
            return q * f + (1 - q) * s

        third = mean(f3, s3) + 3 * r * d1 * d2 + r * odd * d1**3
        fourth = mean(f4, s4) + r * (4 * d1 * d3 + 3 * d2**2 + 6 * odd * d1**2 * d2 + (1 - 6 * r) * d1**4)
        return mean(f1, s1), mean(f2, s2) + r * d1**2, third, fourth


def _logistic_value(a: Vector, low: Vector, high: Vector) -> Vector:
    # By sides, so that nothing cancels far out: ln(t_0 + t_1 e^a) - ln(1 + e^a).
    above = np.maximum(low, high + a) + np.log1p(np.exp(-np.abs(a + (high - low))))
    return np.asarray(above - np.maximum(a, 0.0) - np.log1p(np.exp(-np.abs(a))))


@dataclass(frozen=True)
class MislabelledCategorical(Categorical):
    """K classes through the softmax: ln Σ_k t_k y_k, t (N, K)."""

    @property
    def log_concave(self) -> bool:
        """Never, beside labels that may be wrong."""
        return False

    def _both(self, a: Matrix, t: Matrix) -> tuple[Matrix, Matrix, Vector]:
        """Return y and q (N, K), and the value (N,)."""
        full, y, log_total = self._softmax(a)
        with np.errstate(divide="ignore"):
            log_joint = full + np.log(t)
        top = log_joint.max(axis=1)
        q = np.exp(log_joint - top[:, None])
        total = q.sum(axis=1)
        return y, q / total[:, None], top + np.log(total) - log_total

    def log_likelihood(self, a: Matrix, t: Matrix) -> Vector:
        """Return ln p(record | a), (N,)."""
        return self._both(a, t)[2]

    def derivatives(self, a: Matrix, t: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Return value (N,), gradient (N, C), packed curvature (N, P)."""
        y, q, value = self._both(a, t)
        return value, (q - y) @ self.transform, self.second_cumulant(y) - self.second_cumulant(q)

    def curvature_gradient(self, a: Matrix, t: Matrix, V: Matrix) -> Matrix:
        """Return d tr(R V)/da, (N, C), for V (N, C, C)."""
        y, q, _ = self._both(a, t)
        return self.third_cumulant_on(y, V) - self.third_cumulant_on(q, V)

    def curvature_along(self, a: Matrix, t: Matrix, b: Matrix) -> Matrix:
        """Return the packed derivative of R, (N, P, m), on m directions b (N, C, m)."""
        y, q, _ = self._both(a, t)
        return self.third_cumulant_along(y, b) - self.third_cumulant_along(q, b)

    def third_squared(self, a: Matrix, t: Matrix, V: Matrix) -> Vector:
        """Return the squared length of the third derivative, (N,), in the metric V (N, C, C)."""
        y, q, _ = self._both(a, t)
        own = self.third_cumulants_product(y, y, V) + self.third_cumulants_product(q, q, V)
        return np.asarray(np.maximum(own - 2 * self.third_cumulants_product(y, q, V), 0.0))

    def third_cubes(self, a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
        """Return the classes' probabilities, and minus those given the record (N, 2 K), with e_k less their means."""
        y, q, _ = self._both(a, t)
        return np.hstack([y, -q]), np.hstack([self._from_mean(y), self._from_mean(q)])

    def fourth_on(self, a: Matrix, t: Matrix, V: Matrix) -> Vector:
        """Return the fourth derivative of -ln p on V and V, (N,)."""
        y, q, _ = self._both(a, t)
        return self.fourth_cumulant_on(y, V) - self.fourth_cumulant_on(q, V)


def make_mislabelled(name: str, n_classes: int, *, contrasts: bool = True) -> Likelihood:
    """Return the likelihood of that name for labels that may be wrong, `make_likelihood` of the others."""
    plain = make_likelihood(name, n_classes, contrasts=contrasts)
    if isinstance(plain, Categorical):
        return MislabelledCategorical(n_classes, contrasts=contrasts)
    return MislabelledBernoulli(plain.link)
