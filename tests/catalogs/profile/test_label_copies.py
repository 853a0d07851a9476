"""Columns that are the label in other numbers are found, whatever the rounding; good features are not."""

from __future__ import annotations

import numpy as np
import pytest

from catalogs.profile.leaks import copies_of_label, is_number_of_votes, label_numbers

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
