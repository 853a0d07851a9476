"""The posteriors of the weights: what may be asked of all of them, and the six kinds.

The Laplace approximation is one, the others improve on it.  It approximates the evidence by

    ln p(D) ≈ ln p(D|w_MAP) + ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A        (PRML 4.137)

with the mode w_MAP and the precision A there, minus the Hessian of the log posterior.

Shapes: N rows, M basis functions, K classes, D = M (two classes) or K M weights in order k M + m, S draws.  The solver
works with C outputs a row, and so with C M weights: `blr.fitting.problem` says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from blr.arrays import Matrix, Table, Vector, as_stored, slices
from blr.covariances import OutputMoments
from blr.fitting.problem import Problem, make_problem
from blr.gaussian import Gaussian, GaussianPrior, class_cholesky, class_precision
from blr.predictive.binary import binary_exact, binary_probit
from blr.predictive.mixture import Prediction, predicted, require_logit, require_shift
from blr.predictive.softmax import softmax_exact, softmax_fast
from blr.threads import default_threads, ordered_map, single_threaded_blas
from blr.trust.verdict import Trust, assess, of_probabilities, some_rows

_NUMBERS = 2**16  # activations a block: what stays in a core's cache


def draw_probabilities(problem: Problem, Phi: Matrix, draws: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """Yield blocks of rows: which, and their probabilities (K, n, S)."""
    for rows, a in _activations(problem, Phi, draws, None):
        yield rows, _responses(problem, a)[0]


def averaged(
    problem: Problem, Phi: Matrix, draws: Matrix, shift: Vector | None = None, *, single: bool = False
) -> tuple[Prediction, Matrix]:
    """Return the prediction averaged over draws (S, C M), and the standard error (N, K) if these are independent.

    `single`: with exponentials in single precision, which changes a probability by less than 1e-6.
    """
    N, K, S = len(Phi), problem.n_classes, len(draws)
    probability, error, expected = np.empty((N, K)), np.empty((N, K)), np.empty(N)
    mean = np.empty(N) if problem.binary else np.empty((N, K))
    covariance = np.empty(N) if problem.binary else np.empty((N, K, K))
    for rows, exact in _activations(problem, Phi, draws, shift):
        a: Any = exact.astype(np.float32) if single else exact
        p, entropy = _responses(problem, a)
        probability[rows] = (share := p.mean(axis=2)).T
        square = np.einsum("kns,kns->kn", p, p) / S - share**2
        error[rows] = np.sqrt(np.maximum(square, 0.0) / max(S - 1, 1)).T
        expected[rows] = entropy.mean(axis=1)
        centre = exact.mean(axis=2)
        a = a - centre[:, :, None].astype(a.dtype)
        mean[rows] = centre[0] if problem.binary else centre.T
        if problem.binary:
            covariance[rows] = np.einsum("ns,ns->n", a[0], a[0]) / S
        else:
            covariance[rows] = np.einsum("kns,lns->nkl", a, a) / S
    if K == 2 and not problem.binary:
        # Two classes, however parameterised, are told by their difference, as `predicted` does.
        mean, covariance = mean[:, 1] - mean[:, 0], 4.0 * covariance[:, 1, 1]
    return Prediction(probability, expected, mean, covariance), error


def _activations(
    problem: Problem, Phi: Matrix, draws: Matrix, shift: Vector | None
) -> Iterator[tuple[slice, Matrix]]:
    """Yield blocks of rows and their activations, (1, n, S) or (K, n, S) less their common shift."""
    require_logit(problem.likelihood.name, shift)
    C, S = problem.likelihood.n_outputs, len(draws)
    by_output = np.ascontiguousarray(draws.reshape(S, C, -1).transpose(1, 2, 0))
    T = problem.transform - (0.0 if problem.binary else problem.transform.mean(axis=0))
    size = max(1, _NUMBERS // (S * problem.n_classes))
    for rows in slices(len(Phi), size):
        a = Phi[rows] @ by_output
        if problem.binary:
            yield rows, a if shift is None else a + (shift[1] - shift[0])
        else:
            a = (T @ a.reshape(C, -1)).reshape(len(T), *a.shape[1:])
            yield rows, a if shift is None else a + (shift - shift.mean())[:, None, None]


def _responses(problem: Problem, a: Any) -> tuple[Any, Any]:
    """Return probabilities (K, n, S) and their entropies (n, S), nats, of activations (1, n, S) or (K, n, S)."""
    if not problem.binary:
        moved = a - a.max(axis=0)
        p = np.exp(moved)
        total = p.sum(axis=0)
        p /= total
        return p, np.log(total) - np.einsum("kns,kns->ns", p, moved)
    if problem.likelihood.name == "logistic":
        size = np.abs(a[0])
        e = np.exp(-size)
        likely = 1 / (1 + e)
        unlikely = e * likely
        entropy = size * unlikely - np.log(likely)
        return np.where(a[0] > 0, (unlikely, likely), (likely, unlikely)), entropy
    p = problem.response(a[0])
    p = np.stack([1 - p, p])
    with np.errstate(divide="ignore", invalid="ignore"):
        return p, -np.where(p > 0, p * np.log(p), 0.0).sum(axis=0)


_ERROR_DRAWS = 256
"""Draws that a typical error takes the spread of a probability from."""
TYPICAL_ERROR = 0.05
"""Error of refined probabilities over their spread, where refining moved D weights by D^(1/3) posterior sd in all."""
WIDER = 0.07
"""By how much the exact posterior's covariance is typically larger than the refined one's, over the `departure`."""
LARGEST_OVER_MEAN = 2.0
"""Largest error over the largest of the typical errors."""
_BLOCK = 2**14  # rows that a thread predicts at once
_METHODS = ("plugin", "probit", "exact", "monte_carlo")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Posterior:
    """A posterior of the weights: a Gaussian of the weights of a problem, and how the search for it ended.

    In the words of PRML: `mean` (D,) of a Laplace posterior is the mode w_MAP, `precision` (D, D) is A; of a refined
    posterior the variational mean and precision, of a sampled or matched one those of the draws.

    Attributes
    ----------
    kind
        Name of the kind: "laplace", "shifted", "sandwich", "refined" or "sampled".
    problem
        Likelihood, prior, classes and, until the posterior is stored, the data.
    gaussian
        The Gaussian of the C M weights in the solver's coordinates.
    converged, n_iter, status
        Whether the search converged, after how many iterations, and its last message.
    verdict
        Whether the approximation serves, where a check said so or the file had it; if None, `trust` computes it.

    Examples
    --------
    >>> q = blr.fit_evidence([[1, 0.2], [1, 0.9], [1, 0.4], [1, 0.5]], [0, 1, 0, 1])
    >>> isinstance(q, blr.Posterior)
    True
    """

    kind: ClassVar[str]

    problem: Problem
    gaussian: Gaussian
    converged: bool
    n_iter: int
    status: str
    verdict: Trust | None = None

    if TYPE_CHECKING:  # a property of the Laplace fit, a field of all others

        @property
        def laplace(self) -> LaplacePosterior:
            """The Laplace fit behind this posterior; of a Laplace fit, itself."""

    @property
    def classes(self) -> tuple[Any, ...]:
        """The K classes; of two, a probability (N,) is that of the second."""
        return self.problem.classes

    @property
    def likelihood(self) -> str:
        """Name of the likelihood, for example "logistic" or "softmax"."""
        return self.problem.likelihood.name

    @property
    def link(self) -> str:
        """Link function of two classes; "logistic" for a softmax."""
        return self.likelihood if self.problem.binary else "logistic"

    @property
    def prior(self) -> GaussianPrior | None:
        """The prior; None for maximum likelihood."""
        return self.problem.prior

    @property
    def n_effective(self) -> float:
        """Effective number of rows: the sum over rows of weight times trials."""
        return self.problem.n_effective

    @cached_property
    def mean(self) -> Vector:
        """Mean of the weights, (D,)."""
        return self.problem.class_weights(self.gaussian.mean)

    @cached_property
    def precision(self) -> Matrix:
        """Precision of the weights, (D, D)."""
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
    def fitted(self) -> LaplacePosterior:
        """The Laplace fit behind this posterior; ValueError if it was fitted without a prior."""
        if self.prior is None:
            raise ValueError(
                "a maximum-likelihood fit has no posterior to refine or sample; fit with a prior, such as "
                "GaussianPrior.isotropic(M)"
            )
        return self.laplace

    @property
    def mode(self) -> Vector:
        """The Laplace fit's mode in the solver's coordinates, (C M,)."""
        return self.laplace.gaussian.mean

    @cached_property
    def log_occam_factor(self) -> float:
        """Ln p(w_MAP) + D/2 ln 2π - 1/2 ln det A: (4.137) without the likelihood, in nats; NaN without a prior."""
        if self.prior is None:
            return float("nan")
        prior = self.problem.solver_prior
        log_det_prior = Gaussian(prior.mean, prior.precision).log_det_precision
        return 0.5 * (log_det_prior - self.laplace.gaussian.log_det_precision) - prior.energy(self.mode)

    @cached_property
    def effective_parameters(self) -> float:
        """How many parameters the data determine: tr(H A⁻¹), H the likelihood's part of A (PRML 3.91)."""
        prior = self.problem.solver_prior.precision
        return self.problem.n_solved - float(np.einsum("ij,ji->", prior, self.laplace.gaussian.covariance))

    @property
    def log_evidence(self) -> float:
        """The Laplace approximation of ln p(D), in nats; NaN without a prior."""
        return self.laplace.log_likelihood + self.log_occam_factor

    @property
    def bic(self) -> float:
        """Ln p(D|w_MAP) - (free parameters)/2 ln n_effective, in nats (PRML 4.139): higher is better.

        The usual form of the BIC, where lower is better, is -2 times this.
        """
        penalty = 0.5 * self.problem.free_parameters * float(np.log(self.n_effective))
        return self.laplace.log_likelihood - penalty

    @cached_property
    def trust(self) -> Trust:
        """Whether this posterior serves: the verdict of its own check, else that of the Laplace fit.

        A refined one is checked by its typical error.  A check is made on first use; RuntimeError if the posterior was
        loaded without a verdict and its data.
        """
        return self._checked() if self.verdict is None else self.verdict

    def _checked(self) -> Trust:
        return self.laplace.trust

    @property
    def second_order(self) -> float:
        """Second-order term to add to the log evidence, in nats; see `trust.second_order_holds`."""
        second_order = self.laplace.trust.numbers["second_order"]
        return np.nan if second_order is None else second_order

    def logit_moments(self, Phi: ArrayLike) -> tuple[Matrix, Matrix]:
        """Return mean and variance of each row's activation, (N,) each.

        For a softmax: mean (N, K) and covariance (N, K, K), with the common shift of all activations projected out, on
        which no probability depends.
        """
        return self.problem.class_moments(*self._outputs(self.problem.design(Phi)))

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
            raise ValueError(f"method '{method}' has no sampling error; use return_error with 'monte_carlo'")
        if method == "exact":
            return self._exact_by_blocks(Phi, default_threads() if threads is None else threads)
        matrix = self.problem.design(Phi)
        if method == "plugin":
            return self.problem.response(self.problem.activations(matrix, self.gaussian.mean))
        if method == "probit":
            return self._probit(matrix)
        if n_samples < 2:
            raise ValueError(f"n_samples is {n_samples}; expected 2 or more draws, as the error needs")
        draws = self._drawn(n_samples, np.random.default_rng(0) if rng is None else rng)
        p, error = self._over_draws(matrix, draws)
        return (p, error) if return_error else p

    def _exact_by_blocks(self, Phi: ArrayLike, threads: int) -> Matrix:
        rows = Phi if isinstance(Phi, np.ndarray) else self.problem.design(Phi)
        if rows.ndim != 2 or len(rows) <= _BLOCK:
            return self._exact(self.problem.design(Phi))

        def block(some: slice) -> Matrix:
            return self._exact(self.problem.design(rows[some]), single=True)

        try:
            with single_threaded_blas():
                blocks = slices(len(rows), _BLOCK)
                return np.concatenate(list(ordered_map(block, blocks, threads=threads, keep=True)))
        except ValueError:
            self.problem.design(Phi)  # which says where in all rows the fault is
            raise

    def _exact(self, Phi: Matrix, *, single: bool = False) -> Matrix:
        moments = self.problem.class_moments(*self._outputs(Phi, single=single and self.link == "logistic"))
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

    def plugin(self, Phi: ArrayLike) -> Matrix:
        """Return (N, K) probabilities with the weights at the mode, as a plain classifier would give them."""
        p = self.problem.response(self.problem.activations(self.problem.design(Phi), self.mode))
        return np.stack([1 - p, p], axis=1) if self.problem.binary else p

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
            Whether to compute covariances in single precision, in the rows where `OutputMoments` allows it; of draws,
            exponentials.
        most_nodes
            As of `softmax_exact`; draws have no nodes.

        Raises
        ------
        ValueError
            If `shift` has another shape, or the activations are not logits.
        """
        matrix = self.problem.design(Phi)
        require_shift(shift, self.problem.n_classes)
        return self._predicted(matrix, shift, single=single, most_nodes=most_nodes)

    def _predicted(
        self, Phi: Matrix, shift: Vector | None, *, single: bool, most_nodes: int | None
    ) -> Prediction:
        outputs = self._outputs(Phi, single=single and self.link == "logistic")
        moments = self.problem.class_moments(*outputs)
        return predicted(*moments, link=self.link, shift=shift, most_nodes=most_nodes)

    def typical_error(self, Phi: ArrayLike) -> Vector:
        """Return by how much probabilities (N,) of rows typically differ from exact ones: 0 of a posterior from chains.

        One where nothing tells it, as of a Laplace fit alone, or of chains that did not mix.
        """
        unknown = self.kind == "laplace" or (self.verdict is not None and self.verdict.verdict == "red")
        return np.full(len(np.atleast_2d(Phi)), float(unknown))

    def output_probability(
        self, mean: Matrix, covariance: Matrix, *, most_nodes: int | None = None
    ) -> Matrix:
        """Return probabilities (N, K) of the predictive integral over outputs with given moments.

        The outputs, in the solver's coordinates, are Gaussian with mean (N, C) and covariance (N, C, C); `most_nodes`
        as of `softmax_exact`.
        """
        moments = self.problem.class_moments(mean, covariance)
        return predicted(*moments, link=self.link, most_nodes=most_nodes).probability

    def _drawn(self, n: int, rng: np.random.Generator) -> Matrix:
        return self.gaussian.sample(n, rng)

    def deviations(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the solver's weights about their mean, (n, C M)."""
        return self._drawn(n, rng) - self.gaussian.mean

    def counts_under(self, Phi: Matrix, deviations: Matrix, *, shift: Vector | None = None) -> Matrix:
        """Return the rows' summed probabilities, (S, K), with the weights at their mean plus `deviations`.

        These are of the solver's weights, (S, C M); `shift` (K,) as in `prediction`.
        """
        counts = np.zeros((len(deviations), self.problem.n_classes))
        for _, a in _activations(self.problem, Phi, self.gaussian.mean + deviations, shift):
            p, _ = _responses(self.problem, a)
            counts += np.sum(p, axis=1).T
        return counts

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

    def summary(self, level: float = 0.95) -> Table:
        """Return the table of the weights: each with its function, mean, sd, and the ends of a credible interval.

        The functions have names where the features had: where the basis was fitted to a table, or the design matrix is
        one.  A softmax has a row for each class and function, and its weights are less their mean over the classes,
        on which no probability depends.  The table is a dictionary of columns (D,), which
        `pandas.DataFrame` and `astropy.table.Table` take as it is.

        Parameters
        ----------
        level
            Probability of the interval; it has half of the rest on either side.

        Raises
        ------
        ValueError
            If `level` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, expected a probability between 0 and 1, such as 0.95")
        problem, (mean, sd, limits) = self.problem, self._limits(level)
        names = problem.names or tuple(f"w{m}" for m in range(problem.n_functions))
        columns = {"function": np.tile(names, problem.n_weights // len(names))}
        if not problem.binary:
            columns |= {"class": np.repeat([str(c) for c in problem.classes], problem.n_functions)}
        return Table(columns | {"mean": mean, "sd": sd, "low": limits[0], "high": limits[1]})

    def _limits(self, level: float) -> tuple[Vector, Vector, Matrix]:
        """Return mean (D,) and sd (D,) of the weights, and the ends (2, D) of their intervals, as in the summary."""
        P, M = self._centring @ self.problem.transform, self.problem.n_functions
        blocks = self.gaussian.covariance.reshape(P.shape[1], M, P.shape[1], M)
        mean = (self._centring @ self.mean.reshape(-1, M)).ravel()
        sd = np.sqrt(np.einsum("kc,cmdm,kd->km", P, blocks, P)).ravel()
        return mean, sd, mean + np.outer([-1, 1], ndtri(0.5 + level / 2) * sd)

    @property
    def _centring(self) -> Matrix:
        """The projection (K, K) that takes away the mean over classes; (1, 1) for two."""
        K = self.problem.n_classes
        return np.eye(1) if self.problem.binary else np.eye(K) - 1 / K

    def to_dict(self) -> dict[str, Any]:
        """Return the posterior, without its data, as scalars, strings, lists and arrays, for `from_dict`.

        Every kind has the same keys; a key for which a kind has no value is None.  `functions`, the names of the M
        functions, is there only if they have names.  The verdict of `trust` is stored only if it has been computed:
        nobody can compute it later without the data.
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
            "log_likelihood": float(self.laplace.log_likelihood),
            "converged": bool(self.converged),
            "n_iter": int(self.n_iter),
            "status": self.status,
            "laplace": None if self.laplace is self else self.laplace.to_dict(),
            "elbo": getattr(self, "elbo", None),
            "draws": getattr(self, "draws", None),
            "trust": None if verdict is None else verdict.to_dict(),
            **({} if self.problem.names is None else {"functions": list(self.problem.names)}),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return the posterior that `to_dict` stored; ValueError if its kind is unknown, or no kind of this class."""
        kind = KINDS.get(stored["kind"])
        if kind is None:
            raise ValueError(
                f"a posterior has the kind {stored['kind']!r}; expected one of {', '.join(KINDS)}"
            )
        if not issubclass(kind, cls):
            raise ValueError(  # noqa: TRY004  a stored value is wrong, no argument's type
                f"expected a stored {cls.kind} posterior, got kind {stored['kind']!r}; use Posterior.from_dict, "
                "which reads every kind"
            )
        prior, trust, laplace = stored["prior"], stored["trust"], stored["laplace"]
        problem = make_problem(
            stored["likelihood"],
            None if prior is None else GaussianPrior(prior["mean"], prior["covariance"]),
            tuple(stored["classes"]),
            stored["n_functions"],
            stored["n_effective"],
            None,
            mislabelled=stored["mislabelled"],
            names=None if stored.get("functions") is None else tuple(stored["functions"]),
        )
        D = problem.n_solved
        precision = as_stored(stored, "solver_precision", (D, D))
        problem.prior_mean  # noqa: B018  raises where the prior is of other weights
        known = {
            **stored,
            "problem": problem,
            "gaussian": Gaussian(as_stored(stored, "solver_mean", (D,)), precision),
            "verdict": None if trust is None else Trust.from_dict(trust),
            "laplace": None if laplace is None else LaplacePosterior.from_dict(laplace),
        }
        if stored["draws"] is not None:
            known["draws"] = as_stored(stored, "draws", (max(len(stored["draws"]), 1), D))
        return kind(**{f.name: known[f.name] for f in fields(kind) if f.name in known})

    @property
    def _known_verdict(self) -> Trust | None:
        """The verdict, if it is known without further work."""
        return self.__dict__.get("trust", self.verdict)

    def __repr__(self) -> str:
        problem, evidence, verdict = self.problem, self.log_evidence, self._known_verdict
        known = "no prior" if np.isnan(evidence) else f"log evidence {evidence:.1f} nats"
        said = "trust not computed" if verdict is None else f"trust {verdict.verdict}"
        return (
            f"<{type(self).__name__}: {problem.likelihood.name}, classes {', '.join(map(str, problem.classes))}, "
            f"{problem.n_functions} functions, {problem.n_effective:g} rows, {known}, {said}>"
        )

    def _repr_html_(self) -> str:
        reasons = self._known_verdict.reasons if self._known_verdict else ()
        listed = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
        return f"<p>{escape(repr(self).strip('<>'))}</p><ul>{listed}</ul>{self.summary().to_html()}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LaplacePosterior(Posterior):
    """The Laplace approximation: a Gaussian with its mean at the mode w_MAP, and the precision A there.

    Without a prior, w_MAP is the mode of the likelihood.  `log_likelihood` is ln p(D|w_MAP), in nats.
    """

    kind: ClassVar[str] = "laplace"

    log_likelihood: float

    @property
    def laplace(self) -> LaplacePosterior:
        """The fit itself; other kinds have the Laplace fit that they improve on under this name."""
        return self

    def _checked(self) -> Trust:
        return assess(self.problem, self.gaussian, converged=self.converged, status=self.status)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class _ImprovedPosterior(Posterior):
    """A posterior that improves on a Laplace fit, whose mode, evidence and BIC it has."""

    laplace: LaplacePosterior

    @property
    def log_likelihood(self) -> float:
        """Ln p(D|w_MAP) of the Laplace fit, in nats."""
        return self.laplace.log_likelihood

    @classmethod
    def of(cls, laplace: LaplacePosterior, gaussian: Gaussian, **own: Any) -> Self:
        """Return the posterior of this kind; how its search ended is the Laplace fit's, unless it is given."""
        ended: dict[str, Any] = {name: getattr(laplace, name) for name in ("converged", "n_iter", "status")}
        return cls(problem=laplace.problem, gaussian=gaussian, laplace=laplace, **ended | own)


