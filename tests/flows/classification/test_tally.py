"""Class counts with errors add up the same in any order, and are what they say."""

from __future__ import annotations

import numpy as np
import pytest

from blr.decisions import FLAG_MEANINGS, Flag
from flows.classification._tally import summarise, tally_of, total
from flows.runs.results import FlagCount, Tally

CLASSES = ("early", "late", "irregular")


def tallies(n: int = 40) -> list[Tally]:
    rng = np.random.default_rng(3)
    parts = []
    for _ in range(n):
        p = rng.dirichlet([1, 2, 3], size=50)
        p[:3] = np.nan
        flags = rng.integers(0, 512, 50).astype(np.int32)
        parts.append(
            tally_of(p, np.nansum(p, axis=0) + rng.normal(size=(64, 3)), flags, rng.random((50, 2)) < 0.2)
        )
    return parts


def test_the_order_does_not_matter_to_the_last_bit() -> None:
    parts = tallies()
    halves = [total(parts[::2]), total(parts[1::2])]
    assert total(parts) == total(parts[::-1])
    assert total(halves).expected == pytest.approx(total(parts).expected, rel=1e-14)


def test_the_error_has_both_parts() -> None:
    p = np.tile([0.3, 0.7], (1000, 1))
    draws = np.array([[300.0, 700.0], [320.0, 680.0], [280.0, 720.0]])
    counts = summarise(
        tally_of(p, draws, np.zeros(1000, np.int32), np.zeros((1000, 1), bool)), ("a", "b"), ("x",)
    )
    estimate = counts.classes["a"]
    assert estimate["assigned"] == 0
    assert estimate["expected"] == pytest.approx(300)
    assert estimate["error_objects"] == pytest.approx(np.sqrt(1000 * 0.3 * 0.7))
    assert estimate["error_weights"] == pytest.approx(20)
    assert estimate["error"] == pytest.approx(np.hypot(20, np.sqrt(210)))


def test_flags_and_missing_are_shares_of_all_rows() -> None:
    p = np.array([[0.9, 0.1], [np.nan, np.nan]])
    flags = np.array([Flag.MISSING_INPUT, Flag.UNCLASSIFIABLE], dtype=np.int32)
    counts = summarise(tally_of(p, np.zeros((2, 2)), flags, np.array([[True], [False]])), ("a", "b"), ("x",))
    assert (counts.n_rows, counts.n_classified) == (2, 1)
    assert counts.flags["MISSING_INPUT"] == FlagCount(
        bit=4, meaning=FLAG_MEANINGS[Flag.MISSING_INPUT], count=1, share=0.5
    )
    assert counts.missing == {"x": 0.5}
    assert set(counts.flags) == {flag.name for flag in Flag}
