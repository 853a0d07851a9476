"""Completeness and purity of the classes: against the threshold of the probability, and by magnitude or place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from blr.calibration import share_interval
from flows.plots.style import class_colour, label_axes, legend, percent_axis

__all__ = ["plot_binned_share", "plot_threshold_curves"]


def plot_threshold_curves(
    axes: Axes, threshold: ArrayLike, share: ArrayLike, classes: Sequence[str], *, what: str
) -> Axes:
    """Draw completeness or purity (K, T) of the objects whose probability of a class is a threshold (T,) or more."""
    values = np.asarray(share, float)
    lines = [
        axes.plot(threshold, values[k], color=class_colour(k), linewidth=1.8)[0] for k in range(len(classes))
    ]
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    label_axes(axes, "probability of the class, at least", what)
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    legend(axes, lines, classes, where="above")
    return axes


def plot_binned_share(
    axes: Axes,
    centres: ArrayLike,
    counts: ArrayLike,
    classes: Sequence[str],
    *,
    what: Literal["completeness", "purity"],
    label: str,
) -> Axes:
    """Draw completeness or purity in bins of a quantity, with 95 % intervals.

    `centres` (B,) of the bins; `counts` (3, B, K): objects of the class, assigned to it, and both.  Bins with fewer
    than five objects of a class are left out.
    """
    middle, n = np.asarray(centres, float), np.asarray(counts)
    of = n[0 if what == "completeness" else 1]
    handles, shown = [], []
    span = float(np.ptp(middle)) or 1.0
    for k, name in enumerate(classes):
        some = of[:, k] >= 5
        if not some.any():
            continue
        share = n[2][some, k] / of[some, k]
        low, high = share_interval(n[2][some, k], of[some, k])
        aside = 0.006 * span * (k - (len(classes) - 1) / 2)
        handles.append(
            axes.errorbar(
                middle[some] + aside,
                share,
                yerr=np.maximum([share - low, high - share], 0),
                fmt="o-",
                color=class_colour(k),
                markersize=3.5,
                linewidth=1.2,
                elinewidth=1,
            )
        )
        shown.append(name)
    axes.set(xlim=(middle[0] - 0.05 * span, middle[-1] + 0.05 * span), ylim=(0, 1.02))
    label_axes(axes, label, what)
    percent_axis(axes.yaxis)
    legend(axes, handles, shown, where="above")
    return axes
