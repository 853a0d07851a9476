"""The posterior density of rates of wrong labels, and of the prior's precision, with the weights integrated out.

x = (ln α, rates by annotator and class): the density is the Laplace evidence times the hyperprior of `prior_scale` on
the weights' scale and a Beta prior on each rate.  Shapes: N rows, M basis functions, K classes, A annotators.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.covariances import output_covariances
from blr.fitting.newton import maximise
from blr.fitting.problem import Problem
from blr.likelihood.confusion import even_confusion, label_likelihood
from blr.likelihood.prior import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import posterior_at
from blr.selection.prior_scale import log_hyperprior
from blr.sums import Rows, activations, skewness_term

__all__ = ["NoiseDensity", "WeightPrior"]

_STEP = 1e-4  # relative, of likelihoods: for their derivatives
_HYPER_STEP = 1e-4  # in ln α


@dataclass(frozen=True)
class WeightPrior:
    """N(0, 1/α) for each weight but the intercept's."""

    n_functions: int
    intercept: int | None
    intercept_variance: float

    def of(self, log_alpha: float) -> GaussianPrior:
        """Return the prior of a precision."""
        return GaussianPrior.isotropic(
            self.n_functions,
            precision=float(np.exp(log_alpha)),
            intercept=self.intercept,
            intercept_variance=self.intercept_variance,
        )

    def free(self, n_outputs: int) -> NDArray[np.bool_]:
        """Return which of the solved weights have the precision α."""
        free = np.ones((n_outputs, self.n_functions), dtype=bool)
        if self.intercept is not None:
            free[:, self.intercept] = False
        return free.ravel()


@dataclass(eq=False)
class NoiseDensity:
    """The log posterior of x = (ln α, rates (A K,)), its gradient, and the weights where the last one was."""

    problem: Problem
    recorded: Matrix
    who: NDArray[np.intp]
    prior: WeightPrior
    wrong: Matrix  # (A, K) pseudo-rows that the Beta prior counts as labelled wrongly
    right: Matrix
    theta: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.theta = np.zeros(self.problem.n_solved)

    def posterior(self, x: Vector) -> LaplacePosterior:
        """Return the Laplace fit."""
        data = self.problem.require_data()
        assert isinstance(data, Rows)  # noqa: S101  streams have been refused
        t = label_likelihood(self.recorded, even_confusion(x[1:].reshape(self.wrong.shape))[self.who])
        posed = replace(self.problem, prior=self.prior.of(float(x[0])), data=replace(data, t=t))
        q = posterior_at(posed, maximise(posed.evaluate, posed.solver_prior, self.theta))
        self.theta = q.mode
        return q

    def value(self, x: Vector, q: LaplacePosterior) -> float:
        """Return the log posterior density of x, up to a constant."""
        e = x[1:].reshape(self.wrong.shape)
        before = float(np.sum(self.wrong * np.log(e) + self.right * np.log1p(-e)))
        return q.log_evidence + float(log_hyperprior(np.exp(-0.5 * x[0]))) + before

    def density(self, x: Vector) -> float:
        """Return the log posterior density of x; -inf where the fit has no Gaussian about it."""
        try:
            return self.value(x, self.posterior(x))
        except np.linalg.LinAlgError:
            return -np.inf

    def gradient(self, x: Vector, q: LaplacePosterior) -> Vector:
        """Return the gradient of the log posterior, (1 + A K,): exact but for the rows' own differences."""
        problem, theta, U = q.problem, q.mode, q.gaussian.inverse_cholesky
        data = problem.require_data()
        (g,) = data.accumulate(skewness_term(problem.likelihood, theta, U))
        pull = U.T @ (U @ np.asarray(g))
        free = self.prior.free(problem.likelihood.n_outputs)
        variance = np.einsum("ij,ij->j", U, U)
        alpha = float(np.exp(x[0]))
        slope = 0.5 * (free.sum() - alpha * float(np.sum((theta**2 + variance - pull * theta)[free])))
        above, below = (log_hyperprior(np.exp(-0.5 * (x[0] + h))) for h in (_HYPER_STEP, -_HYPER_STEP))
        hyper = (above - below) / (2 * _HYPER_STEP)
        e = x[1:].reshape(self.wrong.shape)
        rates = self._by_rate(q, pull) + self.wrong / e - self.right / (1 - e)
        return np.concatenate([[slope + float(hyper)], rates.ravel()])

    def _by_rate(self, q: LaplacePosterior, pull: Vector) -> Matrix:
        """Return the log evidence's derivative by the rates, (A, K).

        A row's share in it is ln p - tr(V R)/2 - bᵀg/2: of V, its activations' covariance, R and g its curvature and
        gradient, b how far the skewness pulls its activations.
        """
        data, likelihood = q.problem.require_data(), q.problem.likelihood
        assert isinstance(data, Rows)  # noqa: S101  streams have been refused
        C, K = likelihood.n_outputs, self.recorded.shape[1]
        a, b = (activations(data.Phi, x, C) for x in (q.mode, pull))
        V = output_covariances(data.Phi, q.gaussian.inverse_cholesky, C)
        rows, columns = np.triu_indices(C)
        packed = V[:, rows, columns] * np.where(rows == columns, 1.0, 2.0)

        def share(t: Matrix) -> Vector:
            value, gradient, curvature = likelihood.derivatives(a, t)
            own = np.einsum("np,np->n", packed, curvature) + np.einsum("nc,nc->n", b, gradient)
            return np.asarray(value - 0.5 * own)

        slope = np.empty_like(data.t)
        for k in range(K):
            step = np.where(np.arange(K) == k, _STEP, 0.0)
            change = share(data.t * (1 + step)) - share(data.t * (1 - step))
            slope[:, k] = change / (2 * _STEP * data.t[:, k])
        slope *= np.where(self.recorded == 1, -1.0, 1.0 / (K - 1))
        if data.weight is not None:
            slope *= data.weight[:, None]
        total = np.zeros(self.wrong.shape)
        np.add.at(total, self.who, slope)
        return total
