"""Maps of the sky as HEALPix FITS files: read at positions, and written.

Pixels are numbered in the order NESTED or RING, all of the sky's in their places (INDXSCHM = IMPLICIT) or some with
their numbers (EXPLICIT).  Gorski et al. (2005), doi:10.1086/427976; keywords as in
https://healpix.sourceforge.io/data/examples/healpix_fits_specs.pdf.  Shapes: n pixels or positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from astropy import units
from astropy.coordinates import Latitude, Longitude, SkyCoord
from astropy.io import fits
from astropy_healpix import HEALPix
from numpy.typing import NDArray

from catalogs.arrays import Floats, column_values, floats, holds_text
from catalogs.errors import ColumnNotFoundError, FormatError, nearest
from catalogs.files import atomic_path, stamp
from catalogs.fits.columns import table_of
from catalogs.fits.header import Hdu, read_hdus
from catalogs.fits.table import FitsPartition, open_tables

Pixels = NDArray[np.int64]
Frame = Literal["equatorial", "galactic", "ecliptic"]
Ordering = Literal["nested", "ring"]

EQUATORIAL = ("C", "Q", "CEL", "CELESTIAL", "EQU", "EQUATORIAL", "ICRS", "J2000", "FK5")
FRAMES: dict[str, Frame] = dict.fromkeys(EQUATORIAL, "equatorial")
FRAMES |= dict.fromkeys(("G", "GAL", "GALACTIC"), "galactic")
FRAMES |= dict.fromkeys(("E", "ECL", "ECLIPTIC"), "ecliptic")
"""What COORDSYS says, in capitals."""
ASTROPY_FRAMES: Mapping[Frame, str] = {"galactic": "galactic", "ecliptic": "barycentricmeanecliptic"}
PIXEL_COLUMNS = ("PIXEL", "PIX", "IPIX", "HPIX", "HPXPIXEL", "HPX_PIXEL", "HEALPIX", "INDEX")
UNSEEN = -1.6375e30
"""What HEALPix' own writers put where they have no value."""
FINEST_ORDER = 29


@dataclass(frozen=True, eq=False)
class HealpixMap:
    """A map: the numbers of its pixels (n,), in increasing order, and their values (n,), NaN for none."""

    path: Path
    column: str
    unit: str | None
    nside: int
    ordering: Ordering
    frame: Frame
    pixels: Pixels
    values: Floats

    def at(self, ra: Floats, dec: Floats) -> Floats:
        """Return the values (n,) of the pixels that hold positions in degrees (ICRS); NaN outside of the map."""
        out = np.full(len(ra), np.nan)
        known = np.flatnonzero(np.isfinite(ra) & np.isfinite(dec))
        if not known.size or not self.pixels.size:
            return out
        lon, lat = Longitude(ra[known] * units.deg), Latitude(dec[known] * units.deg)
        if self.frame != "equatorial":
            moved = SkyCoord(lon, lat, frame="icrs").transform_to(ASTROPY_FRAMES[self.frame]).spherical
            lon, lat = moved.lon, moved.lat
        grid = HEALPix(nside=self.nside, order=self.ordering)
        wanted = np.asarray(grid.lonlat_to_healpix(lon, lat), dtype=np.int64)
        place = np.minimum(np.searchsorted(self.pixels, wanted), len(self.pixels) - 1)
        there = self.pixels[place] == wanted
        out[known[there]] = self.values[place[there]]
        return out


def read_healpix(path: Path, *, column: str | None = None, frame: Frame | None = None) -> HealpixMap:
    """Return a column of a map, by default the first one; `frame` states the coordinates where the file does not.

    FormatError or DamagedFileError where the file is no such map, or holds something else than it says.
    """
    with open_tables(path, seen := stamp(path)) as source:
        hdus = read_hdus(source)
    hdu = next((h for h in hdus if h.is_bintable and _said(h, "PIXTYPE") == "HEALPIX"), None)
    if hdu is None:
        raise FormatError(
            f"{path}: got no table with PIXTYPE = 'HEALPIX', expected a map of the sky as HEALPix FITS; "
            "convert an image to HEALPix first"
        )
    header, table = hdu, table_of(hdu)
    ordering, nside = _ordering(path, header), header.value("NSIDE")
    if not isinstance(nside, int) or not 0 < nside <= 2**FINEST_ORDER:
        raise header.damaged(f"got NSIDE = {nside}, expected a whole number of 1 or more")
    units_of = {c.name: c.unit for c in table.columns}
    index = None
    if _said(header, "INDXSCHM") == "EXPLICIT":
        index = next((n for n in units_of if n.upper() in PIXEL_COLUMNS), next(iter(units_of), None))
    others = [n for n in units_of if n != index]
    name = column or (others[0] if others else "")
    if name not in others:
        raise ColumnNotFoundError(
            f"{path}: got '{name}', expected a column of the map; {nearest(name, others)}"
        )
    partition = FitsPartition(path, path.name, table.n_rows, table, seen)
    values = floats(_numbers(partition, name))
    values = np.where(np.isfinite(values) & (values >= 0.99 * UNSEEN), values, np.nan)
    if isinstance(bad := header.value("BAD_DATA"), int | float):
        values[values == bad] = np.nan
    if index is None:
        first = header.integer("FIRSTPIX", 0)
        pixels = np.arange(first, first + len(values), dtype=np.int64)
        whole = first == 0 and "LASTPIX" not in header
        expected = 12 * nside**2 if whole else header.integer("LASTPIX") + 1 - first
        if len(values) != expected:
            raise header.damaged(f"got {len(values):,} values, expected {expected:,}, as its header says")
    else:
        pixels = np.ma.filled(_numbers(partition, index).astype(np.int64), -1)
    if len(pixels) != len(values) or (pixels.size and not 0 <= pixels.min() <= pixels.max() < 12 * nside**2):
        raise header.damaged(f"got pixel numbers beyond those of NSIDE = {nside}")
    order, frame = np.argsort(pixels, kind="stable"), _frame(path, header, frame)
    return HealpixMap(path, name, units_of[name], nside, ordering, frame, pixels[order], values[order])


