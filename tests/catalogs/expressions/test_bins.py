"""Bins beside a loop over their edges; equal and missing values."""

from __future__ import annotations

import numpy as np
import pytest

from catalogs.expressions.expression import even_edges, names_between, places_between


def test_bins_hold_as_many_values_each_and_say_which() -> None:
    values = np.random.default_rng(0).normal(18, 2, 4000)
    edges = even_edges(values, 4)
    assert len(edges) == 3
    place = places_between(edges, values, missing=9)
    assert np.bincount(place) == pytest.approx([1000] * 4, abs=3)
    assert place.tolist() == [sum(edge <= x for edge in edges) for x in values.tolist()]


def test_names_say_where_an_edge_belongs() -> None:
    assert names_between((16.0, 18.5), "r") == ("r < 16", "16 <= r < 18.5", "r >= 18.5")
    assert places_between((16.0, 18.5), np.array([15.9, 16.0, 18.5, np.nan, np.inf]), missing=3).tolist() == [
        0,
        1,
        2,
        3,
        3,
    ]


def test_equal_values_make_fewer_bins_and_none_makes_none() -> None:
    assert even_edges(np.array([1.0] * 9 + [2.0]), 4) == ()
    assert even_edges(np.array([1.0] * 6 + [2.0] * 5 + [np.nan]), 4) == (2.0,)
    assert even_edges(np.array([np.nan]), 4) == ()
    assert names_between((), "r") == ()
