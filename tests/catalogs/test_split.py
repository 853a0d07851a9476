"""Held-out rows by salted hash."""

from __future__ import annotations

import numpy as np
import pytest

from catalogs.split import healpix_pixels, held_out


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


def test_pixels_are_those_of_the_standard() -> None:
    """The twelve base pixels' centres, Gorski et al. (2005), section 4."""
    lon = np.array([45, 135, 225, 315, 0, 90, 180, 270, 45, 135, 225, 315], dtype=float)
    lat = np.repeat(np.degrees(np.arcsin([2 / 3, 0, -2 / 3])), 4)
    assert healpix_pixels(lon, lat, order=0).tolist() == list(range(12))
    assert healpix_pixels(np.array([np.nan, 10.0, 10.0]), np.array([0.0, np.nan, 91.0])).tolist() == [
        -1,
        -1,
        -1,
    ]
