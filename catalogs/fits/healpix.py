"""Maps of the sky as HEALPix FITS files: read at positions, and written.

Pixels are numbered in the order NESTED or RING, all of the sky's in their places (INDXSCHM = IMPLICIT) or some with
their numbers (EXPLICIT).  Gorski et al. (2005), doi:10.1086/427976; keywords as in
https://healpix.sourceforge.io/data/examples/healpix_fits_specs.pdf.  Shapes: n pixels or positions.
"""

from __future__ import annotations

import gzip
import io
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from astropy import units
from astropy.coordinates import Latitude, Longitude, SkyCoord
from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning
from astropy_healpix import HEALPix
from numpy.typing import NDArray

from catalogs.errors import ColumnNotFoundError, DamagedFileError, FormatError, nearest
from catalogs.files import atomic_path, open_bytes

Floats = NDArray[np.float64]
Pixels = NDArray[np.int64]
Frame = Literal["equatorial", "galactic", "ecliptic"]

FRAMES: Mapping[str, Frame] = {
    **dict.fromkeys(
        ("C", "Q", "CEL", "CELESTIAL", "EQU", "EQUATORIAL", "ICRS", "J2000", "FK5"), "equatorial"
    ),
    **dict.fromkeys(("G", "GAL", "GALACTIC"), "galactic"),
    **dict.fromkeys(("E", "ECL", "ECLIPTIC"), "ecliptic"),
}
"""What COORDSYS says, in capitals."""
ASTROPY_FRAMES: Mapping[Frame, str] = {"galactic": "galactic", "ecliptic": "barycentricmeanecliptic"}
PIXEL_COLUMNS = ("PIXEL", "PIX", "IPIX", "HPIX", "HPXPIXEL", "HPX_PIXEL", "HEALPIX", "INDEX")
UNREADABLE = (
    OSError,
    EOFError,
    zlib.error,
    TypeError,
    ValueError,
    IndexError,
    fits.VerifyError,
    AstropyWarning,
)
"""What readers raise of damaged files."""
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
    ordering: Literal["nested", "ring"]
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
    try:
        with warnings.catch_warnings(action="ignore"):
            # astropy warns of files that are cut; of other oddities, which change no value, too.
            warnings.filterwarnings("error", message="(?s).*(truncated|corrupted)", category=AstropyWarning)
            with open_bytes(path) as begin:
                zipped = begin.read(2) == b"\x1f\x8b"
            # Where it is damaged, astropy would leave a gzipped file open, or not notice the cut.
            opened = io.BytesIO(gzip.decompress(path.read_bytes())) if zipped else open_bytes(path)
            with opened as stream, fits.open(stream, memmap=False) as hdus:
                return _map_in(path, hdus, column, frame)
    except FileNotFoundError as error:
        raise FormatError(
            f"{path}: there is no such file, expected a map of the sky as HEALPix FITS; correct the name"
        ) from error
    except UNREADABLE as error:
        raise DamagedFileError(
            f"{path}: got a file that cannot be read as a map ({error}); fetch it again"
        ) from error


def _map_in(path: Path, hdus: Any, column: str | None, frame: Frame | None) -> HealpixMap:
    hdu = next((h for h in hdus if str(h.header.get("PIXTYPE", "")).strip().upper() == "HEALPIX"), None)
    if hdu is None or not isinstance(hdu, fits.BinTableHDU):
        raise FormatError(
            f"{path}: got no table with PIXTYPE = 'HEALPIX', expected a map of the sky as HEALPix FITS; "
            "convert an image to HEALPix first"
        )
    header = hdu.header
    ordering, nside = _ordering(path, header), header.get("NSIDE")
    if not isinstance(nside, int) or not 0 < nside <= 2**FINEST_ORDER:
        raise DamagedFileError(
            f"{path}: got NSIDE = {nside}, expected a whole number of 1 or more; fetch it again"
        )
    names = list(hdu.columns.names)
    explicit = str(header.get("INDXSCHM", "IMPLICIT")).strip().upper() == "EXPLICIT"
    index = (
        next((n for n in names if n.upper() in PIXEL_COLUMNS), names[0] if names else None)
        if explicit
        else None
    )
    others = [n for n in names if n != index]
    name = column or (others[0] if others else "")
    if name not in others:
        raise ColumnNotFoundError(
            f"{path}: got '{name}', expected a column of the map; {nearest(name, others)}"
        )
    values = _values(hdu, name)
    if index is None:
        first = int(header.get("FIRSTPIX", 0))
        pixels = np.arange(first, first + len(values), dtype=np.int64)
        expected = 12 * nside**2 if first == 0 and "LASTPIX" not in header else header["LASTPIX"] + 1 - first
        if len(values) != expected:
            raise DamagedFileError(
                f"{path}: got {len(values):,} values, expected {expected:,}, as its header says; fetch it again"
            )
    else:
        pixels = np.asarray(hdu.data[index], dtype=np.int64).ravel()
    if len(pixels) != len(values) or (pixels.size and not 0 <= pixels.min() <= pixels.max() < 12 * nside**2):
        raise DamagedFileError(f"{path}: got pixel numbers beyond those of NSIDE = {nside}; fetch it again")
    order = np.argsort(pixels, kind="stable")
    unit = hdu.columns[name].unit
    return HealpixMap(
        path, name, unit or None, nside, ordering, _frame(path, header, frame), pixels[order], values[order]
    )


def _ordering(path: Path, header: Any) -> Literal["nested", "ring"]:
    said = str(header.get("ORDERING", "")).strip().upper()
    if said.startswith("NEST"):
        return "nested"
    if said == "RING":
        return "ring"
    raise FormatError(
        f"{path}: got ORDERING = '{said}', expected NESTED or RING"
        + ("; convert a multi-order map to one order first" if said == "NUNIQ" else "")
    )


def _frame(path: Path, header: Any, stated: Frame | None) -> Frame:
    said = str(header.get("COORDSYS", "")).strip().upper()
    known = FRAMES.get(said)
    if stated is not None:
        if known not in (None, stated):
            raise FormatError(
                f"{path}: got '{stated}' for a map whose header says COORDSYS = '{said}'; leave the coordinates out"
            )
        return stated
    if known is None:
        raise FormatError(
            f"{path}: got COORDSYS = '{said}', expected C, G or E; state the coordinates, as one of "
            f"{', '.join(get_args(Frame))}"
        )
    return known


def _values(hdu: Any, name: str) -> Floats:
    """Return a column's values, with NaN for none; writers put many pixels into a row."""
    raw = np.asarray(hdu.data[name]).ravel()
    if raw.dtype.kind not in "iufb":
        raise FormatError(f"got the column '{name}' of {raw.dtype}, expected numbers")
    values = raw.astype(np.float64)
    bad = {hdu.columns[name].null, hdu.header.get("BAD_DATA")} - {None, ""}
    gone = ~np.isfinite(values) | (values < 0.99 * UNSEEN)
    for mark in bad:
        gone |= values == mark
    values[gone] = np.nan
    return values


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
