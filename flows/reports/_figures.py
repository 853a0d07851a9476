"""The report's figures as PNG: reliability, errors caught by review, the soft decision boundary.

Only matplotlib's `Figure` is used, never pyplot: nothing is shared between threads.  Texts may come from a
catalogue: no mathematics is read into them, and characters that the font lacks are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from flows.reports.data import BoundaryPicture, ReliabilityBin, Review, RiskCurve

__all__ = ["DARK", "LIGHT", "Theme", "boundary_figure", "reliability_figure", "review_figure"]

LEVELS: Final = (0.3, 0.5, 0.7)
DPI: Final = 128
LONGEST_TEXT: Final = 60
STEPS: Final = tuple(np.linspace(0, 1, 41))
TWO_CLASSES: Final = 2
LEFT, RIGHT, BOTTOM, TOP = 0.75, 0.2, 0.6, 0.35
"""Margins of a panel, in inches: a layout that measures every text first takes half of a report's time."""


Place = Literal["upper right", "lower right"]


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of a page: `classes` (Okabe and Ito's, distinct with any colour vision) are used in turn."""

    surface: str
    ink: str
    muted: str
    grid: str
    moderated: str
    plugin: str
    classes: tuple[str, ...]


LIGHT = Theme(
    surface="#ffffff",
    ink="#1f2430",
    muted="#5c6370",
    grid="#e3e6eb",
    moderated="#0072b2",
    plugin="#c44e00",
    classes=("#0072b2", "#d55e00", "#008060", "#b0428a", "#8a6d00", "#2a9fd8"),
)
DARK = Theme(
    surface="#1a1d23",
    ink="#e8eaee",
    muted="#a2a9b5",
    grid="#343943",
    moderated="#56b4e9",
    plugin="#f0a13a",
    classes=("#56b4e9", "#f0863a", "#3cc79c", "#e58cc4", "#e0c040", "#9fd3f5"),
)


def reliability_figure(bins: Sequence[ReliabilityBin], theme: Theme, *, label: str, rows: str) -> bytes:
    """Return the reliability diagram: share seen among `rows` objects against probability said, with intervals."""
    figure, axes = _figure(theme, 5.2, 4.4)
    axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    said = np.array([b.predicted for b in bins])
    seen = np.array([b.observed for b in bins])
    spread = np.array([[b.observed - b.low for b in bins], [b.high - b.observed for b in bins]])
    axes.errorbar(
        said,
        seen,
        yerr=np.maximum(spread, 0),
        fmt="o",
        color=theme.moderated,
        markersize=5,
        elinewidth=1.4,
        capsize=2.5,
        zorder=3,
    )
    axes.set(xlim=(0, 1), ylim=(0, 1))
    _label(axes, label, f"share seen among {rows} objects")
    _percent_axes(axes)
    return _png(figure)


def review_figure(curve: RiskCurve, reviews: Sequence[Review], theme: Theme) -> bytes:
    """Return the share of errors caught against the share reviewed, by each ranking."""
    figure, axes = _figure(theme, 5.2, 4.4)
    # Where folds judge there is no plug-in ranking, and the two curves are one.
    shown = {
        "moderated": axes.plot(curve.reviewed, curve.moderated, color=theme.moderated, linewidth=2, zorder=4),
        "plug-in ranking": []
        if np.array_equal(curve.plugin, curve.moderated)
        else axes.plot(
            curve.reviewed, curve.plugin, color=theme.plugin, linewidth=1.4, linestyle="--", zorder=3
        ),
        "random": axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=":", zorder=2),
    }
    lines = {name: line for name, drawn in shown.items() for line in drawn}
    for review in reviews:
        axes.plot(review.share, review.moderated, "o", color=theme.moderated, markersize=6, zorder=5)
        axes.annotate(
            f"{review.moderated:.0%}",
            (review.share, review.moderated),
            textcoords="offset points",
            xytext=(-6, 5),
            ha="right",
            fontsize=8.5,
            color=theme.ink,
        )
    axes.set(xlim=(0, 1), ylim=(0, 1))
    _label(axes, "share reviewed, least certain first", "share of the errors caught")
    _percent_axes(axes)
    _legend(axes, [*lines.values()], [*lines], theme, where="lower right")
    return _png(figure)


