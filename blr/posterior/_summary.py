"""A posterior in a line, and its weights as a table.

Shapes: M basis functions, K classes, C outputs, D = M (two classes) or K M weights in order k M + m.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import Any

import numpy as np
from scipy.special import ndtri

from blr.arrays import Matrix, Table, Vector
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.likelihood.prior import GaussianPrior
from blr.trust.verdict import Trust

__all__ = ["Described"]


class Described(ABC):
    """What a posterior says of itself: names, its line, its table of weights, and both as HTML for notebooks."""

    problem: Problem
    gaussian: Gaussian
    verdict: Trust | None

    @property
    @abstractmethod
    def mean(self) -> Vector:
        """Mean of the weights, (D,)."""

    @property
    @abstractmethod
    def log_evidence(self) -> float:
        """Laplace approximation of ln p(D), in nats; NaN without a prior."""

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
        columns = {"function": np.array(list(names) * (problem.n_weights // len(names)))}
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

    @property
    def _known_verdict(self) -> Trust | None:
        """The verdict, if it is known without further work."""
        return self.__dict__.get("_trust", self.verdict)

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
