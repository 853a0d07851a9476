"""Photometry: magnitudes from fluxes, their errors, extinction, and what a missing value means.

Magnitudes are logarithms of fluxes: m = zero - 2.5 log10 f.  A flux that noise made zero or
negative has no magnitude, so prefer asinh magnitudes (Lupton, Gunn & Szalay 1999, doi:10.1086/301004), which
agree with them where the flux is well measured and stay finite where it is not.

A value can be missing for different reasons: a band was not observed, or the object not detected in it, or the value
is masked as bad.  `State` keeps these apart; the number is NaN in all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from catalogs.arrays import (
    NO_VALUES,
    Array,
    Floats,
    floats,
    holds_text,
    is_mark,
    numbers_of,
    with_missing,
    words_of,
)
from catalogs.errors import CatalogError

POGSON = 2.5 / np.log(10)
"""Magnitudes in a factor e of flux."""

ZERO_POINT: Mapping[str, float] = MappingProxyType(
    {"nanomaggy": 22.5, "nJy": 31.4, "uJy": 23.9, "mJy": 16.4, "Jy": 8.90}
)
"""AB magnitude of one unit of flux: 8.90 of 1 Jy, by the definition of -48.6 (Oke & Gunn 1983, doi:10.1086/160817)."""


SPELLINGS: Mapping[str, Sequence[str]] = {
    "nanomaggy": ("nanomaggy", "nanomaggies", "nmgy", "nmaggy"),
    "nJy": ("njy", "nanojy", "nanojansky"),
    "uJy": ("ujy", "microjy", "microjansky", "\u00b5jy", "\u03bcjy"),  # the micro sign, the Greek letter
    "mJy": ("mjy", "millijy"),
    "Jy": ("jy", "janskys"),
}
"""Units of flux, as catalogues write them in small letters."""
FLUX_UNITS = {spelling: unit for unit, some in SPELLINGS.items() for spelling in some}

EXTINCTION: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "decam": MappingProxyType({"u": 3.995, "g": 3.214, "r": 2.165, "i": 1.592, "z": 1.211, "Y": 1.064}),
        "sdss": MappingProxyType({"u": 4.239, "g": 3.303, "r": 2.285, "i": 1.698, "z": 1.263}),
    }
)
"""A / E(B-V) on the scale of Schlegel, Finkbeiner & Davis.

Schlafly & Finkbeiner (2011), doi:10.1088/0004-637X/737/2/103.
"""


class State(IntEnum):
    """What is known of a value."""

    MEASURED = 0
    NOT_OBSERVED = 1
    NOT_DETECTED = 2
    MASKED = 3


Sentinel = float | str | tuple[float, float]
"""A number or a text that stands for no value, or a closed range of such numbers; '>' and '<' for all limits."""


def flux_unit(written: str | None) -> str | None:
    """Return the unit of flux that a catalogue writes, or None for an unknown one."""
    text = (written or "").strip()
    # A capital M is mega: MJy is a unit of surface brightness maps, a thousand million mJy.
    return None if text.startswith("MJ") else FLUX_UNITS.get(text.lower())


def magnitude(flux: ArrayLike, zero_point: float = ZERO_POINT["nanomaggy"]) -> Floats:
    """Return zero_point - 2.5 log10(flux), NaN where the flux is not positive."""
    values = floats(flux)
    positive = values > 0
    return np.where(positive, zero_point - 2.5 * np.log10(np.where(positive, values, 1.0)), np.nan)


def magnitude_error(flux: ArrayLike, flux_error: ArrayLike) -> Floats:
    """Return the one-sigma error 2.5 / ln 10 |sigma / flux|, to first order; NaN where the flux is not positive."""
    values, sigma = floats(flux), floats(flux_error)
    positive = values > 0
    return np.where(positive, POGSON * np.abs(sigma) / np.where(positive, values, 1.0), np.nan)


def error_from_inverse_variance(inverse_variance: ArrayLike) -> Floats:
    """Return sigma = 1 / sqrt(ivar): infinity where nothing is known (0), NaN where it cannot be (negative)."""
    values = floats(inverse_variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1 / np.sqrt(np.where(values == 0, 0.0, values)))


def asinh_magnitude(flux: ArrayLike, softening: float, zero_point: float = ZERO_POINT["nanomaggy"]) -> Floats:
    """Return -2.5 / ln 10 [asinh((f / f0) / 2b) + ln b], where f0 is the flux of magnitude 0.

    `softening` is b, above 0 and without a unit: a flux over f0.  `flux` is in the unit that has that zero point.
    """
    scale = 2 * softening * flux_of_magnitude_zero(zero_point)
    return np.asarray(-POGSON * (np.arcsinh(floats(flux) / scale) + np.log(softening)))


def asinh_magnitude_error(
    flux: ArrayLike, flux_error: ArrayLike, softening: float, zero_point: float = ZERO_POINT["nanomaggy"]
) -> Floats:
    """Return the one-sigma error of an asinh magnitude, to first order: finite at any flux."""
    scale = 2 * softening * flux_of_magnitude_zero(zero_point)
    return np.asarray(POGSON * np.abs(floats(flux_error)) / np.hypot(floats(flux), scale))


def softening_of(flux_error: ArrayLike, zero_point: float = ZERO_POINT["nanomaggy"]) -> float:
    """Return a softening b for a survey without one: the median error of its fluxes, over f0.

    It belongs to the training set, and is stored with the model.
    """
    sigma = floats(flux_error)
    known = sigma[np.isfinite(sigma) & (sigma > 0)]
    if not known.size:
        raise CatalogError(
            "got no positive flux error, from which the softening is computed; state the softening b yourself"
        )
    return float(np.median(known) / flux_of_magnitude_zero(zero_point))


def flux_of_magnitude_zero(zero_point: float) -> float:
    """Return f0 in the unit of that zero point: 1e9 nanomaggies."""
    return float(10 ** (zero_point / 2.5))


def unit_factor(unit: str, other: str) -> float:
    """Return what a flux in one unit of `ZERO_POINT` is multiplied by to be in the other, by their zero points."""
    return float(10 ** (0.4 * (ZERO_POINT[other] - ZERO_POINT[unit])))


def dereddened_flux(flux: ArrayLike, transmission: ArrayLike) -> Floats:
    """Return a flux without the Galaxy's extinction, from the fraction that gets through (`mw_transmission`)."""
    through = floats(transmission)
    usable = through > 0
    return np.where(usable, floats(flux) / np.where(usable, through, 1.0), np.nan)


