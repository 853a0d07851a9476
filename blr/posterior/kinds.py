"""The kinds of posteriors, one class each: by Laplace, and what improves on a Laplace fit.

    ln p(D) ≈ ln p(D|w_MAP) + ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A        (PRML 4.137)

Shapes: N rows, M basis functions, K classes, D = M or K M weights in order k M + m, C outputs, S draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Bernoulli
from blr.posterior._weights import WeightPosterior
from blr.posterior.ensemble import averaged
from blr.predictive.mixture import Prediction, require_shift
from blr.trust.verdict import Trust, assess

__all__ = [
    "KINDS",
    "AnyPosterior",
    "LaplacePosterior",
    "MatchedPosterior",
    "RefinedPosterior",
    "SampledPosterior",
    "SandwichPosterior",
    "ShiftedPosterior",
    "posterior_from_dict",
]


@dataclass(frozen=True, eq=False, kw_only=True)
class LaplacePosterior(WeightPosterior):
    """The Gaussian about the mode w_MAP with the precision A found there; without a prior, about the likelihood's.

    `log_likelihood` is ln p(D|w_MAP), nats.
    """

    kind: ClassVar[str] = "laplace"

    log_likelihood: float

    @property
    def laplace(self) -> LaplacePosterior:
        """The fit itself: every kind has the Laplace fit behind it under this name."""
        return self

    @property
    def fitted(self) -> LaplacePosterior:
        """The fit itself; ValueError if it has no prior, and so may be of nothing."""
        if self.prior is None:
            raise ValueError(
                "a maximum-likelihood fit has no posterior to refine or sample; fit with a prior, such as "
                "GaussianPrior.isotropic(M)"
            )
        return self

    @property
    def mode(self) -> Vector:
        """The mode in the solver's coordinates, (C M,)."""
        return self.gaussian.mean

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

    @cached_property
    def trust(self) -> Trust:
        """Whether the Laplace approximation serves: computed from the data on first use, or loaded."""
        if self.verdict is not None:
            return self.verdict
        return assess(self.problem, self.gaussian, converged=self.converged, status=self.status)

    @property
    def second_order(self) -> float:
        """What is to be added to the log evidence to second order, nats: good to 0.015 where trust is green."""
        return self.trust.numbers["second_order"]

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

    def _own_tree(self) -> dict[str, Any]:
        return {"log_likelihood": float(self.log_likelihood)}

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._fields(stored) | {"log_likelihood": stored["log_likelihood"]}


@dataclass(frozen=True, eq=False, kw_only=True)
class _ImprovedPosterior(WeightPosterior):
    """A posterior that improves on a Laplace fit: mode, evidence and BIC are that fit's.

    So is `trust`, where no verdict is its own.
    """

    laplace: LaplacePosterior

    @property
    def fitted(self) -> LaplacePosterior:
        """The Laplace fit behind this posterior; ValueError if it has no prior, and so may be of nothing."""
        return self.laplace.fitted

    @property
    def mode(self) -> Vector:
        """The Laplace fit's mode in the solver's coordinates, (C M,)."""
        return self.laplace.mode

    @property
    def log_likelihood(self) -> float:
        """Ln p(D|w_MAP) of the Laplace fit, nats."""
        return self.laplace.log_likelihood

    @property
    def log_occam_factor(self) -> float:
        """The Laplace fit's log Occam factor."""
        return self.laplace.log_occam_factor

    @property
    def log_evidence(self) -> float:
        """The Laplace fit's ln p(D), nats."""
        return self.laplace.log_evidence

    @property
    def bic(self) -> float:
        """The Laplace fit's BIC, nats."""
        return self.laplace.bic

    @property
    def effective_parameters(self) -> float:
        """The Laplace fit's number of parameters that the data determine."""
        return self.laplace.effective_parameters

    @cached_property
    def trust(self) -> Trust:
        """The verdict of a check of this posterior, if there was one; otherwise that of the Laplace fit."""
        return self.laplace.trust if self.verdict is None else self.verdict

    @property
    def second_order(self) -> float:
        """What is to be added to the Laplace fit's log evidence to second order, nats."""
        return self.laplace.second_order

    def plugin(self, Phi: ArrayLike) -> Matrix:
        """Return (N, K) probabilities with the weights at the mode, as a plain classifier would give them."""
        return self.laplace.plugin(Phi)

    def count_gradient(self, Phi: Matrix, *, shift: Vector | None = None) -> Matrix:
        """Return the derivative of the rows' summed probabilities, (K, C M), by the solver's weights at the mode.

        `shift` (K,) as in `prediction`.
        """
        return self.laplace.count_gradient(Phi, shift=shift)

    def _own_tree(self) -> dict[str, Any]:
        return {"log_likelihood": float(self.log_likelihood), "laplace": self.laplace.to_dict()}

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._fields(stored) | {"laplace": LaplacePosterior.from_dict(stored["laplace"])}


