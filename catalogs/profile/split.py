"""Rows held out of every fit, by salted hash of what names an object: the same rows for every model, on every machine.

A hash needs no memory of earlier draws: an object keeps its side when the catalogue grows, is reordered, or comes in
another format, and duplicates stay together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays import Array, unique_texts
from catalogs.errors import CatalogError

__all__ = [
    "FINEST_ORDER",
    "HEALPIX_ORDER",
    "SplitSummary",
    "healpix_keys",
    "healpix_pixels",
    "held_out_keys",
    "is_about",
    "name_keys",
    "split_by_pixels",
]

HEALPIX_ORDER = 5
"""Pixels of 1.8 degrees: neighbours on the sky, which share calibration and environment, fall on one side."""

FINEST_ORDER = 10
"""Pixels of 3.4 arcminutes: finer ones would part neighbours, which a split by place is to keep together."""
TOLERANCE = 0.25
"""Part of the share asked for by which the share held out may differ from it."""

_SALT = b"blr: held-out rows, 1"


@dataclass(frozen=True, kw_only=True)
class SplitSummary:
    """Which rows are held out: by a hash of what, and how many."""

    by: str  # "id", "healpix" or columns
    asked: float  # share of the rows
    share: float  # that is held out
    n_places: int  # different names, pixels or values
    healpix_order: int | None  # of the pixels; None where the split is not by place


def held_out_keys(keys: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Return which rows (N,) are held out, about `fraction` of the different ones of their `name_keys` (N,)."""
    return np.asarray(keys < np.uint64(int(fraction * 2**64)))


def name_keys(columns: Sequence[Array]) -> NDArray[np.uint64]:
    """Return the salted hash (N,) of what the columns, each (N,), name: rows of equal values have the same.

    Whole numbers hash alike as integers, floats and text; trailing blanks of text do not count.
    """
    texts = [_canonical(column) for column in columns]
    joined = texts[0]
    if len(texts) > 1:
        joined = np.array(["\x1f".join(row) for row in zip(*texts, strict=True)], object)
    values, inverse, _ = unique_texts(joined)
    hashes = (blake2b(value.encode(), digest_size=8, key=_SALT).digest() for value in values)
    keys = np.frombuffer(b"".join(hashes), dtype=">u8").astype(np.uint64)
    return np.asarray(keys[inverse])


def _canonical(column: Array) -> Array:
    values = np.ma.getdata(column)
    if values.ndim > 1:
        raise CatalogError(
            "got vectors as identifiers or groups, expected one value in each row; name another column"
        )
    if values.dtype.kind in "iub":
        texts = [str(int(v)) for v in values]
    elif values.dtype.kind == "f":
        texts = [str(int(v)) if np.isfinite(v) and v == np.floor(v) else repr(float(v)) for v in values]
    else:
        texts = [str(v).strip() for v in values]
    result = np.array(texts, dtype=object)
    result[np.ma.getmaskarray(column)] = ""
    return result


def healpix_pixels(ra: Array, dec: Array, order: int = HEALPIX_ORDER) -> NDArray[np.int64]:
    """Return the nested HEALPix pixel (N,) of positions in degrees (N,); -1 for a missing one.

    Gorski et al. (2005), doi:10.1086/427976, equations 12 to 22, without astropy, which is slow to import.
    """
    lon, lat = (np.ma.filled(np.ma.asarray(x, dtype=np.float64), np.nan) for x in (ra, dec))
    known = np.isfinite(lon) & np.isfinite(lat) & (np.abs(lat) <= 90)
    pixels = np.full(len(lon), -1, dtype=np.int64)
    pixels[known] = _nested_pixels(lon[known], np.radians(lat[known]), order)
    return pixels


def _nested_pixels(ra: NDArray[np.float64], dec: NDArray[np.float64], order: int) -> NDArray[np.int64]:
    """Return the nested pixels (N,) of right ascensions in degrees and declinations in radians, (N,) each."""
    n, z = 1 << order, np.sin(dec)
    turn = np.mod(ra, 360.0) / 90.0
    turn[turn >= 4] = 0.0  # tiny negative angles, rounded up
    # Near the equator, a base pixel lies between lines that rise and lines that fall to the east.
    rising, falling = ((n * (0.5 + turn + slope * z)).astype(np.int64) for slope in (-0.75, 0.75))
    a, b = rising >> order, falling >> order
    face = np.where(a == b, a | 4, np.where(a < b, a, b + 8))
    x, y = falling & (n - 1), n - 1 - (rising & (n - 1))
    # Beyond two thirds, lines run to the pole.
    polar = np.flatnonzero(np.abs(z) > 2 / 3)
    turn, z = turn[polar], z[polar]
    quarter, north = turn.astype(np.int64), z > 0
    reach = n * np.cos(dec[polar]) * np.sqrt(3 / (1 + np.abs(z)))
    shares = turn - quarter, 1 - turn + quarter
    east, west = (np.minimum((share * reach).astype(np.int64), n - 1) for share in shares)
    face[polar] = np.where(north, quarter, quarter + 8)
    x[polar] = np.where(north, n - 1 - west, east)
    y[polar] = np.where(north, n - 1 - east, west)
    pixels = face << (2 * order)
    for bit in range(order):
        pixels |= ((x >> bit & 1) << (2 * bit)) | ((y >> bit & 1) << (2 * bit + 1))
    return pixels


def healpix_keys(pixels: NDArray[np.int64], order: int) -> NDArray[np.uint64]:
    """Return the keys (N,) of the pixels of an order that hold nested pixels (N,) of `FINEST_ORDER`."""
    coarse = pixels >> 2 * (FINEST_ORDER - order)  # -1, no position, stays -1
    if order == HEALPIX_ORDER:  # as before there was a choice: held-out rows stay held out
        return name_keys([coarse])
    return name_keys([np.full(len(coarse), order), coarse])


def is_about(share: float, fraction: float) -> bool:
    """Say whether the share that is held out is about the one asked for."""
    return abs(share - fraction) <= TOLERANCE * fraction


def split_by_pixels(
    pixels: NDArray[np.int64], fraction: float, *, order: int | None = None
) -> tuple[int, dict[int, float]]:
    """Return the coarsest order of pixels that holds out about `fraction` of the rows, and the shares of all tried.

    The rows are nested pixels (N,) of `FINEST_ORDER`.  Few pixels, or pixels of very unequal numbers of rows, hold out
    much more or less.  Where no order from `HEALPIX_ORDER` on comes near, it is the nearest.  An `order` is taken as it
    is.
    """
    shares: dict[int, float] = {}
    for tried in range(HEALPIX_ORDER, FINEST_ORDER + 1) if order is None else (order,):
        shares[tried] = float(held_out_keys(healpix_keys(pixels, tried), fraction).mean())
        if is_about(shares[tried], fraction):
            break
    return min(shares, key=lambda tried: abs(shares[tried] - fraction)), shares