class ShiftedPosterior(_ImprovedPosterior):
    """The Laplace fit's Gaussian, its mean moved to the posterior mean to first order (`variational.mean_shift`)."""

    kind: ClassVar[str] = "shifted"


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

        A share of the spread that the posterior gives them.  The share follows from how far refining moved the mean
        from the mode, over the cube root of the number of weights: `docs/accuracy.md` measures it.
        """
        draws = self.gaussian.sample(_ERROR_DRAWS, np.random.default_rng(0))
        blocks = draw_probabilities(self.problem, np.asarray(Phi, dtype=np.float64), draws)
        spread = np.concatenate([p.std(axis=2).max(axis=0) for _, p in blocks])
        return np.asarray(min(TYPICAL_ERROR * self.departure, 1.0) * spread)

    @property
    def departure(self) -> float:
        """How far the posterior departs from a Gaussian: the way from mode to mean in posterior sd, over D^(1/3)."""
        moved = self.gaussian.mean - self.laplace.gaussian.mean
        return float(np.sqrt(moved @ self.gaussian.precision @ moved) / len(moved) ** (1 / 3))

    def widened(self) -> RefinedPosterior:
        """Return it with the covariance that exact posteriors typically have: the wider, the less Gaussian they are."""
        wider = 1 + WIDER * self.departure
        return replace(self, gaussian=Gaussian(self.gaussian.mean, self.gaussian.precision / wider))

    def _checked(self) -> Trust:
        laplace = self.laplace.trust
        error = self.typical_error(some_rows(self.problem.require_data()))
        numbers = {"mean_error": float(error.mean()), "largest_error": float(error.max()) * LARGEST_OVER_MEAN}
        remedy = "sample the exact posterior (blr.sample_posterior)"
        of_laplace = [] if self.laplace.converged else [("red", reason) for reason in laplace.reasons[:1]]
        return Trust.of([*of_laplace, of_probabilities(numbers, remedy)], {**laplace.numbers, **numbers})


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SampledPosterior(_ImprovedPosterior):
    """Draws from the exact posterior, over which predictions are averaged (`sampling.sample_posterior`).

    `draws` (S, C M) are in the solver's coordinates.  `gaussian` has their mean and covariance.  `verdict` says whether
    the chains mixed.
    """

    kind: ClassVar[str] = "sampled"

    draws: Matrix
    verdict: Trust = field()  # required: the default None of the other kinds does not hold here

    def _predicted(
        self,
        Phi: Matrix,
        shift: Vector | None,
        *,
        single: bool,
        most_nodes: int | None,  # noqa: ARG002  draws have no nodes
    ) -> Prediction:
        return averaged(self.problem, Phi, self.draws, shift, single=single)[0]

    def _exact(self, Phi: Matrix, *, single: bool = False) -> Matrix:  # noqa: ARG002  draws have no covariances
        return self._over_draws(Phi, self.draws)[0]

    def _drawn(self, n: int, rng: np.random.Generator) -> Matrix:
        return self.draws[rng.choice(len(self.draws), n, replace=n > len(self.draws))]

    def _limits(self, level: float) -> tuple[Vector, Vector, Matrix]:
        P, S = self._centring @ self.problem.transform, len(self.draws)
        weights = np.einsum("kc,scm->skm", P, self.draws.reshape(S, P.shape[1], -1)).reshape(S, -1)
        limits = np.quantile(weights, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        return weights.mean(axis=0), weights.std(axis=0), limits


KINDS: dict[str, type[Posterior]] = {
    q.kind: q
    for q in (LaplacePosterior, ShiftedPosterior, SandwichPosterior, RefinedPosterior, SampledPosterior)
}
"""Every kind of posterior by the name that it is stored under."""
