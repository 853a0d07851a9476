"""Strata of an audit: their sizes add up, and follow the rules that they are named after."""

from __future__ import annotations

import numpy as np
import pytest

from blr.census.audit import FEWEST, allocated, cut_levels, level_edges, uncertainty


def test_half_is_in_proportion_and_half_by_neymans_rule() -> None:
    N, deviation = np.array([6000, 3000, 1000]), np.array([0.1, 0.5, 1.0])
    sizes = allocated(N, deviation, 400)
    neyman = N * deviation / (N * deviation).sum()
    assert sizes.sum() == 400
    assert sizes == pytest.approx(200 * (N / N.sum() + neyman), abs=1)


def test_small_strata_have_a_floor_and_none_gives_more_than_it_has() -> None:
    N = np.array([100_000, 3, 50, 20])
    sizes = allocated(N, np.array([1.0, 1e-6, 1e-6, 1e4]), 100)
    assert sizes.sum() == 100
    assert sizes.tolist() == [73, 3, FEWEST, 20]
    assert allocated(np.array([5, 6]), np.ones(2), 50).tolist() == [5, 6]
    with pytest.raises(ValueError, match="at least two for each stratum"):
        allocated(np.full(30, 100), np.ones(30), 50)


def test_levels_become_strata_of_about_equal_weight() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, size=(3, 40))
    counts[2] = 0
    deviation = np.ones((3, 40))
    piece = cut_levels(counts, deviation, 8)
    assert (piece[counts == 0] == -1).all()
    assert sum(len(np.unique(p[n > 0])) for p, n in zip(piece, counts, strict=True)) == 8
    for k in (0, 1):
        filled = piece[k][counts[k] > 0]
        assert (np.diff(filled) >= 0).all()
        mass = np.bincount(filled, weights=counts[k][counts[k] > 0])
        assert mass.max() < 1.5 * mass.min()


def test_a_stratum_begins_at_a_threshold() -> None:
    edges = level_edges([0.9])
    assert 0.9 in edges
    begins = np.zeros((1, len(edges) + 1), dtype=bool)
    begins[0, np.searchsorted(edges, 0.9, side="right")] = True
    counts = np.full((1, len(edges) + 1), 20)
    piece = cut_levels(counts, np.ones(counts.shape), 3, begins)[0]
    below, above = (piece[np.searchsorted(edges, p, side="right")] for p in (0.899999, 0.9))
    assert below + 1 == above


def test_an_uncertain_object_of_a_rare_class_is_worth_more() -> None:
    share = np.array([0.003, 0.997])
    sure, likely_rare, unsure = uncertainty(np.array([[0.0, 1.0], [0.6, 0.4], [0.01, 0.99]]), share)
    assert sure < unsure < likely_rare
    assert sure > 0
