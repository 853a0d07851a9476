"""The Gaussian posterior of the weights: the result of every fit, whatever found it, and what it says of new rows.

    ln p(D) ≈ ln p(D|w_MAP) + ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A        (PRML 4.137)

Shapes: N rows, M basis functions, K classes, D = M or K M weights in order k M + m, S draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector
from blr.fitting.problem import Problem, make_problem
from blr.gaussian import Gaussian
from blr.likelihood.contrasts import class_cholesky, class_precision
from blr.likelihood.likelihoods import Bernoulli
from blr.likelihood.prior import GaussianPrior
from blr.posterior.ensemble import averaged
from blr.predictive.binary import binary_exact, binary_probit
from blr.predictive.mixture import Prediction, predicted, require_shift
from blr.predictive.output_moments import OutputMoments
from blr.predictive.softmax import softmax_exact, softmax_fast
from blr.trust.verdict import Trust, assess

__all__ = ["Posterior"]


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian posterior of the weights and what was found on the way.

    Attributes in the words of PRML: `mean` (D,) is the mode w_MAP (of a refined posterior, the variational mean, of a
    sampled or matched one that of the draws), `precision` (D, D) is A, `cholesky` its lower factor; D = M, or K M in
    order k M + m.

    `kind` is "laplace", "shifted", "refined", "matched" (a Gaussian with the exact posterior's mean and covariance),
    "sampled" or "sandwich"; all but the first keep the Laplace fit that they improve on in `laplace`, and evidence,
    BIC, effective parameters and trust are its, where no verdict is its own.  `elbo`: of a refined one, nats.
    `draws` (S, C M): of a sampled one, in the solver's coordinates.  `verdict`: of the fit, where it was stored or is
    its own.
    """

    problem: Problem
    gaussian: Gaussian
    log_likelihood: float
    converged: bool
    n_iter: int
    status: str = "converged"
    kind: str = "laplace"
    laplace: Posterior | None = None
    elbo: float | None = None
    draws: Matrix | None = None
    verdict: Trust | None = None

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
        return self.gaussian.mean if self.laplace is None else self.laplace.mode

    @property
    def fitted(self) -> Posterior:
        """The Laplace fit behind this posterior; ValueError if it has no prior, and so may be of nothing."""
        if self.prior is None:
            raise ValueError(
                "a maximum-likelihood fit has no posterior to refine or sample; fit with a prior, such as "
                "GaussianPrior.isotropic(M)"
            )
        return self if self.laplace is None else self.laplace

    @cached_property
    def mean(self) -> Vector:
        """Weights (D,)."""
        return self.problem.class_weights(self.gaussian.mean)

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
        T, shared = self.problem.transform, self.problem.shared_precision
        if T.shape[0] == T.shape[1] or shared is None:
            return Gaussian(self.mean, self.precision).cholesky
        prior = Gaussian(np.zeros(len(shared)), shared)
        return class_cholesky(self.gaussian.cholesky, T, prior.cholesky)

    @cached_property
    def log_occam_factor(self) -> float:
        """(4.137) less the likelihood: ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A; NaN without a prior."""
        if self.laplace is not None:
            return self.laplace.log_occam_factor
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
        if self.laplace is not None:
            return self.laplace.effective_parameters
        prior = self.problem.solver_prior.precision
        return self.problem.n_solved - float(np.einsum("ij,ji->", prior, self.gaussian.covariance))

    def logit_moments(self, Phi: ArrayLike) -> tuple[Matrix, Matrix]:
        """Return mean and variance of the activation, (N,) each.

        Softmax: (N, K) and (N, K, K), the common shift of all activations projected out.
        """
        return self.problem.class_moments(*self._outputs(self.problem.design(Phi)))

    @cached_property
    def trust(self) -> Trust:
        """Whether the Laplace approximation serves; of a sampled posterior, whether its chains mixed.

        Computed on first use, from the data, or loaded where it had been computed before saving.
        """
        if self.verdict is not None:
            return self.verdict
        if self.laplace is not None:
            return self.laplace.trust
        return assess(self.problem, self.gaussian, converged=self.converged, status=self.status)

    @property
    def second_order(self) -> float:
        """What is to be added to the log evidence to second order, nats: good to 0.015 where trust is green."""
        return (self.laplace or self).trust.numbers["second_order"]

    @cached_property
    def _outputs(self) -> OutputMoments:
        return OutputMoments(self.gaussian, self.problem.likelihood.n_outputs)

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
            "plugin" (weights at the mean), "probit" (the textbook's formula, PRML 4.155, for the logistic link;
            of the probit link the exact one, softmax: `softmax_fast`),
            "exact" (the predictive integral), "monte_carlo" (`n_samples` draws with `rng`).
        return_error
            With "monte_carlo": return also the standard error, of the same shape.
        """
        if method not in _METHODS:
            raise ValueError(f"unknown method '{method}'; expected one of {', '.join(_METHODS)}")
        if return_error and method != "monte_carlo":
            raise ValueError(f"method '{method}' has no sampling error; return_error goes with 'monte_carlo'")
        matrix = self.problem.design(Phi)
        if method == "plugin":
            return self.problem.response(self.problem.activations(matrix, self.gaussian.mean))
        if method == "probit" or (method == "exact" and self.draws is None):
            return self._moderated(*self.logit_moments(matrix), method)
        if method == "monte_carlo" and n_samples < 2:
            raise ValueError(f"n_samples is {n_samples}; expected 2 or more draws, for the standard error")
        rng = np.random.default_rng(0) if rng is None else rng
        draws = self.draws if method == "exact" and self.draws is not None else self._drawn(n_samples, rng)
        found, error = averaged(self.problem, matrix, draws)
        p, e = (x[:, 1] if self.problem.binary else x for x in (found.probability, error))
        return (p, e) if return_error else p

    def _moderated(self, mean: Matrix, covariance: Matrix, method: str) -> Matrix:
        if self.problem.binary:
            if method == "exact" or self.link == "probit":  # whose integral the formula is
                return binary_exact(mean, covariance, link=self.link)
            if self.link != "logistic":
                raise ValueError(
                    f"method 'probit' is a formula for the logistic link, and this fit's is {self.link}; use 'exact'"
                )
            return binary_probit(mean, covariance)
        return softmax_exact(mean, covariance)[0] if method == "exact" else softmax_fast(mean, covariance)

    def _drawn(self, n: int, rng: np.random.Generator) -> Matrix:
        if self.draws is None:
            return self.gaussian.sample(n, rng)
        return self.draws[rng.choice(len(self.draws), n, replace=n > len(self.draws))]

    def prediction(
        self,
        Phi: ArrayLike,
        *,
        shift: Vector | None = None,
        single: bool = False,
        most_nodes: int | None = None,
    ) -> Prediction:
        """Return probabilities by the predictive integral, expected entropy and activation moments of each row.

        `shift` (K,) is added to the activations inside the integral: ln of new over old class priors.  `single`: with
        covariances in single precision where `OutputMoments` says that it serves; `most_nodes`: see `softmax_exact`.
        """
        matrix = self.problem.design(Phi)
        require_shift(shift, self.problem.n_classes)
        if self.draws is not None:
            return averaged(self.problem, matrix, self.draws, shift, single=single)[0]
        moments = self.problem.class_moments(*self._outputs(matrix, single=single))
        return predicted(*moments, link=self.link, shift=shift, most_nodes=most_nodes)

    def output_probability(self, mean: Matrix, covariance: Matrix) -> Matrix:
        """Return (N, K) probabilities of Gaussian outputs, mean (N, C) and covariance (N, C, C)."""
        return predicted(*self.problem.class_moments(mean, covariance), link=self.link).probability

    @property
    def link(self) -> str:
        """The link of two classes."""
        return self.likelihood if self.problem.binary else "logistic"

    def plugin(self, Phi: ArrayLike) -> Matrix:
        """Return (N, K) probabilities with the weights at the mode, as a plain classifier would give them."""
        return self._at_mode(self.problem.design(Phi), None)[1]

    def _at_mode(self, Phi: Matrix, shift: Vector | None) -> tuple[Matrix, Matrix]:
        """Return activations, (N,) or (N, K), and probabilities (N, K) at the mode."""
        a = self.problem.activations(Phi, self.mode)
        if shift is not None:
            a = a + (shift[1] - shift[0] if self.problem.binary else shift)
        p = self.problem.response(a)
        return a, np.stack([1 - p, p], axis=1) if self.problem.binary else p

    def count_gradient(self, Phi: Matrix, *, shift: Vector | None = None) -> Matrix:
        """Return the derivative of the rows' summed probabilities, (K, C M), by the solver's weights at the mode.

        `shift` (K,) as in `prediction`.
        """
        (a, y), T = self._at_mode(Phi, shift), self.problem.transform
        if isinstance(self.problem.likelihood, Bernoulli):
            slope = y[:, 1] * self.problem.likelihood.link.log_cdf_derivatives(a)[0]  # f' = f (ln f)'
            return np.outer([-1.0, 1.0], slope @ Phi)
        return np.stack([((y[:, [k]] * (T[k] - y @ T)).T @ Phi).ravel() for k in range(len(T))])

    def deviations(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the solver's weights about their mean, (n, C M)."""
        return self._drawn(n, rng) - self.gaussian.mean

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the weights, (n, D)."""
        theta = self._drawn(n, rng)
        T, shared = self.problem.transform, self.problem.shared_precision
        if T.shape[0] == T.shape[1]:
            return theta
        draws = self.problem.class_weights(theta)
        if shared is not None:  # the data say nothing of the sum direction: it keeps the prior's spread
            common = Gaussian(np.zeros(len(shared)), shared).sample(n, rng)
            draws += np.tile(common, self.problem.n_classes) / np.sqrt(self.problem.n_classes)
        return draws

    def to_dict(self) -> dict[str, Any]:
        """Return scalars, strings, lists and arrays that `from_dict` makes the posterior of, without its data.

        The verdict is stored if it has been computed: it needs the data.
        """
        verdict = self.__dict__.get("trust", self.verdict)
        return {
            "kind": self.kind,
            "likelihood": self.likelihood,
            "mislabelled": self.problem.mislabelled,
            "classes": [c.item() if isinstance(c, np.generic) else c for c in self.classes],
            "n_functions": int(self.problem.n_functions),
            "n_effective": float(self.n_effective),
            "prior": None if self.prior is None else self.prior.to_dict(),
            "solver_mean": self.gaussian.mean,
            "solver_precision": self.gaussian.precision,
            "log_likelihood": float(self.log_likelihood),
            "converged": bool(self.converged),
            "n_iter": int(self.n_iter),
            "status": self.status,
            "laplace": None if self.laplace is None else self.laplace.to_dict(),
            "elbo": self.elbo,
            "draws": self.draws,
            "trust": None if verdict is None else verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Posterior:
        """Return the posterior of `to_dict`."""
        prior = None if d["prior"] is None else GaussianPrior(d["prior"]["mean"], d["prior"]["covariance"])
        classes = tuple(d["classes"])
        return cls(
            problem=make_problem(
                d["likelihood"],
                prior,
                classes,
                d["n_functions"],
                d["n_effective"],
                None,
                mislabelled=d.get("mislabelled", False),
            ),
            gaussian=Gaussian(np.asarray(d["solver_mean"]), np.asarray(d["solver_precision"])),
            log_likelihood=d["log_likelihood"],
            converged=d["converged"],
            n_iter=d["n_iter"],
            status=d["status"],
            kind=d["kind"],
            laplace=None if d["laplace"] is None else cls.from_dict(d["laplace"]),
            elbo=d["elbo"],
            draws=None if d["draws"] is None else np.asarray(d["draws"]),
            verdict=None if d["trust"] is None else Trust.from_dict(d["trust"]),
        )


_METHODS = ("plugin", "probit", "exact", "monte_carlo")
