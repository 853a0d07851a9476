"""How pictures look, and axes in SVG to draw them in: lines, points, bars, bands and texts at places that data give.

Any colour vision tells the colours apart.  Ticks are at round numbers.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Floats
from catalogs.errors import printable

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
NARROWEST_GAP: Final = 0.1  # share of an axis between two ticks whose texts do not touch
WIDEST_GAP: Final = 0.2  # share of an axis between two ticks from which there is another one


def class_colour(k: int) -> str:
    """Return the colour of a class by its index."""
    return CLASSES[k % len(CLASSES)]


def shortened(text: str) -> str:
    """Return the text with at most 60 letters."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def label_axes(axes: Any, x: str, y: str) -> None:
    """Write what the axes are; a text has one line of at most 60 letters."""
    axes.set(xlabel=shortened(x), ylabel=shortened(y))


def legend(axes: Any) -> None:
    """Name the marks that have labels, above the axes."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=6, frameon=False)


def plain_ticks(low: float, high: float, n: int = 6) -> tuple[list[float], list[str]]:
    """Return ticks between two values, and their texts."""
    ticks = round_numbers(low, high, n)
    return ticks, [_number(tick) for tick in ticks]


def percent_ticks(low: float, high: float, n: int = 6) -> tuple[list[float], list[str]]:
    """Return ticks between two shares, and their texts: percentages with as many decimals as they need."""
    ticks = round_numbers(low, high, n)
    decimals = next((d for d in range(4) if all(abs(round(100 * v, d) - 100 * v) < 1e-6 for v in ticks)), 4)
    return ticks, [f"{100 * v:.{decimals}f}%" for v in ticks]


def round_numbers(low: float, high: float, n: int = 6) -> list[float]:
    """Return about `n` round numbers from `low` to `high`, at steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not np.isfinite(span) or span <= 0:
        return [low]
    rough = span / max(n, 2)
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= 0.999 * rough)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [float(np.round(k * step, 12)) + 0.0 for k in np.arange(first, last + 1)]


def rescaled_ticks(low: float, high: float, inverse: Callable[[Any], Any]) -> tuple[list[float], list[str]]:
    """Return ticks of an axis from `low` to `high` at round numbers of what its values are computed from.

    `inverse` gives that, increasing, of a value.  Ticks of an arcsinh or a logarithm would touch at one end, where some
    are left out.
    """
    values = np.linspace(low, high, 400)
    original = np.asarray(inverse(values), dtype=float)
    ticks = np.asarray(round_numbers(float(original[0]), float(original[-1])))
    between = (ticks[1:] + ticks[:-1]) / 2  # where the scale is stretched, ticks at halves too
    gap = np.diff(np.interp(ticks, original, values)) > WIDEST_GAP * (high - low)
    ticks = np.sort(np.concatenate([ticks, between[gap]]))
    apart: list[tuple[float, str]] = []
    for tick, place in zip(ticks.tolist(), np.interp(ticks, original, values).tolist(), strict=True):
        if not apart or place - apart[-1][0] >= NARROWEST_GAP * (high - low):
            apart.append((place, _number(tick)))
    return [place for place, _ in apart], [text for _, text in apart]


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


# Names of features that a talk can show, "bmag − jmag (mag)" and no function of it; and what an axis is rescaled from.

_NAME: Final = r"[A-Za-z_]\w*"
_INNER: Final = rf"({_NAME}(?:\s*-\s*{_NAME})?)"
_NUMBER: Final = r"[-+]?[\d.]+(?:e[-+]?\d+)?"
_ARCSINH: Final = rf"arcsinh\(\s*\(?\s*{_INNER}\s*(?:([-+])\s*({_NUMBER}))?\s*\)?\s*(?:/\s*({_NUMBER}))?\s*\)"
Inverse = Callable[[Any], Any] | None
"""Gives what a feature was rescaled from; None for a plain one."""
_INVERSES: Final[dict[str, Inverse]] = {
    "log10": lambda v: 10.0 ** np.asarray(v),
    "log": np.exp,
    "sqrt": np.square,
}


