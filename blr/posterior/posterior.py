"""What may be asked of every posterior of the weights, whatever found it.

Shapes: N rows, M basis functions, K classes, D = M or K M weights in order k M + m, C outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getattr_static
from typing import Any, ClassVar, Protocol, _ProtocolMeta, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Table, Vector
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.posterior.kinds import LaplacePosterior, posterior_from_dict
from blr.predictive.mixture import Prediction
from blr.trust.verdict import Trust

__all__ = ["Posterior"]


class _CheckedByName(_ProtocolMeta):
    """Makes `isinstance` look for names only: Python 3.11 would compute every property, the verdict among them."""

    def __instancecheck__(self, instance: object) -> bool:
        names = [name for name in dir(self) if not name.startswith("_")]
        return all(getattr_static(instance, name, None) is not None for name in names)


@runtime_checkable
class Posterior(Protocol, metaclass=_CheckedByName):
    """A posterior of the weights.  Its kinds are the classes in `blr.posterior.kinds`.

    In the words of PRML: `mean` (D,) of a Laplace posterior is the mode w_MAP, `precision` (D, D) is A; of a refined
    posterior the variational mean and precision, of a sampled or matched one those of the draws.

    Examples
    --------
    >>> q = blr.fit_evidence([[1, 0.2], [1, 0.9], [1, 0.4], [1, 0.5]], [0, 1, 0, 1])
    >>> isinstance(q, blr.Posterior)
    True
    """

    kind: ClassVar[str]
    """Name of the kind: "laplace", "shifted", "sandwich", "refined", "matched" or "sampled"."""

    @property
    def problem(self) -> Problem:
        """What was fitted: likelihood, prior and, until it is stored, the data."""
        ...

    @property
    def gaussian(self) -> Gaussian:
        """The Gaussian of the C M weights in the solver's coordinates."""
        ...

    @property
    def laplace(self) -> LaplacePosterior:
        """The Laplace fit behind this posterior; of a Laplace fit, itself."""
        ...

    @property
    def fitted(self) -> LaplacePosterior:
        """The Laplace fit behind this posterior; ValueError if it has no prior, and so may be of nothing."""
        ...

    @property
    def n_iter(self) -> int:
        """Number of steps, or of draws a chain, that the search took."""
        ...

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes' names; a binary probability is that of the second."""
        ...

    @property
    def likelihood(self) -> str:
        """Name of the likelihood."""
        ...

    @property
    def link(self) -> str:
        """The link of two classes."""
        ...

    @property
    def mean(self) -> Vector:
        """Weights (D,)."""
        ...

    @property
    def precision(self) -> Matrix:
        """A (D, D)."""
        ...

    @property
    def log_evidence(self) -> float:
        """Ln p(D) by the Laplace fit, nats."""
        ...

    @property
    def bic(self) -> float:
        """BIC of the Laplace fit (PRML 4.139), nats: higher is better."""
        ...

    @property
    def trust(self) -> Trust:
        """Whether this posterior serves."""
        ...

    def summary(self, level: float = 0.95) -> Table:
        """Return the weights as a table: function, for a softmax class, mean, sd, and the ends of an interval."""
        ...

    def logit_moments(self, Phi: ArrayLike) -> tuple[Matrix, Matrix]:
        """Return mean and variance of the activation, (N,) each; softmax: (N, K) and (N, K, K)."""
        ...

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

        `method` is "plugin", "probit", "exact" or "monte_carlo".
        """
        ...

    def typical_error(self, Phi: ArrayLike) -> Vector:
        """Return by how much probabilities (N,) of rows Phi (N, M) typically differ from exact ones; 1 for unknown."""
        ...

    def prediction(
        self,
        Phi: ArrayLike,
        *,
        shift: Vector | None = None,
        single: bool = False,
        most_nodes: int | None = None,
    ) -> Prediction:
        """Return probabilities by the predictive integral, expected entropy and activation moments of each row."""
        ...

    def plugin(self, Phi: ArrayLike) -> Matrix:
        """Return (N, K) probabilities with the weights at the mode, as a plain classifier would give them."""
        ...

    def counts_under(self, Phi: Matrix, deviations: Matrix, *, shift: Vector | None = None) -> Matrix:
        """Return the rows' summed probabilities, (S, K), with the weights at their mean plus `deviations`."""
        ...

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the weights, (n, D)."""
        ...

    def deviations(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws of the solver's weights about their mean, (n, C M)."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return scalars, strings, lists and arrays that `from_dict` makes the posterior of, without its data."""
        ...

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> Posterior:
        """Return the posterior of `to_dict`, of whatever kind; ValueError if its kind is not known."""
        return posterior_from_dict(stored)
