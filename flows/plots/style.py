"""How pictures look: colours that any colour vision tells apart, axes with room for their texts, SVG for both themes.

Only matplotlib's `Figure` is used, never pyplot: nothing is shared between threads.  Texts may come from a catalogue:
no mathematics is read into them, and characters that the font lacks are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.ticker import MaxNLocator, PercentFormatter

__all__ = [
    "CLASSES",
    "GRID",
    "INK",
    "MUTED",
    "SURFACE",
    "class_colour",
    "drawable",
    "label_axes",
    "legend",
    "new_axes",
    "new_panels",
    "percent_axis",
    "rescaled_ticks",
    "style_axes",
    "svg",
]

SURFACE: Final = "#ffffff"
INK: Final = "#1f2430"
MUTED: Final = "#5c6370"
GRID: Final = "#e3e6eb"
CLASSES: Final = ("#0072b2", "#d55e00", "#008060", "#b0428a", "#8a6d00", "#2a9fd8")
"""Colours of classes, used in turn: Okabe and Ito's, some darker for contrast on white."""

DARK: Final = {
    SURFACE: "#1a1d23",
    INK: "#e8eaee",
    MUTED: "#a2a9b5",
    GRID: "#343943",
    **dict(zip(CLASSES, ("#56b4e9", "#f0863a", "#3cc79c", "#e58cc4", "#e0c040", "#9fd3f5"), strict=True)),
}
"""What each colour becomes on a dark page."""

LONGEST_TEXT: Final = 60
WIDEST_GAP: Final = 0.2
"""Share of an axis between two ticks from which there is another one."""
NARROWEST_GAP: Final = 0.1
"""Share of an axis between two ticks whose texts do not touch."""
LEFT, RIGHT, BOTTOM, TOP = 0.8, 0.2, 0.62, 0.38
"""Margins of a panel, in inches: a layout that measures every text first takes half of a report's time."""


def class_colour(k: int) -> str:
    """Return the colour of a class by its index."""
    return CLASSES[k % len(CLASSES)]


def new_axes(width: float = 5.2, height: float = 4.0) -> Axes:
    """Return axes of a new figure of so many inches, in the report's style."""
    return new_panels(1, width=width, height=height)[0]


