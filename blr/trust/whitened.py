"""Log posterior and gradient at many weights at once, in coordinates that a Gaussian makes white.

What Markov chains side by side evaluate: for all of them one pass over the rows, as matrix products.
Shapes: n rows, S weights of D = C M in the solver's coordinates, K classes (1 for two, by the logit of the second).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Bernoulli, Categorical, Likelihood
from blr.likelihood.links import LOGISTIC
from blr.likelihood.mislabelled import MislabelledCategorical
from blr.sums import ChunkFunction, Rows, Terms, blockwise

_Reals = TypeVar("_Reals", NDArray[np.float32], NDArray[np.float64])

_SINGLE_ERROR = 0.005  # nats, of a log likelihood in single precision
_COMPARED = 64  # weights at which that is tried


def whitened_density(
    problem: Problem, white: Gaussian, *, single: bool = False
) -> Callable[[Matrix], tuple[Vector, Matrix]]:
    """Return the log posterior and its gradient in the whitened coordinates z, θ = mean + z L⁻¹.

    `single` as of `draw_terms`; rows and whitening matrix are then held in single precision too.
    """
    real: Any = _precision(problem.likelihood, single=single)
    data, prior = problem.require_data(), problem.solver_prior
    if isinstance(data, Rows):
        data = replace(data, Phi=data.Phi.astype(real, copy=False))
    mean, U = white.mean.astype(real, copy=False), white.inverse_cholesky.astype(real, copy=False)

    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:
        theta = mean + z.astype(real, copy=False) @ U
        value, gradient = data.accumulate(draw_terms(problem.likelihood, theta, single=single))
        away = theta - prior.mean
        pull = prior.pull(away)
        uphill = (gradient - pull).astype(real, copy=False) @ U.T
        return value - 0.5 * np.einsum("sd,sd->s", away, pull), uphill.astype(np.float64, copy=False)

    return evaluate


def single_serves(problem: Problem, theta: Matrix) -> bool:
    """Return whether `draw_terms` in single precision has the log likelihoods at weights theta (S, D) that double has.

    Within 0.005 nats, at the first 64 of them.  Columns that nearly cancel, and activations in the thousands, take
    double precision.
    """
    if not _can_be_single(problem.likelihood):
        return False
    data, some = problem.require_data(), theta[:_COMPARED]
    quick, exact = (
        data.accumulate(draw_terms(problem.likelihood, some, single=single, gradients=False))[0]
        for single in (True, False)
    )
    return bool(np.abs(quick - exact).max() < _SINGLE_ERROR)


def log_posterior(problem: Problem, theta: Matrix, *, single: bool = False) -> Vector:
    """Return ln p(D|θ) + ln p(θ) at weights theta (S, D), the prior's constant included: (S,).

    `single` as of `draw_terms`.
    """
    prior = problem.solver_prior
    terms = draw_terms(problem.likelihood, theta, single=single, gradients=False)
    (value,) = problem.require_data().accumulate(terms)
    away = theta - prior.mean
    constant = 0.5 * (prior.log_det_precision - len(prior.mean) * np.log(2 * np.pi))
    return np.asarray(value - 0.5 * np.einsum("sd,sd->s", away, prior.pull(away)) + constant)


def draw_terms(
    likelihood: Likelihood, theta: Matrix, *, single: bool = False, gradients: bool = True
) -> ChunkFunction:
    """Return the function of a chunk that gives ln p (S,) at S weights theta (S, D), and its `gradients` (S, D).

    Rows run along the last axis, so that every elementary operation has long contiguous runs.

    `single`: products and exponentials of each row in single precision, which takes a third of the time; sums over
    rows of values are in double.  Of columns that nearly cancel it loses digits: the caller is to compare.  It has no
    effect on labels that may be wrong, nor on links other than the logistic one.
    """
    real: Any = _precision(likelihood, single=single)
    T = (likelihood.transform if isinstance(likelihood, Categorical) else np.eye(1)).astype(real, copy=False)
    K, S = len(T), len(theta)
    outputs = theta.astype(real, copy=False).reshape(S, T.shape[1], -1)
    W = np.einsum("kc,scm->skm", T, outputs).reshape(S * K, -1)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        X = Phi.astype(real, copy=False)
        value, pull = _by_rows(likelihood, (W @ X.T).reshape(S, K, len(X)), t)
        values = np.asarray(value.sum(axis=1, dtype=np.float64) if weight is None else value @ weight)
        if not gradients:
            return (values,)
        if weight is not None:
            pull *= weight.astype(real, copy=False)
        by_class = (pull.reshape(S * K, len(X)) @ X).reshape(S, K, -1)
        by_output = np.einsum("kc,skm->scm", T, by_class).reshape(S, -1)
        return values, by_output.astype(np.float64, copy=False)

    return blockwise(terms, 6 * len(W) if K == 1 else 3 * len(W))


def _precision(likelihood: Likelihood, *, single: bool) -> type[np.floating[Any]]:
    return np.float32 if single and _can_be_single(likelihood) else np.float64


def _can_be_single(likelihood: Likelihood) -> bool:
    if isinstance(likelihood, Categorical):
        return not isinstance(likelihood, MislabelledCategorical)
    return _is_logistic(likelihood)


def _is_logistic(likelihood: Likelihood) -> bool:
    return type(likelihood) is Bernoulli and likelihood.link is LOGISTIC


def _by_rows(likelihood: Likelihood, a: Any, t: Matrix) -> tuple[Any, Any]:
    """Return ln p (S, n) and its gradient by the activations (S, K, n), of a (S, K, n), which is lost, and t."""
    if isinstance(likelihood, MislabelledCategorical):
        return _mislabelled_rows(a, t)
    if isinstance(likelihood, Categorical):
        return _softmax_rows(a, np.ascontiguousarray(t.T, a.dtype))
    if _is_logistic(likelihood):
        return _logistic_rows(a, np.ascontiguousarray(t[None], a.dtype))
    repeated = np.broadcast_to(t, (len(a), *t.shape)).reshape(-1, *t.shape[1:])
    value, slope, _ = likelihood.derivatives(a.reshape(-1, 1), repeated)
    return value.reshape(len(a), -1), slope.reshape(a.shape)


def _mislabelled_rows(a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return what `_softmax_rows` does, of likelihoods t (n, K) of what was recorded."""
    a -= a.max(axis=1)[:, None]
    with np.errstate(divide="ignore"):
        q = a + np.log(t).T
    top = q.max(axis=1)
    q = np.exp(q - top[:, None])
    given = q.sum(axis=1)
    np.exp(a, out=a)
    total = a.sum(axis=1)
    a /= -total[:, None]
    a += q / given[:, None]
    return top + np.log(given) - np.log(total), a


