"""What was found in a catalogue: class fractions with their errors, flags, and features against the training's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from flows.plots.style import (
    CLASSES,
    INK,
    MUTED,
    class_colour,
    drawable,
    label_axes,
    legend,
    percent_axis,
    rescaled_ticks,
)

__all__ = ["plot_class_fractions", "plot_feature"]

SHORT = 3
"""Letters of the names of classes that need not be turned to have room."""


def plot_class_fractions(
    axes: Axes,
    classes: Sequence[str],
    assigned: ArrayLike,
    expected: ArrayLike,
    error: ArrayLike | None,
    *,
    interval: ArrayLike | None = None,
) -> Axes:
    """Draw the fraction of each class (K,): expected with two standard errors, and by assigned objects (open).

    With `interval` (2, K), the ends of 95 % intervals, the expected fractions are a census's, and have these.
    """
    place = np.arange(len(classes))
    means = np.asarray(expected, float)
    axes.bar(
        place, means, width=0.6, color=[class_colour(k) for k in range(len(classes))], alpha=0.35, linewidth=0
    )
    reach = None if error is None else 2 * np.asarray(error, float)
    if interval is not None:
        low, high = np.asarray(interval, float)
        reach = np.maximum([means - low, high - means], 0)
    if reach is not None:
        axes.errorbar(place, means, yerr=reach, fmt="none", ecolor=INK, elinewidth=1.6, capsize=4)
    axes.plot(place, np.asarray(assigned, float), "o", markerfacecolor="none", color=INK, markersize=7)
    axes.set_xticks(place, [drawable(name)[:16] for name in classes])
    for text in axes.get_xticklabels():
        text.set_parse_math(False)
        if len(classes) > 3 and max(map(len, classes)) > SHORT:
            text.set(rotation=20, ha="right")
    axes.set_ylim(-0.02 * max(0.01, float(means.max(initial=0))), None)
    label_axes(axes, "", "fraction of the objects")
    percent_axis(axes.yaxis)
    bars = "expected, ± 2 σ" if interval is None else "census, 95 %"
    open_circle = axes.plot([], [], "o", markerfacecolor="none", color=INK, markersize=7)[0]
    legend(axes, [Patch(color=MUTED, alpha=0.35), open_circle], [bars, "assigned"])
    return axes


def plot_feature(
    axes: Axes,
    edges: ArrayLike,
    training: ArrayLike,
    target: ArrayLike,
    *,
    ends: tuple[float, float],
    name: str,
    inverse: Callable[[Any], Any] | None = None,
) -> Axes:
    """Draw how a feature is distributed in the training set and in the target, as densities in the same bins.

    `edges` (B - 1,) lie between the bins, about tenths of the training rows; `training` and `target` (B,) are counts;
    `ends` are the least and the largest training value, between which the outer bins are drawn.  `inverse` gives what
    the feature is computed from, for the ticks.
    """
    inner = np.asarray(edges, float)
    span = np.ptp(inner) if inner.size > 1 else 1.0
    low = max(ends[0], float(inner[0]) - span) if inner.size else ends[0]
    high = min(ends[1], float(inner[-1]) + span) if inner.size else ends[1]
    cuts = np.array([min(low, *inner[:1]), *inner, max(high, *inner[-1:])])
    width = np.maximum(np.diff(cuts), 1e-9 * max(1.0, float(np.ptp(cuts))))
    for counts, colour, style in ((training, MUTED, "-"), (target, CLASSES[0], "-")):
        n = np.asarray(counts, float)
        density = n / max(n.sum(), 1) / width
        axes.stairs(density, cuts, color=colour, linewidth=1.6, linestyle=style, fill=False)
        if colour == MUTED:
            axes.stairs(density, cuts, color=colour, alpha=0.2, fill=True)
    axes.set_ylim(0, None)
    axes.set_yticks([])
    label_axes(axes, name, "density")
    if inverse is not None:
        axes.set_xlim(cuts[0], cuts[-1])
        rescaled_ticks(axes.xaxis, inverse)
    return axes
