"""The weights: their way to the mode, and the shape of their posterior."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from flows.plots.style import CLASSES, INK, class_colour, label_axes, legend

__all__ = ["plot_newton", "plot_posterior_pair"]

RADII = tuple(np.sqrt(-2 * np.log(1 - np.array([0.393, 0.865]))))
"""Mahalanobis radii of the ellipses that hold 39 and 86 % of a Gaussian in two dimensions: one and two sigma."""


def plot_newton(axes: Axes, weights: ArrayLike, names: Sequence[str]) -> Axes:
    """Draw some weights (I, W) against Newton's iterations."""
    w = np.asarray(weights, float)
    lines = [
        axes.plot(range(len(w)), w[:, j], "o-", color=class_colour(j), markersize=3.5, linewidth=1.4)[0]
        for j in range(w.shape[1])
    ]
    last = max(1, len(w) - 1)
    room = min(
        0.6, 0.14 + 0.016 * max((len(name) for name in names), default=0)
    )  # of the width, for the names
    axes.set_xlim(-0.15, (last + 0.15) / (1 - room))
    ticks = MaxNLocator(integer=True).tick_values(0, last)
    axes.set_xticks([x for x in ticks if 0 <= x <= last])
    label_axes(axes, "Newton iteration", "weight (features standardised)")
    legend(axes, lines, names, where="center right")
    return axes


def plot_posterior_pair(
    axes: Axes,
    draws: ArrayLike,
    weight: ArrayLike,
    *,
    laplace: tuple[ArrayLike, ArrayLike],
    refined: tuple[ArrayLike, ArrayLike],
    names: tuple[str, str],
) -> Axes:
    """Draw contours of the exact posterior of two weights over those of its Laplace and refined approximations.

    `draws` (n, 2) have each a `weight` (n,); `laplace` and `refined` are a mean (2,) and a covariance (2, 2) each.
    Contours hold 39 and 86 % of the probability.
    """
    points, share = np.asarray(draws, float), np.asarray(weight, float)
    mean = np.asarray(refined[0], float)
    sd = np.sqrt(np.diag(np.asarray(refined[1], float)))
    x, y = (np.linspace(mean[j] - 4 * sd[j], mean[j] + 4 * sd[j], 60) for j in range(2))
    density = _smoothed(points, share / share.sum(), x, y, sd)
    ranked = np.sort(density.ravel())[::-1]
    held = np.cumsum(ranked) / ranked.sum()
    levels = sorted({float(ranked[np.searchsorted(held, p)]) for p in (0.393, 0.865)})
    axes.contourf(
        x, y, density, [*levels, float(ranked[0]) * 1.01], colors=[CLASSES[2]] * 2, alpha=0.22, zorder=1
    )
    axes.contour(x, y, density, levels, colors=CLASSES[2], linewidths=1.6, zorder=2)
    for (m, S), colour, style in ((laplace, CLASSES[1], "--"), (refined, CLASSES[0], "-")):
        for radius in RADII:
            ring = _ellipse(np.asarray(m, float), np.asarray(S, float), float(radius))
            axes.plot(ring[:, 0], ring[:, 1], color=colour, linestyle=style, linewidth=1.3, zorder=3)
    handles = [
        Line2D([], [], color=CLASSES[2], linewidth=1.6),
        Line2D([], [], color=CLASSES[1], linestyle="--"),
        Line2D([], [], color=CLASSES[0]),
    ]
    legend(axes, handles, ["exact (sampled)", "Laplace", "refined"])
    label_axes(axes, *names)
    axes.tick_params(colors=INK)
    return axes


def _smoothed(points: ArrayLike, share: ArrayLike, x: ArrayLike, y: ArrayLike, sd: ArrayLike) -> np.ndarray:
    """Return the kernel density (ny, nx) of weighted points, by Silverman's bandwidth for two dimensions."""
    p, w, s = np.asarray(points), np.asarray(share), np.asarray(sd)
    width = s * (1 / np.sum(w**2)) ** (-1 / 6)
    across = np.exp(-0.5 * ((np.asarray(x)[:, None] - p[:, 0]) / width[0]) ** 2)
    down = np.exp(-0.5 * ((np.asarray(y)[:, None] - p[:, 1]) / width[1]) ** 2)
    return np.asarray((down * w) @ across.T)


def _ellipse(mean: np.ndarray, covariance: np.ndarray, radius: float) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, 73)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.asarray(mean + radius * circle @ np.linalg.cholesky(covariance).T)
