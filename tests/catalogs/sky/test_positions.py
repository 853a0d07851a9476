"""Positions in degrees, radians and sexagesimal text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.coordinates import SkyCoord
from hypothesis import given
from hypothesis import strategies as st

from catalogs.catalog.catalog import Catalog, Column
from catalogs.errors import CatalogError
from catalogs.sky.positions import (
    PositionTree,
    find_position_columns,
    galactic_latitude,
    position_unit,
    positions,
    unit_of_position,
)


@given(
    ra=st.lists(st.floats(0, 359.99), min_size=1, max_size=20),
    dec=st.floats(-89.99, 89.99),
    separator=st.sampled_from([":", " "]),
)
def test_sexagesimal_text_as_astropy_writes_it(ra: Any, dec: Any, separator: Any) -> None:
    sky = SkyCoord(ra, np.full(len(ra), dec), unit="deg")
    place = positions(
        np.array(sky.ra.to_string("hour", sep=separator, precision=6), dtype=object),
        np.array(sky.dec.to_string("deg", sep=separator, precision=5), dtype=object),
        "sexagesimal",
    )
    assert np.allclose(place.ra, ra, atol=1e-7)
    assert np.allclose(place.dec, dec, atol=1e-7)
    assert place.unreadable == 0


def test_minus_zero_degrees_is_south() -> None:
    place = positions(np.array(["00h01m00s"]), np.array(["-00d30m00s"]), "sexagesimal")
    assert place.dec[0] == pytest.approx(-0.5)


def test_what_is_unreadable_or_out_of_range_is_counted() -> None:
    place = positions(np.array(["12:00:00", "12:75:00", "", "x"]), np.array(["10:00:00"] * 4), "sexagesimal")
    assert place.unreadable == 2
    assert np.isfinite(place.ra).tolist() == [True, False, False, False]
    place = positions(np.array([10.0, 400.0, -10.0, np.nan]), np.array([95.0, 0.0, 5.0, 0.0]))
    assert place.out_of_range == 2
    assert place.ra[2] == 350


@pytest.mark.parametrize(
    ("unit", "expected"),
    [(None, "deg"), ("degrees", "deg"), ("RADIANS{3}", "rad"), ("rad", "rad"), ("deg", "deg")],
)
def test_units(unit: str | None, expected: str) -> None:
    assert position_unit(unit, is_text=False) == expected


def test_an_unreadable_unit_is_refused_unless_stated() -> None:
    with pytest.raises(CatalogError, match="got a position in the unit 'furlong', expected degrees"):
        position_unit("furlong", is_text=False)
    assert position_unit("furlong", is_text=False, stated="deg") == "deg"


@pytest.mark.parametrize("unit", ["arcmin", "arcsec", "mas"])
def test_who_has_arcseconds_is_not_told_to_call_them_degrees(unit: str) -> None:
    with pytest.raises(CatalogError, match=f"in the unit '{unit}', .*convert both columns to degrees$"):
        position_unit(unit, is_text=False)


def test_hours_beside_degrees() -> None:
    place = positions(np.array([0.0, 23.5, 24.5, 12.0]), np.array([-90.0, 0.5, 0.0, 91.0]), "hours")
    np.testing.assert_allclose(place.ra, [0, 352.5, np.nan, np.nan])
    np.testing.assert_allclose(place.dec, [-90, 0.5, np.nan, np.nan])
    assert place.out_of_range == 2


@pytest.mark.parametrize("written", ["h", "hr", "Hours", "hourangle"])
def test_the_unit_of_hours(written: str) -> None:
    def made(ra: str | None, dec: str | None) -> Catalog:
        columns = (Column("ra", pa.float64(), unit=ra), Column("dec", pa.float64(), unit=dec))
        return Catalog("made", Path("made"), columns, ())

    for dec in ("deg", None):
        assert unit_of_position(made(written, dec), "ra", "dec") == "hours"
    assert unit_of_position(made(None, None), "ra", "dec", stated="hours") == "hours"
    for ra, dec in ((written, written), ("deg", written), (written, "rad")):
        with pytest.raises(CatalogError, match="expected the same unit for both"):
            unit_of_position(made(ra, dec), "ra", "dec")


def test_texts_of_degrees() -> None:
    """As a column is, of a CSV file, in which one place is '-'."""
    ra, dec = np.array(["150.5", " -10 ", "-", "", "x"]), np.array(["2.5", "1", "3", "4", "5"])
    place = positions(ra, dec, "deg")
    np.testing.assert_array_equal(place.ra, [150.5, 350, np.nan, np.nan, np.nan])
    assert place.unreadable == 2
    assert positions(np.array(["1.5"]), np.array(["-0.5"]), "rad").dec[0] == pytest.approx(np.degrees(-0.5))
    assert positions(np.array(["150.5"]), np.array(["2.5"]), "sexagesimal").unreadable == 1


def test_raised_letters_as_astropy_prints_them() -> None:
    sky = SkyCoord(112.3, -0.4, unit="deg")
    texts = (sky.ra.to_string("hour", format="unicode"), sky.dec.to_string(format="unicode"))
    place = positions(*(np.array([text]) for text in texts), "sexagesimal")
    assert place.ra[0] == pytest.approx(112.3)
    assert place.dec[0] == pytest.approx(-0.4)


def test_matches_cross_the_meridian() -> None:
    tree = PositionTree(np.array([50.0, 0.0001]), np.array([0.0, 0.0]), radius=1.0)
    index = tree.nearest(np.array([359.9999, 10.0, np.nan]), np.array([0.0, 0.0, 0.0]))
    assert index.tolist() == [1, -1, -1]


def test_others_within_a_radius_are_those_of_astropy() -> None:
    rng = np.random.default_rng(5)
    ra = np.concatenate([rng.uniform(0, 360, 40), (rng.normal(0, 0.002, 60)) % 360])
    dec = np.concatenate([rng.uniform(89.999, 90, 40), rng.normal(0, 0.002, 60)])
    sky = SkyCoord(ra, dec, unit="deg")
    expected = [set(np.flatnonzero(sky[i].separation(sky).arcsec <= 3).tolist()) - {i} for i in range(100)]
    pairs = PositionTree(ra, dec, radius=3.0).pairs().tolist()
    found = [{j for pair in pairs if i in pair for j in pair} - {i} for i in range(100)]
    assert any(expected)
    assert found == expected
    assert not len(PositionTree(ra[:1], dec[:1], radius=3.0).pairs())


def test_galactic_latitude_is_astropys() -> None:
    rng = np.random.default_rng(0)
    ra, dec = rng.uniform(0, 360, 200), np.degrees(np.arcsin(rng.uniform(-1, 1, 200)))
    expected = SkyCoord(ra, dec, unit="deg").galactic.b.deg
    np.testing.assert_allclose(galactic_latitude(ra, dec), expected, atol=1e-4)
    assert np.isnan(galactic_latitude(np.array([np.nan]), np.array([0.0]))).all()


@pytest.mark.parametrize(
    ("named", "unit", "found"),
    [
        (("SC_RA", "SC_DEC"), "deg", ("SC_RA", "SC_DEC")),
        (("opt_RAJ2000", "opt_DEJ2000"), "deg", ("opt_RAJ2000", "opt_DEJ2000")),
        (("SC_RA", "SC_DEC", "ra", "dec"), "deg", ("ra", "dec")),
        (("e_RA", "e_DEC"), "deg", None),
        (("pm_ra", "pm_dec"), "deg", None),
        (("SC_RA", "XX_DEC"), "deg", None),
        (("SC_RA", "SC_DEC"), "arcsec", None),
        (("SC_RA", "SC_DEC"), None, None),
    ],
)
def test_a_prefix_before_both_coordinates(
    named: tuple[str, ...], unit: str | None, found: tuple[str, str] | None
) -> None:
    """SC_RA and SC_DEC of XMM were left out as places on the sky, and yet no position was found."""
    columns = tuple(Column(n, pa.float64(), unit=unit) for n in named)
    assert find_position_columns(Catalog("fits", Path("x"), columns, ())) == found
