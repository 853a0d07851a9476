"""Log posterior and gradient at many weights at once, in coordinates that a Gaussian makes white.

What Markov chains side by side evaluate: for all of them one pass over the rows, as matrix products.
Shapes: S weights of D = C M in the solver's coordinates, K classes.
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
from blr.sums import ChunkFunction, Data, Rows, Terms, blockwise

__all__ = ["draw_terms", "log_posterior", "single_serves", "whitened_density"]

Singles = NDArray[np.float32]
_Reals = TypeVar("_Reals", NDArray[np.float32], NDArray[np.float64])

_SINGLE_ERROR = 0.005  # nats, of a log likelihood in single precision
_COMPARED = 64  # weights at which that is tried


def whitened_density(
    problem: Problem, white: Gaussian, *, single: bool = False
) -> Callable[[Matrix], tuple[Vector, Matrix]]:
    """Return the log posterior and its gradient in the whitened coordinates z, θ = mean + z L⁻¹.

    `single` as of `draw_terms`.
    """
    if single and _can_be_single(problem.likelihood):
        return _whitened_in_single(problem, white)
    data, prior, U = problem.require_data(), problem.solver_prior, white.inverse_cholesky

    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:
        theta = white.mean + z @ U
        value, gradient = data.accumulate(draw_terms(problem.likelihood, theta))
        away = theta - prior.mean
        pull = prior.pull(away)
        return value - 0.5 * np.einsum("sd,sd->s", away, pull), (gradient - pull) @ U.T

    return evaluate


def _whitened_in_single(problem: Problem, white: Gaussian) -> Callable[[Matrix], tuple[Vector, Matrix]]:
    """Return what `whitened_density` does, with rows and whitening matrix held in single precision."""
    data, prior = _in_single(problem.require_data()), problem.solver_prior
    mean, U = white.mean.astype(np.float32), white.inverse_cholesky.astype(np.float32)

    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:
        theta = mean + z.astype(np.float32) @ U
        value, gradient = data.accumulate(_single_terms(problem.likelihood, theta, gradients=True))
        away = theta - prior.mean
        pull = prior.pull(away)
        uphill = (gradient - pull).astype(np.float32) @ U.T
        return value - 0.5 * np.einsum("sd,sd->s", away, pull), uphill.astype(np.float64)

    return evaluate


def _in_single(data: Data) -> Data:
    """Return rows with their design matrix in single precision, so that no evaluation has to convert it again."""
    single: Any = np.float32  # `Rows` is declared for double
    return replace(data, Phi=data.Phi.astype(single)) if isinstance(data, Rows) else data


def single_serves(problem: Problem, theta: Matrix) -> bool:
    """Return whether `draw_terms` in single precision has the log likelihoods at weights theta (S, D) that double has.

    Within 0.005 nats, at the first 64 of them.  Columns that nearly cancel, and activations in the thousands, take
    double precision.
    """
    if not _can_be_single(problem.likelihood):
        return False
    data = problem.require_data()
    quick, exact = (
        data.accumulate(draw_values(problem.likelihood, theta[:_COMPARED], single=single))[0]
        for single in (True, False)
    )
    return bool(np.abs(quick - exact).max() < _SINGLE_ERROR)


def log_posterior(problem: Problem, theta: Matrix, *, single: bool = False) -> Vector:
    """Return ln p(D|θ) + ln p(θ) at weights theta (S, D), the prior's constant included: (S,).

    `single` as of `draw_terms`.
    """
    prior = problem.solver_prior
    (value,) = problem.require_data().accumulate(draw_values(problem.likelihood, theta, single=single))
    away = theta - prior.mean
    constant = 0.5 * (prior.log_det_precision - len(prior.mean) * np.log(2 * np.pi))
    return np.asarray(value - 0.5 * np.einsum("sd,sd->s", away, prior.pull(away)) + constant)


def draw_values(likelihood: Likelihood, theta: Matrix, *, single: bool = False) -> ChunkFunction:
    """Return the function of a chunk that gives the values of `draw_terms` alone."""
    if single and _can_be_single(likelihood):
        return _single_terms(likelihood, theta, gradients=False)
    if isinstance(likelihood, Categorical):
        W = _class_rows(likelihood.transform, theta)
        mislabelled, K = isinstance(likelihood, MislabelledCategorical), likelihood.n_classes
        return blockwise(
            lambda *chunk: (_softmax_values(*chunk, W=W, K=K, mislabelled=mislabelled),),
            (2 + mislabelled) * len(W),
        )
    assert isinstance(likelihood, Bernoulli)  # noqa: S101  there are no others

    def terms(Phi: Matrix, t: Vector, weight: Vector | None) -> Terms:
        a = theta @ Phi.T
        if _is_logistic(likelihood):
            return (_row_sums(_logistic_rows(a[:, None], np.asarray(t, np.float64)[None])[0], weight),)
        repeated = np.broadcast_to(t, (len(a), *t.shape)).reshape(-1, *t.shape[1:])
        value = likelihood.log_likelihood(a.reshape(-1, 1), repeated)
        return (_row_sums(value.reshape(a.shape), weight),)

    return blockwise(terms, 4 * len(theta))


def _class_rows(T: _Reals, theta: _Reals) -> _Reals:
    """Return the weights (S K, M) of all classes from outputs' weights theta (S, C M)."""
    S = len(theta)
    return np.einsum("kc,scm->skm", T, theta.reshape(S, T.shape[1], -1)).reshape(S * len(T), -1)


def _row_sums(value: NDArray[np.floating], weight: Vector | None) -> Vector:
    return np.asarray(value.sum(axis=1, dtype=np.float64) if weight is None else value @ weight)


