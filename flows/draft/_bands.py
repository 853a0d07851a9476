"""Magnitudes and fluxes by band: the colours and the tables [photometry.NAME] of a first specification.

A name such as `petroMag_r`, `B-Mag` or `FLUX_IVAR_G` is taken apart into a band and the rest: magnitudes of one kind
make colours, of neighbouring bands in wavelength, and two kinds in one band say how extended an object is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from blr.arrays import Floats
from catalogs.arrays import is_real, name_words
from catalogs.catalog.catalog import Column, Element
from catalogs.column_names import column_names
from catalogs.profile.columns import Profile
from catalogs.profile.leaks import spans_decades
from catalogs.profile.quality import about_a_flux, about_an_error, is_magnitude
from catalogs.sky import photometry
from catalogs.sky.photometry import flux_unit

MISSING = 0.2
"""Share of missing values, beyond that of the fullest band, from which a band is in no colour of its neighbours."""
RARE = 0.5  # share of missing values that a remark tells
FEWEST_BANDS = 3
ALIKE, FEWEST_ROWS = 0.8, 50  # correlation of the magnitudes in neighbouring bands, and rows that it takes


COLOUR = "colour"


def magnitudes_among(columns: Sequence[Column], rows: Mapping[str, Floats]) -> list[str]:
    """Return the columns of `rows` (n,) that hold magnitudes, by themselves or as those of three bands together."""
    known = {c.name for c in columns if is_magnitude(c, rows[c.name])}
    may_be: dict[str, list[str]] = {}
    for column in columns:
        kind, values = band_and_kind(column.name)[1], rows[column.name][np.isfinite(rows[column.name])]
        unitless = not (column.unit or "").strip() and not about_a_flux(column) and is_real(column.datatype)
        if kind and unitless and values.size and 5 < abs(float(np.median(values))) < 35:
            may_be.setdefault(kind, []).append(column.name)
    called, together = column_names().bands, set[str]()
    for kind, group in may_be.items():
        words = kind.split("_")
        called_so = all(called.kind.fullmatch(w) or called.instrument.fullmatch(w) for w in words)
        pairs = () if called_so or most_bands(group) < FEWEST_BANDS else pairwise(kinds(group)[0])
        # Numbers in several bands as alike as one object's magnitudes: sizes are alike too, but spread by factors.
        alike = all(rise_together(rows[a], rows[b], FEWEST_ROWS, ALIKE) for a, b in pairs)
        one_scale = alike and not any(spans_decades(rows[name]) for name in group)
        if most_bands(group) >= FEWEST_BANDS and (called_so or one_scale):
            together.update(group)
    return [c.name for c in columns if c.name in known or c.name in together]


def rise_together(x: Floats, y: Floats, fewest: int, correlation: float) -> bool:
    """Say whether two columns (n,) rise together in the rows that have both; constant ones do not."""
    both = np.isfinite(x) & np.isfinite(y)
    a, b = x[both], y[both]
    if both.sum() < fewest or np.ptp(a) == 0 or np.ptp(b) == 0:
        return False
    return float(np.corrcoef(a, b)[0, 1]) >= correlation


def band_and_kind(name: str) -> tuple[str | None, str]:
    """Return the band that a column's name has, and the rest of the name, in small letters."""
    if isinstance(name, Element):
        # Bands of a vector are in order of wavelength wherever surveys have such.
        return f"[{name.place}]", band_and_kind(name.vector)[1]
    tokens, known = name_words(name), column_names().bands
    for i in reversed(range(len(tokens))):
        word = known.glued.sub("", tokens[i])
        if known.wavelength(word) is not None:
            rest = tokens[:i] + tokens[i + 1 :]
            return word, "_".join(t for t in rest if t not in known.beside)
    for i, token in enumerate(tokens):
        beside = not tokens[1:] or tokens[max(0, i - 1)] in known.beside
        ways = (
            way.pattern.fullmatch(token) for way in known.written_together if beside or not way.only_beside
        )
        joined = next((match for match in ways if match is not None), None)
        if joined is not None:
            rest = [*tokens[:i], joined["kind"], *tokens[i + 1 :]]
            return joined["band"], "_".join(t for t in rest if t not in known.beside)
    return None, "_".join(tokens)


def wavelength(band: str) -> float:
    """Return a band's wavelength, in micrometres; F606W is at 0.606, F150W at 1.5, F444W at 4.44."""
    if band.startswith("["):
        return float(band[1:-1])
    return column_names().bands.wavelength(band) or 0.0


def kinds(names: Sequence[str]) -> list[list[str]]:
    """Return the magnitudes by kind, each in order of wavelength, those of the most bands first."""
    by_kind: dict[str, list[tuple[float, int, str]]] = {}
    for place, name in enumerate(names):
        band, kind = band_and_kind(name)
        key = kind if band else "?"
        by_kind.setdefault(key, []).append((wavelength(band) if band else 0.0, place, name))
    ordered = [[name for _, _, name in sorted(group)] for group in by_kind.values()]
    return sorted(ordered, key=lambda group: -len(group))


def most_bands(names: Sequence[str]) -> int:
    """Return the number of bands of the kind that has most."""
    banded = [name for name in names if band_and_kind(name)[0] is not None]
    return max((len({band_and_kind(name)[0] for name in group}) for group in kinds(banded)), default=0)


