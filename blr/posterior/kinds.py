"""The kinds of posteriors of the weights, one class each: the Laplace approximation, and five that improve on it.

The Laplace approximation of the evidence is

    ln p(D) ≈ ln p(D|w_MAP) + ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A        (PRML 4.137)

with the mode w_MAP and the precision A there, minus the Hessian of the log posterior.

Shapes: N rows, M basis functions, K classes, D = M (two classes) or K M weights in order k M + m, S draws.  The solver
works with C outputs a row, and so with C M weights: `blr.fitting.problem` says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, as_stored
from blr.gaussian import Gaussian
from blr.posterior._weights import WeightPosterior
from blr.posterior.ensemble import averaged
from blr.predictive.mixture import Prediction, require_shift
from blr.trust.verdict import Trust, assess, of_probabilities, some_rows

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


TYPICAL_ERROR = 0.05
"""Mean error of refined probabilities, as a share of how far refining moved them from the Laplace fit's."""
LARGEST_OVER_MEAN = 3.0
"""The same share of the largest errors, over that of the mean."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LaplacePosterior(WeightPosterior):
    """The Laplace approximation: a Gaussian with its mean at the mode w_MAP, and the precision A there.

    Without a prior, w_MAP is the mode of the likelihood.  `log_likelihood` is ln p(D|w_MAP), in nats.  `path` (I, C M)
    is where Newton's iterations stood, in the solver's coordinates; None for a fit that was loaded, or made otherwise.
    """

    kind: ClassVar[str] = "laplace"

    log_likelihood: float
    path: Matrix | None = None

    @property
    def laplace(self) -> LaplacePosterior:
        """The fit itself; other kinds have the Laplace fit that they improve on under this name."""
        return self

    @property
    def fitted(self) -> LaplacePosterior:
        """The fit itself; ValueError if it was fitted without a prior, and so has no posterior."""
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
        """Ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A: (4.137) without the likelihood, in nats; NaN without a prior."""
        if self.prior is None:
            return float("nan")
        prior = self.problem.solver_prior
        log_det_prior = Gaussian(prior.mean, prior.precision).log_det_precision
        return 0.5 * (log_det_prior - self.gaussian.log_det_precision) - prior.energy(self.mode)

    @property
    def log_evidence(self) -> float:
        """Laplace approximation of ln p(D), in nats; NaN without a prior."""
        return self.log_likelihood + self.log_occam_factor

    @property
    def bic(self) -> float:
        """Ln p(D|w_MAP) - (free parameters)/2 ln n_effective, in nats (PRML 4.139): higher is better.

        The usual form of the BIC, where lower is better, is -2 times this.
        """
        return self.log_likelihood - 0.5 * self.problem.free_parameters * float(np.log(self.n_effective))

    @cached_property
    def effective_parameters(self) -> float:
        """How many parameters the data determine: tr(H A⁻¹), H the likelihood's part of A (PRML 3.91)."""
        prior = self.problem.solver_prior.precision
        return self.problem.n_solved - float(np.einsum("ij,ji->", prior, self.gaussian.covariance))

    @cached_property
    def _trust(self) -> Trust:
        if self.verdict is not None:
            return self.verdict
        return assess(self.problem, self.gaussian, converged=self.converged, status=self.status)

    def typical_error(self, Phi: ArrayLike) -> Vector:
        """Return ones (N,): nothing tells how far the probabilities of rows Phi (N, M) differ from exact ones."""
        return np.ones(len(np.atleast_2d(Phi)))

    @property
    def second_order(self) -> float:
        """Second-order term to add to the log evidence, in nats; see `trust.second_order_holds`."""
        return self.trust.numbers["second_order"]

    def plugin(self, Phi: ArrayLike) -> Matrix:
        """Return (N, K) probabilities with the weights at the mode, as a plain classifier would give them."""
        p = self.problem.response(self.problem.activations(self.problem.design(Phi), self.mode))
        return np.stack([1 - p, p], axis=1) if self.problem.binary else p

    def _own_tree(self) -> dict[str, Any]:
        return {"log_likelihood": float(self.log_likelihood)}

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._fields(stored) | {"log_likelihood": stored["log_likelihood"]}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class _ImprovedPosterior(WeightPosterior):
    """A posterior that improves on a Laplace fit.

    Mode, evidence, BIC and effective parameters are the Laplace fit's.  So is `trust`, unless a check of this posterior
    gave a verdict of its own.
    """

    laplace: LaplacePosterior

    @property
    def fitted(self) -> LaplacePosterior:
        """The Laplace fit behind this posterior; ValueError if it was fitted without a prior."""
        return self.laplace.fitted

    @property
    def mode(self) -> Vector:
        """The Laplace fit's mode in the solver's coordinates, (C M,)."""
        return self.laplace.mode

    @property
    def log_likelihood(self) -> float:
        """Ln p(D|w_MAP) of the Laplace fit, in nats."""
        return self.laplace.log_likelihood

    @property
    def log_occam_factor(self) -> float:
        """The Laplace fit's log Occam factor, in nats."""
        return self.laplace.log_occam_factor

    @property
    def log_evidence(self) -> float:
        """The Laplace fit's ln p(D), in nats."""
        return self.laplace.log_evidence

    @property
    def bic(self) -> float:
        """The Laplace fit's BIC, in nats: higher is better."""
        return self.laplace.bic

    @property
    def effective_parameters(self) -> float:
        """The Laplace fit's number of parameters that the data determine."""
        return self.laplace.effective_parameters

    @cached_property
    def _trust(self) -> Trust:
        return self.laplace.trust if self.verdict is None else self.verdict

    @property
    def second_order(self) -> float:
        """Second-order term to add to the Laplace fit's log evidence, in nats."""
        return self.laplace.second_order

    def plugin(self, Phi: ArrayLike) -> Matrix:
        """Return (N, K) probabilities with the weights at the mode, as a plain classifier would give them."""
        return self.laplace.plugin(Phi)

    def _own_tree(self) -> dict[str, Any]:
        return {"log_likelihood": float(self.log_likelihood), "laplace": self.laplace.to_dict()}

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._fields(stored) | {"laplace": LaplacePosterior.from_dict(stored["laplace"])}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ShiftedPosterior(_ImprovedPosterior):
    """The Laplace fit's Gaussian, its mean moved to the posterior mean to first order (`variational.mean_shift`)."""

    kind: ClassVar[str] = "shifted"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SandwichPosterior(_ImprovedPosterior):
    """A Gaussian with the sandwich covariance about a fit's mean, for weighted rows (`blr.shift.sandwich`)."""

    kind: ClassVar[str] = "sandwich"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RefinedPosterior(_ImprovedPosterior):
    """The Gaussian nearest to the whole posterior, by variational inference (`variational.refine`).

    `elbo` is its lower bound on ln p(D), in nats.
    """

    kind: ClassVar[str] = "refined"

    elbo: float

    def typical_error(self, Phi: ArrayLike) -> Vector:
        """Return by how much probabilities (N,) of rows Phi (N, M) typically differ from those of the exact posterior.

        A share of how far they moved from the Laplace fit's, the same for all problems: `docs/accuracy.md` has it.
        Zero where a check has compared them.
        """
        if self.verdict is not None and "standard_error" in self.verdict.numbers:
            return super().typical_error(Phi)
        moved = self.prediction(Phi).probability - self.laplace.prediction(Phi).probability
        return np.asarray(TYPICAL_ERROR * np.abs(moved).max(axis=1))

    @cached_property
    def _trust(self) -> Trust:
        if self.verdict is not None:
            return self.verdict
        laplace = self.laplace.trust
        error = self.typical_error(some_rows(self.problem.require_data()))
        numbers = {"mean_error": float(error.mean()), "largest_error": float(error.max()) * LARGEST_OVER_MEAN}
        remedy = "compare it with the exact posterior (blr.served), or sample that (blr.sample_posterior)"
        of_laplace = [] if self.laplace.converged else [("red", reason) for reason in laplace.reasons[:1]]
        return Trust.of([*of_laplace, of_probabilities(numbers, remedy)], {**laplace.numbers, **numbers})

    def _own_tree(self) -> dict[str, Any]:
        return super()._own_tree() | {"elbo": self.elbo}

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._fields(stored) | {"elbo": stored["elbo"]}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MatchedPosterior(_ImprovedPosterior):
    """The Gaussian with the exact posterior's mean and covariance (`repair.served`).

    `verdict` is the result of the check that compared it with the exact posterior.
    """

    kind: ClassVar[str] = "matched"

    verdict: Trust = field()  # required: the default None of the other kinds does not hold here


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SampledPosterior(_ImprovedPosterior):
    """Draws from the exact posterior, over which predictions are averaged (`sampling.sample_posterior`).

    `draws` (S, C M) are in the solver's coordinates.  `gaussian` has their mean and covariance.  `verdict` says whether
    the chains mixed.
    """

    kind: ClassVar[str] = "sampled"

    draws: Matrix
    verdict: Trust = field()  # required: the default None of the other kinds does not hold here

    def prediction(
        self,
        Phi: ArrayLike,
        *,
        shift: Vector | None = None,
        single: bool = False,
        most_nodes: int | None = None,  # noqa: ARG002  draws have no nodes
    ) -> Prediction:
        """Return the prediction of each row, averaged over the draws.

        The parameters are those of `WeightPosterior.prediction`; `most_nodes` has no effect.
        """
        matrix = self.problem.design(Phi)
        require_shift(shift, self.problem.n_classes)
        return averaged(self.problem, matrix, self.draws, shift, single=single)[0]

    def _exact(self, Phi: Matrix, *, single: bool = False) -> Matrix:  # noqa: ARG002  draws have no covariances
        return self._over_draws(Phi, self.draws)[0]

    def _drawn(self, n: int, rng: np.random.Generator) -> Matrix:
        return self.draws[rng.choice(len(self.draws), n, replace=n > len(self.draws))]

    def _limits(self, level: float) -> tuple[Vector, Vector, Matrix]:
        P, S = self._centring @ self.problem.transform, len(self.draws)
        weights = np.einsum("kc,scm->skm", P, self.draws.reshape(S, P.shape[1], -1)).reshape(S, -1)
        limits = np.quantile(weights, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        return weights.mean(axis=0), weights.std(axis=0), limits

    def _own_tree(self) -> dict[str, Any]:
        return super()._own_tree() | {"draws": self.draws}

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        known = super()._fields(stored)
        shape = max(len(stored["draws"]), 1), known["problem"].n_solved
        return known | {"draws": as_stored(stored, "draws", shape)}


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
    """Return the posterior that `to_dict` of any kind stored; ValueError if its kind is unknown."""
    kind = stored["kind"]
    if kind not in KINDS:
        raise ValueError(f"a stored posterior has the kind {kind!r}; expected one of {', '.join(KINDS)}")
    return KINDS[kind].from_dict(stored)
