"""The default candidates follow from the numbers of rows, features and classes."""

from __future__ import annotations

from typing import Any

import pytest

from blr.candidates.candidate import default_candidates


def kinds(n: int, F: int, K: int) -> list[tuple[str, bool]]:
    return [(c.kind, c.soften) for c in default_candidates(n, F, K)]


def of(kind: str, n: int, F: int, K: int) -> Any:
    return next((c.options for c in default_candidates(n, F, K) if c.kind == kind), None)


def test_six_candidates() -> None:
    assert kinds(1000, 4, 2) == [
        ("linear", False),
        ("polynomial", True),
        ("nystroem", True),
        ("sigmoid", False),
        ("forest", False),
        ("forest", False),
    ]


@pytest.mark.parametrize("shape", [(100, 12, 2), (1000, 40, 3), (1000, 10, 25)])
def test_too_many_products_leave_the_features_themselves(shape: tuple[int, int, int]) -> None:
    assert ("linear", True) in kinds(*shape)
    assert of("polynomial", *shape) is None


@pytest.mark.parametrize(
    ("n", "F", "K", "centres"),
    [(30, 4, 2, 30), (1000, 4, 2, 100), (10_000, 4, 2, 320), (10_000, 4, 5, 125), (1000, 4, 21, 49)],
)
def test_centres_of_the_gaussian_process(n: int, F: int, K: int, centres: int) -> None:
    assert of("nystroem", n, F, K) == {"centres": centres, "width": round(0.7 * F, 2)}


def test_weights_are_at_most_a_thousand() -> None:
    assert of("nystroem", 1000, 4, 80) is None
    assert of("sigmoid", 1000, 10, 10) is None
    assert of("forest", 5000, 4, 44) is not None
    assert of("forest", 5000, 4, 45) is None


@pytest.mark.parametrize("n", [50, 2000])
def test_a_forest_and_boosted_trees(n: int) -> None:
    trees = [c.options for c in default_candidates(n, 4, 2) if c.kind == "forest"]
    assert [bool(options.get("boosted")) for options in trees] == [False, True]


def test_rows_on_the_disk_have_no_forests() -> None:
    assert of("forest", 200_001, 4, 2) is None
