"""Maps of the sky: those that others wrote, in both orders, whole and in part, in three frames; and damaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy import units
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.table import Table
from astropy_healpix import HEALPix

import catalogs
from catalogs.errors import CatalogError, ColumnNotFoundError, DamagedFileError, FormatError
from catalogs.fits.healpix import centres, read_healpix, write_healpix
from catalogs.profile.split import healpix_pixels

SHARED = Path(__file__).parents[4] / "shared" / "data" / "hats_small_sky"


def somewhere(n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.uniform(0, 360, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))


def written(path: Path, values: Any, *, a_row: int = 1, pixels: Any = None, **header: Any) -> Path:
    """Write a map as healpy does: many pixels a row, or numbered ones."""
    columns = [fits.Column("DEPTH", f"{a_row}E", array=values.reshape(-1, a_row), unit="mag")]
    if pixels is not None:
        columns.insert(0, fits.Column("PIXEL", "J", array=pixels))
    hdu = fits.BinTableHDU.from_columns(columns)
    said = {"PIXTYPE": "HEALPIX", "ORDERING": "RING", "COORDSYS": "C", "NSIDE": 16} | header
    hdu.header.update({key: value for key, value in said.items() if value is not None})
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(path, overwrite=True)
    return path


@pytest.mark.parametrize(
    "name", ["small_sky_source/skymap.2.fits", "small_sky_o1_collection/small_sky_order1/skymap.fits"]
)
def test_a_map_of_cds_counts_the_rows_of_its_catalogue(name: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip("got no shared data")
    sky = read_healpix(SHARED / name)
    assert (sky.ordering, sky.frame) == ("nested", "equatorial")
    order = int(np.log2(sky.nside))
    catalogue = catalogs.open((SHARED / name).parent)
    ra_name, dec_name = ("source_ra", "source_dec") if "source" in name else ("ra", "dec")
    counts = np.zeros(12 * sky.nside**2)
    for batch in catalogue.batches([ra_name, dec_name]):
        ra, dec = (np.asarray(batch.column(i), dtype=float) for i in (0, 1))
        counts += np.bincount(healpix_pixels(ra, dec, order), minlength=len(counts))
        assert np.all(sky.at(ra, dec) > 0)
    np.testing.assert_array_equal(sky.values, counts)


@pytest.mark.parametrize("ordering", ["ring", "nested"])
@pytest.mark.parametrize(
    ("coordsys", "frame"), [("C", "icrs"), ("G", "galactic"), ("E", "barycentricmeanecliptic")]
)
def test_positions_find_astropys_pixels(tmp_path: Path, ordering: str, coordsys: str, frame: str) -> None:
    values = np.random.default_rng(2).normal(size=12 * 16**2).astype(np.float32)
    path = written(tmp_path / "map.fits", values, a_row=1024, ORDERING=ordering.upper(), COORDSYS=coordsys)
    ra, dec = somewhere()
    place = SkyCoord(ra * units.deg, dec * units.deg).transform_to(frame).spherical
    pixel = HEALPix(16, order=ordering).lonlat_to_healpix(place.lon, place.lat)
    sky = read_healpix(path)
    np.testing.assert_array_equal(sky.at(ra, dec), values[pixel])
    assert sky.unit == "mag"
    assert np.isnan(sky.at(np.array([np.nan, 1.0]), np.array([1.0, np.nan]))).all()


def test_a_part_of_the_sky_has_no_values_elsewhere(tmp_path: Path) -> None:
    pixels = np.array([700, 3, 1500])
    values = np.array([1.5, 2.5, 3.5], dtype=np.float32)
    path = written(tmp_path / "part.fits", values, pixels=pixels, INDXSCHM="EXPLICIT", OBJECT="PARTIAL")
    sky = read_healpix(path)
    lon, lat = HEALPix(16, order="ring").healpix_to_lonlat(np.array([3, 4, 700, 1500]))
    np.testing.assert_array_equal(sky.at(lon.deg, lat.deg), [2.5, np.nan, 1.5, 3.5])


def test_a_range_of_pixels(tmp_path: Path) -> None:
    values = np.arange(100, dtype=np.float32)
    sky = read_healpix(written(tmp_path / "range.fits", values, FIRSTPIX=200, LASTPIX=299))
    np.testing.assert_array_equal(sky.pixels, np.arange(200, 300))


def test_marks_of_no_value_are_nan(tmp_path: Path) -> None:
    values = np.ones(12 * 16**2, dtype=np.float32)
    values[:3] = [-1.6375e30, np.nan, -99]
    sky = read_healpix(written(tmp_path / "map.fits", values, BAD_DATA=-99.0))
    assert np.isnan(sky.values[:3]).all()
    assert np.all(sky.values[3:] == 1)


WHOLE = np.ones(12 * 16**2, dtype=np.float32)


@pytest.mark.parametrize(
    ("header", "error", "message"),
    [
        ({"NSIDE": None}, DamagedFileError, "got NSIDE = None"),
        ({"NSIDE": 32}, DamagedFileError, "got 3,072 values, expected 12,288"),
        ({"NSIDE": -1}, DamagedFileError, "got NSIDE = -1"),
        ({"ORDERING": None}, FormatError, "got ORDERING = ''"),
        ({"ORDERING": "NUNIQ"}, FormatError, "a multi-order map"),
        ({"COORDSYS": None}, FormatError, "state the coordinates where .* as one of equatorial, galactic"),
        ({"PIXTYPE": None}, FormatError, "got no table with PIXTYPE"),
        ({"INDXSCHM": "EXPLICIT"}, ColumnNotFoundError, "expected a column of the map"),
    ],
)
def test_headers_that_say_too_little_or_something_else(
    tmp_path: Path, header: dict[str, Any], error: type[Any], message: str
) -> None:
    path = written(tmp_path / "map.fits", WHOLE, **header)
    with pytest.raises(error, match=message):
        read_healpix(path)


def test_pixels_that_are_not_on_the_sky(tmp_path: Path) -> None:
    path = written(tmp_path / "map.fits", WHOLE[:2], pixels=np.array([0, 5000]), INDXSCHM="EXPLICIT")
    with pytest.raises(DamagedFileError, match="got pixel numbers beyond those of NSIDE = 16;"):
        read_healpix(path)


def test_stated_coordinates_serve_where_the_file_says_none(tmp_path: Path) -> None:
    path = written(tmp_path / "map.fits", WHOLE, COORDSYS=None)
    assert read_healpix(path, frame="galactic").frame == "galactic"
    with pytest.raises(FormatError, match="got COORDSYS = 'C' and the coordinates galactic"):
        read_healpix(written(tmp_path / "map.fits", WHOLE), frame="galactic")


def test_columns_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "map.fits", WHOLE)
    assert read_healpix(path, column="DEPTH").column == "DEPTH"
    with pytest.raises(ColumnNotFoundError, match="got 'DEPHT', expected a column of the map"):
        read_healpix(path, column="DEPHT")


def test_damaged_files_are_refused_and_not_misread(tmp_path: Path) -> None:
    """Cut at every length, and no FITS at all."""
    values = np.arange(12 * 16**2, dtype=np.float32)
    whole = written(tmp_path / "map.fits", values).read_bytes()
    end = whole.rindex(values.astype(">f4").tobytes()) + values.nbytes  # behind it is padding
    for length in [*range(0, end, 997), end - 1]:
        (tmp_path / "cut.fits").write_bytes(whole[:length])
        with pytest.raises(FormatError):
            read_healpix(tmp_path / "cut.fits")
    (tmp_path / "cut.fits").write_bytes(whole[:end])
    np.testing.assert_array_equal(read_healpix(tmp_path / "cut.fits").values, values)
    with pytest.raises(CatalogError, match=r"none\.fits is not a file"):
        read_healpix(tmp_path / "none.fits")
    (tmp_path / "text.fits").write_text("ra,dec\n1,2\n")
    with pytest.raises(FormatError):
        read_healpix(tmp_path / "text.fits")


def ours(path: Path) -> tuple[np.ndarray, np.ndarray]:
    pixels = np.array([5, 17, 200])
    values = np.array([0.25, np.nan, 0.75])
    columns = [
        ("FRACTION", values, "", "a fraction"),
        ("DENSITY", values * 4, "deg-2", "a density"),
        ("N", np.array([1, 0, 7], dtype=np.int32), "", "a count"),
    ]
    write_healpix(path, pixels, columns, order=3, history=["made for a test"])
    return pixels, values


def test_others_read_our_maps(tmp_path: Path) -> None:
    pixels, values = ours(tmp_path / "map.fits")
    table = Table.read(tmp_path / "map.fits")
    assert table.meta["ORDERING"] == "NESTED"
    assert (table.meta["NSIDE"], table.meta["INDXSCHM"]) == (8, "EXPLICIT")
    assert str(table["DENSITY"].unit) == "1 / deg2"
    np.testing.assert_array_equal(table["PIXEL"], pixels)
    sky = read_healpix(tmp_path / "map.fits", column="DENSITY")
    np.testing.assert_array_equal(sky.at(*centres(pixels, 3)), values * 4)
    with fits.open(tmp_path / "map.fits", checksum=True) as hdus:
        assert hdus[1].header["HISTORY"][0] == "made for a test"
