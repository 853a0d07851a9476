"""Class counts with errors add up the same in any order, and are what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from blr.decisions import FLAG_MEANINGS, Flag
from flows.classification._tally import Tally, summarise, total

CLASSES = ("early", "late", "irregular")


def tallies(n: int = 40) -> list[Tally]:
    rng = np.random.default_rng(3)
    parts = []
    for _ in range(n):
        p = rng.dirichlet([1, 2, 3], size=50)
        p[:3] = np.nan
        flags = rng.integers(0, 512, 50).astype(np.int32)
        parts.append(
            Tally.of(p, np.nansum(p, axis=0) + rng.normal(size=(64, 3)), flags, rng.random((50, 2)) < 0.2)
        )
    return parts


def test_the_order_does_not_matter_to_the_last_bit():
    parts = tallies()
    halves = [total(parts[::2]), total(parts[1::2])]
    assert total(parts) == total(parts[::-1])
    assert total(halves).expected == pytest.approx(total(parts).expected, rel=1e-14)


def test_through_json():
    one = tallies(1)[0]
    assert json.loads(json.dumps(one.to_dict())) == one.to_dict()
    assert Tally.from_dict(one.to_dict()) == one


def test_the_error_has_both_parts():
    p = np.tile([0.3, 0.7], (1000, 1))
    draws = np.array([[300.0, 700.0], [320.0, 680.0], [280.0, 720.0]])
    told = summarise(
        Tally.of(p, draws, np.zeros(1000, np.int32), np.zeros((1000, 1), bool)), ("a", "b"), ("x",)
    )
    found = told["classes"]["a"]
    assert found["assigned"] == 0
    assert found["expected"] == pytest.approx(300)
    assert found["error_objects"] == pytest.approx(np.sqrt(1000 * 0.3 * 0.7))
    assert found["error_weights"] == pytest.approx(20)
    assert found["error"] == pytest.approx(np.hypot(20, np.sqrt(210)))


def test_flags_and_missing_are_shares_of_all_rows():
    p = np.array([[0.9, 0.1], [np.nan, np.nan]])
    flags = np.array([Flag.MISSING_INPUT, Flag.UNCLASSIFIABLE], dtype=np.int32)
    told = summarise(Tally.of(p, np.zeros((2, 2)), flags, np.array([[True], [False]])), ("a", "b"), ("x",))
    assert (told["n_rows"], told["n_classified"]) == (2, 1)
    assert told["flags"]["MISSING_INPUT"] == {
        "bit": 4,
        "meaning": FLAG_MEANINGS[Flag.MISSING_INPUT],
        "count": 1,
        "share": 0.5,
    }
    assert told["missing"] == {"x": 0.5}
    assert set(told["flags"]) == {flag.name for flag in Flag}