def _softmax_values(
    Phi: Matrix, t: Matrix, weight: Vector | None, *, W: Matrix, K: int, mislabelled: bool
) -> Vector:
    a = (W @ Phi.T).reshape(-1, K, len(Phi))
    a -= a.max(axis=1)[:, None]
    value = _given_record(a, t)[1] if mislabelled else np.einsum("nk,skn->sn", t, a)
    value -= np.log(np.exp(a, out=a).sum(axis=1))
    return _row_sums(value, weight)


def draw_terms(likelihood: Likelihood, theta: Matrix, *, single: bool = False) -> ChunkFunction:
    """Return the function of a chunk that gives values (S,) and gradients (S, D) of ln p at S weights theta (S, D).

    Rows run along the last axis, so that every elementary operation has long contiguous runs.

    `single`: products and exponentials of each row in single precision, which takes a third of the time; sums over
    rows of values are in double.  Of columns that nearly cancel it loses digits: the caller is to compare.  It has no
    effect on labels that may be wrong, nor on links other than the logistic one.
    """
    S = len(theta)
    if single and _can_be_single(likelihood):
        return _single_terms(likelihood, theta, gradients=True)
    if isinstance(likelihood, Categorical):
        T = likelihood.transform
        W = _class_rows(T, theta)
        mislabelled = isinstance(likelihood, MislabelledCategorical)
        return blockwise(
            lambda *chunk: _softmax_terms(*chunk, W=W, T=T, mislabelled=mislabelled),
            (2 + mislabelled) * len(W),
        )
    assert isinstance(likelihood, Bernoulli)  # noqa: S101  there are no others
    return blockwise(lambda *chunk: _binary_terms(*chunk, likelihood=likelihood, theta=theta), 6 * S)


def _binary_terms(
    Phi: Matrix, t: Vector, weight: Vector | None, *, likelihood: Bernoulli, theta: Matrix
) -> Terms:
    a = theta @ Phi.T
    if _is_logistic(likelihood):
        value, pull = _logistic_rows(a[:, None], np.asarray(t, dtype=np.float64)[None])
        gradient = pull[:, 0]
    else:
        repeated = np.broadcast_to(t, (len(a), *t.shape)).reshape(-1, *t.shape[1:])
        flat, slopes, _ = likelihood.derivatives(a.reshape(-1, 1), repeated)
        value, gradient = flat.reshape(a.shape), slopes.reshape(a.shape)
    if weight is not None:
        gradient *= weight
    return _row_sums(value, weight), gradient @ Phi


def _softmax_terms(
    Phi: Matrix, t: Matrix, weight: Vector | None, *, W: Matrix, T: Matrix, mislabelled: bool
) -> Terms:
    K, C = T.shape
    a = (W @ Phi.T).reshape(-1, K, len(Phi))
    value, pull = _mislabelled_rows(a, t) if mislabelled else _softmax_rows(a, np.ascontiguousarray(t.T))
    if weight is not None:
        pull *= weight
    gradient = (pull.reshape(-1, len(Phi)) @ Phi).reshape(-1, K, Phi.shape[1])
    by_output = np.einsum("kc,skm->scm", T, gradient).reshape(len(a), C * Phi.shape[1])
    return _row_sums(value, weight), by_output


def _can_be_single(likelihood: Likelihood) -> bool:
    if isinstance(likelihood, Categorical):
        return not isinstance(likelihood, MislabelledCategorical)
    return _is_logistic(likelihood)


def _is_logistic(likelihood: Likelihood) -> bool:
    return type(likelihood) is Bernoulli and likelihood.link is LOGISTIC


def _single_terms(likelihood: Likelihood, theta: Matrix, *, gradients: bool) -> ChunkFunction:
    """Return the function of a chunk that gives values, and gradients where asked for, in single precision."""
    T = (likelihood.transform if isinstance(likelihood, Categorical) else np.eye(1)).astype(np.float32)
    W = _class_rows(T, theta.astype(np.float32, copy=False))
    by_rows = _softmax_rows if isinstance(likelihood, Categorical) else _logistic_rows

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        Phi32, K = Phi.astype(np.float32, copy=False), len(T)
        a = (W @ Phi32.T).reshape(-1, K, len(Phi))
        value, pull = by_rows(a, np.atleast_2d(t.T).astype(np.float32))
        values = _row_sums(value, weight)
        if not gradients:
            return (values,)
        if weight is not None:
            pull *= weight.astype(np.float32)
        by_class = (pull.reshape(-1, len(Phi)) @ Phi32).reshape(-1, K, Phi.shape[1])
        by_output = np.einsum("kc,skm->scm", T, by_class).reshape(len(value), -1)
        return values, by_output.astype(np.float64)

    return blockwise(terms, 2 * len(W))


def _mislabelled_rows(a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return what `_softmax_rows` does, of likelihoods t (n, K) of what was recorded."""
    a -= a.max(axis=1)[:, None]
    share, value = _given_record(a, t)
    np.exp(a, out=a)
    total = a.sum(axis=1)
    a /= -total[:, None]
    a += share
    return value - np.log(total), a


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


def _given_record(a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return the classes' probabilities given the record (S, K, n), and ln Σ_k t_k e^a_k (S, n), of a (S, K, n)."""
    with np.errstate(divide="ignore"):
        q = a + np.log(t).T
    top = q.max(axis=1)
    q -= top[:, None]
    np.exp(q, out=q)
    total = q.sum(axis=1)
    q /= total[:, None]
    return q, top + np.log(total)