def readable_feature(name: str, expression: str = "", unit: str | None = None) -> tuple[str, str, Inverse]:
    """Return a feature's name for people, with its unit and without it, and what undoes its arcsinh, logarithm or root.

    The name is that of the column, or of the difference of two columns, of which the feature is the arcsinh, the
    logarithm or the root; also of a plain difference.  Any other feature has its own name.
    """
    text = expression.strip()
    inverse: Inverse = None
    if (found := re.fullmatch(_ARCSINH, text)) is not None:
        text, sign, offset, scale = found.groups()
        centre, width = float(offset or 0) * (1 if sign == "-" else -1), float(scale or 1)
        inverse = lambda v: centre + width * np.sinh(v)  # noqa: E731
    elif (found := re.fullmatch(rf"(log10|log|sqrt)\(\s*{_INNER}\s*\)", text)) is not None:
        inverse, text = _INVERSES[found[1]], found[2]
    if inverse is None and not re.fullmatch(rf"{_NAME}\s*-\s*{_NAME}", text):
        text = name
    words = text.replace("-", "−").replace("_", " ")
    unit = "mag" if all("mag" in column.lower() for column in text.split("-")) else unit
    return (f"{words} ({unit})" if unit else words), words, inverse


def text_width(text: str) -> float:
    """Return about how wide a text of 12 points is; browsers have different fonts."""
    return 12 * sum(0.75 if c.isupper() or c in "%@_" else 0.6 for c in shortened(text))


def text_mark(
    x: float,
    y: float,
    text: str,
    *,
    size: float = 12,
    turn: float = 0,
    colour: str = INK,
    anchor: str = "start",
) -> str:
    """Return a text whose middle is at the height `y`."""
    plain = escape(printable(shortened(text)))
    turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
    place = f'x="{x:.1f}" y="{y + 0.36 * size:.1f}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}"{turned}>{plain}</text>' if plain else ""


def path(u: Floats, v: Floats) -> str:
    """Return the path through points; it is broken where one is missing."""
    known = np.isfinite(u) & np.isfinite(v)
    begun = [True, *(not before for before, _ in pairwise(known.tolist()))] if len(known) else []
    return "".join(
        f"{'M' if new else 'L'}{a:.1f} {b:.1f}"
        for a, b, new, there in zip(u.tolist(), v.tolist(), begun, known.tolist(), strict=True)
        if there
    )


def circles(u: Floats, v: Floats, size: float, colour: str, face: str, alpha: float) -> str:
    """Return circles at points; full ones are lines without length, which take the least text."""
    known = np.isfinite(u) & np.isfinite(v)
    points = zip(u[known].tolist(), v[known].tolist(), strict=True)
    if face == colour:
        dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in points)
        pen = f'stroke-width="{1.3 * size:g}" stroke-linecap="round" stroke-opacity="{alpha:g}"'
        return f'<path d="{dots}" stroke="{colour}" {pen}/>'
    pen = f'r="{0.65 * size:g}" fill="{face}" stroke="{colour}" stroke-width="1.4"'
    return "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" {pen}/>' for a, b in points)


def png(image: NDArray[np.uint8]) -> bytes:
    """Return an image (h, w, 4) as PNG (ISO 15948)."""
    height, width = image.shape[:2]
    rows = np.zeros((height, 1 + 4 * width), np.uint8)  # each begins with the number of its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


INCH: Final = 100
"""Points of the picture in an inch, so that texts of 12 points have the size of the page's small print."""
DASHES: Final = {"--": "6 4", ":": "1.5 3"}
CLOSE: Final = 24  # points between ticks below which their texts lean more
ANCHORS: Final = {"left": "start", "center": "middle", "right": "end"}
Place = Callable[[ArrayLike, ArrayLike], tuple[Floats, Floats]]
"""From values to points of the picture."""
Ticks = tuple[list[float], list[str]]


