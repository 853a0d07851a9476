"""How pictures look: colours that any colour vision tells apart, names of features, and ticks at round numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

__all__ = [
    "CLASSES",
    "DARK",
    "GRID",
    "INK",
    "MUTED",
    "SURFACE",
    "ReadableFeature",
    "class_colour",
    "label_axes",
    "legend",
    "percent_ticks",
    "plain_ticks",
    "readable_feature",
    "rescaled_ticks",
    "shortened",
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
NARROWEST_GAP: Final = 0.1
"""Share of an axis between two ticks whose texts do not touch."""
WIDEST_GAP: Final = 0.2
"""Share of an axis between two ticks from which there is another one."""


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
    apart: list[tuple[float, float]] = []
    for tick, place in zip(ticks.tolist(), np.interp(ticks, original, values).tolist(), strict=True):
        if not apart or place - apart[-1][1] >= NARROWEST_GAP * (high - low):
            apart.append((tick, place))
    return [place for _, place in apart], [_number(tick) for tick, _ in apart]


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


# Names of features that a talk can show: "B − J (mag)", never an expression; and what an axis is rescaled from.

_WORDS: Final = re.compile(
    r"mag|petro|psf|cmodel|model|kron|auto|aper|dered|mpro|mean|iso|fiber|sdss|ps1|_", re.IGNORECASE
)
_BAND: Final = re.compile(r"[A-Za-z]s?|[wW][1-4]|[nfNF][uU][vV]|bp|rp|[fF]\d{3}[wWmM]")
_CAPITALS: Final = frozenset("bvjhk")
_MAGNITUDE: Final = re.compile(r"mag|mpro|_m_|^[ubvgrizyjhk]$", re.IGNORECASE)
_NAME: Final = r"[A-Za-z_]\w*"
_PAIR: Final = re.compile(r"([ubvgrizyjhk])_([ubvgrizyjhk])")
_NUMBER: Final = r"[-+]?[\d.]+(?:e[-+]?\d+)?"
_INNER: Final = rf"({_NAME}(?:\s*-\s*{_NAME})?)"
_ARCSINH: Final = re.compile(
    rf"arcsinh\(\s*\(?\s*{_INNER}\s*(?:([-+])\s*({_NUMBER}))?\s*\)?\s*(?:/\s*({_NUMBER}))?\s*\)"
)
_LOG: Final = re.compile(rf"(log10|log|sqrt)\(\s*{_INNER}\s*\)")
_DIFFERENCE: Final = re.compile(rf"({_NAME})\s*-\s*({_NAME})")
_INVERSES: Final[dict[str, Callable[[Any], Any]]] = {
    "log10": lambda v: 10.0 ** np.asarray(v),
    "log": np.exp,
    "sqrt": np.square,
}


@dataclass(frozen=True)
class ReadableFeature:
    """How an axis of a feature is called, with its unit; `inverse` gives what it is rescaled from, None of plain ones.

    `short` is the name without the unit.
    """

    label: str
    short: str
    inverse: Callable[[Any], Any] | None = None


def readable_feature(name: str, expression: str = "", unit: str | None = None) -> ReadableFeature:
    """Return how a feature is shown: a colour by its bands, else by its name in words.

    "b_j" of "bmag - jmag" is "B − J (mag)"; so is an arcsinh of that colour, with an axis in mag.
    """
    text = expression.strip()
    inner, inverse = _inner(text)
    colour = _colour(inner)
    if colour is not None:
        return _labelled(colour, "mag", inverse)
    band = _band(inner) if re.fullmatch(_NAME, inner) else None
    if band is not None:
        return _labelled(f"{band} magnitude", "mag", inverse)
    pair = _PAIR.fullmatch(name)
    if pair is not None and inverse is None and re.fullmatch(_NAME, text):  # a column that is a colour
        first, second = (b.upper() if b in _CAPITALS else b for b in pair.groups())
        return _labelled(f"{first} − {second}", unit)
    words = (name if inverse is None else inner.replace("-", "−")).replace("_", " ")
    return _labelled(words, unit, inverse)


def _labelled(words: str, unit: str | None, inverse: Callable[[Any], Any] | None = None) -> ReadableFeature:
    """Return words with their unit behind them, but for a name that is its unit: 'mag', and not 'mag (mag)'."""
    known = not unit or words.casefold() == unit.casefold()
    return ReadableFeature(words if known else f"{words} ({unit})", words, inverse)


def _inner(text: str) -> tuple[str, Callable[[Any], Any] | None]:
    """Return what an expression is a monotone function of, and the inverse of that function; else itself and None."""
    found = _ARCSINH.fullmatch(text)
    if found is not None:
        inner, sign, offset, scale = found.groups()
        centre = float(offset or 0) * (1 if sign == "-" else -1)
        width = float(scale or 1)
        return inner, lambda v: centre + width * np.sinh(v)
    found = _LOG.fullmatch(text)
    return (text, None) if found is None else (found[2], _INVERSES[found[1]])


def _colour(text: str) -> str | None:
    """Return "B − J" of the difference of two columns of magnitudes; None of anything else."""
    found = _DIFFERENCE.fullmatch(text)
    if found is None:
        return None
    first, second = _band(found[1]), _band(found[2])
    return None if first is None or second is None else f"{first} − {second}"


def _band(column: str) -> str | None:
    """Return the band of a column of magnitudes, None of another column; Johnson's and infrared bands in capitals."""
    if not _MAGNITUDE.search(column):
        return None
    left = _WORDS.sub("", column)
    if not _BAND.fullmatch(left):
        return None
    return left.upper() if left.lower() in _CAPITALS or (len(left) > 1 and left[0] in "wWnNfF") else left
