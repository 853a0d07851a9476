"""Classes that the features cannot tell apart, the groups of classes that lose least, and a quick fit for a first look.

What probabilities know of a pair of classes j and k is, over the rows of the two,

    I_jk = Σ_n ln [p_nt / (p_nj + p_nk)] - ln [n_t / (n_j + n_k)],   t the class of row n,

in nats: their gain over the shares of the two.  To know all is n_jk H_jk, with the entropy H_jk of the two shares.  To
call the two one class loses I_jk of the information on the class, and nothing else.  So the pair of least I_jk is
joined, then that of the classes left, and so on, among the pairs that are known by less than a stated share.
Shapes: N rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix

APART = 0.1
"""Share of what tells two classes apart that the features have to know; pairs below it are joined."""
TAKEN = 0.1
"""Share of one of two classes that is taken for the other, below which they are not alike, however little is known."""
LEAST = 0.01
"""Share of the information on the class, of which probabilities that know less tell nothing of what is alike."""
_TINY = 1e-300


@dataclass(frozen=True)
class Grouping:
    """Groups of classes, as ascending indices, and the share that they keep of what the classes' probabilities know.

    `mistaken` has the pairs (j, k) of classes that are in one group, those with most mistaken rows first.  Each has the
    share of the rows of j for which k is the more probable of the two, and the share of the rows of k for which j is.
    """

    groups: tuple[tuple[int, ...], ...]
    kept: float
    mistaken: tuple[tuple[int, int, float, float], ...]


def group_classes(probability: ArrayLike, target: ArrayLike) -> Grouping:
    """Return the groups of classes that the probabilities of rows which no fit has seen cannot tell apart.

    Probabilities (N, K) that know nothing of the classes `target` (N,) join none: any groups would keep all that they
    know.  Classes are joined while some pair is known by less than the share `APART`, and one of them is taken for the
    other in `TAKEN` of its rows or more, and more than two are left.

    Examples
    --------
    >>> p = np.array([[0.4, 0.5, 0.1], [0.5, 0.4, 0.1], [0.1, 0.1, 0.8]]).repeat(10, axis=0)
    >>> group_classes(p, np.arange(3).repeat(10)).groups
    ((0, 1), (2,))
    """
    P, t = np.maximum(np.asarray(probability, dtype=np.float64), _TINY), np.asarray(target, dtype=np.intp)
    rows, K = np.arange(len(t)), P.shape[1]
    p, group = P.copy(), t.copy()  # the joined classes' probabilities, and the rows' groups
    n = np.bincount(t, minlength=K).astype(np.float64)
    left, members = np.flatnonzero(n).tolist(), [[k] for k in range(K)]
    whole, entropy_of_all = _information(P, t), _n_log_n(n.sum()) - _n_log_n(n).sum()
    if whole < LEAST * entropy_of_all:
        return Grouping(tuple((k,) for k in range(K)), 1.0, ())
    own = np.zeros((K, K))  # Σ ln [p_t / (p_j + p_k)] of the rows of j

    def count(j: int) -> None:
        """Compute row and column j of `own`."""
        of_j, mine = group == j, p[rows, group]
        own[j] = -np.log1p(p[of_j] / mine[of_j, None]).sum(axis=0)
        own[:, j] = np.bincount(group, weights=-np.log1p(p[:, j] / mine), minlength=K)
        own[j, j] = 0.0

    def mixed(j: int, k: int) -> bool:
        of_j, of_k = group == j, group == k
        return max(np.mean(p[of_j, k] >= p[of_j, j]), np.mean(p[of_k, j] >= p[of_k, k])) >= TAKEN

    for k in left:
        count(k)
    while len(left) > 2:
        both = n[:, None] + n
        entropy = _n_log_n(both) - _n_log_n(n)[:, None] - _n_log_n(n)
        known = own + own.T + entropy
        unknown = [(j, k) for j, k in combinations(left, 2) if known[j, k] < APART * entropy[j, k]]
        alike = [(known[j, k], j, k) for j, k in unknown if mixed(j, k)]
        if not alike:
            break
        _, j, k = min(alike)
        p[:, j] += p[:, k]
        p[:, k] = 0.0
        group[group == k] = j
        n[j], n[k] = n[j] + n[k], 0.0
        members[j], members[k] = sorted(members[j] + members[k]), []
        left.remove(k)
        count(j)
    kept = _information(p, group)
    groups = sorted(tuple(m) for m in members if m)

    def taken_for(j: int, k: int) -> float:
        return float(np.mean((P[:, k] > P[:, j])[t == j]))

    share = [(j, k, taken_for(j, k), taken_for(k, j)) for g in groups for j, k in combinations(g, 2)]
    counts = np.bincount(t, minlength=K)
    mistaken = sorted(share, key=lambda m: -min(m[2:]) * (counts[m[0]] + counts[m[1]]))
    return Grouping(tuple(groups), min(kept / whole, 1.0), tuple(mistaken))


def _information(p: Matrix, t: NDArray[np.intp]) -> float:
    """Return by how much probabilities (N, K) of the classes t (N,) are better than the classes' shares, in nats."""
    n = np.bincount(t)
    return float(np.log(p[np.arange(len(t)), t]).sum() - _n_log_n(n).sum() + n.sum() * np.log(n.sum()))