class SvgAxes:
    """Axes in a box of a figure, as SVG text for light and dark pages.

    Methods and options are called as in matplotlib, and have its meaning: pictures draw into its axes too, in a
    notebook, and a report needs no import of a second.  Sizes are in inches of 100 points.
    """

    def __init__(
        self, size: tuple[float, float], panels: list[SvgAxes], box: tuple[float, float, float, float]
    ) -> None:
        """Begin without marks: `size` is that of the figure, `box` has left, top, width and height, in points.

        All axes of the figure are in `panels`.
        """
        self.size, self.panels, self.box = size, panels, box
        self._marks: list[Callable[[Place], str]] = []
        self._labelled: list[tuple[str, str]] = []  # a sample of the mark, and its name
        self._ticks: dict[str, Ticks] = {}
        self._words = dict.fromkeys(("xlabel", "ylabel", "title"), "")
        self._limits: dict[str, tuple[float, float]] = {}
        self._seen: dict[str, list[Floats]] = {"x": [], "y": []}
        self._framed = self._gridded = True
        self._has_legend = False

    def plot(
        self,
        x: ArrayLike,
        y: ArrayLike,
        form: str = "-",
        *,
        color: str = INK,
        linewidth: float = 1.5,
        markersize: float = 5,
        markerfacecolor: str | None = None,
        alpha: float = 1,
        label: str | None = None,
    ) -> None:
        """Draw a line, broken where a value is missing, or circles, or both: "-", "--", ":", "o", "o-"."""
        px, py = self._take(x, y)
        line = form.replace("o", "")
        dash = f' stroke-dasharray="{DASHES[line]}"' if line in DASHES else ""
        pen = f'stroke="{color}" fill="none" stroke-width="{linewidth:g}" opacity="{alpha:g}"{dash}'
        face = SURFACE if markerfacecolor == "none" else color

        def drawn(u: Floats, v: Floats) -> str:
            along = f'<path d="{path(u, v)}" {pen} stroke-linejoin="round"/>' if line else ""
            return along + (circles(u, v, markersize, color, face, alpha) if "o" in form else "")

        self._marks.append(lambda place: drawn(*place(px, py)))
        if label is not None:
            sample = np.array([0.0, 18.0] if line else [9.0])
            self._labelled.append((drawn(sample, 0 * sample), label))

    def fill(
        self, x: ArrayLike, y: ArrayLike, *, color: str, alpha: float = 1, label: str | None = None
    ) -> None:
        """Draw an area, such as a bar, without its edge."""
        px, py = self._take(x, y)
        paint = f'fill="{color}" fill-opacity="{alpha:.3g}"'
        self._marks.append(lambda place: f'<path d="{path(*place(px, py))}Z" {paint}/>')
        if label is not None:
            self._labelled.append((f'<path d="M2 -6H16V6H2Z" {paint}/>', label))

    def vlines(
        self, x: ArrayLike, ymin: ArrayLike, ymax: ArrayLike, *, colors: str, linewidth: float = 1.4
    ) -> None:
        """Draw upright lines from `ymin` to `ymax`."""
        (px, low), (_, high) = self._take(x, ymin), self._take(x, ymax)

        def drawn(place: Place) -> str:
            (u, bottom), (_, top) = place(px, low), place(px, high)
            lines = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in zip(u, bottom, top, strict=True))
            return f'<path d="{lines}" stroke="{colors}" stroke-width="{linewidth:g}" fill="none"/>'

        self._marks.append(drawn)

    def text(
        self,
        x: float,
        y: float,
        s: str,
        *,
        ha: str = "left",
        fontsize: float = 12,
        color: str = INK,
        va: str = "center",  # noqa: ARG002  Matplotlib's name: here it is always so
    ) -> None:
        """Write a text, whose middle is at the height `y`."""

        def drawn(place: Place) -> str:
            (u,), (v,) = place([x], [y])
            return text_mark(u, v, s, size=fontsize, colour=color, anchor=ANCHORS[ha])

        self._marks.append(drawn)

    def imshow(
        self,
        image: NDArray[np.uint8],
        *,
        extent: Sequence[float],
        interpolation: str = "auto",
        aspect: str = "auto",  # noqa: ARG002  Matplotlib's name: here it is always so
    ) -> None:
        """Draw an image of red, green, blue and opacity (h, w, 4), from 0 to 255, its first row on top."""
        left, right, bottom, top = extent
        self._take([left, right], [bottom, top])
        rendering = "pixelated" if interpolation == "nearest" else "auto"
        data = base64.b64encode(png(image)).decode()

        def drawn(place: Place) -> str:
            (a, b), (d, c) = place([left, right], [bottom, top])
            return (
                f'<image x="{a:.1f}" y="{c:.1f}" width="{b - a:.1f}" height="{d - c:.1f}" '
                f'preserveAspectRatio="none" image-rendering="{rendering}" href="data:image/png;base64,{data}"/>'
            )

        self._marks.append(drawn)

    def set(self, **options: Any) -> None:
        """Set `xlim` and `ylim`, or write `xlabel`, `ylabel` and `title`."""
        for name, value in options.items():
            if name in self._words:
                self._words[name] = value
            else:
                self._limits[name[0]] = (float(value[0]), float(value[1]))

    def set_xticks(self, ticks: ArrayLike, labels: Sequence[str]) -> None:
        """Write texts along the axis; where they would touch they lean."""
        self._ticks["x"] = (np.asarray(ticks, float).tolist(), [*labels])

    def set_yticks(self, ticks: ArrayLike, labels: Sequence[str]) -> None:
        """Write texts along the axis."""
        self._ticks["y"] = (np.asarray(ticks, float).tolist(), [*labels])

    def legend(self, **_: Any) -> None:
        """Name the marks that have labels, above the axes."""
        self._has_legend = True

    def grid(self, *, visible: bool) -> None:
        """Draw lines at the ticks, or none."""
        self._gridded = visible

    def axis(self, what: str) -> None:
        """Turn everything around the marks "off"."""
        self._framed = what != "off"

    def svg(self) -> str:
        """Return the axes as SVG elements, with as much room around the marks as their texts need."""
        left, top, width, height = self.box
        xlim, ylim = self._range("x"), self._range("y")
        xticks = self._ticks.get("x") or plain_ticks(min(xlim), max(xlim), int(width / 80))
        yticks = self._ticks.get("y") or plain_ticks(min(ylim), max(ylim))
        rows: list[list[tuple[str, str]]] = []  # of the legend, as many as it needs
        room = 0.0
        for entry in self._labelled if self._has_legend else ():
            need = 36 + text_width(entry[1])
            if need > room:
                rows.append([])
                room = width - 20
            rows[-1].append(entry)
            room -= need
        above = 10 + 18 * len(rows) + (22 if self._words["title"] else 0)
        x0, x1, y0, y1 = left + 2, left + width - 2, top + above, top + height - 4
        turn = 0
        if self._framed:
            x0 += 8 + max(map(text_width, yticks[1]), default=0) + (20 if self._words["ylabel"] else 0)
            spacing = (x1 - x0) / (len(xticks[1]) or 1)
            longest = max(map(text_width, xticks[1]), default=0)
            if longest > spacing - 4:
                turn = -60 if spacing < CLOSE else -30
            y1 -= 14 - longest * np.sin(np.radians(turn)) if turn else 18
            y1 -= 18 if self._words["xlabel"] else 0
            x1 -= 12 if turn or not xticks[1] else text_width(xticks[1][-1]) / 2
            # Texts closer than 9 points would touch.
            step = max(1, int(np.ceil(9 * (len(yticks[1]) - 1) / max(y1 - y0, 1))))
            yticks = yticks[0][::step], yticks[1][::step]

        def place(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
            u = x0 + (np.asarray(x, float) - xlim[0]) / (xlim[1] - xlim[0]) * (x1 - x0)
            v = y1 - (np.asarray(y, float) - ylim[0]) / (ylim[1] - ylim[0]) * (y1 - y0)
            return u, v

        name = f"c{self.panels.index(self)}"
        inside = f'x="{x0 - 1:.1f}" y="{y0 - 4:.1f}" width="{x1 - x0 + 5:.1f}" height="{y1 - y0 + 5:.1f}"'
        parts = [f'<clipPath id="{name}"><rect {inside}/></clipPath>']
        if self._framed:
            parts += self._frame(place, (x0, x1, y0, y1), (xticks, yticks), turn=turn)
        parts.append(f'<g clip-path="url(#{name})">{"".join(mark(place) for mark in self._marks)}</g>')
        parts.append(text_mark(x0, top + 14, self._words["title"], size=13))
        for i, row in enumerate(rows):
            at, y = x0, y0 - 12 - 18 * (len(rows) - 1 - i)
            for sample, name in row:
                label = sample + text_mark(24, 0, name)
                parts.append(f'<g transform="translate({at:.1f} {y:.1f})">{label}</g>')
                at += 36 + text_width(name)
        return "".join(parts)

    def _frame(
        self, place: Place, inner: tuple[float, ...], ticks: tuple[Ticks, Ticks], *, turn: int
    ) -> Iterator[str]:
        """Yield lines at the ticks, the axes, and their texts."""
        x0, x1, y0, y1 = inner
        (xs, xtexts), (ys, ytexts) = ticks
        u, v = place(xs, np.zeros(len(xs)))[0], place(np.zeros(len(ys)), ys)[1]
        if self._gridded:
            lines = [f"M{a:.1f} {y0:.1f}V{y1:.1f}" for a in u] + [f"M{x0:.1f} {b:.1f}H{x1:.1f}" for b in v]
            yield f'<path d="{"".join(lines)}" stroke="{GRID}" fill="none"/>'
        yield f'<path d="M{x0:.1f} {y0:.1f}V{y1:.1f}H{x1:.1f}" stroke="{MUTED}" fill="none"/>'
        anchor = "end" if turn else "middle"
        for a, text in zip(u, xtexts, strict=True):
            yield text_mark(a, y1 + 12, text, colour=MUTED, anchor=anchor, turn=turn)
        for b, text in zip(v, ytexts, strict=True):
            yield text_mark(x0 - 6, b, text, colour=MUTED, anchor="end")
        left, top, _, height = self.box
        yield text_mark((x0 + x1) / 2, top + height - 10, self._words["xlabel"], anchor="middle")
        yield text_mark(left + 10, (y0 + y1) / 2, self._words["ylabel"], anchor="middle", turn=-90)

    def _take(self, x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
        """Return values as arrays of the same length, and note them for the limits."""
        px, py = np.broadcast_arrays(np.asarray(x, float), np.asarray(y, float))
        self._seen["x"].append(px)
        self._seen["y"].append(py)
        return px, py

    def _range(self, axis: str) -> tuple[float, float]:
        if axis in self._limits:
            return self._limits[axis]
        seen = np.concatenate([values.ravel() for values in self._seen[axis]] or [np.zeros(0)])
        seen = seen[np.isfinite(seen)]
        low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 1.0)
        room = 0.04 * (high - low) or 0.5 * max(1.0, abs(low))
        return (low - room, high + room)


def new_axes(width: float = 5.2, height: float = 4.0) -> SvgAxes:
    """Return axes of a new figure of so many inches."""
    return new_panels(1, width=width, height=height)[0]


def new_panels(
    n: int, *, columns: int | None = None, width: float | None = None, height: float | None = None
) -> list[SvgAxes]:
    """Return the axes of `n` panels of one figure, row by row; a panel is 3.6 by 3.1 inches by default."""
    across = min(n, 3) if columns is None else columns
    down = -(-n // across)
    wide = INCH * (3.6 * across if width is None else width)
    high = INCH * (3.1 * down if height is None else height)
    w, h = wide / across, high / down
    panels: list[SvgAxes] = []
    for i in range(n):
        box = (w * (i % across) + 4, h * (i // across) + 2, w - 8, h - 4)
        panels.append(SvgAxes((wide, high), panels, box))
    return panels


def svg(axes: SvgAxes) -> str:
    """Return the whole figure of some axes as SVG text: light as it is, and dark where the page is dark.

    The same picture is the same text.
    """
    rules = "".join(
        f'[{what}="{light}"]{{{what}:{dark}}}' for light, dark in DARK.items() for what in ("fill", "stroke")
    )
    width, height = axes.size
    size = f'width="{width:g}" height="{height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:g} {height:g}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif" font-size="12">'
        f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
        f'<rect {size} fill="{SURFACE}"/>{"".join(panel.svg() for panel in axes.panels)}</svg>'
    )