def colours(names: Sequence[str], missing: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Return colours, each as two magnitudes and a remark; with one magnitude they say all that the magnitudes say.

    First come neighbours in wavelength among the magnitudes of the first kind.  Each other magnitude is then compared
    with the first kind's in its band, which shows how extended an object is, or else in the nearest band.
    `missing` is the share of missing values of each column.
    """
    groups = kinds(names)
    if not groups:
        return []
    most = min(missing[n] for n in groups[0]) + MISSING
    first = [n for n in groups[0] if missing[n] <= most]  # its rows have all of these colours, as a rule
    chain = [(a, b, COLOUR) for a, b in pairwise(first)]
    rest = [n for n in groups[0] if n not in first]
    rest += [n for group in groups[1:] for n in group]
    return [*chain, *(_beside(first, name, missing[name]) for name in rest)]


def _beside(first: Sequence[str], name: str, missing: float) -> tuple[str, str, str]:
    """Return the difference of a magnitude and the first kind's in its band, or in the nearest."""
    band = band_and_kind(name)[0]
    same = next((n for n in first if band is not None and band_and_kind(n)[0] == band), None)
    if same is not None:
        return same, name, "two kinds of magnitude in one band: shows how extended the object is"
    rare = f"; {name} is missing in {missing:.0%} of the rows" if missing > RARE else ""
    return name, _nearest(first, band), f"{COLOUR}{rare}"


def _nearest(names: Sequence[str], band: str | None) -> str:
    """Return the column whose band is nearest to another in wavelength, of an unknown one the middle column."""
    known = {n: b for n in names if (b := band_and_kind(n)[0]) is not None and wavelength(b) > 0}
    if band is None or not known or wavelength(band) <= 0:
        return names[len(names) // 2]
    return min(known, key=lambda n: abs(math.log(wavelength(known[n]) / wavelength(band))))


MOSTLY = 0.9  # share of positive values from which what is called a flux is taken for one


def magnitudes_of(flux: Column, error: str | None, rows: Mapping[str, Floats]) -> Floats:
    """Return the magnitudes (n,) of a flux, on the scale that the table of its band asks for."""
    values, zero = rows[flux.name], photometry.ZERO_POINT[str(flux_unit(flux.unit))]
    sigma = None if error is None else rows.get(error)
    if sigma is not None and error is not None and is_inverse_variance(error):
        sigma = photometry.error_from_inverse_variance(sigma)
    if sigma is None or not (np.isfinite(sigma) & (sigma > 0)).any():
        return np.asarray(photometry.magnitude(values, zero))
    return photometry.asinh_magnitude(values, photometry.softening_of(sigma, zero), zero)


def is_inverse_variance(error: str) -> bool:
    """Say whether a column with the error of a flux holds its inverse variance, by its name."""
    return column_names().inverse_variance.fits(error, name_words(error))


def is_flux(column: Column) -> bool:
    """Say whether a column is a flux in a unit that magnitudes are made of."""
    return is_real(column.datatype) and flux_unit(column.unit) is not None and not about_an_error(column)


def bare_fluxes(seen: Profile, names: Sequence[str], rows: Mapping[str, Floats]) -> list[str]:
    """Return the columns that are called fluxes of bands, two bands at least, in one unit that we do not know."""
    called: dict[str, list[str]] = {}
    for name in names:
        known = rows[name][np.isfinite(rows[name])]
        column = seen.columns[name].column
        called_so = about_a_flux(column) and not is_flux(column) and band_and_kind(name)[0] is not None
        if called_so and np.mean(known > 0) > MOSTLY:
            called.setdefault((column.unit or "").strip(), []).append(name)
    groups: list[list[list[str]]] = sorted(map(kinds, called.values()), key=lambda some: -len(some[0]))
    return [n for group in groups[0] for n in group] if groups and len(groups[0][0]) > 1 else []


def said_by_magnitudes(seen: Profile, names: Sequence[str], magnitudes: Sequence[str]) -> dict[str, str]:
    """Return the fluxes of which there are magnitudes of the same kind and band, each with that one."""
    known = {band_and_kind(name): name for name in magnitudes if band_and_kind(name)[0] is not None}
    others = [name for name in names if name not in magnitudes and about_a_flux(seen.columns[name].column)]
    return {name: known[band_and_kind(name)] for name in others if band_and_kind(name) in known}


class MeasuredFlux(NamedTuple):
    """The columns of a flux and, where there is one, of its error, of which a magnitude is made."""

    flux: str
    error: str | None


def flux_bands(seen: Profile, names: Sequence[str]) -> dict[str, MeasuredFlux]:
    """Return magnitudes to be made of fluxes, by name, those of the kind with the most bands first."""
    bands: dict[str, MeasuredFlux] = {}
    for i, group in enumerate(kinds([name for name in names if band_and_kind(name)[0] is not None])):
        for name in group:
            band, kind = band_and_kind(name)
            called = re.sub(r"\W", "", (f"mag_{band}" if i == 0 else f"mag_{band}_{kind}").rstrip("_"))
            while called in seen.columns or called in bands:
                called += "_"
            errors = (c.name for c in seen.columns.values() if about_an_error(c.column) and _of(c.name, name))
            bands[called] = MeasuredFlux(name, next(errors, None))
    return bands


def _of(error: str, flux: str) -> bool:
    """Say whether an error's name is a flux's but for the word that says error."""
    (band, kind), (theirs, rest) = band_and_kind(flux), band_and_kind(error)
    known = column_names().error_parts
    words = [w for w in rest.split("_") if w and not known.flux_word.fullmatch(w)]
    plain = [known.flux_ending.sub("", w) for w in words]
    # The name of a vector of fluxes has no band, beside which `flux` says nothing.
    rest = "_".join(w for w in kind.split("_") if w != "flux")
    return theirs == band and "_".join(w for w in plain if w not in {"", "flux"}) == rest
