"""A member of a classifier: one model and its share.  Shapes: N rows, F features, M basis functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector, as_stored
from blr.basis.base import Basis
from blr.basis.kinds import basis_from_dict
from blr.posterior.kinds import Posterior
from blr.predictive.extrapolation import CONSTANT
from blr.predictive.output_moments import OutputMoments

_AT_ONCE = 16  # points: derivatives of many functions by many features are large


@dataclass(frozen=True, eq=False)
class Member:
    """One model: a basis on some of the features, its posterior, and its share in the average.

    `columns` index the classifier's features.
    """

    basis: Basis
    posterior: Posterior
    columns: tuple[int, ...]
    weight: float = 1.0

    def design(self, X: Matrix) -> Matrix:
        """Return Phi (N, M) of the classifier's features X (N, F)."""
        return self.basis(np.take(X, self.columns, axis=1))

    def continuations(self, X: Matrix, support: Matrix | None) -> list[tuple[float, Matrix]]:
        """Return the design matrices (N, M) that predictions mix, each with its share.

        Beyond the `support` (2, F) these are the rows as they are and the nearest points within; else one matrix.
        """
        if support is None or ((support[0] <= X) & (support[1] >= X)).all():
            return [(1.0, self.design(X))]
        return [(1 - CONSTANT, self.design(X)), (CONSTANT, self.design(np.clip(X, *support)))]

    @cached_property
    def loads(self) -> Matrix:
        """T (K, C), which takes outputs to the classes' activations less their common shift; K is 2 or more."""
        if self.posterior.problem.binary:
            return np.array([[-0.5], [0.5]])
        transform = self.posterior.problem.transform
        return np.asarray(transform - transform.mean(axis=0))

    @cached_property
    def class_weights(self) -> Matrix:
        """Mean weights (K, M) of the classes' activations less their common shift."""
        q = self.posterior
        return self.loads @ q.gaussian.mean.reshape(q.problem.likelihood.n_outputs, -1)

    @cached_property
    def moments(self) -> OutputMoments:
        """The moments of the outputs, as a function of rows Phi (N, M)."""
        return OutputMoments(self.posterior.gaussian, self.posterior.problem.likelihood.n_outputs)

    def described(self, features: Sequence[str]) -> list[str]:
        """Return share, basis, features and posterior in words; `features` are the classifier's."""
        used = ", ".join(features[c] for c in self.columns)
        return [f"{self.weight:.3f}", self.basis.kind, used, repr(self.posterior).strip("<>")]

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes."""
        return {
            "basis": self.basis.to_dict(),
            "posterior": self.posterior.to_dict(),
            "columns": list(self.columns),
            "weight": float(self.weight),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Member:
        """Return the member of `to_dict`; ValueError where its parts do not fit together."""
        basis, posterior, columns = (
            basis_from_dict(d["basis"]),
            Posterior.from_dict(d["posterior"]),
            d["columns"],
        )
        n_functions = posterior.problem.n_functions
        if (basis.n_features, basis.n_functions) != (len(columns), n_functions):
            raise ValueError(
                f"a stored member has {len(columns)} feature(s) and {n_functions} weight(s), but its basis has "
                f"{basis.n_features} and {basis.n_functions}"
            )
        if d["posterior"]["kind"] != "sampled":
            posterior.gaussian.cholesky  # noqa: B018  raises unless the precision is positive definite
        return cls(basis, posterior, tuple(columns), float(as_stored(d, "weight", ())))


@dataclass(frozen=True, eq=False)
class Designs:
    """The design matrices of several members, each made once: many have the same basis, and more the same features.

    `groups` are columns, and the bases that standardise them alike, each with its members.
    """

    groups: tuple[tuple[tuple[int, ...], tuple[tuple[Basis, tuple[Member, ...]], ...]], ...]

    @classmethod
    def of(cls, members: Sequence[Member]) -> Designs:
        """Return what makes the matrices of these members."""
        alike: dict[Any, dict[Any, list[Member]]] = {}
        for m in members:
            standardised = (m.columns, _key(m.basis.standardisation.to_dict()))
            alike.setdefault(standardised, {}).setdefault(_key(m.basis.to_dict()), []).append(m)
        return cls(
            tuple(
                (columns, tuple((one[0].basis, tuple(one)) for one in bases.values()))
                for (columns, _), bases in alike.items()
            )
        )

    def __call__(self, X: Matrix) -> Iterator[tuple[Member, Matrix]]:
        """Yield each member and its Phi (N, M) of finite features X (N, F)."""
        return ((member, Phi) for members, Phi in self.by_basis(X) for member in members)

    def by_basis(self, X: Matrix) -> Iterator[tuple[tuple[Member, ...], Matrix]]:
        """Yield the members that share a basis, and their Phi (N, M) of finite features X (N, F)."""
        for columns, bases in self.groups:
            Z = bases[0][0].standardisation(np.take(X, columns, axis=1))
            for basis, members in bases:
                yield members, basis.of_standardised(Z)


def _key(value: Any) -> Any:
    """Return what is equal for equal stored bases."""
    if isinstance(value, dict):
        return tuple((name, _key(x)) for name, x in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_key(x) for x in value)
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def slope_moments(members: Sequence[Member], X: Matrix, weight: Vector) -> NDArray[np.float64]:
    """Return second moments (K, F, K, F) of the slopes of activations, over members and points X (P, F) of `weight`."""
    K, F = len(members[0].class_weights), X.shape[1]
    slopes = np.zeros((K, F, K, F))
    for member in members:
        columns = np.array(member.columns)
        where = np.ix_(np.arange(K), columns, np.arange(K), columns)
        for start in range(0, len(X), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            J = member.basis.jacobian(np.take(X[some], columns, axis=1))
            g = np.einsum("km,pmf->pkf", member.class_weights, J)
            slopes[where] += np.einsum("p,pkf,plg->kflg", member.weight * weight[some], g, g, optimize=True)
    return slopes


def shared_deviations(members: Sequence[Member], n: int) -> tuple[Matrix, ...]:
    """Return draws of each member's weights about their mean, n in all, in number proportional to its share."""
    rng = np.random.default_rng(0)  # the same for every batch and run: the draws are shared by all rows
    shares = np.array([m.weight for m in members])
    counts = np.diff(np.concatenate([[0], np.rint(np.cumsum(shares / shares.sum()) * n)])).astype(int)
    return tuple(m.posterior.deviations(k, rng) for m, k in zip(members, counts.tolist(), strict=True))


def count_draws(expected: Vector, counts: Sequence[Matrix], n_draws: int) -> Matrix:
    """Return class counts (S, K) under draws of the weights: those of each member, (n, K), about the `expected` (K,).

    Without any, as where no row has a feature, they are `n_draws` times 0.
    """
    some = counts or [np.zeros((n_draws, len(expected)))]
    return np.concatenate([expected + under - under.mean(axis=0) for under in some])
