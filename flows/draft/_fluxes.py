"""The tables [photometry.NAME] of a first specification: magnitudes of columns that say they are fluxes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from catalogs.arrays.texts import name_words
from catalogs.arrays.values import is_real
from catalogs.catalog.catalog import Column
from catalogs.column_names import column_names
from catalogs.profile.columns import Profile
from catalogs.profile.quality import about_a_flux, about_an_error, about_dust
from catalogs.sky.photometry import (
    ZERO_POINT,
    asinh_magnitude,
    error_from_inverse_variance,
    magnitude,
    softening_of,
)
from flows.draft._bands import band_and_kind, kinds
from flows.draft._exclusions import Floats
from flows.features.flux_units import flux_unit

__all__ = ["FluxBand", "bare_fluxes", "flux_bands", "is_flux", "said_by_magnitudes"]

REDDENING = re.compile(r"e_?\(?b[_-]?m?v", re.IGNORECASE)
MOSTLY = 0.9
"""Share of positive values from which what is called a flux is taken for one."""


@dataclass(frozen=True)
class FluxBand:
    """A magnitude made of a flux, whose column's unit is known, with its error where there is one."""

    name: str
    flux: str
    unit: str
    error: str | None = None
    dust: str | None = None

    def magnitudes(self, rows: Mapping[str, Floats]) -> Floats:
        """Return magnitudes (n,) on the scale that the table asks for.

        With an error they are asinh magnitudes, which a flux that is zero or negative has too.
        """
        flux, zero = rows[self.flux], ZERO_POINT[self.unit]
        given = None if self.error is None else rows.get(self.error)
        sigma = given if given is None or not self.is_inverse else error_from_inverse_variance(given)
        if sigma is None or not (np.isfinite(sigma) & (sigma > 0)).any():
            return np.asarray(magnitude(flux, zero))
        return asinh_magnitude(flux, softening_of(sigma, zero), zero)

    @property
    def is_inverse(self) -> bool:
        """Whether the error is given as an inverse variance."""
        return self.error is not None and column_names().inverse_variance.fits(
            self.error, name_words(self.error)
        )

    def lines(self, quoted: Mapping[str, str]) -> Iterator[str]:
        """Yield the table; `quoted` are names as expressions and TOML have them."""
        yield f"[photometry.{self.name}]"
        yield f"flux = {quoted[self.flux]}  # {self.unit}"
        if self.error is None:
            yield (
                'scale = "pogson"  # no error of the flux was found: where the flux is not positive, there '
                "is no magnitude"
            )
        else:
            key = "inverse_variance" if self.is_inverse else "error"
            yield f"{key} = {quoted[self.error]}"
        if self.dust is not None:
            through = _is_transmission(self.dust)
            dust_key = "transmission" if through else "e_bv"
            coefficient = 3.2 if _in_band(self.dust, None) else 1  # the extinction in the band itself
            more = "" if through else f", coefficient = {coefficient}"
            yield f"# extinction = {{ {dust_key} = {quoted[self.dust]}{more} }}  # if it is not taken off yet"


def is_flux(column: Column) -> bool:
    """Say whether a column is a flux in a unit that magnitudes are made of."""
    return is_real(column.datatype) and flux_unit(column.unit) is not None and not about_an_error(column)


def bare_fluxes(seen: Profile, names: Sequence[str], rows: Mapping[str, Floats]) -> list[str]:
    """Return the columns that are called fluxes of bands, two bands at least, in one unit that we do not know.

    They are positive in most rows (n,), as fluxes are that were detected.
    """
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


def flux_bands(seen: Profile, names: Sequence[str]) -> list[FluxBand]:
    """Return the bands of all columns that are fluxes, those of the kind with the most bands first.

    A magnitude of another kind beside the first kind's says how extended an object is.
    """
    groups = kinds([name for name in names if band_and_kind(name)[0] is not None])
    bands: list[FluxBand] = []
    for i, group in enumerate(groups):
        for name in group:
            band, kind = band_and_kind(name)
            called = f"mag_{band}" if i == 0 else f"mag_{band}_{kind}"
            bands.append(_flux_band(seen, name, called.rstrip("_"), bands))
    return bands


def _flux_band(seen: Profile, name: str, called: str, known: Sequence[FluxBand]) -> FluxBand:
    """Return a flux's magnitude, called so, or otherwise where a column or a magnitude is."""
    band, kind = band_and_kind(name)
    every = [c.column for c in seen.columns.values()]
    magnitude = re.sub(r"\W", "", called)
    while magnitude in seen.columns or magnitude in {f.name for f in known}:
        magnitude += "_"
    error = next((c.name for c in every if about_an_error(c) and _of(c.name, str(band), kind)), None)
    unit = flux_unit(seen.columns[name].column.unit)
    return FluxBand(magnitude, name, str(unit), error, _dust(every, str(band)))


def _of(error: str, band: str, kind: str) -> bool:
    """Say whether an error's name is a flux's but for the word that says error."""
    theirs, rest = band_and_kind(error)
    known = column_names().error_parts
    words = [w for w in rest.split("_") if w and not known.flux_word.fullmatch(w)]
    plain = [known.flux_ending.sub("", w) for w in words]
    # The name of a vector of fluxes has no band, beside which `flux` says nothing.
    rest = "_".join(w for w in kind.split("_") if w != "flux")
    return theirs == band and "_".join(w for w in plain if w not in {"", "flux"}) == rest


def _dust(columns: Sequence[Column], band: str) -> str | None:
    """Return the column of the dust before a band: its own transmission or extinction, else E(B-V)."""
    dusty = [c.name for c in columns if about_dust(c)]
    own = sorted((n for n in dusty if _in_band(n, band)), key=lambda n: not _is_transmission(n))
    every = [n for n in dusty if not _is_transmission(n) and _in_band(n, None)]
    return next(iter([*own, *every]), None)


def _in_band(name: str, band: str | None) -> bool:
    """Say whether the dust is that in a band, or in none: E(B-V) is no extinction in V."""
    of = None if _is_reddening(name) else band_and_kind(name)[0]
    return of == band


def _is_reddening(name: str) -> bool:
    return REDDENING.search(name) is not None


def _is_transmission(name: str) -> bool:
    return column_names().transmission.fits(name, name_words(name))