def boundary_figure(picture: BoundaryPicture, classes: Sequence[str], theme: Theme) -> bytes:
    """Return the soft decision boundary: moderated probability, with contours of both probabilities.

    Two classes make one picture, of the second class; more make one for each class.
    """
    shown = range(1, 2) if len(classes) == TWO_CLASSES else range(len(classes))
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    width, height = (8.2, 5.6) if len(shown) == 1 else (3.6 * columns, 3.1 * rows + 0.5)
    figure = Figure(figsize=(width, height), facecolor=theme.surface)
    _margins(figure, columns, rows, below=0.35)
    FigureCanvasAgg(figure)
    for place, k in enumerate(shown, start=1):
        axes = figure.add_subplot(rows, columns, place)
        _style(axes, theme)
        _panel(axes, picture, classes, k, theme)
    handles = [
        Line2D([], [], color=theme.ink, linewidth=1.6),
        Line2D([], [], color=theme.ink, linewidth=1.2, linestyle="--"),
    ]
    legend = figure.legend(
        handles,
        ("moderated: 0.3, 0.5, 0.7", "plug-in: 0.3, 0.5, 0.7"),
        loc="lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    for text in legend.get_texts():
        text.set_color(theme.ink)
    return _png(figure)


def _panel(axes: Axes, picture: BoundaryPicture, classes: Sequence[str], k: int, theme: Theme) -> None:
    """Draw one class's probability, its contours, and the labelled objects."""
    two = len(classes) == TWO_CLASSES
    own = theme.classes[k % len(theme.classes)]
    ground = to_rgb(theme.surface)
    stops = (
        [_mixed(theme.classes[0], theme), ground, _mixed(own, theme)] if two else [ground, _mixed(own, theme)]
    )
    colours = LinearSegmentedColormap.from_list("class", np.array(stops))
    # In steps: as readable as a smooth shade, and a third of the bytes.
    filled = axes.contourf(
        picture.x, picture.y, picture.moderated[:, :, k], STEPS, cmap=colours, vmin=0, vmax=1
    )
    order = (0, 1) if two else (k,)
    for j in order:
        chosen = picture.point_class == j
        colour = theme.classes[j % len(theme.classes)]
        axes.scatter(
            picture.point_x[chosen],
            picture.point_y[chosen],
            s=7,
            color=colour,
            edgecolors=theme.surface,
            linewidths=0.3,
            alpha=0.75,
            zorder=2,
        )
    for grid, style, width in ((picture.plugin, "dashed", 1.2), (picture.moderated, "solid", 1.6)):
        values = grid[:, :, k]
        levels = [level for level in LEVELS if values.min() < level < values.max()]
        if levels:  # contour warns where there is none to draw
            lines = axes.contour(
                picture.x,
                picture.y,
                values,
                levels,
                colors=theme.ink,
                linewidths=width,
                linestyles=style,
                zorder=3,
            )
            if style == "solid":
                axes.clabel(lines, fmt="%.1f", fontsize=8)
    axes.set(xlim=(picture.x[0], picture.x[-1]), ylim=(picture.y[0], picture.y[-1]))
    _label(axes, picture.x_name, picture.y_name)
    axes.set_title(_drawable(f"probability of {classes[k]}"), fontsize=10, color=theme.ink, parse_math=False)
    bar = axes.figure.colorbar(filled, ax=axes, fraction=0.05, pad=0.02, ticks=[0, 0.3, 0.5, 0.7, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=theme.muted, labelsize=8, length=0)
    if two:
        handles = [Line2D([], [], marker="o", linestyle="", color=theme.classes[j]) for j in order]
        _legend(axes, handles, [classes[j] for j in order], theme, where="upper right")


def _figure(theme: Theme, width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), facecolor=theme.surface)
    _margins(figure, 1, 1)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _style(axes, theme)
    axes.grid(visible=True, color=theme.grid, linewidth=0.8)
    return figure, axes


def _margins(figure: Figure, columns: int, rows: int, *, below: float = 0.0) -> None:
    """Leave room for the texts around each panel, and `below` inches under all."""
    width, height = figure.get_size_inches()
    across, down = LEFT + RIGHT, BOTTOM + TOP
    figure.subplots_adjust(
        left=LEFT / width,
        right=1 - RIGHT / width,
        bottom=(BOTTOM + below) / height,
        top=1 - TOP / height,
        wspace=across / ((width - columns * across) / columns),
        hspace=down / ((height - below - rows * down) / rows),
    )


def _style(axes: Axes, theme: Theme) -> None:
    axes.set_facecolor(theme.surface)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.muted, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(theme.muted)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(theme.ink)


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(_drawable(x), fontsize=9.5, parse_math=False)
    axes.set_ylabel(_drawable(y), fontsize=9.5, parse_math=False)


def _percent_axes(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))


def _legend(
    axes: Axes, handles: Sequence[Line2D], names: Sequence[str], theme: Theme, *, where: Place
) -> None:
    # A leading blank, because matplotlib hides names that begin with an underscore.
    legend = axes.legend(
        handles,
        [f" {_drawable(n)[:24]}" for n in names],
        loc=where,
        fontsize=9,
        frameon=True,
        framealpha=0.85,
    )
    legend.get_frame().set(facecolor=theme.surface, edgecolor=theme.grid)
    for text in legend.get_texts():
        text.set(color=theme.ink, parse_math=False)


def _drawable(text: str) -> str:
    """Return the text on one line, cut to a length, with only characters that the font has."""
    known = get_font(findfont("DejaVu Sans")).get_charmap()
    plain = "".join(c if c.isprintable() and ord(c) in known else "?" for c in text)
    return plain if len(plain) <= LONGEST_TEXT else plain[: LONGEST_TEXT - 1] + "…"


def _mixed(colour: str, theme: Theme) -> tuple[float, float, float]:
    """Return the colour softened towards the surface, so that points of the full colour stand out on it."""
    own, ground = np.array(to_rgb(colour)), np.array(to_rgb(theme.surface))
    red, green, blue = 0.6 * own + 0.4 * ground
    return float(red), float(green), float(blue)


def _png(figure: Figure) -> bytes:
    stream = BytesIO()
    # Software would be matplotlib's version: the same picture is to be the same bytes.
    figure.savefig(stream, format="png", dpi=DPI, metadata={"Software": None})
    return stream.getvalue()