@dataclass(frozen=True, eq=False, kw_only=True)
class ShiftedPosterior(_ImprovedPosterior):
    """The Laplace Gaussian with its mean moved to the first-order posterior mean (`mean_shift`)."""

    kind: ClassVar[str] = "shifted"


@dataclass(frozen=True, eq=False, kw_only=True)
class SandwichPosterior(_ImprovedPosterior):
    """A Gaussian with the sandwich covariance, for weighted rows (`blr.shift.sandwich`)."""

    kind: ClassVar[str] = "sandwich"


@dataclass(frozen=True, eq=False, kw_only=True)
class RefinedPosterior(_ImprovedPosterior):
    """The Gaussian nearest to the posterior as a whole (`refine`); `elbo` is its lower bound of ln p(D), nats."""

    kind: ClassVar[str] = "refined"

    elbo: float

    def _own_tree(self) -> dict[str, Any]:
        return super()._own_tree() | {"elbo": self.elbo}

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._fields(stored) | {"elbo": stored["elbo"]}


@dataclass(frozen=True, eq=False, kw_only=True)
class MatchedPosterior(_ImprovedPosterior):
    """The Gaussian with the exact posterior's mean and covariance (`served`); `verdict` is of the check."""

    kind: ClassVar[str] = "matched"

    verdict: Trust = field()  # always known: the default of None goes


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledPosterior(_ImprovedPosterior):
    """Draws of the exact posterior, over which predictions are averaged (`sample_posterior`, `served`).

    `draws` (S, C M) are in the solver's coordinates, `gaussian` has their mean and covariance, and `verdict` says
    whether the chains mixed.
    """

    kind: ClassVar[str] = "sampled"

    draws: Matrix
    verdict: Trust = field()  # always known: the default of None goes

    def prediction(
        self,
        Phi: ArrayLike,
        *,
        shift: Vector | None = None,
        single: bool = False,
        most_nodes: int | None = None,  # noqa: ARG002  draws have no nodes
    ) -> Prediction:
        """Return probabilities and expected entropy averaged over the draws, and activation moments of each row.

        As `WeightPosterior.prediction`; `most_nodes` has no effect.
        """
        matrix = self.problem.design(Phi)
        require_shift(shift, self.problem.n_classes)
        return averaged(self.problem, matrix, self.draws, shift, single=single)[0]

    def _exact(self, Phi: Matrix) -> Matrix:
        return self._over_draws(Phi, self.draws)[0]

    def _drawn(self, n: int, rng: np.random.Generator) -> Matrix:
        return self.draws[rng.choice(len(self.draws), n, replace=n > len(self.draws))]

    def _own_tree(self) -> dict[str, Any]:
        return super()._own_tree() | {"draws": self.draws}

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._fields(stored) | {"draws": np.asarray(stored["draws"])}


AnyPosterior = (
    LaplacePosterior
    | ShiftedPosterior
    | SandwichPosterior
    | RefinedPosterior
    | MatchedPosterior
    | SampledPosterior
)

KINDS: dict[str, type[AnyPosterior]] = {
    posterior.kind: posterior
    for posterior in (
        LaplacePosterior,
        ShiftedPosterior,
        SandwichPosterior,
        RefinedPosterior,
        MatchedPosterior,
        SampledPosterior,
    )
}
"""Every kind of posterior by the name that it is stored under."""


def posterior_from_dict(stored: Mapping[str, Any]) -> AnyPosterior:
    """Return the posterior of a stored tree, of whatever kind; ValueError if its kind is not known."""
    kind = stored["kind"]
    if kind not in KINDS:
        raise ValueError(f"a stored posterior is of kind {kind!r}; expected one of {', '.join(KINDS)}")
    return KINDS[kind].from_dict(stored)
