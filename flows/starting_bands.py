"""Magnitudes and fluxes by band, and the colours of a first specification.

A name such as `petroMag_r`, `B-Mag` or `FLUX_IVAR_G` is taken apart into a band and the rest: magnitudes of one kind
make colours, of neighbouring bands in wavelength, and two kinds in one band say how extended an object is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog import Column
from catalogs.elements import Element
from catalogs.name_words import name_words
from catalogs.values import is_real, is_text

__all__ = ["Colour", "band_and_kind", "colours", "is_magnitude", "kinds"]

WAVELENGTH: Mapping[str, float] = {
    "fuv": 0.15, "nuv": 0.23, "u": 0.36, "b": 0.44, "g": 0.48, "bp": 0.51, "v": 0.55, "r": 0.62, "vis": 0.72,
    "rp": 0.78, "i": 0.77, "z": 0.9, "y": 1.0, "j": 1.25, "h": 1.65, "k": 2.2, "ks": 2.2, "w1": 3.4, "w2": 4.6,
    "w3": 12, "w4": 22,
}  # fmt: skip
"""Micrometres, roughly: colours are of neighbours."""
FILTER = re.compile(r"f(\d{3,4})[wm]")
WORDS = re.compile(r"^(mag|flux)|(mag|mpro|flux)$")
INSTRUMENT = re.compile(
    r"hsc|cfht(ls)?|megacam|u?vista|viking|video|ukidss|vhs|sdss|ps1|panstarrs|des|decam|kids|irac|spitzer|acs|wfc3"
    r"|nircam|miri|nisp|(un|all)?wise|(2|two)mass|galex|gaia|euclid|sc|subaru|wircam|lsst|rubin"
)
"""Words that say who measured a band; with what is left of the names equal, their bands make colours too."""
MISSING = 0.5
"""Share of missing values from which a band is in no colour of its neighbours."""


MAGNITUDE = re.compile(
    r"(^|[^a-z])(mag|m_)|mag([^a-z]|$)|^(petro|model|psf|kron|cmodel|auto)mag|^w\dg?m(pro|ag)|^[jhk]s?_m$",
    re.IGNORECASE,
)
LETTER = re.compile(r"^([ubvrigzyjhk]|ks|w[1-4]|nuv|fuv)$", re.IGNORECASE)


@dataclass(frozen=True)
class Colour:
    """The difference of two magnitudes."""

    first: str
    second: str
    remark: str = "colour"


def is_magnitude(column: Column, values: NDArray[np.float64]) -> bool:
    """Say whether a column holds magnitudes, by its UCD, unit, name and values (n,); surface brightness is none."""
    known = values[np.isfinite(values)]
    if not (is_real(column.datatype) or is_text(column.datatype)) or not known.size:
        return False
    middle = float(np.median(known))
    ucd, unit = (column.ucd or "").lower(), (column.unit or "").lower()
    if ucd.startswith("phot.mag.sb") or "/" in unit:
        return False
    said = ucd.startswith("phot.mag") or unit == "mag" or bool(MAGNITUDE.search(column.name))
    # A bare letter is a band where its values are magnitudes: 'z' may be a redshift.
    return -5 < middle < 40 if said else unit == "" and bool(LETTER.match(column.name)) and 5 < middle < 35


def band_and_kind(name: str) -> tuple[str | None, str]:
    """Return the band that a column's name has, and the rest of the name, in small letters."""
    if isinstance(name, Element):
        # Bands of a vector are in order of wavelength wherever surveys have such.
        return f"[{name.place}]", band_and_kind(name.vector)[1]
    tokens = name_words(name)
    for i in reversed(range(len(tokens))):
        word = WORDS.sub("", tokens[i])
        if word in WAVELENGTH or FILTER.fullmatch(word):
            rest = tokens[:i] + tokens[i + 1 :]
            return word, "_".join(t for t in rest if t not in {"mag", "flux"})
    return None, "_".join(tokens)


def wavelength(band: str) -> float:
    """Return a band's wavelength, in micrometres; F606W is at 0.606, F150W at 1.5."""
    if band in WAVELENGTH:
        return WAVELENGTH[band]
    if band.startswith("["):
        return float(band[1:-1])
    number = int(FILTER.sub(r"\1", band))
    return number / (1000 if number >= 300 else 100)


def kinds(names: Sequence[str]) -> list[list[str]]:
    """Return the magnitudes by kind, each in order of wavelength, those of the most bands first."""
    found: dict[str, list[tuple[float, int, str]]] = {}
    for place, name in enumerate(names):
        band, kind = band_and_kind(name)
        key = kind if band else "?"
        found.setdefault(key, []).append((wavelength(band) if band else 0.0, place, name))
    ordered = [[name for _, _, name in sorted(group)] for group in (*_across_instruments(found),)]
    return sorted(ordered, key=lambda group: -len(group))


def _across_instruments(
    found: Mapping[str, list[tuple[float, int, str]]],
) -> list[list[tuple[float, int, str]]]:
    """Return the groups with those made one that differ by an instrument only, where each has bands of its own."""
    merged: dict[str, list[str]] = {}
    for kind in found:
        rest = "_".join(word for word in kind.split("_") if INSTRUMENT.fullmatch(word) is None)
        merged.setdefault(rest, []).append(kind)
    groups = []
    for kinds_of_one in merged.values():
        whole = [entry for kind in kinds_of_one for entry in found[kind]]
        apart = "?" in kinds_of_one or len({place for place, _, _ in whole}) < len(whole)
        groups += [found[kind] for kind in kinds_of_one] if apart else [whole]
    return groups


def colours(names: Sequence[str], missing: Mapping[str, float]) -> tuple[list[Colour], list[Colour]]:
    """Return the colours to begin with, and others that could be tried; `missing` is the share of each column."""
    groups = kinds(names)
    if not groups:
        return [], []
    chosen: list[Colour] = []
    spare: list[Colour] = []
    for i, group in enumerate(groups):
        usual = [n for n in group if missing[n] <= MISSING]
        (spare if i else chosen).extend(Colour(a, b) for a, b in pairwise(usual))
        for name in set(group).difference(usual):
            other = next((n for n in group if n != name), None)
            if other is not None:
                spare.append(
                    Colour(name, other, f"colour; {name} is missing in {missing[name]:.0%} of the rows")
                )
    for group in groups[1:]:
        pair = _same_band(groups[0], group, missing)
        if pair is not None:
            chosen.append(pair)
    return chosen, sorted(spare, key=lambda c: (c.first, c.second))


def _same_band(first: Sequence[str], second: Sequence[str], missing: Mapping[str, float]) -> Colour | None:
    """Return the difference of two kinds of magnitude in a band that both have, the redder half first."""
    theirs = {band_and_kind(name)[0]: name for name in second}
    shared = [(name, theirs[b]) for name in first for b in [band_and_kind(name)[0]] if b and b in theirs]
    shared = [pair for pair in shared if max(missing[n] for n in pair) <= MISSING]
    if not shared:
        return None
    a, b = shared[len(shared) // 2]
    return Colour(a, b, "two kinds of magnitude in one band: how extended")
