"""Mixtures of many members over nodes of what a row does not tell: one sum over features, members and weights.

Each row's probability is Σ_i share_i Σ_s w_s E[softmax(a_is)], a_is ~ N(m_is, V_is), over members i and nodes s.  Done
one by one, each expectation takes a covariance, its axes and a hundred Sobol points.  Three things make them cheap:

- The mean activations m_is, which decide, are taken at every node.  The covariances vary slowly with the features: they
  are taken at a few nodes, and their Cholesky factors are interpolated to the others by kriging, so that they stay
  covariances.
- Every node and member has Sobol points of its own, few of them and each with its mirror image, from one sequence.
  Their errors average out over nodes and members instead of adding up.
- Members with the same basis share the design matrix.

A member with draws is averaged over all of them at every node, in single precision.

The probabilities' mean error is 3e-4 where contrasts have sds up to some 3, and 1e-3 where they have 7 and more: no
larger than with 128 Sobol points for each member and node.
Shapes: S nodes of n rows, T of them with covariances, F features, K classes, C outputs, J inner points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.member import Member
from blr.missing.nodes import normal_nodes
from blr.posterior.ensemble import draw_means
from blr.posterior.kinds import SampledPosterior
from blr.predictive.extrapolation import CONSTANT
from blr.predictive.mixture import Prediction, of_moments, replaced
from blr.predictive.output_moments import OutputMoments
from blr.predictive.sobol import normal_nodes as sobol_nodes

__all__ = ["NodeMixture"]

_LARGE_SHARE = 0.15  # of a member, from which its covariances are taken at more nodes
# Nodes at which covariances are taken, by dimension, of members with a large and with a small share.
_CHOSEN: dict[int, tuple[int, int]] = {0: (1, 1), 1: (8, 5), 2: (16, 12)}
_MANY_CHOSEN = 24, 16  # of more dimensions
_REACH = 4.0  # lengthscale of the kriging, in standard deviations of what is missing
_NUGGET = 1e-6
# Inner points at a node, for members of at least this share; times _ALONG_ONE where one feature is missing, times
# _AT_POINTS where none is.
_INNER = (0.3, 32), (0.1, 16), (0.0, 8)
_ALONG_ONE, _AT_POINTS = 2, 16
_NARROW = 40.0  # activations up to which e^a cannot overflow single precision
_NUMBERS = 2**18  # activations at inner points held at a time
_NEGLIGIBLE = 1e-4  # weight of the outermost nodes, together, that are left out
# Weight of a row's nodes beyond the training set's range, below which they are left as they are.
_LITTLE = 5e-4


@dataclass(frozen=True, eq=False)
class Rule:
    """Which of the nodes have covariances (T,), and the interpolation from these to all nodes (S, T)."""

    chosen: NDArray[np.intp]
    to_all: Matrix

    def of(self, used: NDArray[np.bool_]) -> Rule:
        """Return the rule for the nodes `used` (S,) alone, with the chosen ones among them."""
        return Rule((np.cumsum(used) - 1)[self.chosen], self.to_all[used])


@lru_cache(maxsize=64)
def kept_nodes(dimension: int, n: int) -> tuple[NDArray[np.intp], Matrix, Vector]:
    """Return which of `normal_nodes(dimension, n)` count, (S,), these nodes (S, d), and their weights (S,)."""
    Z, weight = normal_nodes(dimension, n)
    order = np.argsort(weight, kind="stable")
    kept = np.sort(order[np.cumsum(weight[order]) > _NEGLIGIBLE])
    return kept, Z[kept], weight[kept] / weight[kept].sum()


@lru_cache(maxsize=64)
def interpolation(dimension: int, n: int, *, small: bool) -> Rule:
    """Return the kriging between the nodes of `normal_nodes(dimension, n)`, with a constant mean.

    The chosen nodes are those that leave the least variance, weighted by the density: a pivoted Cholesky factorisation.
    """
    _, Z, weight = kept_nodes(dimension, n)
    S = len(Z)
    T = min(S, _CHOSEN.get(dimension, _MANY_CHOSEN)[small])
    distance = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
    kernel = np.exp(-0.5 * distance / _REACH**2) + 1.0
    left, factors, chosen = kernel.diagonal().copy(), np.zeros((0, S)), list[int]()
    for _ in range(T):
        i = int(np.argmax(np.where(np.isin(np.arange(S), chosen), -np.inf, left * weight)))
        column = (kernel[i] - factors.T @ factors[:, i]) / np.sqrt(max(left[i], 1e-12))
        factors, left = np.vstack([factors, column]), np.maximum(left - column**2, 0.0)
        chosen.append(i)
    index = np.sort(np.array(chosen, dtype=np.intp))
    k = np.exp(-0.5 * distance[:, index] / _REACH**2)
    system = np.ones((T + 1, T + 1))
    system[:T, :T] = k[index] + _NUGGET * np.eye(T)
    system[T, T] = 0.0
    A = np.linalg.solve(system, np.hstack([k, np.ones((S, 1))]).T)[:T].T
    return Rule(index, np.ascontiguousarray(A))


@dataclass(frozen=True, eq=False)
class NodeMixture:
    """The prediction of many members at nodes.  `shift` (K,) as of `Posterior.prediction`, `support` (2, F)."""

    members: tuple[Member, ...]
    shift: Vector | None = None
    support: Matrix | None = None

    def __call__(self, nodes: NDArray[np.float64], dimension: int) -> Prediction:
        """Return the prediction of n rows, integrated over their nodes (S, n, F) in so many dimensions."""
        return self._integrated(nodes, dimension, _ALONG_ONE if dimension == 1 else 1)

    def _integrated(self, nodes: NDArray[np.float64], dimension: int, fine: int) -> Prediction:
        kept, _, weight = kept_nodes(dimension, len(nodes))
        rules = [interpolation(dimension, len(nodes), small=small) for small in (False, True)]
        nodes = nodes[kept]
        share = np.repeat(weight[:, None], nodes.shape[1], axis=1)
        rows = np.empty(0, dtype=np.intp)
        if self.support is not None:
            low, high = self.support
            moved = CONSTANT * share * ((nodes < low) | (nodes > high)).any(axis=2)
            rows = np.flatnonzero(moved.sum(axis=0) > _LITTLE)
            share[:, rows] -= moved[:, rows]
        sums = self._sums(nodes, share, rules, fine)
        if rows.size:
            used = moved[:, rows].any(axis=1)
            for rule in rules:
                used[rule.chosen] = True
            inside = np.clip(nodes[np.ix_(used, rows)], low, high)
            fewer = [rule.of(used) for rule in rules]
            for total, part in zip(
                sums, self._sums(inside, moved[np.ix_(used, rows)], fewer, fine), strict=True
            ):
                total[rows] += part
        return of_moments(*sums)

    def at_points(self, X: Matrix, rough: NDArray[np.bool_] | None = None) -> Prediction:
        """Return the prediction at features X (N, F); of the `rough` rows (N,) only the activation's moments serve."""
        fine = np.arange(len(X)) if rough is None else np.flatnonzero(~rough)
        if len(fine) == len(X):
            return self._at_points(X, _AT_POINTS)
        moments = self._at_points(X, 1)
        return replaced(moments, fine, self._at_points(X[fine], _AT_POINTS)) if len(fine) else moments

    def _at_points(self, X: Matrix, fine: int) -> Prediction:
        return self._integrated(X[None], 0, fine)

    def by_dimension(
        self, parts: Iterable[tuple[NDArray[np.intp], NDArray[np.float64], int]], most: int
    ) -> Iterator[tuple[NDArray[np.intp], Prediction]]:
        """Yield rows and their predictions, of parts (rows, nodes, dimension), about `most` nodes at a time.

        Patterns are many and have few rows each: those that miss as many features are predicted together.
        """
        waiting: dict[tuple[int, int], list[tuple[NDArray[np.intp], NDArray[np.float64]]]] = {}
        for rows, nodes, dimension in parts:
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
        self, nodes: NDArray[np.float64], share: Matrix, rules: list[Rule], fine: int
    ) -> tuple[Matrix, ...]:
        S, n, F = nodes.shape
        K = self.members[0].posterior.problem.n_classes
        p, h, mean, second = np.zeros((n, K)), np.zeros(n), np.zeros((n, K)), np.zeros((n, K, K))
        flat = nodes.reshape(-1, F)
        inner = self._inner(S, fine)
        for alike in self._by_basis:
            Phi = self.members[alike[0]].design(flat)
            for i in alike:
                w, posterior = self.members[i].weight, self.members[i].posterior
                a = self._mean(i, Phi).reshape(S, n, K)
                rule = rules[w < _LARGE_SHARE]
                few = Phi.reshape(S, n, -1)[rule.chosen].reshape(len(rule.chosen) * n, -1)
                _, V = self._moments[i](few, single=True)
                T = _centred(self.members[i])
                if isinstance(posterior, SampledPosterior):
                    q, entropy = self._of_draws(posterior, Phi, share)
                else:
                    loads = np.einsum("kc,cdn->kdn", T, cholesky_factors(V))
                    q, entropy = _expected(a, loads, rule, inner[i], share)
                p += w * q
                h += w * entropy
                mean += w * np.einsum("sn,snk->nk", share, a)
                weighted = (share[:, :, None] * a).transpose(1, 2, 0)
                second += w * (weighted @ a.transpose(1, 0, 2))
                V = np.einsum("tn,tncd->ncd", rule.to_all.T @ share, V.reshape(-1, n, *V.shape[1:]))
                second += w * (T @ V @ T.T)
        return p, h, mean, second

    def _mean(self, i: int, Phi: Matrix) -> Matrix:
        """Return the mean activations (N, K) less their common shift."""
        q = self.members[i].posterior
        W = q.gaussian.mean.reshape(q.problem.likelihood.n_outputs, -1)
        a = Phi @ (_centred(self.members[i]) @ W).T
        return a if self.shift is None else a + (self.shift - self.shift.mean())

    def _of_draws(self, q: SampledPosterior, Phi: Matrix, share: Matrix) -> tuple[Matrix, Vector]:
        """Return E[p] (n, K) and E[H] (n,) over nodes and the draws of a sampled member."""
        p, entropy = draw_means(q.problem, Phi, q.draws, self.shift)
        return np.einsum("sn,snk->nk", share, p.reshape(*share.shape, -1)), np.einsum(
            "sn,sn->n", share, entropy.reshape(share.shape)
        )

    @cached_property
    def _moments(self) -> tuple[OutputMoments, ...]:
        posteriors = [m.posterior for m in self.members]
        return tuple(OutputMoments(q.gaussian, q.problem.likelihood.n_outputs) for q in posteriors)

    @cached_property
    def _by_basis(self) -> list[list[int]]:
        """Members of the same basis."""
        groups: dict[Any, list[int]] = {}
        for i, m in enumerate(self.members):
            groups.setdefault((_key(m.basis.to_dict()), m.columns), []).append(i)
        return list(groups.values())

    def _inner(self, S: int, fine: int) -> list[NDArray[np.float32]]:
        """Return each member's inner points, (S, C, J)."""
        C = [m.posterior.problem.likelihood.n_outputs for m in self.members]
        J = [fine * next(j for least, j in _INNER if m.weight >= least) for m in self.members]
        return _inner_points(S, tuple(C), tuple(J))


