"""The evidence of candidates, split into how well each fits and what its freedom costs (PRML 3.4 and 4.137)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from flows.plots.style import CLASSES, INK, drawable, label_axes, legend

__all__ = ["plot_evidence"]

LONGEST = 52
"""Letters of a candidate's name beside its bars."""


def plot_evidence(
    axes: Axes, names: Sequence[str], log_likelihood: ArrayLike, log_occam_factor: ArrayLike
) -> Axes:
    """Draw for each candidate (C,) what its fit gains and its Occam factor costs, in nats, and the evidence of both.

    Both are shown against the candidate that fits worst and the one of the smallest cost, so that bars have lengths
    that compare; the evidence is drawn against the same zero.
    """
    fit, cost = np.asarray(log_likelihood, float), np.asarray(log_occam_factor, float)
    base = fit.min()
    least = cost.max()
    place = np.arange(len(names))
    gains = axes.barh(place - 0.18, fit - base, height=0.34, color=CLASSES[0], alpha=0.85, linewidth=0)
    costs = axes.barh(place + 0.18, cost - least, height=0.34, color=CLASSES[1], alpha=0.85, linewidth=0)
    (both,) = axes.plot(fit - base + cost - least, place, "D", color=INK, markersize=5, zorder=4)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(place, [_short(drawable(name)) for name in names])
    for text in axes.get_yticklabels():
        text.set(parse_math=False, fontsize=8.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    label_axes(axes, "nats, against the worst fit and the smallest cost", "")
    legend(
        axes, [gains, costs, both], ["better fit", "cost of freedom (Occam factor)", "evidence: their sum"]
    )
    return axes


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
