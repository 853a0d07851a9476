"""Trees as basis functions: the logits of a small forest of randomised trees.

A forest is learnt from the labels, so its logits of the rows that it has seen are too sure.  A fit therefore uses the
out-of-bag logits, each the mean of the trees that were grown without the row's group (Breiman 1996, "Out-of-bag
estimation").  New rows are averaged over all trees.  With `linear`, the features themselves are functions too.

Boosted trees are grown one after the other, each on the gradient of the log likelihood that those before have left
(Friedman 2001, doi:10.1214/aos/1013203451), its leaves by one Newton step.  The groups are in five folds; a fifth of
the trees is grown without each, and gives the out-of-fold logits of its rows.  New rows get the mean of the five sums.

Trees are grown on the class shares of the rows (Geurts et al. 2006, doi:10.1007/s10994-006-6226-1, for random
thresholds; Breiman 2001, doi:10.1023/A:1010933404324, for the best of a few features), each in one call of the compiled
loops: the import of scikit-learn takes longer than most trainings.
Shapes: N rows, F features, K classes, T trees, m nodes, L leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.basis.base import Basis, Standardisation, whole

_IN_BAG = 0.632  # share of the groups that a bootstrap draw of them contains
_STEP = 0.25  # standard deviations on each side, over which slopes are taken: trees have none at a point
_FEW_ROWS, _MANY_ROWS = 400, 2000  # where the smallest leaves of a forest and of boosted trees change
_FEW = 3  # sets up to which rows go down the trees one by one
_FOLDS = 5  # of the groups, for boosted trees
# Of boosted trees: share of a step, added curvature, and the least and the most of their leaves, N / 16 between.
_RATE, _RIDGE = 0.2, 1.0
_LEAVES = 16, 128
# Places between features: 32 of them are read beyond the last row, and values of a row would else share a place in the
# first cache.
_APART = 48
_SPLITS = ("random", "best")
_STORED: dict[str, type] = {
    **dict.fromkeys(("feature", "child", "root"), np.int32),
    **dict.fromkeys(("threshold", "value"), np.float32),
    **dict.fromkeys(("centre", "spread"), np.float64),
}
_WORD = (1 << 64) - 1
_ROUNDING = 1e-9  # share of a score by which another one is above it: of equal ones the first counts


@dataclass(frozen=True, eq=False)
class Forest(Basis):
    """Logits of a forest or of boosted trees, standardised; before them the features if `linear`.

    Node i tests whether the feature `feature[i]` exceeds `threshold[i]`: its children are `child[i]` and, if so, the
    next node.  A leaf is its own child; the leaves' class probabilities are the rows of `value` (L, K) in the order of
    the nodes, or their logits (L, C) where the trees are `boosted`.  Tree t begins at node `root[t]`.  `centre` and
    `spread` (C,) standardise the logits.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    child: NDArray[np.int32]
    value: NDArray[np.float32]
    root: NDArray[np.int32]
    centre: Vector
    spread: Vector
    linear: bool = False
    boosted: bool = False
    out_of_bag: Matrix | None = field(default=None, kw_only=True, repr=False)
    """Standardised logits (N, C) of the rows that the forest was fitted to; None once it was stored."""

    kind = "forest"
    learnt_from_labels: ClassVar[bool] = True
    not_stored: ClassVar[tuple[str, ...]] = ("out_of_bag",)

    def __post_init__(self) -> None:
        for name, dtype in _STORED.items():
            self._keep(name, getattr(self, name), dtype)
        m = len(self.feature)
        nodes, leaf = np.arange(m), self.child == np.arange(m)
        inner = self.child[~leaf]
        whole_trees = (
            self.threshold.shape == self.child.shape == (m,)
            and self.value.ndim == 2
            and len(self.value) == leaf.sum()
            and np.all((self.feature >= 0) & (self.feature < self.n_features))
            and np.all((inner > nodes[~leaf]) & (inner < m - 1))
            and np.all(self.threshold[leaf] == np.inf)
            and len(self.root)
            and np.all((self.root >= 0) & (self.root < m))
        )
        if not whole_trees or self.centre.shape != self.spread.shape or not np.all(self.spread > 0):
            raise ValueError(
                f"expected trees whose nodes lead on to later ones and end in {leaf.sum()} leaves, got arrays that do "
                "not fit together; make them with fit_basis('forest', X, labels=..., rng=...)"
            )

    @classmethod
    def fit(
        cls,
        X: Matrix,
        *,
        labels: ArrayLike,
        rng: Generator,
        weight: Vector | None = None,
        group: ArrayLike | None = None,
        trees: int = 64,
        split: str = "random",
        leaf: int | None = None,
        linear: bool = False,
        boosted: bool = False,
    ) -> Forest:
        """Return the logits of `trees` trees, grown on bootstrap draws of the groups of rows of X (N, F), or `boosted`.

        `labels` are classes (N,) from 0 on, or shares or votes (N, K).  `group` (N,) has equal numbers where rows
        belong together; by default each row is its own.  The thresholds are drawn at "random", or the "best" of √F
        features.  `leaf` is the smallest number of rows of a leaf: 3, or 2 from 400 rows on;
        of boosted trees 1, or 2 from 2,000 rows on.
        """
        if split not in _SPLITS:
            raise ValueError(f"split must be one of {', '.join(_SPLITS)}, got {split!r}")
        # A forest's smallest leaf shrinks as rows become more; that of boosted trees grows.
        own = 1 + (len(X) >= _MANY_ROWS) if boosted else 2 + (len(X) < _FEW_ROWS)
        number, smallest = whole(trees, "trees"), whole(leaf or own, "leaf")
        standardisation = Standardisation.learn(X, weight=weight)
        Z, shares = standardisation(X).astype(np.float32), _shares(labels, len(X))
        of_row = np.arange(len(Z)) if group is None else np.unique(np.asarray(group), return_inverse=True)[1]
        most = int(np.sqrt(Z.shape[1])) if split == "best" else 0
        grow = partial(_tree, np.ascontiguousarray(Z.T), most, smallest)
        grown, a = (_boosted if boosted else _bagged)(grow, shares, weight, of_row, number, rng)
        centre, spread = a.mean(axis=0), np.maximum(a.std(axis=0), 1e-9)
        return cls(
            standardisation,
            *_stacked(grown),
            centre,
            spread,
            bool(linear),
            bool(boosted),
            out_of_bag=(a - centre) / spread,
        )

    def training_design(self, X: ArrayLike) -> Matrix:
        """Return Φ (N, M) of the rows that the forest was fitted to, with their out-of-bag logits.

        RuntimeError if the basis was stored, which leaves these logits out, or X has another number of rows.
        """
        Phi = self(X)
        if self.out_of_bag is None or len(self.out_of_bag) != len(Phi):
            raise RuntimeError(
                f"a forest keeps the out-of-bag logits of its {0 if self.out_of_bag is None else len(self.out_of_bag)} "
                f"rows until it is stored, got {len(Phi)} rows; fit the basis again to the rows of this fit"
            )
        Phi[:, -len(self.centre) :] = self.out_of_bag
        return Phi

    def logits(self, Z: Matrix, sets: int = 1) -> Matrix:
        """Return the logits (n, C) of standardised features Z (n, F), before they are standardised themselves.

        `sets` of equally many rows lie one behind the other in Z, as in `of_standardised`.
        """
        return self._of_means(self.leaf_means(Z, sets))

    def _of_means(self, mean: Matrix) -> Matrix:
        return mean if self.boosted else _logits(mean, len(self.root))

    def leaf_means(self, Z: Matrix, sets: int = 1, trees: NDArray[np.intp] | slice = slice(None)) -> Matrix:
        """Return the mean (n, K) over all trees of the leaves' values at Z (n, F), with 0 for others than `trees`."""
        sets = sets if sets > _FEW else 1
        n, K = len(Z) // sets, self.value.shape[1]
        if compiled.loops is not None:
            # The points that a row has in the sets lie side by side, in whole eights: they go down the trees together.
            places = 1 if sets == 1 else -(-sets // 8) * 8
            X = np.empty((self.n_features, n * places + _APART), np.float32)
            points = X[:, : n * places].reshape(-1, n, places)
            points[:, :, :sets] = Z.reshape(sets, n, -1).transpose(2, 1, 0)
            points[:, :, sets:] = points[:, :, sets - 1 : sets]
            out = np.zeros((n, K, sets))
            compiled.loops.forest_sums(X, self._packed, self.value, self.root[trees], self._depth[trees], out)
            sums = out.transpose(2, 0, 1).reshape(-1, K)
        else:
            X = Z.T.astype(np.float32)
            rows, sums = np.arange(len(Z)), np.zeros((len(Z), K))
            for root, depth in zip(self.root[trees], self._depth[trees], strict=True):
                at = np.full(len(Z), root)
                for _ in range(depth):
                    at = self.child[at] + (X[self.feature[at], rows] > self.threshold[at])
                sums += self.value[self._packed[at, 3]]
        return sums / len(self.root)

    def of_standardised(self, Z: Matrix, sets: int = 1) -> Matrix:
        """Return Φ (N, M) of standardised features Z (N, F), as every basis does; rows of many sets take less time."""
        if sets == 1:
            return super().of_standardised(Z)
        Phi = np.empty((len(Z), self.n_functions))
        Phi[:, 0] = 1
        self._fill(Phi, Z, self.logits(Z, sets))
        return Phi

    @cached_property
    def _packed(self) -> NDArray[np.int32]:
        """Feature, the bits of the threshold, child and number of the leaf of each node, (m, 4)."""
        leaf = np.cumsum(self.child == np.arange(len(self.child))) - 1
        columns = self.feature, self.threshold.view(np.int32), self.child, leaf
        return np.stack([c.astype(np.int32) for c in columns], axis=1)

    @cached_property
    def _depth(self) -> NDArray[np.int32]:
        """Number of tests to the deepest leaf of each tree, (T,)."""
        depth, at, tree, level = np.zeros(len(self.root), np.int32), self.root, np.arange(len(self.root)), 0
        while (inner := self.child[at] != at).any():
            at, tree, level = self.child[at[inner]], tree[inner], level + 1
            depth[tree] = level
            at, tree = np.concatenate([at, at + 1]), np.concatenate([tree, tree])
        return depth

    def _evaluate(self, Z: Matrix, out: Matrix) -> None:
        self._fill(out, Z, self.logits(Z))

    def _fill(self, out: Matrix, Z: Matrix, logits: Matrix) -> None:
        if self.linear:
            out[:, 1 : 1 + self.n_features] = Z
        out[:, -len(self.centre) :] = (logits - self.centre) / self.spread

    def _derivative(self, Z: Matrix, out: Matrix) -> None:
        C, n, whole = len(self.centre), len(Z), self.leaf_means(Z)
        for f, trees in enumerate(self._trees_of):
            if self.linear:
                out[:, 1 + f, f] = 1
            moved = np.concatenate([Z, Z, Z])
            moved[n : 2 * n, f] -= _STEP
            moved[2 * n :, f] += _STEP
            here, below, above = self.leaf_means(moved, 3, trees).reshape(3, n, -1)
            rise = self._of_means(whole - here + above) - self._of_means(whole - here + below)
            out[:, -C:, f] = rise / (2 * _STEP * self.spread)

    @cached_property
    def _trees_of(self) -> list[NDArray[np.intp]]:
        """The trees that ask for each feature."""
        inner = np.flatnonzero(self.child != np.arange(len(self.child)))
        order = np.argsort(self.root, kind="stable")
        tree = order[np.searchsorted(self.root[order], inner, side="right") - 1]
        return [np.unique(tree[self.feature[inner] == f]) for f in range(self.n_features)]

    def _names(self, features: Sequence[str]) -> Sequence[str]:
        C = len(self.centre)
        own = ["trees"] if C == 1 else [f"trees for class {k + 1}" for k in range(C)]
        return [*(features if self.linear else ()), *own]


def _shares(labels: ArrayLike, n: int) -> Matrix:
    """Return the class shares (N, K) of labels (N,) from 0 on, or of shares or votes (N, K)."""
    t = np.asarray(labels)
    if len(t) != n:
        raise ValueError(f"got {len(t)} labels of {n} rows; give one label, or row of shares, for each row")
    if t.ndim == 1:
        k = t.astype(np.intp)
        return np.eye(max(int(k.max(initial=0)) + 1, 2))[k]
    return np.asarray(t / t.sum(axis=1, keepdims=True), dtype=np.float64)


def _logits(p: Matrix, trees: int) -> Matrix:
    """Return the log of shares p (n, K) of some trees, all above 0: (n, 1) of two classes, else (n, K).

    Both the bag's and all trees' shares are smoothed as those of the trees outside a bag.
    """
    outside = (1 - _IN_BAG) * trees
    a = np.log((p * outside + 1 / p.shape[1]) / (outside + 1))
    return a[:, 1:] - a[:, :1] if p.shape[1] == 2 else a


_Nodes = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]
"""Feature, threshold and child of the nodes (m,) of a tree, as `Forest` stores them."""
_Grown = tuple[_Nodes, Vector, Matrix, NDArray[np.int32]]
"""A tree's nodes, the weight (m,) and the sum of the weighted targets (m, C) in each, and where each row (N,) ends."""


