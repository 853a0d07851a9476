"""Held-out rows by salted hash."""

from __future__ import annotations

import numpy as np
import pytest
from astropy import units
from astropy_healpix import HEALPix

from catalogs.profile.split import FINEST_ORDER, healpix_pixels, held_out_keys, name_keys, split_by_pixels


def held_out(columns: list[np.ndarray], fraction: float) -> np.ndarray:
    return held_out_keys(name_keys(columns), fraction)


def test_the_share_is_that_asked_for_and_the_rows_are_these_for_ever() -> None:
    out = held_out([np.arange(20_000)], 0.2)
    assert out.mean() == pytest.approx(0.2, abs=0.01)
    # Written down: a change of hash, salt or spelling would move held-out rows into later fits.
    assert np.flatnonzero(out)[:8].tolist() == [1, 9, 10, 14, 18, 23, 26, 27]


def test_an_object_keeps_its_side_in_any_order_type_and_company() -> None:
    ids = np.arange(2**53, 2**53 + 500)
    out = held_out([ids], 0.3)
    order = np.random.default_rng(0).permutation(500)
    assert np.array_equal(held_out([ids[order]], 0.3), out[order])
    assert np.array_equal(held_out([ids[:100]], 0.3), out[:100])
    assert np.array_equal(held_out([np.array([f"{i}  " for i in ids], dtype=object)], 0.3), out)
    small = np.arange(500)
    assert np.array_equal(held_out([small.astype(np.float64)], 0.3), held_out([small], 0.3))


def test_duplicates_stay_together_and_a_larger_share_holds_the_smaller() -> None:
    ids = np.repeat(np.arange(300), 3)
    out = held_out([ids], 0.2).reshape(300, 3)
    assert (out.all(axis=1) == out.any(axis=1)).all()
    assert (held_out([ids], 0.4) | ~held_out([ids], 0.2)).all()


def test_masked_and_several_columns() -> None:
    masked = np.ma.MaskedArray(np.arange(6), mask=[0, 0, 1, 1, 0, 0])
    out = held_out([masked], 0.5)
    assert out[2] == out[3]
    field, number = np.array(["a", "a", "b"], dtype=object), np.array([1, 2, 1])
    assert len(held_out([field, number], 0.5)) == 3


def test_pixels_of_order_5_are_split_as_they_always_were() -> None:
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(0, 360, 5000), np.degrees(np.arcsin(rng.uniform(-1, 1, 5000)))
    lon[:3] = np.nan
    found = split_by_pixels(healpix_pixels(lon, lat, order=FINEST_ORDER), 0.2)
    assert (found.order, found.fits) == (5, True)
    assert np.array_equal(held_out_keys(found.keys, 0.2), held_out([healpix_pixels(lon, lat)], 0.2))


def test_one_place_cannot_be_split() -> None:
    found = split_by_pixels(np.full(300, 7), 0.2)
    assert not found.fits
    assert set(found.shares) == set(range(5, FINEST_ORDER + 1))


@pytest.mark.parametrize("order", [0, 1, 5, 10])
def test_pixels_are_those_of_astropy_healpix(order: int) -> None:
    rng = np.random.default_rng(1)
    ra, dec = rng.uniform(-10, 370, 5000), np.degrees(np.arcsin(rng.uniform(-1, 1, 5000)))
    grid = HEALPix(nside=2**order, order="nested")
    expected = grid.lonlat_to_healpix(ra * units.deg, dec * units.deg)
    np.testing.assert_array_equal(healpix_pixels(ra, dec, order), expected)