def is_sentinel(values: Array, sentinels: Sequence[Sentinel]) -> NDArray[np.bool_]:
    """Return which values stand for none: equal to a sentinel in the column's own precision, or in a range."""
    data = np.ma.getdata(values)
    data = words_of(data) if holds_text(data) else data
    marked = np.zeros(data.shape, dtype=bool)
    for sentinel in sentinels:
        marked |= matches(data, sentinel)
    return marked & ~np.ma.getmaskarray(values)


def matches(data: Array, sentinel: Sentinel) -> Array:
    """Return which values are one sentinel."""
    if isinstance(sentinel, str):
        return is_mark(data, sentinel) if holds_text(data) else np.zeros(data.shape, dtype=bool)
    if holds_text(data):
        data = numbers_of(data)
    if data.dtype == NO_VALUES:
        return np.zeros(data.shape, dtype=bool)
    if isinstance(sentinel, tuple):
        low, high = sentinel
        return np.asarray((data >= low) & (data <= high))
    # -99.9 in a float32 column is the float32 nearest to it; of 1e300 there is none.
    with np.errstate(over="ignore"):
        return np.asarray(data == (data.dtype.type(sentinel) if data.dtype.kind == "f" else sentinel))


def apply_sentinels(values: Array, sentinels: Sequence[Sentinel]) -> Array:
    """Return the values with sentinels missing: NaN, '' in text, masked in integers that float64 would round."""
    gone = is_sentinel(values, sentinels)
    if not gone.any():
        return values
    if values.dtype.kind in "OUT":
        return np.where(gone, "", values)
    return with_missing(values, gone)


def states(
    values: Array,
    *,
    not_observed: Sequence[Sentinel] = (),
    not_detected: Sequence[Sentinel] = (),
    masked: Sequence[Sentinel] = (),
    otherwise: State = State.NOT_OBSERVED,
) -> NDArray[np.int8]:
    """Return the `State` of each value, from the sentinels that stand for each; `otherwise` for NaN, nulls and ''.

    RAIL's convention is not_observed=[-99], not_detected=[99].  In a column of texts, numbers among the sentinels are
    compared with the numbers that texts hold, and '>' and '<' are all texts that begin with them.
    """
    absent = np.ma.getmaskarray(values)
    if holds_text(values):
        values = words_of(values)
        absent = values == ""
    elif values.dtype == NO_VALUES:
        absent = np.ones(len(values), dtype=bool)
    elif values.dtype.kind == "f":
        absent = absent | np.isnan(np.ma.getdata(values))
    result = np.where(absent, otherwise, State.MEASURED)
    result = np.where(is_sentinel(values, not_observed), State.NOT_OBSERVED, result)
    result = np.where(is_sentinel(values, not_detected), State.NOT_DETECTED, result)
    return np.where(is_sentinel(values, masked), State.MASKED, result).astype(np.int8)