def _bagged(
    grow: Callable[..., _Grown],
    shares: Matrix,
    weight: Vector | None,
    of_row: NDArray[np.intp],
    number: int,
    rng: Generator,
) -> tuple[list[tuple[_Nodes, Matrix]], Matrix]:
    """Return trees with the class shares in each node, and the rows' out-of-bag logits (N, C).

    The rows have class shares (N, K); `of_row` (N,) numbers their groups from 0 on.
    """
    total, count, grown = np.zeros_like(shares), np.zeros(len(shares)), []
    w, n_groups = np.ones(len(shares)) if weight is None else weight, int(of_row.max(initial=0)) + 1
    for seed in rng.integers(2**31 - 1, size=number).tolist():
        drawn = np.bincount(rng.integers(n_groups, size=n_groups), minlength=n_groups)[of_row]
        own = drawn * w
        if not own.any():  # few rows have a weight: this tree sees them all
            drawn, own = np.ones_like(drawn), w
        nodes, in_node, sums, at = grow(seed, shares, own)
        value, unseen = sums / in_node[:, None], drawn == 0
        total[unseen] += value[at[unseen]]
        count[unseen] += 1
        grown.append((nodes, value))
    # A row that each tree has seen, as of a catalogue with one group, has the shares of all rows.
    mean = np.average(shares, axis=0, weights=weight)
    bag = np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], mean)
    return grown, _logits(bag, number)