def new_panels(
    n: int, *, columns: int | None = None, width: float | None = None, height: float | None = None
) -> list[Axes]:
    """Return the axes of `n` panels of one figure, row by row; a panel is 3.6 by 3.1 inches by default."""
    across = min(n, 3) if columns is None else columns
    down = -(-n // across)
    wide, high = (3.6 * across if width is None else width), (3.1 * down if height is None else height)
    figure = Figure(figsize=(wide, high), facecolor=SURFACE)
    x, y = LEFT + RIGHT, BOTTOM + TOP
    figure.subplots_adjust(
        left=LEFT / wide,
        right=1 - RIGHT / wide,
        bottom=BOTTOM / high,
        top=1 - TOP / high,
        wspace=x / ((wide - across * x) / across),
        hspace=y / ((high - down * y) / down),
    )
    panels = [figure.add_subplot(down, across, place + 1) for place in range(n)]
    for axes in panels:
        style_axes(axes)
    return panels


def style_axes(axes: Axes, *, grid: bool = True) -> Axes:
    """Give axes the report's colours; return them."""
    axes.set_facecolor(SURFACE)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(MUTED)
    if grid:
        axes.grid(visible=True, color=GRID, linewidth=0.8)
    return axes


def label_axes(axes: Axes, x: str, y: str, title: str = "") -> None:
    """Write what the axes are, and the panel's title."""
    axes.set_xlabel(drawable(x), fontsize=9.5, color=INK, parse_math=False)
    axes.set_ylabel(drawable(y), fontsize=9.5, color=INK, parse_math=False)
    if title:
        axes.set_title(drawable(title), fontsize=10, color=INK, parse_math=False, loc="left")


def percent_axis(axis: Any) -> None:
    """Show the shares on an axis as percentages."""
    axis.set_major_formatter(_Percent(1))


class _Percent(PercentFormatter):
    """Percentages with as many decimals as make all ticks right."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Return the texts of the ticks."""
        self.decimals = next(
            (d for d in range(4) if all(abs(round(100 * v, d) - 100 * v) < 1e-6 for v in values)), 4
        )
        return list(super().format_ticks([*values]))


def legend(axes: Axes, handles: Sequence[Any], names: Sequence[str], *, where: str = "best") -> None:
    """Write a legend inside the axes, or "above" them in one line.

    A leading blank keeps matplotlib from hiding names that begin with an underscore.
    """
    place: dict[str, Any] = {"loc": where}
    if where == "above":
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": min(6, max(1, len(names)))}
        place |= {"columnspacing": 0.9, "handlelength": 1.2, "handletextpad": 0.2, "borderaxespad": 0.1}
    box = axes.legend(
        handles,
        [f" {drawable(n)[:32]}" for n in names],
        fontsize=8 if where == "above" else 8.5,
        frameon=where != "above",
        framealpha=0.85,
        **place,
    )
    box.get_frame().set(facecolor=SURFACE, edgecolor=GRID)
    for text in box.get_texts():
        text.set(color=INK, parse_math=False)


def rescaled_ticks(axis: Any, inverse: Callable[[Any], Any]) -> None:
    """Label an axis by what its values are computed from: `inverse` gives that, increasing, of a value.

    Ticks lie at round numbers; of an arcsinh or a logarithm they would touch at one end, where some are left out.
    """
    low, high = sorted(float(x) for x in axis.get_view_interval())
    values = np.linspace(low, high, 400)
    original = np.asarray(inverse(values), dtype=float)
    round_numbers = MaxNLocator(nbins=7, steps=[1, 2, 5, 10])
    ticks = np.asarray(round_numbers.tick_values(float(original[0]), float(original[-1])))
    between = (ticks[1:] + ticks[:-1]) / 2  # where the scale is stretched, ticks at halves too
    gap = np.diff(np.interp(ticks, original, values)) > WIDEST_GAP * (high - low)
    ticks = np.sort(np.concatenate([ticks, between[gap]]))
    ticks = ticks[(ticks >= original[0]) & (ticks <= original[-1])]
    apart: list[tuple[float, float]] = []
    for tick, place in zip(ticks.tolist(), np.interp(ticks, original, values).tolist(), strict=True):
        if not apart or place - apart[-1][1] >= NARROWEST_GAP * (high - low):
            apart.append((tick, place))
    axis.set_ticks([place for _, place in apart], [f"{tick:g}".replace("-", "−") for tick, _ in apart])
    axis.set_view_interval(low, high, ignore=True)


def drawable(text: str) -> str:
    """Return the text on one line, cut to a length, with only characters that the font has."""
    known = get_font(findfont("DejaVu Sans")).get_charmap()
    plain = "".join(c if c.isprintable() and ord(c) in known else "?" for c in text)
    return plain if len(plain) <= LONGEST_TEXT else plain[: LONGEST_TEXT - 1] + "…"


def svg(axes: Axes) -> str:
    """Return the whole figure of some axes as SVG: light as it is, and dark where the page that shows it is dark.

    The same picture is the same text: no date, and ids by a fixed salt.
    """
    stream = StringIO()
    with mpl.rc_context({"svg.hashsalt": "blr", "svg.fonttype": "path", "path.simplify": True}):
        FigureCanvasSVG(axes.get_figure(root=True)).print_svg(
            stream, metadata={"Date": None, "Creator": None}
        )  # type: ignore[no-untyped-call]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    start = text.index("<svg")
    end = text.index(">", start) + 1
    return text[start:end] + f"<style>{_dark_rules()}</style>" + text[end:]


def _dark_rules() -> str:
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme:dark){{{rules}}}"
