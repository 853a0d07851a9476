"""What a column is about, by its UCD, unit and name: a flux, an error, the distance, dust, the observation.

All other columns are about the object itself.  Names are those of `catalogs/column_names.toml`; where they say
nothing, neither does this.
"""

from __future__ import annotations

import re

from catalogs.arrays.name_words import name_words
from catalogs.catalog.catalog import Column
from catalogs.catalog.elements import Element
from catalogs.column_names import column_names
from catalogs.column_roles import Naming

__all__ = [
    "about_a_colour",
    "about_a_flux",
    "about_a_magnitude",
    "about_an_error",
    "about_dust",
    "about_the_distance",
    "about_the_observation",
    "without_unit",
]

DISTANCES = ("src.redshift", "spect.dopplerveloc", "phys.veloc", "pos.distance", "pos.parallax")
FLUX_UNIT = re.compile(r"(nano)?maggy|nmgy|[munµμ]?jy")
UNIT_IN_NAME = re.compile(r"(?<=\w)\s*(\([^)]*\)|\[[^\]]*\])\s*$")
OBSERVING = ("obs.", "instr.", "time.", "meta.", "stat.snr", "stat.fit")


def without_unit(name: str) -> str:
    """Return a name without the unit that some catalogues write into it: 'Dist (Mpc)' is 'dist', 'W50 [km/s]' 'w50'."""
    return UNIT_IN_NAME.sub("", name).lower()


def about_the_distance(column: Column) -> bool:
    """Say whether a column is a redshift, a velocity of recession or a distance: what a survey selects by."""
    ucd = (column.ucd or "").lower()
    named = _called(column_names().distance, column, without_unit(column.name))
    return ucd.startswith(DISTANCES) or (named and not ucd.startswith("phot.") and not about_a_flux(column))


def about_a_flux(column: Column) -> bool:
    """Say whether a column is a flux, by its UCD, its unit or its name; shares of one (`FRACFLUX_G`) do not count."""
    ucd, unit = (column.ucd or "").lower(), (column.unit or "").lower()
    named = _called(column_names().flux, column)
    return ucd.startswith("phot.flux") or bool(FLUX_UNIT.fullmatch(unit)) or named


def about_a_magnitude(column: Column) -> bool:
    """Say whether a column is called a magnitude, by UCD, unit or name; not a colour, not surface brightness."""
    ucd, unit = (column.ucd or "").lower(), (column.unit or "").lower()
    if ucd.startswith("phot.mag.sb") or "/" in unit or about_a_colour(column):
        return False
    return ucd.startswith("phot.mag") or unit == "mag" or _called(column_names().magnitude, column)


def about_a_colour(column: Column) -> bool:
    """Say whether a column is a colour, by its UCD or as one called by two bands: Gaia's `bp_rp`, `U-B (mag)`."""
    if (column.ucd or "").lower().startswith("phot.color"):
        return True
    known = column_names().bands
    bands = [known.wavelength(w) for w in name_words(without_unit(column.name)) if w not in known.systems]
    return not isinstance(column.name, Element) and len(bands) == 2 and None not in bands


def about_an_error(column: Column) -> bool:
    """Say whether a column holds errors."""
    name = column.name.vector if isinstance(column.name, Element) else column.name
    return (column.ucd or "").startswith("stat.error") or column_names().error.fits(name, name_words(name))


def about_dust(column: Column) -> bool:
    """Say whether a column is the Galaxy's extinction, which is a matter of the place on the sky."""
    ucd = (column.ucd or "").lower()
    return ucd.startswith("phys.absorption") or _called(column_names().dust, column)


def about_the_observation(column: Column) -> bool:
    """Say whether a column is about an observation, an instrument, a date, a code or a note, by its UCD or name.

    Signal-to-noise ratios, depths and the quality of fits say how an object was seen: in another survey otherwise.
    """
    return (column.ucd or "").lower().startswith(OBSERVING) or _called(column_names().observation, column)


def _called(role: Naming, column: Column, name: str | None = None) -> bool:
    """Say whether a column, or the vector that it is an element of, is called as those of a role are."""
    own = column.name if name is None else name
    vector = column.name.vector if isinstance(column.name, Element) else column.name
    return role.named(vector) or role.fits(own, name_words(column.name))
