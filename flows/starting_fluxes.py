"""The tables [photometry.NAME] of a first specification: magnitudes of columns that say they are fluxes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from catalogs.catalog import Column
from catalogs.photometry import ZERO_POINT, magnitude
from catalogs.profile import Profile
from catalogs.suspicions import about_a_flux, about_dust
from catalogs.values import is_real
from flows.flux_units import flux_unit
from flows.starting_bands import band_and_kind, kinds
from flows.starting_reasons import Floats, is_error

__all__ = ["FluxBand", "flux_bands", "is_flux"]

ERROR_WORDS = re.compile(r"(ivar|err(or)?|sigma|unc|e)")
MOSTLY = 0.9
"""Share of positive values from which what is called a flux is taken for one."""
IVAR = re.compile(r"ivar|inverse.?variance", re.IGNORECASE)


@dataclass(frozen=True)
class FluxBand:
    """A magnitude made of a flux, whose column's unit is known, with its error where there is one."""

    name: str
    flux: str
    unit: str
    error: str | None = None
    dust: str | None = None

    def magnitudes(self, rows: Mapping[str, Floats]) -> Floats:
        """Return Pogson's magnitudes (n,): what a look at the column needs."""
        return np.asarray(magnitude(rows[self.flux], ZERO_POINT[self.unit]))

    def lines(self, quoted: Mapping[str, str]) -> Iterator[str]:
        """Yield the table; `quoted` are names as expressions and TOML have them."""
        yield f"[photometry.{self.name}]"
        yield f"flux = {quoted[self.flux]}  # {self.unit}"
        if self.error is None:
            yield 'scale = "pogson"  # no error was found: where the flux is not positive, there is no magnitude'
        else:
            key = "inverse_variance" if IVAR.search(self.error) else "error"
            yield f"{key} = {quoted[self.error]}"
        if self.dust is not None:
            through = "transmission" in self.dust.lower()
            given = "transmission" if through else "e_bv"
            more = "" if through else ", coefficient = 3.2"
            yield f"# extinction = {{ {given} = {quoted[self.dust]}{more} }}  # if it is not taken off yet"


def is_flux(column: Column) -> bool:
    """Say whether a column is a flux in a unit that magnitudes are made of."""
    return is_real(column.datatype) and flux_unit(column.unit) is not None and not is_error(column)


def bare_fluxes(seen: Profile, names: Sequence[str], rows: Mapping[str, Floats]) -> list[str]:
    """Return the columns that are called fluxes, of the kind in the most bands, in one unit that is none of ours.

    Those of two bands at least, and positive in most rows (n,), as fluxes are that were detected.
    """
    called: dict[str, list[str]] = {}
    for name in names:
        known = rows[name][np.isfinite(rows[name])]
        column = seen.columns[name].column
        called_so = about_a_flux(column) and not is_flux(column) and band_and_kind(name)[0] is not None
        if called_so and np.mean(known > 0) > MOSTLY:
            called.setdefault((column.unit or "").strip(), []).append(name)
    first = max((next(iter(kinds(some))) for some in called.values()), key=len, default=[])
    return first if len(first) > 1 else []


def flux_bands(seen: Profile, names: Sequence[str]) -> list[FluxBand]:
    """Return the bands of the kind of flux that has the most of them, of columns that are fluxes."""
    banded = [name for name in names if band_and_kind(name)[0] is not None]
    if not banded:
        return []
    every = [c.column for c in seen.columns.values()]
    found: list[FluxBand] = []
    for name in kinds(banded)[0]:
        band, kind = band_and_kind(name)
        made = "mag_" + re.sub(r"\W", "", str(band))
        while made in seen.columns or made in {f.name for f in found}:
            made += "_"
        unit = flux_unit(seen.columns[name].column.unit)
        error = next((c.name for c in every if is_error(c) and _of(c.name, str(band), kind)), None)
        found.append(FluxBand(made, name, str(unit), error, _dust(every, str(band))))
    return found


def _of(error: str, band: str, kind: str) -> bool:
    """Say whether an error's name is a flux's but for the word that says error."""
    theirs, rest = band_and_kind(error)
    words = [w for w in rest.split("_") if w and not ERROR_WORDS.fullmatch(w)]
    plain = [re.sub(r"(err|ivar)$", "", w) for w in words]
    return theirs == band and "_".join(w for w in plain if w not in {"", "flux"}) == kind


def _dust(columns: Sequence[Column], band: str) -> str | None:
    """Return the column of the dust before a band: its own transmission, else E(B-V)."""
    dusty = [c.name for c in columns if about_dust(c)]
    through = [n for n in dusty if "transmission" in n.lower() and band_and_kind(n)[0] == band]
    return next(iter([*through, *(n for n in dusty if "transmission" not in n.lower())]), None)
