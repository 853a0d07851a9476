"""Mixtures of members over nodes of what a row does not tell: one sum over features, members and weights.

Each row's probability is Σ_i share_i Σ_s w_s E[softmax(a_is)], a_is ~ N(m_is, V_is), over members i and nodes s.  Done
one by one, each expectation takes a design matrix, a covariance, its axes and a hundred Sobol points.  Made cheap by:

- The covariances vary slowly with the features: they are taken at a few nodes, and their Cholesky factors are
  interpolated to the others by kriging, so that they stay covariances.  So are the mean activations m_is of members
  with a small share; those of the others, which decide, are taken at every node.
- Every node and member has inner points of its own, few of them.  Their errors average out over nodes and members
  instead of adding up.  Two classes, which have one output, have the trapezoid rule at every node.
- Members with the same basis share the design matrix, those with the same features what standardises them.

A member with draws is averaged over all of them at complete rows, in single precision.  Each node of an incomplete row
takes a few draws, which the next node does not take, moved to the mean and the covariance that all draws have there.
This changes a probability by 0.0005 in the mean and 0.004 at worst; 1,024 draws have a standard error of 0.004.

The probabilities' mean error, of the interpolation and the inner points alone, is 1e-4 to 3e-4 where contrasts have sds
up to some 3, and 1e-3 where they have 7 and more.
Shapes: S nodes of n rows, T of them with covariances, F features, K classes, C outputs, J inner points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.member import Designs, Member
from blr.missing.nodes import NodeInterpolation, interpolation, kept_nodes, normal_nodes
from blr.missing.patterns import Nodes
from blr.posterior.ensemble import PairedDraws
from blr.posterior.kinds import SampledPosterior
from blr.predictive.extrapolation import CONSTANT
from blr.predictive.mixture import Prediction, of_moments, stacked
from blr.predictive.softmax_at_nodes import InnerPoints, MixtureSums, cholesky_factors, inner_points

# Share of a member from which its activations are taken at every node, and its covariances at more.
_LARGE_SHARE = 0.15
# Nodes at which they are taken, by dimension, the last for all higher ones: covariances of members with a large share,
# and of those with a small share covariances and mean activations.
_CHOSEN = (1, 1, 1), (3, 2, 7), (9, 8, 16), (16, 12, 32), (20, 14, 48), (24, 16, 64)
# The same where so many nodes say that activations are wide.
_MANY_NODES = 32, 96, 96
_CHOSEN_OF_WIDE = (8, 5, 64), (28, 20, 64), (36, 28, 96)
# Inner points of all members and nodes together, shared out by share, and the most of a member.  More nodes than the
# third number are there for wide activations, and have as many inner points each.
_INNER, _MOST_INNER, _WIDE = 1024.0, 512.0, 16
# Inner points of complete rows, for members of at least this share.
_AT_POINTS = (0.3, 512), (0.1, 256), (0.0, 128)
# Inner points at each node for members of one output, with a large and with a small share.
_OF_ONE_OUTPUT = 16, 8
_WIDENINGS = (2.0, 1), (4.0, 2), (np.inf, 4)  # times as many, by the sd of a contrast up to which they serve
_POINTS = 64  # of the standardised features, at which the sd is taken
_ROUGH = 0.25  # share of the inner points at points that count little
# Weight of a row's nodes beyond the training set's range, below which they are left as they are.
_LITTLE = 5e-4


# Pairs of a node and a draw of a sampled member: so many times its share, and the fewest and the most of a row.  At the
# points of complete rows all draws count, at those that count little fewer.
_PAIRS, _FEWEST_PAIRS, _MOST_PAIRS, _ROUGH_DRAWS = 16384, 2048, 8192, 256
_NUMBERS = 2**20  # activations under draws held at a time


@dataclass(frozen=True, eq=False)
class Chosen:
    """Where activations and covariances are taken of the members with a large, or with a small share."""

    means: NodeInterpolation
    covariances: NodeInterpolation

    @classmethod
    def of(cls, dimension: int, n: int) -> tuple[Chosen, Chosen]:
        """Return those of a large and of a small share, for n nodes in so many dimensions."""
        large, small, means = _CHOSEN[min(dimension, len(_CHOSEN) - 1)]
        place = min(dimension, len(_MANY_NODES)) - 1
        if dimension and n >= _MANY_NODES[place]:
            large, small, means = _CHOSEN_OF_WIDE[place]
        return (
            cls(interpolation(dimension, n, n), interpolation(dimension, n, large)),
            cls(interpolation(dimension, n, means), interpolation(dimension, n, small)),
        )

    def among(self, at_nodes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return those with covariances of what is known where the activations are taken, (T, ...)."""
        return at_nodes[np.searchsorted(self.means.chosen, self.covariances.chosen)]

    def at_all(self, used: NDArray[np.bool_]) -> Chosen:
        """Return the same covariances for the nodes `used` (S,), and the activations taken at all of these."""
        whole = int(np.count_nonzero(used))
        return Chosen(NodeInterpolation(np.arange(whole), np.eye(whole)), self.covariances.of(used))