def _said(header: Hdu, keyword: str) -> str:
    return str(header.value(keyword) or "").strip().upper()


def _numbers(partition: FitsPartition, name: str) -> NDArray[Any]:
    """Return the numbers of a column, the null ones masked; writers put many pixels into a row."""
    parts = [column_values(batch.column(0), name=name) for batch in partition.batches([name])]
    if any(holds_text(part) for part in parts):
        raise FormatError(f"{partition.path}: got the column '{name}' of texts, expected numbers")
    join: Any = np.ma.concatenate
    return np.asanyarray(join([np.empty(0, np.bool_), *(part.ravel() for part in parts)]))


def _ordering(path: Path, header: Hdu) -> Ordering:
    said = _said(header, "ORDERING")
    if said != "RING" and not said.startswith("NEST"):
        raise FormatError(
            f"{path}: got ORDERING = '{said}', expected NESTED or RING; convert a multi-order map to one order first"
        )
    return "ring" if said == "RING" else "nested"


def _frame(path: Path, header: Hdu, stated: Frame | None) -> Frame:
    said = _said(header, "COORDSYS")
    known = FRAMES.get(said, stated)
    if known is None or stated not in {None, known}:
        raise FormatError(
            f"{path}: got COORDSYS = '{said}' and the coordinates {stated}, expected C, G or E; state the coordinates "
            f"where the file does not, as one of {', '.join(get_args(Frame))}"
        )
    return known


def centres(pixels: Pixels, order: int) -> tuple[Floats, Floats]:
    """Return right ascension and declination (n,) of the centres of nested pixels, in degrees."""
    lon, lat = HEALPix(nside=2**order, order="nested").healpix_to_lonlat(pixels)
    return np.asarray(lon.to_value(units.deg)), np.asarray(lat.to_value(units.deg))


MapColumn = tuple[str, NDArray[Any], str, str]
"""A column of a map: its name, its values (n,), NaN for none, its unit, '' for none, and a description."""


def write_healpix(
    path: Path, pixels: Pixels, columns: Sequence[MapColumn], *, order: int, history: Sequence[str] = ()
) -> None:
    """Write a map of nested pixels (n,) in equatorial coordinates, whole or not at all."""
    whole = [fits.Column("PIXEL", "J" if order <= 13 else "K", array=pixels)]
    for name, values, unit, _ in columns:
        code = "J" if values.dtype.kind in "iu" else "D"
        whole.append(fits.Column(name, code, array=values, unit=unit or None))
    hdu = fits.BinTableHDU.from_columns(whole, name="HEALPIX")
    full = len(pixels) == 12 * 4**order
    for key, value, comment in (
        ("PIXTYPE", "HEALPIX", "pixels of HEALPix"),
        ("ORDERING", "NESTED", "order of the pixels"),
        ("COORDSYS", "C", "equatorial coordinates (ICRS)"),
        ("NSIDE", 2**order, "resolution"),
        ("ORDER", order, "NSIDE = 2**ORDER"),
        ("INDXSCHM", "EXPLICIT", "pixels are numbered in the first column"),
        ("OBJECT", "FULLSKY" if full else "PARTIAL", "part of the sky"),
        ("FIRSTPIX", 0, "first pixel of the sky"),
        ("LASTPIX", 12 * 4**order - 1, "last pixel of the sky"),
    ):
        hdu.header[key] = (value, comment)
    for number, (*_, description) in enumerate(columns, 2):
        hdu.header.comments[f"TTYPE{number}"] = description
    for line in history:
        hdu.header.add_history(line)
    with atomic_path(path) as temporary:
        fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(temporary, overwrite=True, checksum=True)
