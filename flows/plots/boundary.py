"""The decision boundary over two features: probabilities as shades and contours, and boundaries of single draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from contourpy import LineType, contour_generator
from numpy.typing import ArrayLike

from flows.plots.axes import SvgAxes
from flows.plots.style import INK, class_colour, label_axes, legend

__all__ = ["contour_lines", "plot_boundaries", "plot_contours", "plot_objects"]

LEVELS = (0.3, 0.5, 0.7)
FEW = 300
"""Objects below which each has a larger mark."""
DEEPEST = 0.35
"""Opacity of the shade where a class is certain."""


def contour_lines(x: ArrayLike, y: ArrayLike, values: ArrayLike, level: float) -> Iterator[np.ndarray]:
    """Yield the lines (n, 2) on which values (ny, nx) at the nodes `x` (nx,) and `y` (ny,) have a level."""
    grid = contour_generator(x, y, np.asarray(values, float), name="serial", line_type=LineType.Separate)
    yield from (np.asarray(line) for line in grid.lines(level))


def plot_contours(
    axes: SvgAxes,
    x: ArrayLike,
    y: ArrayLike,
    moderated: ArrayLike,
    plugin: ArrayLike | None = None,
    *,
    of: int | None = None,
    classes: Sequence[str],
) -> SvgAxes:
    """Draw the probabilities of classes: shades in the colour of the most probable one, and contours.

    `x` (nx,) and `y` (ny,) are evenly spaced nodes, `moderated` and `plugin` (ny, nx, K) the probabilities there.
    Contours are those of the class with the index `of`, at 0.3, 0.5 and 0.7: solid of the moderated probabilities,
    dashed of the plug-in ones.  Without `of`, they are where each class has one half.
    """
    p = np.asarray(moderated, float)
    K = len(classes)
    excess = np.clip((p.max(axis=2) - 1 / K) / (1 - 1 / K), 0, 1) if K > 1 else np.zeros(p.shape[:2])
    colours = np.array([[int(class_colour(k)[i : i + 2], 16) for i in (1, 3, 5)] for k in range(K)])
    image = np.concatenate([colours[p.argmax(axis=2)], (255 * DEEPEST * excess)[..., None]], axis=2)
    px, py = np.asarray(x, float), np.asarray(y, float)
    axes.grid(visible=False)
    axes.imshow(image.astype(np.uint8)[::-1], extent=(px[0], px[-1], py[0], py[-1]), aspect="auto")
    pairs = [(k, 0.5) for k in range(K)] if of is None else [(of, level) for level in LEVELS]
    for values, form in ((p, "-"), *(() if plugin is None else ((np.asarray(plugin, float), "--"),))):
        for k, level in pairs:
            for line in contour_lines(px, py, values[:, :, k], level):
                axes.plot(line[:, 0], line[:, 1], form, color=INK, linewidth=1.6 if form == "-" else 1.1)
    axes.set(xlim=(px[0], px[-1]), ylim=(py[0], py[-1]))
    return axes


def plot_boundaries(axes: SvgAxes, boundaries: Sequence[ArrayLike]) -> SvgAxes:
    """Draw decision boundaries, (n, 2) each, such as those of single draws of the weights from the posterior."""
    for points in boundaries:
        line = np.asarray(points, float)
        axes.plot(line[:, 0], line[:, 1], color=INK, linewidth=0.7, alpha=0.55)
    return axes


def plot_objects(
    axes: SvgAxes,
    x: ArrayLike,
    y: ArrayLike,
    labels: ArrayLike,
    classes: Sequence[str],
    *,
    names: tuple[str, str],
) -> SvgAxes:
    """Draw labelled objects over two features, (n,) each, in the colour of their class, and name the axes."""
    px, py, k = np.asarray(x, float), np.asarray(y, float), np.asarray(labels)
    size = 4 if len(px) < FEW else 2.4
    for j, name in enumerate(classes):
        own = k == j
        axes.plot(
            px[own], py[own], "o", color=class_colour(j), markersize=size, alpha=0.55, label=f" {name[:32]}"
        )
    legend(axes)
    label_axes(axes, *names)
    return axes
