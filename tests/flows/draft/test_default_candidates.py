"""The candidates that `blr init` writes, by the numbers of rows, features and classes."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from flows.draft.candidates import MOST_WEIGHTS, default_candidates
from flows.specification.specification import Candidate


def degrees(candidates: tuple[Candidate, ...]) -> list[int]:
    """Return the degrees of the polynomials, each once."""
    return sorted({c.basis.degree for c in candidates if c.basis.kind == "polynomial"})


def centres(candidates: tuple[Candidate, ...]) -> int | None:
    """Return how many centres the radial functions have; None where there are none."""
    return next((c.basis.centres for c in candidates if c.basis.kind == "rbf"), None)


def test_smooth_bases_come_as_they_are_and_on_the_arcsinh_and_local_ones_follow() -> None:
    *smooth, radial, each, process, steps = default_candidates(1000, 4, 2)
    assert [c.basis.kind for c in smooth[::2]] == ["linear", "polynomial", "polynomial"]
    assert [c.transform for c in smooth] == ["none", "arcsinh"] * 3
    assert [c.basis for c in smooth[::2]] == [c.basis for c in smooth[1::2]]
    assert (radial.basis.kind, len(radial.basis.width), radial.transform) == ("rbf", 3, "arcsinh")
    assert (each.basis.kind, each.basis.width, each.transform) == ("rbf", "each", "arcsinh")
    assert (process.basis.kind, process.transform) == ("nystroem", "arcsinh")
    assert (steps.basis.kind, steps.transform) == (
        "sigmoid",
        "none",
    )  # along each feature, where the rows are


@pytest.mark.parametrize(
    ("rows", "features", "classes", "expected"),
    [
        (30, 4, 2, 30),  # each row is one
        (1000, 4, 2, 100),
        (3000, 4, 2, 200),
        (10_000, 4, 4, 320),
        (10_000, 4, 5, 160),
        (64_000, 4, 2, 250),
        (10**6, 4, 2, 160),
        (10**6, 4, 5, 80),
        (1000, 54, 10, 100),
        (1000, 4, 21, 49),  # 50 functions of twenty classes beside one
        (1000, 4, 52, None),  # 18 centres would be left
    ],
)
def test_a_gaussian_process_has_no_more_centres_than_rows_nor_too_many_weights(
    rows: int, features: int, classes: int, expected: int | None
) -> None:
    bases = [c.basis for c in default_candidates(rows, features, classes) if c.basis.kind == "nystroem"]
    assert next((basis.centres for basis in bases), None) == expected
    for basis in bases:
        factors = (0.7, 1.4, 2.8) if rows <= 200_000 else (1.4,)
        assert basis.width == pytest.approx([w * features for w in factors], abs=0.005)


@pytest.mark.parametrize(
    ("rows", "features", "classes", "expected"),
    [
        (1000, 4, 2, [2, 3]),
        (1000, 5, 2, [2]),  # degree 3 is for four features or fewer
        (34, 4, 2, [2]),  # of degree 3 there are 35 functions
        (35, 4, 2, [2, 3]),
        (14, 4, 2, []),  # of degree 2 there are 15
        (10_000, 12, 11, [2]),  # 91 functions of ten classes beside one
        (10_000, 12, 12, []),  # 1,001 weights
    ],
)
def test_polynomials_have_no_more_functions_than_rows_nor_too_many_weights(
    rows: int, features: int, classes: int, expected: list[Any]
) -> None:
    assert degrees(default_candidates(rows, features, classes)) == expected


@pytest.mark.parametrize(
    ("rows", "features", "classes", "expected"),
    [
        (10, 2, 2, 10),  # each row is one
        (50, 4, 2, 50),
        (400, 4, 2, 68),
        (5000, 4, 4, 160),
        (1_000_000, 4, 4, 160),
        (400, 4, 5, 48),
        (2000, 4, 5, 80),
        (2000, 20, 21, 29),  # 50 functions of twenty classes beside one
        (2000, 30, 21, None),  # 19 centres would be left
    ],
)
def test_centres_grow_with_the_rows(rows: int, features: int, classes: int, expected: int | None) -> None:
    assert centres(default_candidates(rows, features, classes)) == expected


@pytest.mark.parametrize("features", [1, 4, 9])
def test_widths_go_with_the_distances_of_rows(features: int) -> None:
    basis, *_ = (c.basis for c in default_candidates(1000, features, 2) if c.basis.kind == "rbf")
    assert basis.width == pytest.approx([w * math.sqrt(features) for w in (0.35, 0.7, 1.4)], abs=0.005)
    assert basis.linear


def test_few_rows_of_few_features_have_a_width_for_each() -> None:
    def widths(rows: int, features: int, classes: int = 2) -> list[Any]:
        candidates = default_candidates(rows, features, classes)
        return [c.basis.width == "each" for c in candidates if c.basis.kind == "rbf"]

    assert widths(1000, 2) == widths(1000, 12) == [False, True]
    assert widths(1001, 4) == widths(1000, 13) == widths(1000, 1) == [False]
    assert widths(2000, 12, 60) == []


def test_no_candidate_has_too_many_weights_and_a_linear_one_is_always_there() -> None:
    for rows, features, classes in product((2, 10, 300, 10**6), (1, 3, 20, 100), (2, 3, 12, 40)):
        candidates = default_candidates(rows, features, classes)
        assert candidates[0].basis.kind == "linear"
        functions = [math.comb(features + d, d) for d in degrees(candidates)]
        functions += [n + features + 1 for n in [centres(candidates)] if n is not None]
        functions += [c.basis.centres + 1 for c in candidates if c.basis.kind == "nystroem"]
        functions += [c.basis.centres * features + 1 for c in candidates if c.basis.kind == "sigmoid"]
        assert max(functions, default=0) * (classes - 1) <= MOST_WEIGHTS


@pytest.mark.parametrize(
    ("rows", "features", "searched"),
    [(100, 2, True), (1000, 12, True), (1001, 4, False), (100, 13, False), (100, 1, False)],
)
def test_few_rows_and_features_have_a_width_of_each_feature(
    rows: int, features: int, *, searched: bool
) -> None:
    *candidates, steps = default_candidates(rows, features, 2)
    widths = [c.basis.width for c in candidates if c.basis.kind == "rbf"]
    assert ("each" in widths) == searched
    assert steps.basis.height == ("each" if searched else None)


@pytest.mark.parametrize(
    ("features", "classes", "tried"), [(9, 2, False), (10, 2, True), (64, 10, True), (200, 10, False)]
)
def test_many_features_have_their_principal_components(features: int, classes: int, *, tried: bool) -> None:
    kinds = [c.basis.kind for c in default_candidates(500, features, classes)]
    assert kinds.count("principal") == 2 * tried


@pytest.mark.parametrize(
    ("rows", "features", "classes", "expected"),
    [(1000, 4, 2, 2 * (6 + 2) / 2), (3, 4, 2, 2 * (2 + 2) / 2), (1000, 9, 40, 2 * 2)],
)
def test_planes_and_flexible_candidates_have_more_prior_probability(
    rows: int, features: int, classes: int, expected: float
) -> None:
    found: dict[str, set[float]] = {}
    for candidate in default_candidates(rows, features, classes):
        found.setdefault(candidate.basis.kind, set()).add(candidate.prior_probability)
    assert found.pop("linear") == {3.0}
    assert {kind for kind, prior in found.items() if prior == {expected}} == found.keys() & {
        "nystroem",
        "sigmoid",
    }
    assert all(prior == {1.0} for kind, prior in found.items() if kind in ("polynomial", "rbf"))
