"""Decision boundaries C_c as curves: where the probability of a class is c, or where two classes tie.

Over two features, the others held fixed.  Three kinds: of the plug-in probability, for a linear basis straight lines;
of weights drawn from the posterior, whose spread is what moderation averages over; of the moderated probability,
whose levels other than 1/2 bend away from the data (MacKay 1992, doi:10.1162/neco.1992.4.5.720).

A grid finds the curves, and each of their points, which lies on an edge between two nodes of opposite sign, is then
solved for along that edge, to 1e-9 in probability (of more than two moderated classes, to the accuracy of their
integral, which may jump where its nodes change).  Between the points a curve is as far off as the grid is coarse.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from contourpy import LineType, contour_generator
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector
from blr.basis.base import Basis
from blr.likelihood.likelihoods import LINKS
from blr.posterior.kinds import Posterior
from blr.predictive.softmax import softmax_plugin

Probability = Callable[[Matrix], Matrix]
Extent = tuple[float, float, float, float]
_TINY = 1e-300  # keeps logarithms finite; far below any level
_ROOT = 1e-9  # of a log odds: the probability's error is at most a quarter of it
_MOST_STEPS = 100


def decision_boundary(
    q: Posterior,
    basis: Basis,
    level: float = 0.5,
    *,
    kind: str = "plugin",
    of: int | None = None,
    axes: tuple[int, int] = (0, 1),
    at: ArrayLike | None = None,
    extent: Extent | None = None,
    resolution: int = 200,
    n_samples: int = 20,
    rng: np.random.Generator | None = None,
) -> list[Matrix]:
    """Return the curves on which a class has probability `level`, each (n, 2), in the units of the features.

    Parameters
    ----------
    q, basis
        The posterior of the weights, and the basis that its design matrix is of.
    kind
        "plugin", "moderated", or "sampled": the curves of all of `n_samples` draws of the weights with `rng`.
    of
        Index of the class; for two classes the second.  For more, None gives the ties of the two largest
        probabilities, whatever `level`.
    axes, at
        The two features drawn, and the values (F,) of the others; None: the training means.
    extent
        x from, x to, y from, y to; None: three sd about the training means.
    resolution
        Grid nodes a side.  Curves closer together than its cells are missed.

    Raises
    ------
    ValueError
        If level, kind, axes, extent or class cannot be, or "sampled" curves get no `rng`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> basis = blr.fit_basis("linear", X)
    >>> (line,) = blr.decision_boundary(blr.fit_evidence(basis(X), t), basis, 0.5, resolution=20)
    >>> line.shape[1]
    2
    """
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; give a probability between 0 and 1, both excluded")
    if kind not in _KINDS:
        raise ValueError(f"unknown kind '{kind}'; expected one of {', '.join(_KINDS)}")
    plane = _Plane(basis, axes, at, extent, resolution)
    if kind == "sampled":
        if rng is None:
            raise ValueError(
                "kind 'sampled' draws weights and needs rng, got None; pass a numpy.random.Generator"
            )
        return [c for w in q.sample(n_samples, rng) for c in _curves(plane, _drawn(q, w), level, of)]
    return _curves(plane, lambda Phi: np.asarray(q.predict_proba(Phi, _KINDS[kind])), level, of)


_KINDS = {"plugin": "plugin", "sampled": "", "moderated": "exact"}
"""The method of `predict_proba` for each kind of curve; '' for that of drawn weights."""


def _drawn(q: Posterior, w: Vector) -> Probability:
    """Return the probability at weights w: (M,), or (K M,) in order k M + m."""
    if q.likelihood in LINKS:
        link = LINKS[q.likelihood]
        return lambda Phi: np.exp(link.log_cdf(Phi @ w))
    return lambda Phi: softmax_plugin(Phi @ w.reshape(-1, Phi.shape[1]).T)


class _Plane:
    """A grid over two features, and the design matrix anywhere on their plane."""

    def __init__(
        self,
        basis: Basis,
        axes: tuple[int, int],
        at: ArrayLike | None,
        extent: Extent | None,
        resolution: int,
    ) -> None:
        F = basis.n_features
        if len(set(axes)) != 2 or not all(0 <= j < F for j in axes):
            raise ValueError(
                f"axes are {axes}; expected the indices of two different features, each from 0 to {F - 1}"
            )
        mean, scale = basis.standardisation.mean, basis.standardisation.scale
        self.at = np.array(mean if at is None else at, dtype=np.float64)
        if self.at.shape != (F,):
            raise ValueError(f"at has shape {self.at.shape}; expected ({F},), one value for each feature")
        if extent is None:
            low, high = mean - 3 * scale, mean + 3 * scale
            extent = (low[axes[0]], high[axes[0]], low[axes[1]], high[axes[1]])
        if not (extent[0] < extent[1] and extent[2] < extent[3]):
            raise ValueError(f"extent is {extent}; expected x from < x to, y from < y to")
        self.basis, self.axes = basis, list(axes)
        self.x = np.linspace(extent[0], extent[1], resolution)
        self.y = np.linspace(extent[2], extent[3], resolution)

    @property
    def nodes(self) -> Matrix:
        """All nodes of the grid, (n, 2), y outermost."""
        return np.stack([c.ravel() for c in np.meshgrid(self.x, self.y)], axis=1)

    def design(self, points: Matrix) -> Matrix:
        """Return the design matrix (n, M) at points (n, 2) of the plane."""
        X = np.tile(self.at, (len(points), 1))
        X[:, self.axes] = points
        return self.basis(X)


def _curves(plane: _Plane, probability: Probability, level: float, of: int | None) -> list[Matrix]:
    def at(points: Matrix) -> Matrix:
        p = probability(plane.design(points))
        return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p

    on_grid = at(plane.nodes)
    K = on_grid.shape[1]
    if K == 2 or of is not None:
        k = 1 if of is None else of
        # Steeper than p - level where p saturates, so that interpolation on the grid is good there too.
        odds = np.log(level / (1 - level))
        return _zeros(plane, lambda p: _log(p[:, k]) - _log(1 - p[:, k]) - odds, at, on_grid)
    curves: list[Matrix] = []
    for j, k in combinations(range(K), 2):
        for curve in _zeros(plane, lambda p, j=j, k=k: _log(p[:, j]) - _log(p[:, k]), at, on_grid):  # type: ignore[misc]
            # The classes tie; kept are the stretches where no other is more probable.
            p = at(curve)
            largest = p[:, [j, k]].min(axis=1) >= np.delete(p, [j, k], axis=1).max(axis=1)
            turns = np.flatnonzero(np.diff(largest)) + 1
            pieces = zip(np.split(curve, turns), np.split(largest, turns), strict=True)
            curves += [piece for piece, first in pieces if first[0] and len(piece) > 1]
    return curves


def _log(p: Vector) -> Vector:
    return np.asarray(np.log(np.maximum(p, _TINY)))


def _zeros(
    plane: _Plane, field: Callable[[Matrix], Vector], at: Probability, on_grid: Matrix
) -> list[Matrix]:
    """Return the curves on which the field, a function of the probabilities, is zero."""
    values = field(on_grid).reshape(len(plane.y), len(plane.x))
    lines = contour_generator(plane.x, plane.y, values, name="serial", line_type=LineType.Separate).lines(0.0)
    if not lines:
        return []
    points = np.concatenate([np.asarray(line, dtype=np.float64) for line in lines])
    ends = np.cumsum([len(line) for line in lines])[:-1]
    return np.split(_solved(plane, points, lambda x: field(at(x))), ends)


def _solved(plane: _Plane, points: Matrix, field: Callable[[Matrix], Vector]) -> Matrix:
    """Return the points (n, 2), each moved along its edge of the grid to where the field is zero."""
    low, high = points.copy(), points.copy()
    for axis, nodes in enumerate((plane.x, plane.y)):
        position = (points[:, axis] - nodes[0]) / (nodes[-1] - nodes[0]) * (len(nodes) - 1)
        between = np.abs(position - np.rint(position)) > 1e-6
        cell = np.clip(position[between].astype(np.intp), 0, len(nodes) - 2)
        low[between, axis], high[between, axis] = nodes[cell], nodes[cell + 1]
    f_low, f_high = field(low), field(high)
    best, f_best = points.copy(), field(points)
    for step in range(_MOST_STEPS):
        open_ = np.flatnonzero((np.abs(f_best) > _ROOT) & (np.sign(f_low) != np.sign(f_high)))
        if open_.size == 0:
            break
        # Secant and bisection by turns: fast where the field is nearly linear, and never stuck.
        share = f_low[open_] / (f_low[open_] - f_high[open_]) if step % 2 == 0 else np.full(open_.size, 0.5)
        trial = low[open_] + share[:, None] * (high[open_] - low[open_])
        f = field(trial)
        below = np.sign(f) == np.sign(f_low[open_])
        low[open_[below]], f_low[open_[below]] = trial[below], f[below]
        high[open_[~below]], f_high[open_[~below]] = trial[~below], f[~below]
        best[open_], f_best[open_] = trial, f
    return best
