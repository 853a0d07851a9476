"""The decision boundary over two features: contours of probabilities, and boundaries of weights from the posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from flows.plots.style import INK, MUTED, SURFACE, class_colour, label_axes, legend

__all__ = ["plot_boundaries", "plot_contours", "plot_objects"]

LEVELS: Final = (0.3, 0.5, 0.7)
STEPS: Final = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)
TWO: Final = 2


def plot_contours(
    axes: Axes,
    x: ArrayLike,
    y: ArrayLike,
    moderated: ArrayLike,
    plugin: ArrayLike,
    *,
    of: int,
    classes: Sequence[str],
    explained: bool = True,
) -> Axes:
    """Draw a class's moderated probability as shades and solid contours, and the plug-in probability as dashed ones.

    `x` (nx,) and `y` (ny,) are the nodes, `moderated` and `plugin` (ny, nx, K) the probabilities there, `of` the
    index of the class.  Of two classes the other one has its shades too.  `explained`: with a legend.
    """
    grid = np.asarray(moderated, float)
    axes.grid(visible=False)
    shaded = [of, 1 - of] if len(classes) == TWO else [of]
    for k in shaded:
        for low in STEPS[5:] if len(classes) == TWO else STEPS:
            if grid[:, :, k].min() < low < grid[:, :, k].max():
                axes.contourf(x, y, grid[:, :, k], [low, 2], colors=[class_colour(k)], alpha=0.09, zorder=1)
    for values, style, width in ((np.asarray(plugin, float), "dashed", 1.1), (grid, "solid", 1.6)):
        shown = values[:, :, of]
        levels = [level for level in LEVELS if shown.min() < level < shown.max()]
        if levels:  # contour warns where there is none to draw
            lines = axes.contour(
                x, y, shown, levels, colors=INK, linewidths=width, linestyles=style, zorder=3
            )
            if style == "solid":
                axes.clabel(lines, fmt="%.1f", fontsize=8)
    axes.set(xlim=(np.min(x), np.max(x)), ylim=(np.min(y), np.max(y)))
    handles = [
        Line2D([], [], color=INK, linewidth=1.6),
        Line2D([], [], color=INK, linewidth=1.1, linestyle="--"),
    ]
    if explained:
        legend(axes, handles, ["moderated", "plug-in"], where="upper right")
    return axes


def plot_boundaries(axes: Axes, boundaries: Sequence[ArrayLike]) -> Axes:
    """Draw decision boundaries, (n, 2) each, such as those of single draws of the weights from the posterior."""
    lines = [np.asarray(points, float) for points in boundaries]
    axes.add_collection(LineCollection(lines, colors=INK, linewidths=0.7, alpha=0.55, zorder=3))
    return axes


def plot_objects(
    axes: Axes,
    x: ArrayLike,
    y: ArrayLike,
    labels: ArrayLike,
    classes: Sequence[str],
    *,
    names: tuple[str, str],
) -> Axes:
    """Draw labelled objects over two features, (n,) each, in the colour of their class, and name the axes."""
    px, py, k = np.asarray(x, float), np.asarray(y, float), np.asarray(labels)
    handles: list[Any] = []
    for j in range(len(classes)):
        own = k == j
        axes.plot(
            px[own],
            py[own],
            "o",
            color=class_colour(j),
            markersize=2.4,
            markeredgewidth=0,
            alpha=0.55,
            zorder=2,
        )
        handles.append(
            Line2D([], [], marker="o", linestyle="", color=class_colour(j), markeredgecolor=SURFACE)
        )
    legend(axes, handles, classes, where="above")
    label_axes(axes, *names)
    axes.tick_params(colors=MUTED)
    return axes
