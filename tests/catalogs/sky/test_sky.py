"""Positions, photometry and neighbours on the sky, against astropy and the surveys' own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import astropy.units as u
import numpy as np
import pyarrow as pa
import pytest
from astropy.coordinates import SkyCoord, search_around_sky
from hypothesis import given
from hypothesis import strategies as st

from catalogs.arrays import column_values
from catalogs.catalog.catalog import Catalog, Column
from catalogs.errors import CatalogError
from catalogs.sky import photometry as p
from catalogs.sky.positions import (
    NeighbourCounter,
    PositionTree,
    find_position_columns,
    galactic_latitude,
    position_unit,
    positions,
    unit_of_position,
)

SDSS_SOFTENING = {"u": 1.4e-10, "g": 0.9e-10, "r": 1.2e-10, "i": 1.8e-10, "z": 7.4e-10}


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
    none = column_values(pa.nulls(2))
    assert np.isnan(positions(none, none).ra).all()


def test_units_are_read_and_an_unreadable_one_is_refused_unless_stated() -> None:
    readable = {None: "deg", "degrees": "deg", "RADIANS{3}": "rad", "rad": "rad", "deg": "deg"}
    assert {unit: position_unit(unit, is_text=False) for unit in readable} == readable
    with pytest.raises(CatalogError, match=r"got a position in the unit 'furlong', .*; convert both"):
        position_unit("furlong", is_text=False)
    assert position_unit("furlong", is_text=False, stated="deg") == "deg"


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


def test_a_prefix_before_both_coordinates() -> None:
    """SC_RA and SC_DEC of XMM were left out as places on the sky, and yet no position was found."""
    positions_found: dict[tuple[str, str | None], str] = {
        ("SC_RA SC_DEC", "deg"): "SC_RA SC_DEC",
        ("opt_RAJ2000 opt_DEJ2000", "deg"): "opt_RAJ2000 opt_DEJ2000",
        ("SC_RA SC_DEC ra dec", "deg"): "ra dec",
        **dict.fromkeys([("e_RA e_DEC", "deg"), ("pm_ra pm_dec", "deg"), ("SC_RA XX_DEC", "deg")], ""),
        **dict.fromkeys([("SC_RA SC_DEC", "arcsec"), ("SC_RA SC_DEC", None)], ""),
    }
    for (named, unit), found in positions_found.items():
        columns = tuple(Column(n, pa.float64(), unit=unit) for n in named.split())
        place = find_position_columns(Catalog("fits", Path("x"), columns, ()))
        assert " ".join(place or ()) == found, named


NAN = np.nan


def test_magnitudes() -> None:
    """One nanomaggy is 22.5, one nJy 31.4, one Jy 8.90; without positive flux there is none."""
    np.testing.assert_allclose(p.magnitude([1.0, 100.0]), [22.5, 17.5])
    np.testing.assert_allclose(p.magnitude(1.0, p.ZERO_POINT["nJy"]), 31.4)
    np.testing.assert_allclose(p.magnitude(3631.0, p.ZERO_POINT["Jy"]), 0.0, atol=1e-3)
    np.testing.assert_array_equal(p.magnitude([0.0, -1.0, NAN]), [NAN] * 3)
    np.testing.assert_allclose(p.dereddened_flux([8.0, 1.0, 1.0], [0.8, 0.0, NAN]), [10.0, NAN, NAN])


def test_magnitude_errors() -> None:
    """One per cent of flux is 0.0109 mag."""
    np.testing.assert_allclose(p.magnitude_error([100.0, 10.0], [1.0, 1.0]), [0.010857, 0.108574], rtol=1e-4)
    np.testing.assert_array_equal(p.magnitude_error([0.0, -1.0], [1.0, 1.0]), [NAN, NAN])
    errors = p.error_from_inverse_variance([4.0, 0.0, -0.0, -1.0])
    np.testing.assert_array_equal(errors, [0.5, np.inf, np.inf, NAN])


def test_sdss_magnitudes_of_no_flux() -> None:
    """SDSS's table of asinh magnitudes at zero flux, https://www.sdss4.org/dr17/algorithms/magnitudes/."""
    for band, mag in {"u": 24.63, "g": 25.11, "r": 24.80, "i": 24.36, "z": 22.83}.items():
        assert round(float(p.asinh_magnitude(0.0, SDSS_SOFTENING[band])), 2) == mag, band


@given(st.floats(-1e3, 1e3), st.sampled_from([0.0, 8.9, 22.5, 31.4]))
def test_asinh_magnitudes_invert(ratio: Any, zero_point: Any) -> None:
    """Flux to asinh magnitude and back, whatever the unit, negative fluxes too."""
    b = 1.2e-10
    unit = b * 10 ** (zero_point / 2.5)
    mag = p.asinh_magnitude(ratio * unit, b, zero_point)
    flux = 2 * unit * np.sinh(-mag * np.log(10) / 2.5 - np.log(b))
    np.testing.assert_allclose(flux, ratio * unit, rtol=1e-9, atol=1e-9 * unit)


