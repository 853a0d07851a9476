"""Names of features that a talk can show: "B − J (mag)", never an expression; and what an axis is rescaled from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

__all__ = ["ReadableFeature", "readable_feature"]

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
