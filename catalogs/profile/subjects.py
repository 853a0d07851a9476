"""What a column is about, by its UCD, unit and name: a flux, an error, the distance, dust, the observation.

The object itself is the subject of what is left.  Names are those of published catalogues; where they say nothing,
neither does this.
"""

from __future__ import annotations

import re

from catalogs.arrays.name_words import name_words
from catalogs.catalog.catalog import Column
from catalogs.catalog.elements import Element

__all__ = [
    "about_a_flux",
    "about_a_magnitude",
    "about_an_error",
    "about_dust",
    "about_the_distance",
    "about_the_observation",
    "without_unit",
]

DISTANCES = ("src.redshift", "spect.dopplerveloc", "phys.veloc", "pos.distance", "pos.parallax")
DISTANCE = re.compile(
    r"z|zs|cz|rv|vel|velocity|v_?hel(io)?|distance|dist(_?mpc|mod)?|parallax|plx|.*red_?shift.*|.*rad(ial)?_?vel.*"
    r"|(.*_)?z_?(best|spec|phot|photo|prior|final|cmb|hel(io)?|ml|map|mc|peak|pdf|tonry)(_.*)?"
    r"|(.*_)?(spec|phot|photo|dnf|bpz|eazy|lephare|annz2?|lp)_?z(_.*)?|(.*_)?(phz|photoz|specz)_.*|z_b(_min|_max)?"
)
"""Redshifts of spectra and of colours, by whichever code, velocities of recession, and distances."""
DUST = re.compile(
    r"e_?b_?v|(.*_)?ebv.*|(.*_)?ebmv.*|e\(b-v\)|.*extinc.*|.*reddening.*|mw_?transmission.*"
    r"|a_?(fiducial_)?[ugrizybvjhk]|a\([a-z]\)"
)
FLUX_UNIT = re.compile(r"(nano)?maggy|nmgy|[munµμ]?jy")
FLUX_OF_FILTER = re.compile(r"f_?(f\d{3,4}(w2?|m|n|lp|x))")
"""`f_F160W`, as catalogues of deep fields call a flux."""
MAGNITUDE = re.compile(
    r"(^|[^a-z])(mag|m_(?=([ubvgrizyjhk]s?|bp|rp|vis)(\d|_|$)|w\d|[fn]uv|f\d))|mag([^a-z]|$)"
    r"|^(petro|model|psf|kron|cmodel|auto)mag|^w\dg?m(pro|ag)|^[jhk]s?_m(_|$)",
    re.IGNORECASE,
)
ERROR = re.compile(
    r"(^e_|^err|^sigma|_err$|err$|_error$|_sigma$|_unc$|_ivar$|^ivar|^s_|_err_|_ivar_|err_|_uncert"
    r"|_msig|sigmpro|_sig$|invvar|_std$|_rms$|\d_e[in]?$|^del(log|mag))",
    re.IGNORECASE,
)
UNIT_IN_NAME = re.compile(r"(?<=\w)\s*(\([^)]*\)|\[[^\]]*\])\s*$")
OBSERVING = ("obs.", "instr.", "time.", "meta.", "stat.snr", "stat.fit")
OBSERVED = re.compile(
    r"mjd.*|jd|epoch|seeing|airmass|exptime|n?exposures?|.*depth|psfsize|.*maglim|lim(it|iting)?|zeropoint|zp"
    r"|.*(snr|s2n|chi2|chisq)|sn|chi2.*|tsnr2?|bkg|background|sky|skybright(ness)?"
)
"""Words of a name that say when, how deep and how well an object was observed, not what it is."""


def without_unit(name: str) -> str:
    """Return a name without the unit that some catalogues write into it: 'Dist (Mpc)' is 'dist', 'W50 [km/s]' 'w50'."""
    return UNIT_IN_NAME.sub("", name).lower()


def about_the_distance(column: Column) -> bool:
    """Say whether a column is a redshift, a velocity of recession or a distance: what a survey selects by."""
    ucd = (column.ucd or "").lower()
    named = bool(DISTANCE.fullmatch(without_unit(column.name)))
    return ucd.startswith(DISTANCES) or (named and not ucd.startswith("phot.") and not about_a_flux(column))


def about_a_flux(column: Column) -> bool:
    """Say whether a column is a flux, by its UCD, its unit or its name; shares of one (`FRACFLUX_G`) are none."""
    ucd, unit = (column.ucd or "").lower(), (column.unit or "").lower()
    words = [w for w in name_words(column.name) if w.endswith("flux") and not w.startswith("frac")]
    filtered = FLUX_OF_FILTER.fullmatch(column.name.lower())
    return ucd.startswith("phot.flux") or bool(FLUX_UNIT.fullmatch(unit)) or bool(words) or bool(filtered)


def about_a_magnitude(column: Column) -> bool:
    """Say whether a column is called a magnitude, by its UCD, its unit or its name; surface brightness is none."""
    ucd, unit = (column.ucd or "").lower(), (column.unit or "").lower()
    if ucd.startswith("phot.mag.sb") or "/" in unit:
        return False
    return ucd.startswith("phot.mag") or unit == "mag" or bool(MAGNITUDE.search(column.name))


def about_an_error(column: Column) -> bool:
    """Say whether a column holds errors."""
    name = column.name.vector if isinstance(column.name, Element) else column.name
    return (column.ucd or "").startswith("stat.error") or bool(ERROR.search(name))


def about_dust(column: Column) -> bool:
    """Say whether a column is the Galaxy's extinction, which is a matter of the place on the sky."""
    ucd = (column.ucd or "").lower()
    return ucd.startswith("phys.absorption") or bool(DUST.fullmatch(column.name.lower()))


def about_the_observation(column: Column) -> bool:
    """Say whether a column is about an observation, an instrument, a date, a code or a note, by its UCD or name.

    Signal-to-noise ratios, depths and the quality of fits say how an object was seen: in another survey otherwise.
    """
    words = name_words(column.name)
    return (column.ucd or "").lower().startswith(OBSERVING) or any(map(OBSERVED.fullmatch, words))
