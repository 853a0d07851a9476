"""Likelihoods of logistic models and their derivatives with respect to the activations.

Conventions.  N rows, C outputs: activations a are (N, C), targets t (N,) for two classes and (N, K) for K.  Value is
(N,), gradient (N, C), curvature -d²/da_c da_d packed as (N, P), P = C(C+1)/2, pairs (c, d >= c) in row order: for one
output that is (N, 1).  Row weights are the caller's.  Signs are those of the log likelihood: PRML 4.91 and 4.109
with the sign turned, so the curvature is positive where ln p is concave.

Two classes have a link: a latent threshold θ ~ p(θ) and y = f(a) = ∫_{-∞}^{a} p(θ) dθ (PRML 4.113).  Each link gives
ln f and ln(1 - f), stable in both tails, and their first four derivatives, which the gradient, the Hessian and the
corrections beyond Laplace need.  All work elementwise on arrays of any shape.

Where labels may be wrong, a record's likelihood is the sum over the true classes, ln Σ_k t_k y_k(a), with
t_k = p(record | true class k), a row's own (N, K): see `blr.likelihood.targets.as_confusion`.  The logistic and the
softmax are differences of two normalisers,

    ln Σ_k t_k y_k = ln Σ_k exp(a_k + ln t_k) - ln Σ_k exp(a_k),

so that all derivatives are differences of cumulants, of the classes given the record, q ∝ t y, and before it, y.
Neither is log-concave.  Without noise t is one-hot, and everything is that of the plain likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from scipy.special import erfcx, expit, log_expit, log_ndtr

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.gaussian import helmert

Derivatives = tuple[Vector, Vector, Vector, Vector]
"""First to fourth derivative with respect to the activation."""
_PROBIT_FAR = 30.0


@dataclass(frozen=True)
class Link:
    """A link by its name and the logarithm of its two sides.

    `log_cdf` is ln f(a), `log_sf` ln(1 - f(a)); the derivative functions return those of the same logarithms.
    """

    name: str
    log_cdf: Callable[[Vector], Vector]
    log_sf: Callable[[Vector], Vector]
    log_cdf_derivatives: Callable[[Vector], Derivatives]
    log_sf_derivatives: Callable[[Vector], Derivatives]

    def __reduce__(self) -> Any:
        """Copy and pickle (scikit-learn does, for worker processes) by name: functions made here have no other."""
        return (_named, (self.name,)) if LINKS.get(self.name) is self else super().__reduce__()

    @classmethod
    def symmetric(
        cls, name: str, log_cdf: Callable[[Vector], Vector], derivatives: Callable[[Vector], Derivatives]
    ) -> Link:
        """Return the link of a threshold density that is even: 1 - f(a) = f(-a)."""

        def mirrored(a: Vector) -> Derivatives:
            d1, d2, d3, d4 = derivatives(-a)
            return -d1, d2, -d3, d4

        return cls(name, log_cdf, lambda a: log_cdf(-a), derivatives, mirrored)


def _named(name: str) -> Link:
    return LINKS[name]


def _logistic(a: Vector) -> Derivatives:
    e = np.exp(-np.abs(a))
    y = np.where(a >= 0, 1.0, e) / (1 + e)
    r = e / (1 + e) ** 2
    return np.where(a >= 0, e, 1.0) / (1 + e), -r, -r * (1 - 2 * y), -r * (1 - 6 * r)


def _probit(a: Vector) -> Derivatives:
    # The inverse Mills ratio p/f through erfcx neither over- nor underflows on the left; on the right it tends to 0.
    with np.errstate(over="ignore"):
        ratio = np.sqrt(2 / np.pi) / erfcx(-a / np.sqrt(2))
    s = a + ratio
    second = -ratio * s
    third = ratio * (s * (s + ratio) - 1)
    fourth = ratio * (3 * s + ratio - s**3 - 4 * ratio * s**2 - ratio**2 * s)
    # On the far left those cancel down to rounding: there the derivatives of the asymptotic series of ln f.
    u = 1 / np.minimum(a, -_PROBIT_FAR)
    third = np.where(a < -_PROBIT_FAR, u**3 * (-2 + u**2 * (24 - u**2 * (300 - 4144 * u**2))), third)
    fourth = np.where(a < -_PROBIT_FAR, u**4 * (6 - u**2 * (120 - u**2 * (2100 - 37296 * u**2))), fourth)
    return ratio, second, third, fourth


def _from_ratios(q0: Vector, q1: Vector, q2: Vector, q3: Vector) -> Derivatives:
    """Return the derivatives of ln f from those of the density, q_j = p^(j) / f."""
    return (
        q0,
        q1 - q0**2,
        q2 - 3 * q0 * q1 + 2 * q0**3,
        q3 - 4 * q0 * q2 - 3 * q1**2 + 12 * q0**2 * q1 - 6 * q0**4,
    )


def _cauchit_log_cdf(a: Vector) -> Vector:
    # arctan(1/|a|)/pi keeps the left tail's relative precision, which 1/2 + arctan(a)/pi loses.
    with np.errstate(divide="ignore"):
        tail = np.arctan2(1.0, np.abs(a)) / np.pi
    return np.where(a < 0, np.log(tail), np.log1p(-tail))


def _cauchit(a: Vector) -> Derivatives:
    u = 1 / (1 + a**2)
    f = np.exp(_cauchit_log_cdf(a))
    p = u / np.pi
    return _from_ratios(
        p / f, -2 * a * u * p / f, (6 * a**2 - 2) * u**2 * p / f, 24 * a * (1 - a**2) * u**3 * p / f
    )


def _cloglog_log_cdf(a: Vector) -> Vector:
    # f = 1 - exp(-e^a): ln f is a - e^a/2 on the left, where e^a itself would vanish.
    return np.where(a < -30.0, a, np.log(-np.expm1(-np.exp(np.clip(a, -30.0, 700.0)))))


def _cloglog(a: Vector) -> Derivatives:
    m = np.exp(np.clip(a, -700.0, 700.0))
    # p/f = m / (e^m - 1); the further derivatives of p bring factors (1-m), (1-3m+m²), (1-7m+6m²-m³).
    with np.errstate(over="ignore"):
        q0 = m / np.expm1(m)
    small = np.where(q0 > 0, m, 0.0)  # where q0 is 0, infinity times 0 is meant to be 0
    return _from_ratios(
        q0, q0 * (1 - small), q0 * (1 - 3 * small + small**2), q0 * (1 - 7 * small + 6 * small**2 - small**3)
    )


def _cloglog_sf(a: Vector) -> Derivatives:
    m = -np.exp(np.minimum(a, 700.0))
    return m, m, m, m


LOGISTIC = Link.symmetric("logistic", log_expit, _logistic)
"""The logistic density; f = σ."""
PROBIT = Link.symmetric("probit", log_ndtr, _probit)
"""The normal density; f = Φ = (1 + erf(a/√2))/2."""
CAUCHIT = Link.symmetric("cauchit", _cauchit_log_cdf, _cauchit)
"""The Cauchy density: outliers pull little; its log likelihood is not concave."""
CLOGLOG = Link("cloglog", _cloglog_log_cdf, lambda a: -np.exp(np.minimum(a, 700.0)), _cloglog, _cloglog_sf)
"""The Gumbel density of minima: complementary log-log."""
LINKS: Mapping[str, Link] = MappingProxyType({k.name: k for k in (LOGISTIC, PROBIT, CAUCHIT, CLOGLOG)})


def pairs(n_outputs: int) -> list[tuple[int, int]]:
    """Return the pairs (c, d >= c) in the order in which curvatures are packed."""
    return [(c, d) for c in range(n_outputs) for d in range(c, n_outputs)]


def unpack(packed: Matrix, n_outputs: int) -> Matrix:
    """Return the symmetric matrices, (N, C, C), of packed ones (N, P)."""
    full = np.empty((len(packed), n_outputs, n_outputs))
    for p, (c, d) in enumerate(pairs(n_outputs)):
        full[:, c, d] = full[:, d, c] = packed[:, p]
    return full


@dataclass(frozen=True)
class Bernoulli:
    """Two classes: t ln f(a) + (1 - t) ln(1 - f(a)); t may be a fraction."""

    link: Link = LOGISTIC
    n_outputs: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """Name of the link."""
        return self.link.name

    @property
    def log_concave(self) -> bool:
        """True of all links but the Cauchy one."""
        return self.name in {"logistic", "probit", "cloglog"}

    def log_likelihood(self, a: Matrix, t: Vector) -> Vector:
        """Return ln p(t | a), (N,)."""
        a = a[:, 0]
        if self.link is LOGISTIC:
            if compiled.loops is not None:
                return _compiled_logistic(a, t, derivatives=False)[0]
            return _logistic_value(a, t, np.log1p(np.exp(-np.abs(a))))
        return _mix(t, self.link.log_cdf(a), self.link.log_sf(a))

    def derivatives(self, a: Matrix, t: Vector) -> tuple[Vector, Matrix, Matrix]:
        """Return value (N,), gradient and curvature (N, 1)."""
        a = a[:, 0]
        if self.link is LOGISTIC and compiled.loops is not None:
            return _compiled_logistic(a, t, derivatives=True)
        if self.link is LOGISTIC:
            e = np.exp(-np.abs(a))
            inverse = 1 / (1 + e)
            small = e * inverse
            y = np.where(a >= 0, inverse, small)
            return _logistic_value(a, t, np.log1p(e)), (t - y)[:, None], (small * inverse)[:, None]
        up, down = self.link.log_cdf_derivatives(a), self.link.log_sf_derivatives(a)
        value = _mix(t, self.link.log_cdf(a), self.link.log_sf(a))
        return value, _mix(t, up[0], down[0])[:, None], -_mix(t, up[1], down[1])[:, None]

    def higher(self, a: Vector, t: Vector) -> tuple[Vector, Vector]:
        """Return the third and fourth derivative of ln p, (N,) each."""
        if self.link is LOGISTIC:  # ln(1 - f) is ln f less a
            return self.link.log_cdf_derivatives(a)[2:]
        up, down = self.link.log_cdf_derivatives(a), self.link.log_sf_derivatives(a)
        return _mix(t, up[2], down[2]), _mix(t, up[3], down[3])

    def curvature_gradient(self, a: Matrix, t: Vector, V: Matrix) -> Matrix:
        """Return d(R V)/da, (N, 1)."""
        return -self.higher(a[:, 0], t)[0][:, None] * V[:, :, 0]

    def curvature_along(self, a: Matrix, t: Vector, b: Matrix) -> Matrix:
        """Return dR/da b, (N, 1, m)."""
        return -self.higher(a[:, 0], t)[0][:, None, None] * b

    def third_squared(self, a: Matrix, t: Vector, V: Matrix) -> Vector:
        """Return c3² V³, (N,)."""
        return self.higher(a[:, 0], t)[0] ** 2 * V[:, 0, 0] ** 3

    def third_cubes(self, a: Matrix, t: Vector) -> tuple[Matrix, Matrix]:
        """Return -c3 (N, 1) and ones (N, 1, 1)."""
        return -self.higher(a[:, 0], t)[0][:, None], np.ones((len(a), 1, 1))

    def fourth_on(self, a: Matrix, t: Vector, V: Matrix) -> Vector:
        """Return -c4 V², (N,)."""
        return -self.higher(a[:, 0], t)[1] * V[:, 0, 0] ** 2


def _mix(t: Vector, up: Vector, down: Vector) -> Vector:
    # 0 * -inf is nothing: a class that the row has no share in does not count.
    return np.where(t > 0, t * up, 0.0) + np.where(t < 1, (1 - t) * down, 0.0)


def _logistic_value(a: Vector, t: Vector, softplus: Vector) -> Vector:
    # softplus is ln(1 + e^-|a|).  Written by sides, the value is exact where t a and ln(1 + e^a) would cancel.
    return -softplus - np.abs(a) * np.where(a >= 0, 1 - t, t)


def _compiled_logistic(a: Vector, t: Vector, *, derivatives: bool) -> tuple[Vector, Matrix, Matrix]:
    """Return value (N,), gradient and curvature (N, 1) by the loops in C; only the first unless `derivatives`."""
    assert compiled.loops is not None  # noqa: S101  the callers have asked
    n = len(a)
    value, gradient, curvature = np.empty((1, n)), np.empty((1, n)), np.empty((1, n))
    rows, shares = np.ascontiguousarray(a).reshape(1, n), np.ascontiguousarray(t, dtype=np.float64)
    more = (gradient, curvature) if derivatives else (None, None)
    compiled.loops.logistic_rows(rows, shares, value, *more)
    return value[0], gradient.T, curvature.T


@dataclass(frozen=True)
class Categorical:
    """K classes through the softmax, t (N, K) summing to one; outputs are K - 1 contrasts, or all K activations."""

    n_classes: int
    contrasts: bool = True
    name: ClassVar[str] = "softmax"
    log_concave: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:
        """K - 1 in contrasts, else K."""
        return self.n_classes - 1 if self.contrasts else self.n_classes

    @cached_property
    def transform(self) -> Matrix:
        """T (K, C): class activations are a Tᵀ."""
        return helmert(self.n_classes) if self.contrasts else np.eye(self.n_classes)

    @cached_property
    def _products(self) -> Matrix:
        T = self.transform
        return np.stack([T[:, c] * T[:, d] for c, d in pairs(self.n_outputs)], axis=1)

    def _softmax(self, a: Matrix) -> tuple[Matrix, Matrix, Vector]:
        """Return shifted class activations, probabilities and the log normaliser."""
        full = a @ self.transform.T if self.contrasts else a.copy()
        full -= full.max(axis=1, keepdims=True)
        y = np.exp(full)
        total = y.sum(axis=1)
        y /= total[:, None]
        return full, y, np.log(total)

    def probability(self, a: Matrix) -> Matrix:
        """Return the classes' probabilities y (N, K)."""
        return self._softmax(a)[1]

    def _by_output(self, x: Matrix) -> Matrix:
        """Return the outputs' derivatives (N, C) from those by the class activations (N, K)."""
        return x @ self.transform if self.contrasts else x

    def log_likelihood(self, a: Matrix, t: Matrix) -> Vector:
        """Return Σ_k t_k ln y_k, (N,)."""
        if compiled.loops is not None and 2 <= self.n_classes <= compiled.MOST_OUTPUTS:
            by_class = np.ascontiguousarray(self.transform @ a.T)[None]
            value = np.empty((1, len(a)))
            shares = t.T.astype(np.float64, order="C")
            compiled.loops.softmax_rows(by_class, shares, value)
            return value[0]
        full, _, log_total = self._softmax(a)
        return np.einsum("nk,nk->n", t, full) - log_total

    def derivatives(self, a: Matrix, t: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Return value (N,), gradient (N, C), packed curvature (N, P)."""
        value, gradient, y = self.slopes(a, t)
        return value, gradient, self.second_cumulant(y)

    def slopes(self, a: Matrix, t: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Return value (N,), gradient (N, C) and probabilities (N, K)."""
        full, y, log_total = self._softmax(a)
        return np.einsum("nk,nk->n", t, full) - log_total, self._by_output(t - y), y

    def _before_and_given(self, a: Matrix, t: Matrix) -> tuple[Matrix, ...]:  # noqa: ARG002  for wrong labels
        """Return the probabilities (N, K) of which the first's cumulants less the others' are the derivatives."""
        return (self.probability(a),)

    def curvature_gradient(self, a: Matrix, t: Matrix, V: Matrix) -> Matrix:
        """Return d tr(R V)/da, (N, C), for V (N, C, C)."""
        return _less([self.third_cumulant_on(y, V) for y in self._before_and_given(a, t)])

    def curvature_along(self, a: Matrix, t: Matrix, b: Matrix) -> Matrix:
        """Return the packed derivative of R, (N, P, m), on m directions b (N, C, m)."""
        return _less([self.third_cumulant_along(y, b) for y in self._before_and_given(a, t)])

    def third_squared(self, a: Matrix, t: Matrix, V: Matrix) -> Vector:
        """Return the squared length of the third derivative in the metric V (N, C, C), (N,)."""
        y, *given = self._before_and_given(a, t)
        squared = self.third_cumulants_product(y, y, V)
        for q in given:
            squared = squared + self.third_cumulants_product(q, q, V)
            squared = np.maximum(squared - 2 * self.third_cumulants_product(y, q, V), 0.0)
        return squared

    def third_cubes(self, a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
        """Return shares (N, J), and vectors (N, J, C) whose cubes so often are the third derivative: e_k less means."""
        parts = self._before_and_given(a, t)
        signed = [sign * y for sign, y in zip((1.0, -1.0), parts, strict=False)]
        return np.hstack(signed), np.hstack(
            [self.transform - (y @ self.transform)[:, None, :] for y in parts]
        )

    def fourth_on(self, a: Matrix, t: Matrix, V: Matrix) -> Vector:
        """Return the fourth derivative of -ln p on V and V, (N,)."""
        return _less([self.fourth_cumulant_on(y, V) for y in self._before_and_given(a, t)])

    def second_cumulant(self, y: Matrix) -> Matrix:
        """Return Tᵀ(diag y - y yᵀ)T of probabilities y (N, K), packed (N, P)."""
        # The sign is plus (the minus of PRML 4.110 is a slip in print).
        C, start = self.n_outputs, 0
        if not self.contrasts:  # by rows of the result's transpose, which is contiguous
            by_class = np.ascontiguousarray(y.T)
            packed = np.empty((C * (C + 1) // 2, len(y)))
            for c in range(C):
                np.multiply(by_class[c], -by_class[c:], out=packed[start : start + C - c])
                packed[start] += by_class[c]
                start += C - c
            return packed.T
        projected, curvature = y @ self.transform, y @ self._products
        for c in range(C):
            curvature[:, start : (start := start + C - c)] -= projected[:, c : c + 1] * projected[:, c:]
        return curvature

    def third_cumulant_on(self, y: Matrix, V: Matrix) -> Matrix:
        """Return the third cumulant on V (N, C, C), (N, C)."""
        T = self.transform
        v = np.einsum("kc,ncd,kd->nk", T, V, T, optimize=True) if self.contrasts else np.einsum("nkk->nk", V)
        along = np.matmul(V, self._by_output(y)[:, :, None])[:, :, 0]
        v = v - 2 * (along @ T.T if self.contrasts else along)
        gradient: Matrix = y * (v - np.einsum("nk,nk->n", y, v)[:, None])
        return self._by_output(gradient)

    def third_cumulant_along(self, y: Matrix, b: Matrix) -> Matrix:
        """Return the packed third cumulant, (N, P, m), on m directions b (N, C, m)."""
        T = self.transform
        u = T @ b
        v = y[:, :, None] * (u - y[:, None, :] @ u)
        out: Matrix = self._products.T @ v
        v, projected = T.T @ v, (y @ T)[:, :, None]
        for p, (c, d) in enumerate(pairs(self.n_outputs)):
            out[:, p] -= v[:, c] * projected[:, d] + v[:, d] * projected[:, c]
        return out

    def third_cumulants_product(self, y: Matrix, q: Matrix, V: Matrix) -> Vector:
        """Return the inner product of the third cumulants of y and of q (N, K) in the metric V, (N,)."""
        return np.einsum("nk,nkj,nj->n", y, self._centred_metric(y, q, V) ** 3, q)

    def fourth_cumulant_on(self, y: Matrix, V: Matrix) -> Vector:
        """Return the fourth cumulant on V and V, (N,)."""
        Q = self._centred_metric(y, y, V)
        q = np.einsum("nkk->nk", Q)
        # The Gaussian part of a fourth moment on V, V is tr(RV)² + 2 tr(RVRV).
        gaussian = np.einsum("nk,nk->n", y, q) ** 2 + 2 * np.einsum("nk,nkj,nj->n", y, Q**2, y)
        return np.einsum("nk,nk->n", y, q**2) - gaussian

    def _centred_metric(self, y: Matrix, q: Matrix, V: Matrix) -> Matrix:
        """Return (e_k - y)ᵀ V (e_j - q), (N, K, K)."""
        W = np.einsum("kc,ncd,ld->nkl", self.transform, V, self.transform, optimize=True)
        Wq = np.einsum("nkl,nl->nk", W, q)
        Wy = np.einsum("nkl,nl->nk", W, y)
        return W - Wq[:, :, None] - Wy[:, None, :] + np.einsum("nk,nk->n", y, Wq)[:, None, None]


def _less(parts: list[Matrix]) -> Matrix:
    """Return the first of one or two arrays less the second."""
    return parts[0] - parts[1] if len(parts) > 1 else parts[0]


Likelihood = Bernoulli | Categorical
"""What fitting knows of ln p(t | a); those of labels that may be wrong are subclasses."""


def log_odds(t: Matrix) -> tuple[Vector, Vector]:
    """Return ln t of both classes, (N,) each, of likelihoods t (N, 2); -inf where a class is impossible."""
    with np.errstate(divide="ignore"):
        log_t = np.log(t)
    return log_t[:, 0], log_t[:, 1]


class MislabelledBernoulli(Bernoulli):
    """Two classes by the logistic link: ln[t_0 (1 - σ(a)) + t_1 σ(a)], t (N, 2)."""

    @property
    def log_concave(self) -> bool:
        """Never, beside labels that may be wrong."""
        return False

    def log_likelihood(self, a: Matrix, t: Matrix) -> Vector:
        """Return ln p(record | a), (N,)."""
        return _mixed_logistic_value(a[:, 0], *log_odds(t))

    def derivatives(self, a: Matrix, t: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Return value (N,), gradient and curvature (N, 1)."""
        x, (low, high) = a[:, 0], log_odds(t)
        y, q = expit(x), expit(x + (high - low))
        curvature = y * expit(-x) - q * (1 - q)
        return _mixed_logistic_value(x, low, high), (q - y)[:, None], curvature[:, None]

    def higher(self, a: Vector, t: Matrix) -> tuple[Vector, Vector]:
        """Return the third and fourth derivative of ln p, (N,) each."""
        low, high = log_odds(t)
        before, given = _logistic(a), _logistic(a + (high - low))
        return before[2] - given[2], before[3] - given[3]


def _mixed_logistic_value(a: Vector, low: Vector, high: Vector) -> Vector:
    # By sides, so that nothing cancels far out: ln(t_0 + t_1 e^a) - ln(1 + e^a).
    above = np.maximum(low, high + a) + np.log1p(np.exp(-np.abs(a + (high - low))))
    return np.asarray(above - np.maximum(a, 0.0) - np.log1p(np.exp(-np.abs(a))))


class MislabelledCategorical(Categorical):
    """K classes through the softmax: ln Σ_k t_k y_k, t (N, K)."""

    log_concave: ClassVar[bool] = False

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

    def _before_and_given(self, a: Matrix, t: Matrix) -> tuple[Matrix, ...]:
        return self._both(a, t)[:2]


def make_likelihood(
    name: str, n_classes: int, *, contrasts: bool = True, mislabelled: bool = False
) -> Likelihood:
    """Return the likelihood of that name for K classes, of labels that may be wrong where they are `mislabelled`.

    ValueError if the name is unknown or a binary link is asked to tell more than two classes apart.
    """
    if name == "softmax":
        return (MislabelledCategorical if mislabelled else Categorical)(n_classes, contrasts)
    if name not in LINKS:
        raise ValueError(f"unknown likelihood '{name}'; expected 'softmax' or one of {', '.join(LINKS)}")
    if n_classes != 2:
        raise ValueError(f"likelihood '{name}' is for two classes, got {n_classes}; use 'softmax'")
    if mislabelled and name != "logistic":
        raise ValueError(
            f"labels may be wrong beside the likelihood '{name}', expected 'logistic' or 'softmax'; change either"
        )
    return (MislabelledBernoulli if mislabelled else Bernoulli)(LINKS[name])
