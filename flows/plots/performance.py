"""How good probabilities are: reliability, confusion, and what a review of the least certain objects catches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from flows.plots.style import CLASSES, INK, MUTED, drawable, label_axes, legend, percent_axis

__all__ = ["plot_confusion", "plot_errors_caught", "plot_reliability", "plot_risk_coverage"]


def plot_reliability(
    axes: Axes,
    predicted: ArrayLike,
    observed: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    label: str = "probability",
    rows: str = "held-out",
) -> Axes:
    """Draw the share seen against the probability said, (B,) each, with the interval `low` to `high` of each bin."""
    said, seen = np.asarray(predicted, float), np.asarray(observed, float)
    spread = np.array([seen - np.asarray(low, float), np.asarray(high, float) - seen]).reshape(2, len(said))
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.errorbar(
        said,
        seen,
        yerr=np.maximum(spread, 0),
        fmt="o",
        color=CLASSES[0],
        markersize=5,
        elinewidth=1.4,
        capsize=2.5,
        zorder=3,
    )
    axes.set(xlim=(0, 1), ylim=(0, 1))
    label_axes(axes, label, f"share seen among {rows} objects")
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    return axes


def plot_confusion(axes: Axes, counts: ArrayLike, classes: Sequence[str]) -> Axes:
    """Draw the confusion matrix of counts (K, K), rows by true class, as the share of each class that goes where."""
    n = np.asarray(counts, float)
    K = len(classes)
    share = n / np.maximum(n.sum(axis=1, keepdims=True), 1)
    axes.grid(visible=False)
    for j in range(K):
        for k in range(K):
            cell = axes.bar(k, 0.96, width=0.96, bottom=j - 0.48, color=CLASSES[0], alpha=0.75 * share[j, k])
            cell[0].set_linewidth(0)
            axes.text(k, j - 0.08, f"{share[j, k]:.0%}", ha="center", va="center", fontsize=10, color=INK)
            axes.text(k, j + 0.24, f"{int(n[j, k]):,}", ha="center", va="center", fontsize=7.5, color=INK)
    names = [drawable(name)[:16] for name in classes]
    level = K < 4 or max(map(len, names)) <= 3
    axes.set_xticks(range(K), names, rotation=0 if level else 20, ha="center" if level else "right")
    axes.set_yticks(range(K), names, rotation=90 if K < 4 else 0, va="center")
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
    axes.set(xlim=(-0.5, K - 0.5), ylim=(K - 0.5, -0.5))
    label_axes(axes, "assigned class", "true class")
    return axes


def plot_errors_caught(
    axes: Axes, reviewed: ArrayLike, caught: ArrayLike, *, plugin: ArrayLike | None = None
) -> Axes:
    """Draw the share of errors caught (n,) against the share reviewed (n,); `plugin` is by the plug-in's ranking."""
    lines = {
        "by moderated probability": axes.plot(reviewed, caught, color=CLASSES[0], linewidth=2, zorder=4)[0]
    }
    if plugin is not None:
        lines["by plug-in probability"] = axes.plot(
            reviewed, plugin, color=CLASSES[1], linewidth=1.4, linestyle="--", zorder=3
        )[0]
    lines["in random order"] = axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=":")[0]
    axes.set(xlim=(0, 1), ylim=(0, 1))
    label_axes(axes, "share reviewed, least certain first", "share of the errors caught")
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    legend(axes, [*lines.values()], [*lines], where="lower right")
    return axes


def plot_risk_coverage(
    axes: Axes, coverage: ArrayLike, risk: ArrayLike, *, plugin: ArrayLike | None = None
) -> Axes:
    """Draw the share of errors (n,) among the most certain objects, against the share of objects kept (n,)."""
    kept, wrong = np.asarray(coverage, float), np.asarray(risk, float)
    lines = {"moderated": axes.plot(kept, wrong, color=CLASSES[0], linewidth=2, zorder=4)[0]}
    top = np.nanmax(wrong, initial=0.01)
    if plugin is not None:
        lines["plug-in"] = axes.plot(kept, plugin, color=CLASSES[1], linewidth=1.4, linestyle="--", zorder=3)[
            0
        ]
    if len(kept):
        whole = float(wrong[np.argmax(kept)])
        lines["all objects"] = axes.axhline(whole, color=MUTED, linewidth=1, linestyle=":")
    axes.set(xlim=(0, 1), ylim=(0, min(1.0, 1.15 * top)))
    label_axes(axes, "share of objects kept, most certain first", "share of errors among those kept")
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    legend(axes, [*lines.values()], [*lines], where="lower right")
    return axes
