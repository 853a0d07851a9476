"""Nodes over a Gaussian activation a ~ N(m, sd²) for functions of a link: few even for a wide Gaussian.

A link bends at its threshold, and farther off only in proportion to the distance from there.  So a trapezoid rule takes
equal steps in u(a), du/da = 1/(0.7 sd) + 1/(0.25 sqrt(1 + a²/4)): fine against the Gaussian (2 exp(-2π²/0.7²)) and
against a singularity at ±i, the nearest of all links (exp(-2π 4.2)).  Nodes grow with the logarithm of the sd.
Shapes: N rows, S nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector

__all__ = ["graded_nodes"]

_REACH = 7.5  # |z| of the outermost nodes: 6e-14 of the mass lie beyond
_STEP = 0.7  # of the Gaussian's sd
_LINK_STEP = 0.25  # in a, at the threshold
_EVEN = (0.35, 1.0, 2.0)  # sd up to which even nodes are few enough: these cost no search for their places
_NEWTON = 6
_NUMBERS = 2**16  # activations at nodes held at a time


def graded_nodes(m: Vector, sd: Vector) -> Iterator[tuple[NDArray[np.intp], Matrix, Matrix]]:
    """Yield rows (n,), their nodes (n, S) and weights (n, S), which sum to one row by row, until all rows were there.

    `m` and `sd` are (N,).
    """
    even = np.searchsorted(_EVEN, sd)
    for k in range(len(_EVEN)):
        z, w = _trapezoid(min(_STEP, _LINK_STEP / _EVEN[k]))
        for rows in _blocks(np.flatnonzero(even == k), len(z)):
            yield rows, m[rows, None] + sd[rows, None] * z, np.broadcast_to(w, (len(rows), len(z)))
    wide = np.flatnonzero(even == len(_EVEN))
    for rows, a, w in _graded(m[wide], sd[wide]):
        yield wide[rows], a, w


def _trapezoid(step: float) -> tuple[Vector, Vector]:
    z = step * np.arange(-np.ceil(_REACH / step), np.ceil(_REACH / step) + 1)
    w = np.exp(-0.5 * z**2)
    return z, w / w.sum()


def _blocks(rows: NDArray[np.intp], n: int) -> Iterator[NDArray[np.intp]]:
    size = max(1, _NUMBERS // n)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _graded(m: Vector, sd: Vector) -> Iterator[tuple[NDArray[np.intp], Matrix, Matrix]]:
    first, last = _place(m - _REACH * sd, sd), _place(m + _REACH * sd, sd)
    # Rows that take about as many nodes go together.
    count = 8 * np.ceil((last - first + 1) / 8).astype(np.intp)
    for n in np.unique(count):
        for rows in _blocks(np.flatnonzero(count == n), int(n)):
            u = 0.5 * (first[rows] + last[rows])[:, None] + np.arange(n) - 0.5 * (n - 1)
            yield rows, *_at(u, m[rows, None], sd[rows, None])


def _place(a: Vector, sd: Vector) -> Vector:
    return a / (_STEP * sd) + 2 / _LINK_STEP * np.arcsinh(a / 2)


def _at(u: Matrix, m: Matrix, sd: Matrix) -> tuple[Matrix, Matrix]:
    near, far = 2 / _LINK_STEP, 2 / (_STEP * sd)
    # u = far sinh x + near x, a = 2 sinh x, is convex above 0: Newton's steps from above stay there.
    x = np.minimum(np.abs(u) / near, np.arcsinh(np.abs(u) / far))
    for _ in range(_NEWTON):
        up = np.exp(x)
        down = 1 / up
        x -= (0.5 * far * (up - down) + near * x - np.abs(u)) / (0.5 * far * (up + down) + near)
    a = 2 * np.sinh(np.copysign(x, u))
    w = np.exp(-0.5 * ((a - m) / sd) ** 2) / (far + near / np.cosh(x))
    return a, w / w.sum(axis=1, keepdims=True)