@dataclass(frozen=True, eq=False)
class NodeMixture:
    """The prediction of many members at nodes.  `shift` (K,) as of `Posterior.prediction`, `support` (2, F)."""

    members: tuple[Member, ...]
    shift: Vector | None = None
    support: Matrix | None = None

    @classmethod
    def of(
        cls, members: tuple[Member, ...], shift: Vector | None, support: Matrix | None
    ) -> NodeMixture | None:
        """Return the mixture of these members; None where activations of some are no logits, as with other links."""
        logits = all(m.posterior.link in ("logistic", "softmax") for m in members)
        return cls(members, shift, support) if logits else None

    def __call__(self, nodes: NDArray[np.float64], dimension: int, fine: float = 1.0) -> Prediction:
        """Return the prediction of n rows, integrated over their nodes (S, n, F) in so many dimensions.

        `fine` is the share of the inner points that is used.
        """
        kept, _, weight = kept_nodes(dimension, len(nodes))
        chosen = Chosen.of(dimension, len(nodes))
        nodes = nodes[kept]
        share = np.repeat(weight[:, None], nodes.shape[1], axis=1)
        rows = np.empty(0, dtype=np.intp)
        if self.support is not None:
            low, high = self.support
            moved = CONSTANT * share * ((nodes < low) | (nodes > high)).any(axis=2)
            rows = np.flatnonzero(moved.sum(axis=0) > _LITTLE)
            share[:, rows] -= moved[:, rows]
        sums = self._sums(nodes, share, chosen, fine)
        if rows.size:
            used = moved[:, rows].any(axis=1)
            for one in chosen:
                used[one.covariances.chosen] = True
            inside = np.clip(nodes[np.ix_(used, rows)], low, high)
            # At the edge of the range the activations bend: they are taken at all nodes.
            fewer = [one.at_all(used) for one in chosen]
            more = self._sums(inside, moved[np.ix_(used, rows)], fewer, fine)
            for total, part in zip(vars(sums).values(), vars(more).values(), strict=True):
                total[rows] += part
        q = of_moments(sums.p, sums.entropy, sums.mean, sums.second)
        if q.probability.shape[1] > 2:
            return q
        # Two classes have the moments of the logit, the difference of their activations.
        mean, variance = q.mean[:, 1] - q.mean[:, 0], np.maximum(4.0 * q.covariance[:, 1, 1], 0.0)
        return Prediction(q.probability, q.expected_entropy, mean, variance)

    def at_points(self, X: Matrix, rough: NDArray[np.bool_] | None = None) -> Prediction:
        """Return the prediction at features X (N, F), of the `rough` rows (N,) with a quarter of the inner points."""
        fine = np.arange(len(X)) if rough is None else np.flatnonzero(~rough)
        if len(fine) == len(X):
            return self(X[None], 0)
        all_rows = np.arange(len(X))
        roughly = np.setdiff1d(all_rows, fine)
        coarse = self(X[None, roughly], 0, _ROUGH)
        if not len(fine):
            return coarse
        both = stacked([self(X[None, fine], 0), coarse])
        return both.rows(np.argsort(np.concatenate([fine, roughly]), kind="stable"))

    def by_dimension(
        self, parts: Iterable[Nodes], most: int
    ) -> Iterator[tuple[NDArray[np.intp], Prediction]]:
        """Yield rows and their predictions, of rows with their nodes, about `most` nodes at a time.

        Patterns are many and have few rows each: those that miss as many features are predicted together.
        """
        waiting: dict[tuple[int, int], list[tuple[NDArray[np.intp], NDArray[np.float64]]]] = {}
        for rows, nodes, _, dimension in parts:
            group = waiting.setdefault((dimension, len(nodes)), [])
            group.append((rows, nodes))
            if sum(x.shape[0] * x.shape[1] for _, x in group) >= most:
                yield self._together(waiting.pop((dimension, len(nodes))), dimension)
        for (dimension, _), group in waiting.items():
            yield self._together(group, dimension)

    def _together(
        self, group: list[tuple[NDArray[np.intp], NDArray[np.float64]]], dimension: int
    ) -> tuple[NDArray[np.intp], Prediction]:
        nodes = np.concatenate([x for _, x in group], axis=1)
        return np.concatenate([rows for rows, _ in group]), self(nodes, dimension)

    def _sums(
        self, nodes: NDArray[np.float64], share: Matrix, chosen: Sequence[Chosen], fine: float
    ) -> MixtureSums:
        """Return the sums over members and nodes (S, n, F) with their shares (S, n)."""
        S, n, F = nodes.shape
        sums = MixtureSums.zeros(n, self.members[0].posterior.problem.n_classes)
        inner = self._inner(S, fine)
        for which, designs in zip(chosen, self._designs, strict=True):
            taken = nodes[which.means.chosen]
            for alike, Phi in designs.by_basis(taken.reshape(-1, F)):
                at_nodes = Phi.reshape(len(taken), n, -1)
                for member, a in zip(alike, self._means(alike, Phi), strict=True):
                    at_taken = a.reshape(len(taken), -1)
                    m = at_taken if len(taken) == S else which.means.to_all @ at_taken
                    m = m.reshape(S, n, -1)
                    if isinstance(member.posterior, SampledPosterior):
                        self._add_draws(sums, member, m, at_nodes, which, fine, share)
                        continue
                    few = self._loads(member, which.among(at_nodes))
                    points = inner[self.members.index(member)]
                    sums.add(m, few, which.covariances.to_all, points, member.weight * share)
        return sums

    @staticmethod
    def _loads(
        member: Member, Phi: NDArray[np.float64], draws: PairedDraws | None = None
    ) -> NDArray[np.float64]:
        """Return what a member's loads are at nodes Phi (T, n, M), or those of its draws: (T, n, K, C)."""
        rows = Phi.reshape(-1, Phi.shape[2])
        V = member.moments(rows, single=True)[1] if draws is None else draws.covariances(rows)
        loads = np.einsum("kc,cdn->nkd", member.loads, cholesky_factors(V))
        return loads.reshape(*Phi.shape[:2], *loads.shape[1:])

    def _add_draws(
        self,
        sums: MixtureSums,
        member: Member,
        m: NDArray[np.float64],
        Phi: NDArray[np.float64],
        which: Chosen,
        fine: float,
        share: Matrix,
    ) -> None:
        """Add what a sampled member has at mean activations m (S, n, K): p and H over its draws, moments over all."""
        share, to_all, taken = member.weight * share, which.covariances.to_all, which.means.chosen
        sums.add_moments(m, np.einsum("st,tnkc->snkc", to_all, self._loads(member, which.among(Phi))), share)
        if len(taken) < len(m):
            m, to_all, share = m[taken], to_all[taken], which.means.to_all.T @ share
        draws = self._draws[self.members.index(member)]
        if member.weight >= _LARGE_SHARE:
            B = self._loads(member, Phi, draws)
        else:
            B = np.einsum("st,tnkc->snkc", to_all, self._loads(member, which.among(Phi), draws))
        J = self._draws_a_node(member, len(Phi), fine)
        size = max(1, _NUMBERS // (len(Phi) * J * B.shape[3]))
        for start in range(0, len(share[0]), size):
            rows = slice(start, start + size)
            a = draws.activations(Phi[:, rows], J)
            sums.rows(rows).add_draws(m[:, rows], B[:, rows], a, share[:, rows])

    def _draws_a_node(self, member: Member, T: int, fine: float) -> int:
        """Return how many draws of a sampled member each of T nodes takes."""
        if T == 1 and fine == 1:
            return self._draws[self.members.index(member)].n_draws
        pairs = min(max(_PAIRS * member.weight, _FEWEST_PAIRS), _MOST_PAIRS)
        return round(_ROUGH_DRAWS if T == 1 else pairs / T)

    def _means(self, alike: tuple[Member, ...], Phi: Matrix) -> Iterator[Matrix]:
        """Yield the mean activations (N, K), less their common shift, of members of one basis, in their order."""
        W = np.concatenate([member.class_weights for member in alike])
        a = (Phi @ np.ascontiguousarray(W.T)).reshape(len(Phi), len(alike), -1)
        for j in range(len(alike)):
            own = np.ascontiguousarray(a[:, j])
            yield own if self.shift is None else own + (self.shift - self.shift.mean())

    @cached_property
    def _draws(self) -> dict[int, PairedDraws]:
        """Of each sampled member, by its place, its draws."""
        posteriors = enumerate(m.posterior for m in self.members)
        return {
            i: PairedDraws.of(q.draws, q.problem.likelihood.n_outputs)
            for i, q in posteriors
            if isinstance(q, SampledPosterior)
        }

    @cached_property
    def _designs(self) -> tuple[Designs, Designs]:
        """What makes the design matrices of the members with a large share, and of those with a small one."""
        large = [m for m in self.members if m.weight >= _LARGE_SHARE]
        return Designs.of(large), Designs.of([m for m in self.members if m.weight < _LARGE_SHARE])

    def _inner(self, S: int, fine: float) -> list[InnerPoints]:
        """Return each member's inner points."""
        C, J = list[int](), list[int]()
        for m, more in zip(self.members, self._widenings, strict=True):
            C.append(m.posterior.problem.likelihood.n_outputs)
            if C[-1] == 1:
                J.append(more * _OF_ONE_OUTPUT[m.weight < _LARGE_SHARE])
            elif S == 1 and fine == 1:
                J.append(next(points for least, points in _AT_POINTS if m.weight >= least))
            else:
                total = fine * more * min(_INNER * m.weight, _MOST_INNER)
                J.append(max(1, round(total / min(S, _WIDE))))
        return inner_points(S, tuple(C), tuple(J))

    @cached_property
    def _widenings(self) -> tuple[int, ...]:
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