@lru_cache(maxsize=32)
def _inner_points(S: int, outputs: tuple[int, ...], sizes: tuple[int, ...]) -> list[NDArray[np.float32]]:
    total = sum(sizes) // 2 * S
    points = sobol_nodes(1 << (total - 1).bit_length(), max(outputs))
    order = np.random.default_rng(7).permutation(S)
    start, inner = 0, []
    for C, J in zip(outputs, sizes, strict=True):
        z = points[start : start + S * J // 2, :C].reshape(S, J // 2, C)[order]
        start += S * J // 2
        inner.append(
            np.ascontiguousarray(np.concatenate([z, -z], axis=1).transpose(0, 2, 1), dtype=np.float32)
        )
    return inner


def _expected(
    a: NDArray[np.float64], loads: Matrix, rule: Rule, inner: NDArray[np.float32], share: Matrix
) -> tuple[Matrix, Vector]:
    """Return E[p] (n, K) and E[H] (n,) of mean activations (S, n, K) and loads (K, C, T n) at the chosen nodes."""
    S, n, K = a.shape
    C, J = inner.shape[1:]
    few = np.ascontiguousarray(loads.reshape(K, C, -1, n).transpose(2, 3, 0, 1), dtype=np.float32)
    to_all = rule.to_all.astype(np.float32)
    p, entropy = np.empty((n, K)), np.empty(n)
    m = (a - a.max(axis=2, keepdims=True)).astype(np.float32)
    size = max(1, _NUMBERS // (S * K * J))
    for start in range(0, n, size):
        rows = slice(start, start + size)
        p[rows], entropy[rows] = _block(m[:, rows], few[:, rows], to_all, inner, share[:, rows] / J)
    return p, entropy


def _block(
    m: NDArray[np.float32],
    few: NDArray[np.float32],
    to_all: NDArray[np.float32],
    inner: NDArray[np.float32],
    weight: Matrix,
) -> tuple[Matrix, Vector]:
    """Return what `_expected` does of rows that stay in the cache: m (S, n, K), loads (T, n, K, C) at few nodes."""
    S, n, K = m.shape
    C, J = inner.shape[1:]
    m = np.ascontiguousarray(m.transpose(0, 2, 1))
    at_few = np.ascontiguousarray(few.transpose(0, 2, 1, 3)).reshape(len(few), -1)
    B = (to_all @ at_few).reshape(S, K * n, C)
    E = (B @ inner).reshape(S, K, n, J)
    E += m[..., None]
    ones = np.ones(J, dtype=np.float32)
    log_sum: Any = 0.0
    if (
        np.abs(B).max(initial=0.0) * np.abs(inner).max() * C > _NARROW
    ):  # e^a might overflow, or all of them vanish
        top = E.max(axis=1)
        E -= top[:, None]
        log_sum = top @ ones
    np.exp(E, out=E)
    total = E.sum(axis=1)
    E *= (1 / total)[:, None]
    log_sum = log_sum + np.log(total, out=total) @ ones
    points = np.concatenate([inner, np.ones((S, 1, J), dtype=np.float32)], axis=1).transpose(0, 2, 1)
    moments = (E.reshape(S, K * n, J) @ points).reshape(S, K, n, C + 1)
    p = moments[..., C]
    log_sum -= np.einsum("skn,skn->sn", m, p)
    log_sum -= np.einsum("sknc,sknc->sn", B.reshape(S, K, n, C), moments[..., :C])
    return np.einsum("skn,sn->nk", p, weight), np.einsum("sn,sn->n", log_sum, weight)


def _centred(member: Member) -> Matrix:
    """Return the activations (K, C) by the outputs, less their common shift."""
    transform = member.posterior.problem.transform
    return np.asarray(transform - transform.mean(axis=0))


def cholesky_factors(V: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return lower factors (C, C, N) of covariances (N, C, C), row after row of all of them at once.

    A pivot of nothing has a column of zeros.
    """
    C = V.shape[1]
    A = np.ascontiguousarray(V.transpose(1, 2, 0))
    L = np.zeros_like(A)
    for j in range(C):
        pivot = A[j, j] - np.einsum("kn,kn->n", L[j, :j], L[j, :j])
        root = np.sqrt(np.maximum(pivot, 0.0))
        L[j, j] = root
        inverse = np.divide(1.0, root, out=np.zeros_like(root), where=root > 1e-12)
        for i in range(j + 1, C):
            L[i, j] = (A[i, j] - np.einsum("kn,kn->n", L[i, :j], L[j, :j])) * inverse
    return L


def _key(value: Any) -> Any:
    """Return what is equal for equal stored bases."""
    if isinstance(value, dict):
        return tuple((name, _key(x)) for name, x in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_key(x) for x in value)
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
