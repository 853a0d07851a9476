"""The members of a classifier, each a model with its share, and their mixture over nodes of what a row does not tell.

Each row's probability is Σ_i share_i Σ_s w_s E[softmax(a_is)], a_is ~ N(m_is, V_is), over members i and nodes s: one
sum over features, members and weights.  Done one by one, each expectation takes a design matrix, a covariance, its axes
and a hundred Sobol points.  Made cheap by:

- The covariances vary slowly with the features: they are taken at a few nodes, and their Cholesky factors are
  interpolated to the others by kriging, so that they stay covariances.
- The nodes of a row go down a tree together, and part where a threshold of what is missing lies between them.
- Every node and member has inner points of its own, few of them.  Their errors average out over nodes and members
  instead of adding up.  Two classes go by their logit, with the trapezoid rule at every node.
- Members with the same basis share the design matrix, those with the same features what standardises them.

Models with a member that has draws have no such mixture: each member is integrated by itself.

The probabilities' mean error, of the interpolation and the inner points alone, is 1e-4 to 3e-4 where contrasts have sds
up to some 3, and 1e-3 where they have 7 and more.
Shapes: N rows, F features, M basis functions; S nodes of n rows, T of them with covariances, K classes, C outputs, J
inner points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Places, Vector, as_stored, plain_fields
from blr.basis.base import Basis
from blr.basis.kinds import basis_from_dict
from blr.covariances import OutputMoments
from blr.missing.patterns import NodeInterpolation, Nodes, interpolation, kept_nodes, normal_nodes
from blr.posterior.kinds import Posterior
from blr.predictive.mixture import CONSTANT, Prediction, of_moments
from blr.predictive.softmax import (
    InnerPoints,
    add_logits,
    add_nodes,
    cholesky_factors,
    inner_points,
    logit_points,
    no_logits,
    no_moments,
    widest_contrast,
)

_CACHED = 2**16  # numbers of functions at a time that stay in a core's cache
_DERIVATIVES = 2**19  # numbers of derivatives at a time: those of many functions by many features are large
# Share of a member from which it has covariances at more nodes.  Their numbers by dimension, the last for all higher
# ones, are of members with a large share, and with a small one.
_LARGE_SHARE = 0.15
_COVARIANCES = (1, 1), (3, 1), (9, 4), (16, 6), (20, 8), (24, 8)
# The same where so many nodes say that activations are wide.
_MANY_NODES = 32, 96, 96
_COVARIANCES_OF_WIDE = (8, 4), (20, 14), (28, 22)
# Inner points of all members and nodes together, shared out by share, and the most of a member.  More nodes than the
# third number are there for wide activations, and have as many inner points each.
_INNER, _MOST_INNER, _WIDE = 1024.0, 512.0, 16
# Inner points of complete rows, for members of at least this share; of two outputs half of them, on a lattice, where
# the logits are narrow: wide ones beat with its steps.
_AT_POINTS = (0.3, 512), (0.1, 256), (0.0, 128)
# Inner points of a logit at each node, twice as many where it is wide.
_OF_A_LOGIT = 8
# Times as many, by the sd of a contrast up to which they serve; fewer at points only.
_WIDENINGS = (1.0, 0.25), (2.0, 1), (4.0, 2), (np.inf, 4)
_POINTS = 64  # of the standardised features, at which the sd is taken


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
    def mean_weights(self) -> Matrix:
        """Mean weights of what a mixture sums: `class_weights`, or of two classes those (1, M) of the logit."""
        W = self.class_weights
        return W[1:] - W[:1] if len(W) == 2 else W

    @cached_property
    def unmixed_weights(self) -> Matrix:
        """Weights of the basis's `unmixed` functions: their products are those of Φ with `mean_weights`."""
        return self.basis.unmixed_weights(self.mean_weights)

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
        return plain_fields(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Member:
        """Return the member of `to_dict`; ValueError where its parts do not fit together."""
        basis, posterior = basis_from_dict(d["basis"]), Posterior.from_dict(d["posterior"])
        columns = d["columns"]
        n_functions = posterior.problem.n_functions
        if (basis.n_features, basis.n_functions) != (len(columns), n_functions):
            raise ValueError(
                f"a stored member has {len(columns)} feature(s) and {n_functions} weight(s), but its basis has "
                f"{basis.n_features} and {basis.n_functions}"
            )
        if d["posterior"]["kind"] != "sampled":
            posterior.gaussian.cholesky  # noqa: B018  raises unless the precision is positive definite
        return cls(basis, posterior, tuple(columns), float(as_stored(d, "weight", ())))


class Designs:
    """The design matrices of several members, each made once: many have the same basis, and more the same features."""

    def __init__(self, members: Sequence[Member]) -> None:
        """Group the members by columns, and by the bases that standardise these alike."""
        alike: dict[Any, dict[Any, list[Member]]] = {}
        for m in members:
            standardised = (m.columns, _key(m.basis.standardisation.to_dict()))
            alike.setdefault(standardised, {}).setdefault(_key(m.basis.to_dict()), []).append(m)
        self._groups = [
            (columns, [tuple(one) for one in bases.values()]) for (columns, _), bases in alike.items()
        ]

    def __call__(self, X: Matrix) -> Iterator[tuple[Member, Matrix]]:
        """Yield each member and its Phi (N, M) of finite features X (N, F); members that share a basis have one."""
        for members, Z in self.standardised(X):
            Phi = members[0].basis.of_standardised(Z)
            yield from ((member, Phi) for member in members)

    def bases(self) -> Iterator[tuple[tuple[int, ...], tuple[Member, ...]]]:
        """Yield the columns of each basis, and its members."""
        return ((columns, members) for columns, groups in self._groups for members in groups)

    def standardised(self, X: Matrix, sets: int = 1) -> Iterator[tuple[tuple[Member, ...], Matrix]]:
        """Yield the members that share a basis, and their features of rows X (N, F) in so many sets, standardised."""
        for columns, groups in self._groups:
            standardisation, own = groups[0][0].basis.standardisation, np.take(X.T, columns, axis=0).T
            Z = standardisation(own) if sets == 1 else standardisation.of_sets(own, sets)
            yield from ((members, Z) for members in groups)


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
    for columns, alike in Designs(members).bases():
        basis, own = alike[0].basis, np.array(columns)
        where = np.ix_(np.arange(K), own, np.arange(K), own)
        step = max(1, _DERIVATIVES // (basis.n_functions * len(columns)))
        g = np.empty((len(alike), len(X), K, len(columns)))
        for start in range(0, len(X), step):
            some = slice(start, start + step)
            J = basis.jacobian(np.take(X[some], columns, axis=1))
            for member, slope in zip(alike, g, strict=True):
                slope[some] = np.einsum("km,pmf->pkf", member.class_weights, J, optimize=True)
        for member, slope in zip(alike, g, strict=True):
            root = np.sqrt(member.weight * weight)[:, None] * slope.reshape(len(X), -1)
            slopes[where] += (root.T @ root).reshape(K, len(columns), K, -1)
    return slopes


def _with_covariances(dimension: int, n: int) -> tuple[NodeInterpolation, NodeInterpolation]:
    """Return which of n nodes have covariances, of members with a large share and with a small one."""
    place = min(dimension, len(_MANY_NODES)) - 1
    wide = dimension and n >= _MANY_NODES[place]
    sizes = _COVARIANCES_OF_WIDE[place] if wide else _COVARIANCES[min(dimension, len(_COVARIANCES) - 1)]
    return interpolation(dimension, n, sizes[0]), interpolation(dimension, n, sizes[1])


def _means(
    alike: Sequence[Member], Z: NDArray[np.float64], few: Places
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return mean activations (S, n, K) of members of one basis at nodes Z (S, n, F), and Φ (T, n, M) at few of them.

    The features are standardised.  The means are those of `mean_weights`: of two classes, the logit (S, n, 1).  Some
    nodes at a time, so that their functions stay in the cache.
    """
    (S, n, F), basis = Z.shape, alike[0].basis
    if S == 1:
        Phi = basis.of_standardised(Z[0])
        return [(Phi @ member.mean_weights.T)[None] for member in alike], Phi[None]
    W = np.concatenate([member.unmixed_weights for member in alike]).T.copy()
    a, U = np.empty((S, n, W.shape[1])), np.empty((len(few), n, len(W)))
    step = max(1, _CACHED // U[0].size)
    for s in range(0, S, step):
        some = basis.unmixed(Z[s : s + step].reshape(-1, F), len(Z[s : s + step]))
        np.matmul(some, W, out=a[s : s + step].reshape(len(some), -1))
        here = (few >= s) & (few < s + step)
        U[here] = some.reshape(-1, n, len(W))[few[here] - s]
    means = [np.ascontiguousarray(own) for own in np.split(a, len(alike), axis=2)]
    return means, basis.mixed(U.reshape(-1, len(W))).reshape(len(few), n, -1)


Integral = tuple[Prediction, Matrix, Vector]
"""A prediction of n rows, and with what is missing at its mean the plug-in probabilities (n, K) and the logit's sd."""


def contrast_std(mean: Matrix, second: Matrix) -> Vector:
    """Return the largest sd (N,) of a contrast of activations with a mean (N, K) and a second moment (N, K, K)."""
    return widest_contrast(second - mean[:, :, None] * mean[:, None, :])


@dataclass(frozen=True, eq=False)
class NodeMixture:
    """The prediction of many members at nodes.  `shift` (K,) as of `Posterior.prediction`, `support` (2, F)."""

    members: tuple[Member, ...]
    shift: Vector | None = None
    support: Matrix | None = None

    def __call__(
        self,
        nodes: NDArray[np.float64],
        dimension: int,
        *,
        share: Vector | None = None,
    ) -> Integral:
        """Return the integral over the nodes (S, n, F) of n rows, in so many dimensions.

        Of the integral each row has a `share` (n,), and the rest at its mean; without shares it has all.
        """
        sums = self._sums(nodes, dimension, share)
        if self.support is not None:
            low, high = self.support
            outside = (nodes.min(axis=0) < low) | (nodes.max(axis=0) > high)
            rows = np.flatnonzero(outside.any(axis=1))
            if len(rows):
                inside = np.clip(nodes[:, rows], low, high)
                near = self._sums(inside, dimension, None if share is None else share[rows])
                for own, constant in zip(sums, near, strict=True):
                    own[rows] += CONSTANT * (constant - own[rows])
        p, entropy, mean, second, plugin, mean_at_mean, second_at_mean = sums
        p /= p.sum(axis=1, keepdims=True)  # Inner points are float32, so that the sums are not quite one.
        if self._two:
            q = Prediction(p, entropy, mean, np.maximum(second - mean**2, 0.0))
            return q, plugin, np.sqrt(np.maximum(second_at_mean - mean_at_mean**2, 0.0))
        q = of_moments(p, entropy, mean, second)
        return q, plugin, q.logit_std if len(nodes) == 1 else contrast_std(mean_at_mean, second_at_mean)

    def by_dimension(
        self, parts: Iterable[Nodes], most: int, share: Vector
    ) -> Iterator[tuple[NDArray[np.intp], Integral]]:
        """Yield rows and their integrals, of rows with their nodes, about `most` nodes at a time.

        Patterns are many and have few rows each: those that miss as many features are predicted together.  `share` (N,)
        as of a call, of all rows.
        """
        waiting: dict[tuple[int, int], list[Nodes]] = {}
        held = Counter[tuple[int, int]]()

        def together(kind: tuple[int, int]) -> tuple[NDArray[np.intp], Integral]:
            parts, nodes, _, _ = zip(*waiting.pop(kind), strict=True)
            del held[kind]
            rows = np.concatenate(parts)
            return rows, self(np.concatenate(nodes, axis=1), kind[0], share=share[rows])

        for part in parts:
            _, nodes, _, dimension = part
            waiting.setdefault(kind := (dimension, len(nodes)), []).append(part)
            held[kind] += nodes.shape[0] * nodes.shape[1]
            if held[kind] >= most:
                yield together(kind)
        for kind in list(waiting):
            yield together(kind)

    def _sums(self, nodes: NDArray[np.float64], dimension: int, share: Vector | None) -> tuple[Matrix, ...]:
        """Return the sums of `Moments`, of two classes of `no_logits`, over members and nodes (S, n, F).

        Then come those of the node that is the mean: the plug-in probabilities (n, K), and means and second moments of
        activations or of the logit.
        """
        with_covariances = _with_covariances(dimension, len(nodes))
        kept, _, weight = kept_nodes(dimension, len(nodes))
        nodes, centre = nodes[kept], len(kept) // 2
        S, n, _ = nodes.shape
        shares = np.repeat(weight[:, None], n, axis=1)
        if share is not None:
            shares *= share
            shares[centre] += 1 - share
        K = len(self.members[0].loads)
        sums, (_, _, mean, second) = ((no_logits(n) if self._two else no_moments(n, K)) for _ in range(2))
        plugin, inner = np.zeros((n, K)), self._inner(S)
        for alike, Z in self._designs.standardised(nodes.reshape(-1, nodes.shape[2]), S):
            at = with_covariances[all(member.weight < _LARGE_SHARE for member in alike)][0]
            means, designs = _means(alike, Z.reshape(S, n, -1), at)
            for member, a in zip(alike, means, strict=True):
                few, to_all = with_covariances[member.weight < _LARGE_SHARE]
                Phi = designs if len(few) == len(at) else designs[np.searchsorted(at, few)]
                V = member.moments(Phi.reshape(len(few) * n, -1), single=True)[1]
                here, points = np.searchsorted(few, centre), inner[self.members.index(member)]
                plugin += member.weight * member.posterior.plugin(Phi[here])
                if self._two:
                    m, sd = a[..., 0] + self._shift, np.sqrt(np.maximum(V.reshape(-1, n), 0.0))
                    add_logits(sums, m, to_all @ sd, points, member.weight * shares)
                    own, square = m[centre], m[centre] ** 2 + sd[here] ** 2
                else:
                    m = a + self._shift
                    factors = cholesky_factors(V)
                    loads = np.einsum("kc,cdn->nkd", member.loads, factors).reshape(len(few), n, K, -1)
                    add_nodes(sums, m, loads, to_all, points, member.weight * shares)
                    own, B = m[centre], loads[here]
                    square = B @ B.transpose(0, 2, 1) + own[:, :, None] * own[:, None, :] if S > 1 else 0
                mean += member.weight * own
                second += member.weight * square
        return *sums, plugin, mean, second

    @cached_property
    def _two(self) -> bool:
        """Whether there are two classes, which have one output, their logit."""
        return self.members[0].posterior.problem.binary

    @cached_property
    def _shift(self) -> Vector | float:
        """What the shift adds to the logit, or to activations (K,) less their common shift."""
        if self.shift is None:
            return 0.0
        return float(self.shift[1] - self.shift[0]) if self._two else self.shift - self.shift.mean()

    @cached_property
    def _designs(self) -> Designs:
        return Designs(self.members)

    def _inner(self, S: int) -> list[InnerPoints]:
        """Return each member's inner points."""
        if self._two:
            return [
                logit_points(_OF_A_LOGIT * (2 if more == _WIDENINGS[-1][1] else 1))
                for more in self._widenings
            ]
        C, J, narrow = list[int](), list[int](), [more < _WIDENINGS[-1][1] for more in self._widenings]
        for m, more, near in zip(self.members, self._widenings, narrow, strict=True):
            C.append(m.posterior.problem.likelihood.n_outputs)
            if S == 1:
                points = next(points for least, points in _AT_POINTS if m.weight >= least)
                J.append(round(points * min(more, 1) / (2 if C[-1] == 2 and near else 1)))
            else:
                total = max(more, 1) * min(_INNER * m.weight, _MOST_INNER)
                J.append(max(1, round(total / min(S, _WIDE))))
        return inner_points(S, tuple(C), tuple(J), tuple(narrow))

    @cached_property
    def _widenings(self) -> tuple[float, ...]:
        """How many times as many inner points each member has as one of narrow activations."""
        found = []
        for member in self.members:
            Z, weight = normal_nodes(member.basis.n_features, _POINTS)
            _, V = member.moments(member.basis.of_standardised(Z), single=True)
            variance = np.einsum("kc,ncd,kd->n", member.loads, V, member.loads) @ weight
            # Of a contrast, where all are alike.
            sd = np.sqrt(2 * variance / (len(member.loads) - 1))
            found.append(next(more for most, more in _WIDENINGS if sd <= most))
        return tuple(found)
