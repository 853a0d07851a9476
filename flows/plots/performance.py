"""How good a model is: reliability, confusion, completeness and purity, and the errors that a review catches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from blr.calibration import share_interval
from flows.plots.axes import SvgAxes
from flows.plots.style import CLASSES, MUTED, class_colour, label_axes, legend, percent_ticks

__all__ = [
    "plot_binned_share",
    "plot_confusion",
    "plot_errors_caught",
    "plot_reliability",
    "plot_threshold_curves",
]

MOST_NUMBERS = 12
"""Classes up to which each cell of a confusion matrix has its share."""
MOST_COUNTS = 3
"""Classes up to which it has its count too: of more, the two lines would lie on each other."""
MOST_NAMES = 40
"""Classes up to which the rows of a confusion matrix have their names."""
FEWEST = 5
"""Fewest objects of a class in a bin whose share is drawn."""


def plot_reliability(
    axes: SvgAxes,
    predicted: ArrayLike,
    observed: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    label: str = "probability",
) -> SvgAxes:
    """Draw the share seen against the probability said, (B,) each, with the interval `low` to `high` of each bin."""
    least = np.floor(10 * np.min([predicted, low], initial=1.0)) / 10
    axes.plot([0, 1], [0, 1], "--", color=MUTED, linewidth=1)
    axes.vlines(predicted, low, high, colors=CLASSES[0])
    axes.plot(predicted, observed, "o", color=CLASSES[0])
    label_axes(axes, label, "share seen")
    return _percent_square(axes, "xy", min(least, 0.5))


def plot_confusion(axes: SvgAxes, counts: ArrayLike, classes: Sequence[str]) -> SvgAxes:
    """Draw the confusion matrix of counts (K, K), rows by true class, as the share of each class that goes where."""
    n = np.asarray(counts, float)
    K = len(classes)
    share = n / np.maximum(n.sum(axis=1, keepdims=True), 1)
    axes.grid(visible=False)
    for j, k in np.argwhere(n > 0) if K > MOST_NUMBERS else np.ndindex(K, K):
        x, y = np.array([-0.48, 0.48, 0.48, -0.48]), np.array([-0.48, -0.48, 0.48, 0.48])
        axes.fill(k + x, j + y, color=CLASSES[0], alpha=0.04 + 0.7 * share[j, k])
        if K <= MOST_NUMBERS:
            large = K <= MOST_COUNTS
            axes.text(
                k,
                j - 0.12 * large,
                f"{share[j, k]:.0%}",
                ha="center",
                va="center",
                fontsize=13 if large else 10,
            )
            if large:
                axes.text(k, j + 0.2, f"{int(n[j, k]):,}", ha="center", va="center", fontsize=10)
    names = [name[:16] for name in classes]
    axes.set(xlim=(-0.5, K - 0.5), ylim=(K - 0.5, -0.5))
    named = range(K if K <= MOST_NAMES else 0)
    axes.set_xticks(named, names[: len(named)])
    axes.set_yticks(named, names[: len(named)])
    label_axes(axes, "assigned class", "true class")
    return axes


def plot_threshold_curves(
    axes: SvgAxes, threshold: ArrayLike, share: ArrayLike, classes: Sequence[str], *, what: str
) -> SvgAxes:
    """Draw completeness or purity (K, T) of the objects whose probability of a class is a threshold (T,) or more."""
    for k, values in enumerate(np.asarray(share, float)):
        axes.plot(threshold, values, color=class_colour(k), linewidth=1.8, label=_name(classes[k]))
    label_axes(axes, "probability of the class, at least", what)
    legend(axes)
    return _percent_square(axes, "xy")


def plot_binned_share(
    axes: SvgAxes,
    centres: ArrayLike,
    counts: ArrayLike,
    classes: Sequence[str],
    *,
    what: Literal["completeness", "purity"],
    label: str,
) -> SvgAxes:
    """Draw completeness or purity in bins of a quantity, with 95 % intervals.

    `centres` (B,) of the bins; `counts` (3, B, K): objects of the class, assigned to it, and both.  Bins with fewer
    than five objects of a class are left out.
    """
    middle, n = np.asarray(centres, float), np.asarray(counts)
    of = n[0 if what == "completeness" else 1]
    span = float(np.ptp(middle)) or 1.0
    for k, name in enumerate(classes):
        some = of[:, k] >= FEWEST
        if some.any():
            aside = middle[some] + 0.006 * span * (k - (len(classes) - 1) / 2)
            low, high = share_interval(n[2][some, k], of[some, k])
            axes.vlines(aside, low, high, colors=class_colour(k), linewidth=1)
            share = n[2][some, k] / of[some, k]
            axes.plot(aside, share, "o-", color=class_colour(k), markersize=4, label=_name(name))
    axes.set(xlim=(middle[0] - 0.05 * span, middle[-1] + 0.05 * span))
    label_axes(axes, label, what)
    legend(axes)
    return _percent_square(axes, "y")


def plot_errors_caught(axes: SvgAxes, reviewed: ArrayLike, caught: ArrayLike) -> SvgAxes:
    """Draw the share of errors caught (n,) against the share reviewed (n,)."""
    axes.plot([0, 1], [0, 1], ":", color=MUTED, linewidth=1, label="in random order")
    axes.plot(reviewed, caught, color=CLASSES[0], linewidth=2, label="least certain first")
    label_axes(axes, "share reviewed", "share of the errors caught")
    legend(axes)
    return _percent_square(axes, "xy")


def _percent_square(axes: SvgAxes, which: str, low: float = 0) -> SvgAxes:
    """Let axes of shares go from `low` to 100 %, with room for marks at the ends."""
    for axis in which:
        axes.set(**{f"{axis}lim": (low - 0.015, 1.015)})
        (axes.set_xticks if axis == "x" else axes.set_yticks)(*percent_ticks(low, 1))
    return axes


def _name(name: str) -> str:
    """Return a class's name for a legend; matplotlib would hide one that begins with an underscore."""
    return f" {name[:32]}"
