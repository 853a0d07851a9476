"""E[softmax(a)] and E[H] over activations whose moments are known at nodes, each node with inner points of its own.

A row's activations at node s are m_s + B_s z, z standard normal with few inner points: their errors average out over
the nodes.  Single precision.  Shapes: S nodes of n rows, T of them with loads, K classes, C outputs, J inner points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.missing.nodes import normal_nodes
from blr.predictive._cubature import normal_nodes as sobol_nodes
from blr.predictive.binary import binary_integrals

_LANES = 8  # inner points come in whole vectors, of which none is left in part
# Points of a lattice, over two outputs, from which it errs less than as many of a Sobol sequence.
_RESOLVED = 24
# Load of one output, half the logit's sd, from which few inner points do not resolve the sigmoid.
_WIDEST = 2.0
_NUMBERS = 2**18  # activations at inner points held at a time


@dataclass(frozen=True, eq=False)
class InnerPoints:
    """Points (S, C, J) and their weights (J,), in single precision."""

    z: NDArray[np.float32]
    weight: NDArray[np.float32]


@lru_cache(maxsize=64)
def inner_points(S: int, outputs: Sequence[int], sizes: Sequence[int]) -> list[InnerPoints]:
    """Return the inner points of members with so many outputs C and about so many points J a node; both are tuples.

    Of one output they are those of the trapezoid rule.  Of more they are stretches of one Sobol sequence, each point
    with its mirror image.
    """
    sizes = [-(-J // _LANES) * _LANES for J in sizes]
    total = max(2, sum(sizes) // 2 * S)
    points = sobol_nodes(1 << (total - 1).bit_length(), max(outputs))
    order = np.random.default_rng(7).permutation(S)
    start, inner = 0, []
    for C, J in zip(outputs, sizes, strict=True):
        half = points[start : start + S * J // 2, :C].reshape(S, J // 2, C)[order]
        start += S * J // 2
        if C == 1 or (C == 2 and J >= _RESOLVED and S > 1):
            nodes, weight = normal_nodes(C, J)
            z = np.repeat(nodes.T[None], S, axis=0)
        else:
            z, weight = np.concatenate([half, -half], axis=1).transpose(0, 2, 1), np.full(J, 1 / J)
        inner.append(InnerPoints(np.ascontiguousarray(z, dtype=np.float32), weight.astype(np.float32)))
    return inner


@dataclass(frozen=True, eq=False)
class MixtureSums:
    """Sums over the parts of a mixture: p (n, K), H (n,), a (n, K) and a a' (n, K, K), each times the part's share."""

    p: Matrix
    entropy: Vector
    mean: Matrix
    second: NDArray[np.float64]

    @classmethod
    def zeros(cls, n: int, K: int) -> MixtureSums:
        """Return the sums of nothing, of n rows and K classes."""
        return cls(np.zeros((n, K)), np.zeros(n), np.zeros((n, K)), np.zeros((n, K, K)))

    def rows(self, chosen: slice) -> MixtureSums:
        """Return a view of some rows."""
        return MixtureSums(*(x[chosen] for x in vars(self).values()))

    def add(
        self,
        m: NDArray[np.float64],
        few: NDArray[np.float64],
        to_all: Matrix,
        inner: InnerPoints,
        share: Matrix,
    ) -> None:
        """Add activations at nodes, each as often as `share` (S, n) says.

        Parameters
        ----------
        m
            Mean activations (S, n, K).
        few, to_all
            Loads at some of the nodes (T, n, K, C), and what takes them to all, (S, T).
        inner
            The inner points of the S nodes.
        """
        S, n, K = m.shape
        B = (to_all @ few.reshape(len(few), -1)).reshape(S, *few.shape[1:])
        of_one_output = few.shape[3] == 1
        wide = np.flatnonzero(of_one_output & (np.abs(few).max(axis=(0, 2, 3)) > _WIDEST))
        if len(wide):
            self._add_wide(m[:, wide], B[:, wide], share[:, wide], wide)
            share = share.copy()
            share[:, wide] = 0.0
        if compiled.loops is not None and K <= compiled.MOST_OUTPUTS:
            arrays = np.ascontiguousarray(m), B, inner.z, inner.weight, np.ascontiguousarray(share)
            compiled.loops.softmax_mixture(*arrays, self.p, self.entropy, self.mean, self.second)
            return
        size = max(1, _NUMBERS // (S * K * inner.z.shape[2]))
        for start in range(0, n, size):
            rows = slice(start, start + size)
            p, entropy = _in_numpy(m[:, rows], B[:, rows], inner, share[:, rows])
            self.p[rows] += p
            self.entropy[rows] += entropy
        self.add_moments(m, B, share)

    def add_draws(
        self, m: NDArray[np.float64], B: NDArray[np.float64], a: NDArray[np.float32], share: Matrix
    ) -> None:
        """Add p and H alone of activations at nodes (S, n), whose outputs have the draws a (S, n, C, J).

        Few draws know the mean and the covariance badly: each row's are moved to the mean m (S, n, K) and the
        covariance of the loads B (S, n, K, C).  J is a multiple of 8.
        """
        J = a.shape[3]
        if compiled.loops is not None and m.shape[2] <= compiled.MOST_OUTPUTS:
            arrays = np.ascontiguousarray(m), np.ascontiguousarray(B), a, np.full(J, 1 / J, np.float32)
            compiled.loops.softmax_draws(*arrays, np.ascontiguousarray(share), self.p, self.entropy)
            return
        away = a - a.mean(axis=3, keepdims=True)
        V = np.einsum("sncj,sndj->sncd", away, away).astype(np.float64) / J
        L = cholesky_factors(V.reshape(-1, *V.shape[2:])).transpose(2, 0, 1).reshape(V.shape)
        flat = np.einsum("sncc->snc", L) == 0
        away[flat] = 0.0
        np.einsum("sncc->snc", L)[flat] = 1.0
        y = m[..., None] + B @ np.linalg.solve(L, away)
        y -= y.max(axis=2, keepdims=True)
        total = np.log(np.exp(y).sum(axis=2, keepdims=True))
        p = np.exp(y - total)
        np.add(self.p, np.einsum("snkj,sn->nk", p, share) / J, out=self.p)
        entropy = total[:, :, 0] - (p * y).sum(axis=2)
        np.add(self.entropy, np.einsum("snj,sn->n", entropy, share) / J, out=self.entropy)

    def _add_wide(
        self, m: NDArray[np.float64], B: NDArray[np.float64], share: Matrix, rows: NDArray[np.intp]
    ) -> None:
        """Add two classes of some rows by the integral of their logit that is exact for any variance."""
        logit, sd = m[:, :, 1] - m[:, :, 0], B[:, :, 1, 0] - B[:, :, 0, 0]
        p, entropy = (x.reshape(share.shape) for x in binary_integrals(logit.ravel(), sd.ravel() ** 2))
        self.p[rows] += np.stack([(share * (1 - p)).sum(axis=0), (share * p).sum(axis=0)], axis=1)
        self.entropy[rows] += (share * entropy).sum(axis=0)
        own = MixtureSums.zeros(len(rows), 2)
        own.add_moments(m, B, share)
        self.mean[rows] += own.mean
        self.second[rows] += own.second

    def add_moments(self, m: NDArray[np.float64], B: NDArray[np.float64], share: Matrix) -> None:
        """Add the moments alone of activations at nodes, of loads B (S, n, K, C)."""
        np.add(self.mean, np.einsum("sn,snk->nk", share, m), out=self.mean)
        parts = np.concatenate([m[..., None], B], axis=3)
        weighted = (parts * share[:, :, None, None]).transpose(1, 2, 0, 3).reshape(*self.mean.shape, -1)
        parts = parts.transpose(1, 0, 3, 2).reshape(len(self.mean), -1, self.mean.shape[1])
        np.add(self.second, weighted @ parts, out=self.second)


def _in_numpy(
    m: NDArray[np.float64], B: NDArray[np.float64], inner: InnerPoints, share: Matrix
) -> tuple[Matrix, Vector]:
    """Return the sums of p (n, K) and H (n,) of rows that stay in the cache; m (S, n, K), B (S, n, K, C)."""
    z, weight = inner.z, inner.weight
    B = B.astype(np.float32)
    centred = (m - m.max(axis=2, keepdims=True)).astype(np.float32)
    E = B @ z[:, None] + centred[..., None]
    top = E.max(axis=2)
    E -= top[:, :, None]
    np.exp(E, out=E)
    total = E.sum(axis=2)
    E *= (1 / total)[:, :, None]
    y = E @ weight
    loaded = E @ (z * weight).transpose(0, 2, 1)[:, None]
    entropy = (top + np.log(total)) @ weight
    entropy -= np.einsum("snk,snk->sn", centred, y) + np.einsum("snkc,snkc->sn", B, loaded)
    return np.einsum("snk,sn->nk", y, share), np.einsum("sn,sn->n", entropy, share)


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
