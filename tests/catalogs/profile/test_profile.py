"""Profiles of catalogues: held-out rows, copies of the label, and known defects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units
from astropy_healpix import HEALPix

import catalogs
from catalogs.arrays import DistinctCounter
from catalogs.profile import split
from catalogs.profile.leaks import (
    codes_label,
    copies_of_label,
    find_leaks,
    is_number_of_votes,
    label_numbers,
    spans_decades,
)
from catalogs.profile.quality import quality
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
    pixels = healpix_pixels(lon, lat, order=FINEST_ORDER)
    order, shares = split_by_pixels(pixels, 0.2)
    assert (order, split.is_about(shares[5], 0.2)) == (5, True)
    keys = split.healpix_keys(pixels, order)
    assert np.array_equal(held_out_keys(keys, 0.2), held_out([healpix_pixels(lon, lat)], 0.2))


def test_one_place_cannot_be_split() -> None:
    order, shares = split_by_pixels(np.full(300, 7), 0.2)
    assert not split.is_about(shares[order], 0.2)
    assert set(shares) == set(range(5, FINEST_ORDER + 1))


@pytest.mark.parametrize("order", [0, 1, 5, 10])
def test_pixels_are_those_of_astropy_healpix(order: int) -> None:
    rng = np.random.default_rng(1)
    ra, dec = rng.uniform(-10, 370, 5000), np.degrees(np.arcsin(rng.uniform(-1, 1, 5000)))
    grid = HEALPix(nside=2**order, order="nested")
    expected = grid.lonlat_to_healpix(ra * units.deg, dec * units.deg)
    np.testing.assert_array_equal(healpix_pixels(ra, dec, order), expected)


RNG = np.random.default_rng(0)
TOTAL = RNG.integers(5, 40, 3000).astype(np.float64)
FRACTION = RNG.binomial(TOTAL.astype(int), RNG.random(3000)) / TOTAL


@pytest.mark.parametrize(
    ("column", "formula"),
    [
        (1 - FRACTION, "1 - `a vote`"),
        (np.round(1 - FRACTION, 3), "1 - `a vote`"),
        (np.round(100 * FRACTION), "100 `a vote`"),
        ((2 - 3 * FRACTION).astype(np.float32), "2 - 3 `a vote`"),
        (np.where(RNG.random(3000) < 0.5, FRACTION, np.nan), "`a vote`"),
        (-FRACTION, "-`a vote`"),
    ],
)
def test_a_linear_function_of_the_label_is_found_with_its_formula(column: np.ndarray, formula: str) -> None:
    assert copies_of_label({"x": column}, "a vote", FRACTION) == {"x": formula}
    assert not is_number_of_votes(np.asarray(column, dtype=np.float64), FRACTION)


@pytest.mark.parametrize("decimals", [3, 15])
def test_a_label_that_is_rounded_has_copies_and_a_number_of_votes_too(decimals: int) -> None:
    label = np.round(FRACTION, decimals)
    assert copies_of_label({"x": 1 - FRACTION}, "y", label) == {"x": "1 - y"}
    assert is_number_of_votes(TOTAL, label)
    assert not is_number_of_votes(TOTAL + 1, label)


def test_what_is_like_the_label_is_no_copy() -> None:
    noisy = FRACTION + RNG.normal(0, 0.003, len(FRACTION))
    columns = {"noisy": noisy, "one": np.ones(len(noisy)), "total": TOTAL, "square": FRACTION**2}
    assert copies_of_label(columns, "y", FRACTION) == {}
    few = np.full(len(noisy), np.nan)
    few[:10] = FRACTION[:10]
    assert copies_of_label({"few": few}, "y", FRACTION) == {}


def test_codes_are_numbers_in_whatever_type_and_words_are_none() -> None:
    code = RNG.integers(0, 2, 300)
    for label in (code, code.astype(bool), code.astype(str), code.astype(str).astype(object)):
        numbers = label_numbers(label)
        if label.dtype.kind == "b":
            assert copies_of_label({"x": 1.0 - code}, "y", numbers) == {"x": "1 - y"}
        np.testing.assert_array_equal(numbers, code)
    words = label_numbers(np.where(code, "late", "3"))
    assert copies_of_label({"x": np.where(code, 5.0, 3.0)}, "y", words) == {}
    assert not is_number_of_votes(np.arange(300.0), code.astype(np.float64))


def test_a_code_of_the_label_has_a_number_for_each_text() -> None:
    labels = np.array(["E", "S", "S0"], dtype=object)[RNG.integers(0, 3, 90)]
    number = np.select([labels == "E", labels == "S"], [7.0, 3.0], -1.0)
    assert codes_label(number, labels)
    assert codes_label(np.where(np.arange(90) % 5, number, np.nan), labels), "missing, it tells nothing"
    assert not codes_label(np.where(np.arange(90) == 4, 8.0, number), labels)
    assert not codes_label(np.where(labels == "E", 1.0, 0.0), labels), "two labels have one number"
    assert not codes_label(np.arange(30.0), np.arange(30).astype(str).astype(object)), "names of objects"


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_drawn_as_the_folds_are_leave_both_classes_in_each(seed: int) -> None:
    """The first draws of seed 0 made the labels of a simulation: a copy of them told 26 % of the class."""
    early = np.random.default_rng(seed).random(600) < 0.4
    leaks, gains = find_leaks({"copy": early.astype(float)}, np.where(early, "E", "S"))
    assert gains["copy"] > 0.95
    assert [leak.columns for leak in leaks] == [("copy",)]


@pytest.fixture
def defective(tmp_path: Path) -> Any:
    rng = np.random.default_rng(2)
    n = 1000
    ra, dec = rng.uniform(0, 360, n), rng.uniform(-60, 60, n)
    ra[500:520], dec[500:520] = ra[:20], dec[:20]
    dec[700] = 95.0
    x = rng.normal(size=n)
    x[:10], x[10:60] = 1e6, np.nan
    names = [f"G{i % 950}" for i in range(n)]
    columns = {"id": names, "ra": ra, "dec": dec, "x": x, "again": x, "one": np.ones(n)}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=170)
    return catalogs.open(tmp_path / "t.parquet")


def test_quality(defective: Any) -> None:
    found, seen = quality(defective, identifier="id", places=("ra", "dec", "deg"))
    assert found.n_rows == seen.n_rows == 1000
    assert found.missing == {"x": 0.05, "again": 0.05}
    assert found.constant == ("one",)
    assert found.duplicate_columns == (("x", "again"),)
    assert found.repeated_identifiers == 50
    assert found.repeated_positions == 40  # twenty pairs
    assert found.positions_out_of_range == found.positions_without == 1
    assert found.outliers["x"] == pytest.approx(10 / 950)


def test_distinct_values_in_bounded_memory() -> None:
    counter = DistinctCounter(capacity=1000)
    for start in range(0, 100_000, 7000):
        counter.add(np.arange(start, min(start + 7000, 100_000)))
    assert counter.repeated == 0
    assert counter.estimate == pytest.approx(100_000, rel=0.1)
    counter.add(np.arange(50_000))  # as far apart as can be
    assert counter.repeated == pytest.approx(50_000, rel=0.15)


def test_sizes_span_decades_and_magnitudes_do_not() -> None:
    """A lognormal is more even as a logarithm; what is even by itself becomes skewed."""
    rng = np.random.default_rng(0)
    assert spans_decades(rng.lognormal(0, 2, 2000))
    assert not spans_decades(1e4 * rng.beta(0.5, 0.5, 2000))
    assert not spans_decades(rng.normal(0, 5, 2000))