def _n_log_n(n: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(n * np.log(np.maximum(n, _TINY)), dtype=np.float64)


# A quick softmax, for a first look at many columns.

_CLOSE = 3e-4  # nats a row that the last step would gain
_MOST_STEPS = 50
_ROUNDING = 1e-6  # largest change of a weight that is none


def softmax_quickly(
    Phi: NDArray[np.float32], t: NDArray[np.intp], new: NDArray[np.float32], K: int, precision: float
) -> Matrix:
    """Return the probabilities (m, K) of new rows (m, M), near those of the most probable weights of a softmax.

    It has no posterior, works in single precision and imports no part of SciPy: with eight thousand rows and 28 classes
    `blr.fit` takes ten times as long or more.

    Phi (N, M) begins with the constant, whose weight is free; the others have the `precision`.  `t` (N,) are classes.

    Quasi-Newton steps (L-BFGS; Nocedal and Wright 2006, algorithm 7.4) begin at the classes' shares.  They are scaled
    by the Gram matrix times half the root of each class's share: between its curvature, which is the share's order,
    and the bound on it of 1/2, under which rare classes would take many steps.
    """
    rows, share = np.arange(len(t)), np.bincount(t, minlength=K) / len(t)
    pull = precision * (np.arange(Phi.shape[1]) > 0)
    inverse = np.linalg.inv(Phi.T @ Phi + precision * np.eye(Phi.shape[1]))
    scale = 2 / np.sqrt(np.maximum(share, 1 / len(t)))[:, None]

    def evaluated(W: Matrix) -> tuple[float, Matrix]:
        """Return ln p of the weights but for a constant, and its gradient (K, M)."""
        p = Phi @ W.T.astype(np.float32)
        p -= p.max(axis=1, keepdims=True)
        value = p[rows, t].sum(dtype=float)
        np.exp(p, out=p)
        total = p.sum(axis=1, keepdims=True)
        value -= np.log(total).sum(dtype=float) + 0.5 * float((pull * W**2).sum())
        p /= total
        p[rows, t] -= 1
        return value, -np.asarray(p.T @ Phi, dtype=float) - pull * W

    W = np.zeros((K, Phi.shape[1]))
    W[:, 0] = np.log(np.maximum(share, 1 / len(t)))
    value, gradient = evaluated(W)
    changes: list[tuple[Matrix, Matrix, float]] = []
    for _ in range(_MOST_STEPS):
        step, shares = gradient, []
        for s, y, rho in reversed(changes):
            shares.append(rho * float((s * step).sum()))
            step = step - shares[-1] * y
        step = scale * (step @ inverse)
        for (s, y, rho), used in zip(changes, reversed(shares), strict=True):
            step += (used - rho * float((y * step).sum())) * s
        if float((step * gradient).sum()) < _CLOSE * len(t):
            break
        after, slope = evaluated(W + step)
        while after < value and np.abs(step).max() > _ROUNDING:
            step /= 2
            after, slope = evaluated(W + step)
        if (curvature := float((step * (gradient - slope)).sum())) > 0:
            changes.append((step, gradient - slope, 1 / curvature))
        W, value, gradient = W + step, after, slope
    a = new @ W.T
    p = np.exp(a - a.max(axis=1, keepdims=True))
    return np.asarray(np.clip(p / p.sum(axis=1, keepdims=True), 1e-9, 1.0))