def test_asinh_errors_are_the_derivative() -> None:
    b, flux, step = 1.2e-10, np.array([-0.5, 0.0, 0.1, 10.0]), 1e-6
    slope = (p.asinh_magnitude(flux + step, b) - p.asinh_magnitude(flux - step, b)) / (2 * step)
    np.testing.assert_allclose(p.asinh_magnitude_error(flux, 0.3, b), 0.3 * np.abs(slope), rtol=1e-6)


def test_softening() -> None:
    """The median error, of those that are known, as a fraction of the flux of magnitude 0."""
    assert p.softening_of([0.1, 0.12, 0.3, NAN, 0.0, np.inf]) == pytest.approx(1.2e-10)
    with pytest.raises(CatalogError, match="state the softening"):
        p.softening_of([NAN])


def test_sentinels() -> None:
    """Exact in the column's precision, in closed ranges, in text; integers stay whole where none is found."""
    values = np.array([20.5, -99.9, 99, 98, NAN], np.float32)
    kept = np.array([20.5] + [NAN] * 4, np.float32)
    np.testing.assert_array_equal(p.apply_sentinels(values, [-99.9, (98, 99)]), kept)
    whole = np.array([1, -9999])
    np.testing.assert_array_equal(p.apply_sentinels(whole, [-9999.0]), [1, NAN])
    assert p.apply_sentinels(whole, [7.5, "-"]) is whole
    assert p.apply_sentinels(np.array([1, 2], dtype=np.uint8), [-9999, 300, 0.5]).tolist() == [1, 2]
    identifiers = np.array([2**60 + 1, -1])
    kept = p.apply_sentinels(identifiers, [-1])
    assert kept[0] == 2**60 + 1
    assert np.ma.getmaskarray(kept).tolist() == [False, True]
    assert p.apply_sentinels(np.array(["E", "-"], object), ["-", -99]).tolist() == ["E", ""]


def test_states_are_kept_apart() -> None:
    """Not observed, not detected and masked are three things; NaN is the first unless said otherwise."""
    values = np.ma.MaskedArray([20.0, -99, 99, NAN, -1, 99], mask=[0, 0, 0, 0, 0, 1])
    options = {"not_observed": [-99], "not_detected": [99], "masked": [(-2, -1)]}
    S = p.State
    expected = [S.MEASURED, S.NOT_OBSERVED, S.NOT_DETECTED, S.NOT_OBSERVED, S.MASKED, S.NOT_OBSERVED]
    assert p.states(values, **options).tolist() == expected
    assert p.states(values, **options, otherwise=S.MASKED).tolist()[3] == S.MASKED
    assert p.states(np.array([1, -99]), not_observed=[-99]).tolist() == [0, 1]


def by_astropy(ra: Any, dec: Any, radius: float = 1.0) -> Any:
    sky = SkyCoord(ra * u.deg, dec * u.deg)
    one, other, _, _ = search_around_sky(sky, sky, radius * u.arcsec)
    return len(np.unique(one[one != other]))


FIELDS = {
    "all sky": (0, 360, -90, 90),
    "north pole": (0, 360, 89.99, 90),
    "south pole": (0, 360, -90, -89.999),
    "0h": (-0.01, 0.01, -0.01, 0.01),
    "crowded field": (150, 150.02, 2, 2.02),
}


@pytest.mark.parametrize("field", FIELDS)
def test_as_many_as_astropy_finds(field: str) -> None:
    rng, (low, high, north, south) = np.random.default_rng(7), FIELDS[field]
    n = 600
    ra, dec = rng.uniform(low, high, n) % 360, rng.uniform(north, south, n)
    sky = SkyCoord(ra * u.deg, dec * u.deg)  # each with a companion, up to 2 arcseconds away in any direction
    beside = sky.directional_offset_by(rng.uniform(0, 360, n) * u.deg, rng.uniform(0, 2, n) * u.arcsec)
    # and some at the same place
    ra, dec = (np.concatenate([x, y, x[:50]]) for x, y in ((ra, beside.ra.deg), (dec, beside.dec.deg)))
    order = rng.permutation(len(ra))
    ra, dec = ra[order], dec[order]
    counter = NeighbourCounter()
    for start in range(0, len(ra), 130):
        counter.add(ra[start : start + 130], dec[start : start + 130])
    expected = by_astropy(ra, dec)
    assert 0 < expected < len(ra)
    assert counter.near_another == expected


def test_more_places_than_are_kept_are_estimated() -> None:
    rng = np.random.default_rng(3)
    ra, dec = rng.uniform(0, 360, 30_000), np.degrees(np.arcsin(rng.uniform(-1, 1, 30_000)))
    counter = NeighbourCounter(capacity=4000)
    for part in (slice(None), slice(0, 10_000)):
        counter.add(ra[part], dec[part])
    assert len(counter._key) <= 4000
    assert counter.near_another == pytest.approx(20_000, rel=0.1)
    # All rows at one place cost nothing.
    counter = NeighbourCounter(capacity=100)
    for _ in range(3):
        counter.add(np.zeros(50_000), np.zeros(50_000))
    assert counter.near_another == 150_000
