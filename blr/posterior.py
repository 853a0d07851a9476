"""The Gaussian posterior of the weights: the result of every fit, whatever found it, and what it says of new rows.

    ln p(D) ≈ ln p(D|w_MAP) + ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A        (PRML 4.137)

Shapes: N rows, M basis functions, K classes, D = M or K M
weights in order k M + m.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, as_matrix
from blr.contrasts import class_mean, class_precision
from blr.gaussian import Gaussian
from blr.likelihood import Bernoulli
from blr.mixture import Prediction, predicted
from blr.predictive import binary_exact, binary_probit
from blr.prior import GaussianPrior
from blr.problem import Problem, make_problem
from blr.softmax_predictive import softmax_exact, softmax_pairwise, softmax_plugin
from blr.sums import output_covariances

__all__ = ["Posterior"]

_BLOCK = 4096  # rows a block in prediction: fixed, so that a row's result depends little on its neighbours


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian posterior of the weights and what was found on the way.

    Attributes in the words of PRML: `mean` (D,) is the mode w_MAP (of a refined posterior, the variational mean),
    `precision` (D, D) is A, `cholesky` its lower factor; D = M, or K M in order k M + m.
    """

    problem: Problem
    gaussian: Gaussian
    log_likelihood: float
    converged: bool
    n_iter: int
    status: str = "converged"
    kind: str = "laplace"
    map_weights: Vector | None = None  # the mode in solver coordinates, where the mean is not it

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes' names; a binary probability is that of the second."""
        return self.problem.classes

    @property
    def likelihood(self) -> str:
        """Name of the likelihood."""
        return self.problem.likelihood.name

    @property
    def prior(self) -> GaussianPrior | None:
        """The prior; None for maximum likelihood."""
        return self.problem.prior

    @property
    def n_effective(self) -> float:
        """Sum of weight times trials."""
        return self.problem.n_effective

    @property
    def mode(self) -> Vector:
        """The mode in the solver's coordinates, (C M,)."""
        return self.gaussian.mean if self.map_weights is None else self.map_weights

    @cached_property
    def mean(self) -> Vector:
        """Weights (D,)."""
        return self._expand(self.gaussian.mean)

    def _expand(self, theta: Vector) -> Vector:
        T = self.problem.transform
        if T.shape[0] == T.shape[1]:
            return theta
        return class_mean(theta, T, self.problem.prior_mean)

    @cached_property
    def precision(self) -> Matrix:
        """A (D, D)."""
        T = self.problem.transform
        if T.shape[0] == T.shape[1]:
            return self.gaussian.precision
        return class_precision(self.gaussian.precision, T, self.problem.shared_precision)

    @cached_property
    def cholesky(self) -> Matrix:
        """Lower factor of the precision, (D, D)."""
        return Gaussian(self.mean, self.precision).cholesky

    @cached_property
    def log_occam_factor(self) -> float:
        """(4.137) less the likelihood: ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A; NaN without a prior."""
        if self.prior is None:
            return float("nan")
        prior = self.problem.solver_prior
        log_det_prior = Gaussian(prior.mean, prior.precision).log_det_precision
        return 0.5 * (log_det_prior - self.gaussian.log_det_precision) - prior.energy(self.mode)

    @property
    def log_evidence(self) -> float:
        """Ln p(D), Laplace's approximation, in nats."""
        return self.log_likelihood + self.log_occam_factor

    @property
    def bic(self) -> float:
        """Ln p(D|w) - (free parameters)/2 ln n_effective (PRML 4.139): higher is better; -2 bic is Schwarz's form."""
        return self.log_likelihood - 0.5 * self.problem.free_parameters * float(np.log(self.n_effective))

    @cached_property
    def effective_parameters(self) -> float:
        """tr(H A⁻¹) (PRML 3.91): how many parameters the data determine."""
        prior = self.problem.solver_prior.precision
        return self.problem.n_solved - float(np.einsum("ij,ji->", prior, self.gaussian.covariance))

    def logit_moments(self, Phi: ArrayLike) -> tuple[Matrix, Matrix]:
        """Return mean and variance of the activation, (N,) each.

        Softmax: (N, K) and (N, K, K), the common shift of all activations projected out.
        """
        return self._class_moments(*self._output_moments(self._design(Phi)))

    def _design(self, Phi: ArrayLike) -> Matrix:
        # A batch without rows (an empty partition) is no error: it gets no predictions.
        matrix = (
            np.asarray(Phi, dtype=np.float64)
            if np.size(Phi) == 0 and np.ndim(Phi) == 2
            else as_matrix(Phi, "Phi")
        )
        if matrix.shape[1] != self.problem.n_functions:
            raise ValueError(
                f"design matrix has {matrix.shape[1]} columns but the posterior has {self.problem.n_functions} "
                "a class; build both with the same basis"
            )
        return matrix

    def _output_moments(self, Phi: Matrix) -> tuple[Matrix, Matrix]:
        C = self.problem.likelihood.n_outputs
        weights = np.ascontiguousarray(self.gaussian.mean.reshape(C, -1).T)
        mean, covariance = np.empty((len(Phi), C)), np.empty((len(Phi), C, C))
        for start in range(0, len(Phi), _BLOCK):
            block = slice(start, start + _BLOCK)
            np.matmul(Phi[block], weights, out=mean[block])
            covariance[block] = output_covariances(Phi[block], self.gaussian.inverse_cholesky, C)
        return mean, covariance

    def predict_proba(
        self,
        Phi: ArrayLike,
        method: str = "exact",
        *,
        n_samples: int = 1000,
        rng: np.random.Generator | None = None,
        return_error: bool = False,
    ) -> Any:
        """Return the probability of the second class (N,), or of each of K classes (N, K).

        Parameters
        ----------
        method
            "plugin" (weights at the mean), "probit" (the textbook's formula, PRML 4.155; softmax: pairwise),
            "exact" (the predictive integral), "monte_carlo" (`n_samples` draws with `rng`).
        return_error
            With "monte_carlo": return also the standard error, of the same shape.
        """
        if method not in _METHODS:
            raise ValueError(f"unknown method '{method}'; expected one of {', '.join(_METHODS)}")
        if return_error and method != "monte_carlo":
            raise ValueError(f"method '{method}' has no sampling error; return_error goes with 'monte_carlo'")
        if method == "monte_carlo":
            probability, error = self._monte_carlo(self._design(Phi), n_samples, rng)
            return (probability, error) if return_error else probability
        if method == "plugin":
            return self.response(self._activations(self._design(Phi), self.gaussian.mean))
        return self._moderated(*self.logit_moments(Phi), method)

    def _moderated(self, mean: Matrix, covariance: Matrix, method: str) -> Matrix:
        if self.problem.binary:
            if method == "exact":
                return binary_exact(mean, covariance, link=self.likelihood)
            return binary_probit(mean, covariance)
        return softmax_exact(mean, covariance)[0] if method == "exact" else softmax_pairwise(mean, covariance)

    def _activations(self, Phi: Matrix, theta: Vector) -> Matrix:
        """Return class activations, (N,) or (N, K), at solver weights theta."""
        outputs = Phi @ theta.reshape(self.problem.likelihood.n_outputs, -1).T
        return outputs[:, 0] if self.problem.binary else outputs @ self.problem.transform.T

    def response(self, a: Matrix) -> Matrix:
        """Return the probabilities at activations a, (N,) or (N, K), weights taken as certain."""
        likelihood = self.problem.likelihood
        if isinstance(likelihood, Bernoulli):
            return np.exp(likelihood.link.log_cdf(a))
        return softmax_plugin(a)

    def _monte_carlo(self, Phi: Matrix, n: int, rng: np.random.Generator | None) -> tuple[Matrix, Matrix]:
        total: Any = 0.0
        squares: Any = 0.0
        for theta in self.gaussian.sample(n, np.random.default_rng(0) if rng is None else rng):
            p = self.response(self._activations(Phi, theta))
            total, squares = total + p, squares + p * p
        mean = total / n
        return mean, np.sqrt(np.maximum(squares / n - mean**2, 0.0) / max(n - 1, 1))

    def prediction(self, Phi: ArrayLike, *, shift: Vector | None = None) -> Prediction:
        """Return probabilities by the predictive integral, expected entropy and activation moments of each row.

        `shift` (K,) is added to the activations inside the integral: ln of new over old class priors.
        """
        return predicted(*self.logit_moments(Phi), link=self._link, shift=shift)

    def output_probability(self, mean: Matrix, covariance: Matrix) -> Matrix:
        """Return (N, K) probabilities of Gaussian outputs, mean (N, C) and covariance (N, C, C)."""
        return predicted(*self._class_moments(mean, covariance), link=self._link).probability

    @property
    def _link(self) -> str:
        return self.likelihood if self.problem.binary else "logistic"

    def _class_moments(self, mean: Matrix, covariance: Matrix) -> tuple[Matrix, Matrix]:
        if self.problem.binary:
            return mean[:, 0], covariance[:, 0, 0]
        T = self.problem.transform - self.problem.transform.mean(axis=0)
        return mean @ T.T, np.einsum("kc,ncd,ld->nkl", T, covariance, T, optimize=True)

    def plugin(self, Phi: ArrayLike) -> Matrix:
        """Return (N, K) probabilities with the weights at the mode, as a plain classifier would give them."""
        p = self.response(self._activations(self._design(Phi), self.mode))
        return np.stack([1 - p, p], axis=1) if self.problem.binary else p

    def count_gradient(self, Phi: Matrix) -> Matrix:
        """Return the derivative of the rows' summed probabilities, (K, C M), by the solver's weights at the mode."""
        y, T = self.plugin(Phi), self.problem.transform
        if isinstance(self.problem.likelihood, Bernoulli):
            a = self._activations(Phi, self.mode)
            slope = y[:, 1] * self.problem.likelihood.link.log_cdf_derivatives(a)[0]  # f' = f (ln f)'
            return np.outer([-1.0, 1.0], slope @ Phi)
        return np.stack([((y[:, [k]] * (T[k] - y @ T)).T @ Phi).ravel() for k in range(len(T))])

    def deviations(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the solver's weights about their mean, (n, C M)."""
        return self.gaussian.sample(n, rng) - self.gaussian.mean

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the weights, (n, D)."""
        theta = self.gaussian.sample(n, rng)
        T, shared = self.problem.transform, self.problem.shared_precision
        if T.shape[0] == T.shape[1]:
            return theta
        draws = np.stack([self._expand(row) for row in theta])
        if shared is not None:  # the data say nothing of the sum direction: it keeps the prior's spread
            common = Gaussian(np.zeros(len(shared)), shared).sample(n, rng)
            draws += np.tile(common, self.problem.n_classes) / np.sqrt(self.problem.n_classes)
        return draws

    def to_dict(self) -> dict[str, Any]:
        """Return scalars, strings, lists and arrays that `from_dict` makes the posterior of, without its data."""
        return {
            "kind": self.kind,
            "likelihood": self.likelihood,
            "classes": [c.item() if isinstance(c, np.generic) else c for c in self.classes],
            "n_functions": int(self.problem.n_functions),
            "n_effective": float(self.n_effective),
            "prior": None if self.prior is None else self.prior.to_dict(),
            "solver_mean": self.gaussian.mean,
            "solver_precision": self.gaussian.precision,
            "map_weights": self.map_weights,
            "log_likelihood": float(self.log_likelihood),
            "converged": bool(self.converged),
            "n_iter": int(self.n_iter),
            "status": self.status,
        }

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Posterior:
        """Return the posterior of `to_dict`."""
        prior = None if d["prior"] is None else GaussianPrior(d["prior"]["mean"], d["prior"]["covariance"])
        problem = make_problem(
            d["likelihood"], prior, tuple(d["classes"]), d["n_functions"], d["n_effective"], None
        )
        gaussian = Gaussian(np.asarray(d["solver_mean"]), np.asarray(d["solver_precision"]))
        return cls(
            problem, gaussian, d["log_likelihood"], d["converged"], d["n_iter"], d["status"], d["kind"]
        )


_METHODS = ("plugin", "probit", "exact", "monte_carlo")
