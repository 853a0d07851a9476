"""The base of all kinds of posteriors: a Gaussian of the weights, and its predictions for new rows.

Shapes: N rows, M basis functions, K classes, D = M (two classes) or K M weights in order k M + m, S draws.  The solver
works with C outputs a row, and so with C M weights: `blr.fitting.problem` says which.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, as_stored
from blr.fitting.problem import Problem, make_problem
from blr.gaussian import Gaussian
from blr.likelihood.prior import GaussianPrior, class_cholesky, class_precision
from blr.posterior._summary import Described
from blr.posterior.ensemble import averaged, counts_of_draws
from blr.predictive.binary import binary_exact, binary_probit
from blr.predictive.mixture import Prediction, predicted, require_shift
from blr.predictive.output_moments import OutputMoments
from blr.predictive.softmax import softmax_exact, softmax_fast
from blr.threads import default_threads, ordered_map, single_threaded_blas
from blr.trust.verdict import Trust

__all__ = ["WeightPosterior"]

_BLOCK = 2**14  # rows that a thread predicts at once
_METHODS = ("plugin", "probit", "exact", "monte_carlo")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WeightPosterior(Described):
    """A Gaussian of the weights of a problem, and how the search for it ended.

    Attributes
    ----------
    kind
        Name that the kind is stored under.
    problem
        Likelihood, prior, classes and, until the posterior is stored, the data.
    gaussian
        The Gaussian of the C M weights in the solver's coordinates.
    converged, n_iter, status
        Whether the search converged, after how many iterations, and its last message.
    verdict
        Whether the approximation serves, where a check said so or the file had it; if None, `trust` computes it.
    """

    kind: ClassVar[str]

    problem: Problem
    gaussian: Gaussian
    converged: bool
    n_iter: int
    status: str
    verdict: Trust | None = None

    # Properties of cached values: pyright takes a `cached_property` for no property of the protocol `Posterior`.
    @property
    def mean(self) -> Vector:
        """Mean of the weights, (D,)."""
        return self._mean

    @cached_property
    def _mean(self) -> Vector:
        return self.problem.class_weights(self.gaussian.mean)

    @property
    def precision(self) -> Matrix:
        """Precision of the weights, (D, D)."""
        return self._precision

    @cached_property
    def _precision(self) -> Matrix:
        T = self.problem.transform
        if T.shape[0] == T.shape[1]:
            return self.gaussian.precision
        return class_precision(self.gaussian.precision, T, self.problem.shared_precision)

    @cached_property
    def cholesky(self) -> Matrix:
        """Lower Cholesky factor of the precision, (D, D)."""
        T, shared = self.problem.transform, self.problem.shared_precision
        if T.shape[0] == T.shape[1] or shared is None:
            return Gaussian(self.mean, self.precision).cholesky
        prior = Gaussian(np.zeros(len(shared)), shared)
        return class_cholesky(self.gaussian.cholesky, T, prior.cholesky)

    @property
    def trust(self) -> Trust:
        """Whether this posterior serves: its own check's verdict where there was one, else the Laplace fit's.

        The Laplace fit's is computed on first use; RuntimeError if the posterior was loaded without it and its data.
        """
        return self._trust

    @cached_property
    @abstractmethod
    def _trust(self) -> Trust: ...

    def logit_moments(self, Phi: ArrayLike) -> tuple[Matrix, Matrix]:
        """Return mean and variance of each row's activation, (N,) each.

        For a softmax: mean (N, K) and covariance (N, K, K), with the common shift of all activations projected out, on
        which no probability depends.
        """
        return self.problem.class_moments(*self._outputs(self.problem.design(Phi)))

    @cached_property
    def _outputs(self) -> OutputMoments:
        return OutputMoments(self.gaussian, self.problem.likelihood.n_outputs)

    @property
    def _single(self) -> bool:
        """Whether covariances may be in single precision: its bounds are of the logistic link."""
        return self.link == "logistic"

    def predict_proba(
        self,
        Phi: ArrayLike,
        method: str = "exact",
        *,
        n_samples: int = 1000,
        rng: np.random.Generator | None = None,
        return_error: bool = False,
        threads: int | None = None,
    ) -> Any:
        """Return the probability of the second class (N,), or of each of K classes (N, K).

        Parameters
        ----------
        Phi
            Design matrix (N, M).
        method
            "exact": the predictive integral, of two classes within 1e-8, or 1e-7 where rows are more than 16,384.
            "plugin": the weights at their mean.  "monte_carlo": the average over draws.  "probit": a fast formula,
            which is PRML 4.155 for the logistic link, exact for the probit link, and `softmax_fast` for a softmax.
        n_samples, rng
            Number of draws, 2 or more, and their random numbers, by default those of seed 0; for "monte_carlo" only.
        return_error
            Whether to return also the standard error, of the same shape; for "monte_carlo" only.
        threads
            How many share the rows of "exact"; default: one for each core.  The result does not depend on it.

        Raises
        ------
        ValueError
            If the method is unknown, does not suit the link, or does not go with the other arguments.
        """
        if method not in _METHODS:
            raise ValueError(f"unknown method '{method}'; expected one of {', '.join(_METHODS)}")
        if return_error and method != "monte_carlo":
            raise ValueError(
                f"method '{method}' has no sampling error; use return_error with 'monte_carlo' only"
            )
        if method == "exact":
            return self._exact_by_blocks(Phi, default_threads() if threads is None else threads)
        matrix = self.problem.design(Phi)
        if method == "plugin":
            return self.problem.response(self.problem.activations(matrix, self.gaussian.mean))
        if method == "probit":
            return self._probit(matrix)
        if n_samples < 2:
            raise ValueError(
                f"n_samples is {n_samples}; expected 2 or more draws, which the standard error needs"
            )
        draws = self._drawn(n_samples, np.random.default_rng(0) if rng is None else rng)
        p, error = self._over_draws(matrix, draws)
        return (p, error) if return_error else p

    def _exact_by_blocks(self, Phi: ArrayLike, threads: int) -> Matrix:
        rows = Phi if isinstance(Phi, np.ndarray) else self.problem.design(Phi)
        if rows.ndim != 2 or len(rows) <= _BLOCK:
            return self._exact(self.problem.design(Phi))

        def block(start: int) -> Matrix:
            return self._exact(self.problem.design(rows[start : start + _BLOCK]), single=True)

        try:
            with single_threaded_blas():
                starts = range(0, len(rows), _BLOCK)
                return np.concatenate(list(ordered_map(block, starts, threads=threads, keep=True)))
        except ValueError:
            self.problem.design(Phi)  # which says where in all rows the fault is
            raise

    def _exact(self, Phi: Matrix, *, single: bool = False) -> Matrix:
        moments = self.problem.class_moments(*self._outputs(Phi, single=single and self._single))
        return binary_exact(*moments, link=self.link) if self.problem.binary else softmax_exact(*moments)[0]

    def _probit(self, Phi: Matrix) -> Matrix:
        moments = self.logit_moments(Phi)
        if not self.problem.binary:
            return softmax_fast(*moments)
        if self.link == "probit":  # the formula is exact here
            return binary_exact(*moments, link=self.link)
        if self.link != "logistic":
            raise ValueError(
                f"method 'probit' is a formula for the logistic link, but this fit has the {self.link} link; "
                "use 'exact'"
            )
        return binary_probit(*moments)

    def _over_draws(self, Phi: Matrix, draws: Matrix) -> tuple[Matrix, Matrix]:
        """Return the probability averaged over draws (S, C M), and its standard error, each (N,) or (N, K)."""
        prediction, error = averaged(self.problem, Phi, draws)
        p = prediction.probability
        return (p[:, 1], error[:, 1]) if self.problem.binary else (p, error)

    def prediction(
        self,
        Phi: ArrayLike,
        *,
        shift: Vector | None = None,
        single: bool = False,
        most_nodes: int | None = None,
    ) -> Prediction:
        """Return the prediction of each row: probabilities, expected entropy, and moments of the activation.

        Parameters
        ----------
        Phi
            Design matrix (N, M).
        shift
            (K,) ln of new over old class priors, added to the activations inside the predictive integral.
        single
            Whether to compute covariances in single precision, in the rows where `OutputMoments` allows it.
        most_nodes
            As of `softmax_exact`.

        Raises
        ------
        ValueError
            If `shift` has another shape, or the activations are not logits.
        """
        matrix = self.problem.design(Phi)
        require_shift(shift, self.problem.n_classes)
        moments = self.problem.class_moments(*self._outputs(matrix, single=single and self._single))
        return predicted(*moments, link=self.link, shift=shift, most_nodes=most_nodes)

    def typical_error(self, Phi: ArrayLike) -> Vector:
        """Return by how much probabilities (N,) of rows typically differ from exact ones: 0 of a posterior from chains.

        One where nothing tells it, as of a Laplace fit alone, or of chains that did not mix.
        """
        unknown = self.verdict is not None and self.verdict.verdict == "red"
        return np.full(len(np.atleast_2d(Phi)), float(unknown))

    def output_probability(self, mean: Matrix, covariance: Matrix) -> Matrix:
        """Return probabilities (N, K) of the predictive integral over outputs with given moments.

        The outputs, in the solver's coordinates, are Gaussian with mean (N, C) and covariance (N, C, C).
        """
        return predicted(*self.problem.class_moments(mean, covariance), link=self.link).probability

    def _drawn(self, n: int, rng: np.random.Generator) -> Matrix:
        return self.gaussian.sample(n, rng)

    def deviations(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the solver's weights about their mean, (n, C M)."""
        return self._drawn(n, rng) - self.gaussian.mean

    def counts_under(self, Phi: Matrix, deviations: Matrix, *, shift: Vector | None = None) -> Matrix:
        """Return the rows' summed probabilities, (S, K), with the weights at their mean plus `deviations`.

        These are of the solver's weights, (S, C M); `shift` (K,) as in `prediction`.
        """
        return counts_of_draws(self.problem, Phi, self.gaussian.mean + deviations, shift)

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the weights, (n, D)."""
        theta = self._drawn(n, rng)
        T, shared = self.problem.transform, self.problem.shared_precision
        if T.shape[0] == T.shape[1]:
            return theta
        draws = self.problem.class_weights(theta)
        if shared is not None:
            # The data say nothing about the sum of the classes' weights, which keeps the prior's spread.
            common = Gaussian(np.zeros(len(shared)), shared).sample(n, rng)
            draws += np.tile(common, self.problem.n_classes) / np.sqrt(self.problem.n_classes)
        return draws

    def to_dict(self) -> dict[str, Any]:
        """Return the posterior, without its data, as scalars, strings, lists and arrays, for `from_dict`.

        Every kind has the same keys; a key for which a kind has no value is None.  `functions`, the names of the M
        functions, is there only if they have names.  The verdict of `trust` is stored
        only if it has been computed: nobody can compute it later without the data.
        """
        verdict = self._known_verdict
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
            "log_likelihood": None,
            "converged": bool(self.converged),
            "n_iter": int(self.n_iter),
            "status": self.status,
            "laplace": None,
            "elbo": None,
            "draws": None,
            "trust": None if verdict is None else verdict.to_dict(),
            **({} if self.problem.names is None else {"functions": list(self.problem.names)}),
        } | self._own_tree()

    def _own_tree(self) -> dict[str, Any]:
        """Return the values to store that are special to this kind."""
        return {}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return the posterior that `to_dict` stored; ValueError if it is of another kind."""
        if stored["kind"] != cls.kind:
            raise ValueError(
                f"expected a stored {cls.kind} posterior, got kind {stored['kind']!r}; use Posterior.from_dict, "
                "which reads every kind"
            )
        return cls(**cls._fields(stored))

    @classmethod
    def _fields(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the dataclass's fields, by name, from what `to_dict` stored."""
        prior, trust = stored["prior"], stored["trust"]
        problem = make_problem(
            stored["likelihood"],
            None if prior is None else GaussianPrior(prior["mean"], prior["covariance"]),
            tuple(stored["classes"]),
            stored["n_functions"],
            stored["n_effective"],
            None,
            mislabelled=stored.get("mislabelled", False),
            names=None if stored.get("functions") is None else tuple(stored["functions"]),
        )
        D = problem.n_solved
        precision = as_stored(stored, "solver_precision", (D, D))
        problem.prior_mean  # noqa: B018  raises where the prior is of other weights
        return {
            "problem": problem,
            "gaussian": Gaussian(as_stored(stored, "solver_mean", (D,)), precision),
            "converged": stored["converged"],
            "n_iter": stored["n_iter"],
            "status": stored["status"],
            "verdict": None if trust is None else Trust.from_dict(trust),
        }