def _boosted(
    grow: Callable[..., _Grown],
    shares: Matrix,
    weight: Vector | None,
    of_row: NDArray[np.intp],
    number: int,
    rng: Generator,
) -> tuple[list[tuple[_Nodes, Matrix]], Matrix]:
    """Return boosted trees with the logits of each node, and the rows' out-of-fold logits (N, C); see `_bagged`."""
    n_groups = int(of_row.max(initial=0)) + 1
    w = np.ones(len(shares)) if weight is None else weight / weight.mean()
    start = np.log(np.average(shares, axis=0, weights=w) + 1 / len(shares))[:, None]
    two = len(start) == 2
    t, start = (shares.T[1:], start[1:] - start[:1]) if two else (shares.T, start)
    fold, rounds = (rng.permutation(n_groups) % _FOLDS)[of_row], -(-number // _FOLDS)
    unseen, grown, leaves = np.zeros(t.shape), [], int(np.clip(len(shares) // 16, *_LEAVES))
    for k in range(min(_FOLDS, n_groups)):
        own = w * (fold != k)
        known = own.any()
        if not known:  # no row is left to learn from: the fold keeps the shares of all rows
            own = w
        a = np.zeros(t.shape)
        for seed in rng.integers(2**31 - 1, size=rounds).tolist():
            p = scipy.special.expit(a + start) if two else scipy.special.softmax(a + start, axis=0)
            nodes, in_node, sums, at = grow(seed, (t - p).T, own, leaves)
            curvature = own * p * (1 - p)
            h = np.stack([np.bincount(at, row, len(in_node)) for row in curvature], axis=1)
            value = _RATE * sums / (h + _RIDGE)
            a += value.T[:, at]
            grown.append((nodes, value * rounds))
        if known:
            unseen[:, fold == k] = a[:, fold == k]
    return grown, np.ascontiguousarray(unseen.T)


def _tree(
    X: NDArray[np.float32],
    most: int,
    smallest: int,
    seed: int,
    target: Matrix,
    weight: Vector,
    leaves: int = 0,
) -> _Grown:
    """Return a tree on features X (F, N) and targets (N, C) of the rows whose weight (N,) is above 0.

    The thresholds are the best of `most` features; 0: they are drawn.  With `leaves` it has so many at most, and the
    node that gains most is split next.
    """
    options = np.array([seed, most, smallest, leaves], np.int32)
    C = target.shape[1]
    wide = np.zeros((len(target), -(-(1 + C) // 4) * 4))
    wide[:, 0], wide[:, 1 : 1 + C] = 1, target
    m = 2 * (leaves or int(np.count_nonzero(weight))) - 1
    feature, threshold, child = np.empty(m, np.int32), np.empty(m, np.float32), np.empty(m, np.int32)
    sums, at = np.empty((m, wide.shape[1])), np.empty(len(target), np.int32)
    grow = _grow if compiled.loops is None else compiled.loops.grow_tree
    n = grow(X, wide, weight, options, feature, threshold, child, sums, at)
    return (feature[:n], threshold[:n], child[:n]), sums[:n, 0], sums[:n, 1 : 1 + C], at


def _grow(
    X: NDArray[np.float32],
    target: Matrix,
    weight: Vector,
    options: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: NDArray[np.float32],
    child: NDArray[np.int32],
    sums: Matrix,
    at: NDArray[np.int32],
) -> int:
    """Grow a tree as `grow_tree` of the compiled loops does; return the number of nodes."""
    seed, most, least, leaves = options.tolist()
    order = np.arange(len(X))
    growing = _Growing(X, target, weight, most, least, seed, feature, threshold, child, sums, order)
    growing.add(np.flatnonzero(weight > 0))
    n_leaves, gain = 1, growing.gain
    while not leaves or n_leaves < leaves:
        node = _first_highest(np.array(gain)) if leaves else int(np.argmax(np.array(gain) >= 0))
        if gain[node] < 0:
            break
        growing.split(node)
        n_leaves += 1
    n = len(gain)
    leaf = child[:n] == np.arange(n)  # even if it could be split
    feature[:n][leaf], threshold[:n][leaf] = 0, np.inf
    at[:] = 0
    while (inner := child[at] != at).any():
        node = at[inner]
        at[inner] = child[node] + (X[feature[node], np.flatnonzero(inner)] > threshold[node])
    return n


@dataclass(eq=False)
class _Growing:
    """The twin of `Tree` of `loops/trees.h`, which says what its numbers are."""

    X: NDArray[np.float32]
    target: Matrix
    weight: Vector
    most: int
    least: int
    state: int
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    child: NDArray[np.int32]
    sums: Matrix
    order: NDArray[np.intp]
    rows: list[NDArray[np.intp]] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)

    def drawn(self) -> float:
        """Return a number of splitmix64, from 0 to below 1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _WORD
        z = ((self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    def split(self, node: int) -> None:
        """Add the two children of a node."""
        left = self.X[self.feature[node]][self.rows[node]] <= self.threshold[node]
        self.child[node], self.gain[node] = len(self.rows), -1.0
        for side in (left, ~left):
            self.add(self.rows[node][side])

    def add(self, own: NDArray[np.intp]) -> None:
        """Add a node, sum the targets of its rows, and find its best split."""
        node, target, X = len(self.rows), self.target[own], self.X
        self.rows.append(own)
        self.gain.append(-1.0)
        self.child[node], self.sums[node] = node, self.weight[own] @ target
        if len(own) < 2 * self.least or (target == target[0]).all():
            return
        best, varying = -1.0, 0
        for k in range(len(X)):
            if self.most and k >= self.most and varying:
                break
            if self.most:
                chosen = k + int(self.drawn() * (len(X) - k))
                self.order[[k, chosen]] = self.order[[chosen, k]]
            x = X[self.order[k]][own]
            if x.min() == x.max():
                continue
            varying += 1
            score, threshold = self._tried(node, x)
            if score > best + _ROUNDING * abs(best):
                best, self.threshold[node], self.feature[node] = score, threshold, self.order[k]
        if best >= 0:
            w, sums = self.sums[node, 0], self.sums[node, 1:]
            self.gain[node] = max(best - float(sums @ sums) / w, 0.0)

    def _tried(self, node: int, x: NDArray[np.float32]) -> tuple[float, float]:
        """Return the score and the threshold of a split where a feature has values x; a score of -1 if none may be."""
        by_value = np.argsort(x, kind="stable")
        ordered, own = x[by_value], self.rows[node][by_value]
        if self.most:
            ends = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
            half = ordered[ends - 1] + (ordered[ends] - ordered[ends - 1]) / 2
            cuts = np.where(half < ordered[ends], half, ordered[ends - 1])
        else:
            low, high = float(x.min()), float(x.max())
            cut = np.float32(low + self.drawn() * (high - low))
            cuts = np.array([cut if cut < x.max() else x.min()])
            ends = np.searchsorted(ordered, cuts, side="right")
        allowed = (ends >= self.least) & (ends <= len(x) - self.least)
        if not allowed.any():
            return -1.0, 0.0
        left = np.cumsum(self.weight[own, None] * self.target[own], axis=0)[ends[allowed] - 1]
        sides = (left, self.sums[node] - left)
        score = sum(np.square(side[:, 1:]).sum(axis=1) / side[:, 0] for side in sides)
        best = _first_highest(np.asarray(score))
        return float(np.asarray(score)[best]), float(cuts[allowed][best])


def _first_highest(score: Vector) -> int:
    return int(np.argmax(score >= score.max() - _ROUNDING * abs(score.max())))


def _stacked(
    grown: Sequence[tuple[_Nodes, Matrix]],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return feature, threshold, child, the leaves' value, and root of all trees."""
    root = np.cumsum([0, *(len(child) for (_, _, child), _ in grown)])[:-1]
    feature, threshold, child = (np.concatenate(x) for x in zip(*(nodes for nodes, _ in grown), strict=True))
    leaves = [value[child == np.arange(len(child))] for (_, _, child), value in grown]
    starts = np.repeat(root, [len(child) for (_, _, child), _ in grown])
    return feature, threshold, child + starts, np.concatenate(leaves), root