def _softmax_rows(a: _Reals, t: _Reals) -> tuple[_Reals, _Reals]:
    """Return ln p (S, n) and its gradient by the activations (S, K, n), of a (S, K, n), which is lost, and t (K, n)."""
    if compiled.loops is not None and 2 <= len(t) <= compiled.MOST_OUTPUTS:
        value = np.empty((len(a), a.shape[2]), a.dtype)
        compiled.loops.softmax_rows(a, np.ascontiguousarray(t), value)
        return value, a
    a -= a.max(axis=1)[:, None]
    value = np.einsum("kn,skn->sn", t, a)
    np.exp(a, out=a)
    total = a.sum(axis=1)
    value -= np.log(total)
    a *= (-1 / total)[:, None]
    a += t
    return value, a


def _logistic_rows(a: _Reals, t: _Reals) -> tuple[_Reals, _Reals]:
    """Return ln p (S, n) and its gradient by the activations (S, 1, n), of a (S, 1, n) and t (1, n)."""
    if compiled.loops is not None:
        value, pull = np.empty_like(a[:, 0]), np.empty_like(a[:, 0])
        activation, shares = np.ascontiguousarray(a[:, 0]), np.ascontiguousarray(t[0])
        compiled.loops.logistic_rows(activation, shares, value, pull, None)
        return value, pull[:, None]
    size, positive = np.abs(a), a >= 0
    e = np.exp(-size)
    softplus = np.log(1 + e) if a.dtype == np.float32 else np.log1p(e)
    value = -softplus - size * np.where(positive, 1 - t, t)
    return value[:, 0], t - np.where(positive, 1, e) / (1 + e)
