"""Likelihoods of logistic models and their derivatives with respect to the activations.

Conventions.  N rows, C outputs: activations a are (N, C), targets t (N,) for two classes and (N, K) for K.  Value is
(N,), gradient (N, C), curvature -d²/da_c da_d packed as (N, P), P = C(C+1)/2, pairs (c, d >= c) in row order: for one
output that is (N, 1).  Row weights are the caller's.  Signs are those of the log likelihood: PRML 4.91 and 4.109
with the sign turned, so the curvature is positive where ln p is concave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.likelihood.links import LINKS, LOGISTIC, Link
from blr.likelihood.prior import helmert


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

    @property
    def name(self) -> str:
        """Name of the link."""
        return self.link.name

    @property
    def n_outputs(self) -> int:
        """Always 1."""
        return 1

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
        if self.link is LOGISTIC:
            return _logistic_derivatives(a, t)
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


def _logistic_derivatives(a: Vector, t: Vector) -> tuple[Vector, Matrix, Matrix]:
    if compiled.loops is not None:
        return _compiled_logistic(a, t, derivatives=True)
    e = np.exp(-np.abs(a))
    value = _logistic_value(a, t, np.log1p(e))
    inverse = 1 / (1 + e)
    small = e * inverse
    y = np.where(a >= 0, inverse, small)
    return value, (t - y)[:, None], (small * inverse)[:, None]


@dataclass(frozen=True)
class Categorical:
    """K classes through the softmax, t (N, K) summing to one; outputs are K - 1 contrasts, or all K activations."""

    n_classes: int
    contrasts: bool = True

    @property
    def name(self) -> str:
        """The name softmax."""
        return "softmax"

    @property
    def n_outputs(self) -> int:
        """K - 1 in contrasts, else K."""
        return self.n_classes - 1 if self.contrasts else self.n_classes

    @property
    def log_concave(self) -> bool:
        """Always."""
        return True

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

    def curvature_gradient(self, a: Matrix, t: Matrix, V: Matrix) -> Matrix:  # noqa: ARG002  same verbs for all
        """Return d tr(R V)/da, (N, C), for V (N, C, C)."""
        return self.third_cumulant_on(self._softmax(a)[1], V)

    def curvature_along(self, a: Matrix, t: Matrix, b: Matrix) -> Matrix:  # noqa: ARG002  same verbs for all
        """Return the packed third cumulant of the classes, (N, P, m), on m directions b (N, C, m)."""
        return self.third_cumulant_along(self._softmax(a)[1], b)

    def third_squared(self, a: Matrix, t: Matrix, V: Matrix) -> Vector:  # noqa: ARG002  same verbs for all
        """Return the squared length of the third cumulant Σ_k y_k (e_k - y)^⊗3 in the metric V, (N,)."""
        y = self.probability(a)
        return self.third_cumulants_product(y, y, V)

    def third_cubes(self, a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:  # noqa: ARG002  same verbs for all
        """Return the probabilities y (N, K), and e_k - y in the outputs' coordinates (N, K, C)."""
        y = self.probability(a)
        return y, self._from_mean(y)

    def _from_mean(self, y: Matrix) -> Matrix:
        return self.transform - (y @ self.transform)[:, None, :]

    def fourth_on(self, a: Matrix, t: Matrix, V: Matrix) -> Vector:  # noqa: ARG002  same verbs for all
        """Return the fourth cumulant, Σ_k y_k (e_k - y)^⊗4 less its Gaussian part, on V and V, (N,)."""
        return self.fourth_cumulant_on(self._softmax(a)[1], V)

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


Likelihood = Bernoulli | Categorical
"""What fitting knows of ln p(t | a); those of labels that may be wrong are subclasses."""


def make_likelihood(name: str, n_classes: int, *, contrasts: bool = True) -> Likelihood:
    """Return the likelihood of that name for K classes.

    Raises
    ------
    ValueError
        If the name is unknown or a binary link is asked to tell more than two classes apart.
    """
    if name == "softmax":
        return Categorical(n_classes, contrasts=contrasts)
    if name not in LINKS:
        raise ValueError(f"unknown likelihood '{name}'; expected 'softmax' or one of {', '.join(LINKS)}")
    if n_classes != 2:
        raise ValueError(f"likelihood '{name}' is for two classes, got {n_classes}; use 'softmax'")
    return Bernoulli(LINKS[name])
