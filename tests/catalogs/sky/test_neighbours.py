"""Rows within an arcsecond of another: equal to astropy's search about each, in bounded memory."""

from __future__ import annotations

from typing import Any

import astropy.units as u
import numpy as np
import pytest
from astropy.coordinates import SkyCoord, search_around_sky

from catalogs.sky.positions import NeighbourCounter


def by_astropy(ra: Any, dec: Any, radius: float = 1.0) -> Any:
    sky = SkyCoord(ra * u.deg, dec * u.deg)
    one, other, _, _ = search_around_sky(sky, sky, radius * u.arcsec)
    return len(np.unique(one[one != other]))


def close_pairs(ra: Any, dec: Any, rng: Any) -> Any:
    """Return the positions with a companion each, up to 2 arcseconds away in any direction."""
    sky = SkyCoord(ra * u.deg, dec * u.deg)
    n = len(ra)
    beside = sky.directional_offset_by(rng.uniform(0, 360, n) * u.deg, rng.uniform(0, 2, n) * u.arcsec)
    return np.concatenate([ra, beside.ra.deg]), np.concatenate([dec, beside.dec.deg])


@pytest.mark.parametrize(
    ("low", "high", "north", "south"),
    [
        (0, 360, -90, 90),
        (0, 360, 89.99, 90),
        (0, 360, -90, -89.999),
        (-0.01, 0.01, -0.01, 0.01),
        (150, 150.02, 2, 2.02),
    ],
    ids=["all sky", "north pole", "south pole", "0h", "crowded field"],
)
def test_as_many_as_astropy_finds(low: float, high: float, north: float, south: float) -> None:
    rng = np.random.default_rng(7)
    n = 600
    ra, dec = close_pairs(rng.uniform(low, high, n) % 360, rng.uniform(north, south, n), rng)
    ra, dec = np.concatenate([ra, ra[:50]]), np.concatenate([dec, dec[:50]])  # and some at the same place
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


def test_all_rows_at_one_place_cost_nothing() -> None:
    counter = NeighbourCounter(capacity=100)
    for _ in range(3):
        counter.add(np.zeros(50_000), np.zeros(50_000))
    assert counter.near_another == 150_000
