"""Targets in all their forms become fractions with weights; errors name the row and the number of a wrong target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blr.likelihood.targets import resolve_targets


def test_labels_of_two_classes_are_fractions() -> None:
    found = resolve_targets([0, 1, 1], binary=True)
    assert found.classes == (0, 1)
    assert found.fraction.tolist() == [0, 1, 1]
    assert found.weight is None
    assert found.n_effective == 3


@pytest.mark.parametrize(
    ("t", "options"),
    [
        (["late", "early", "late"], {}),
        (["late", "early", "late"], {"classes": ("early", "late")}),
        (np.array([True, False, True]), {"classes": (False, True)}),
        ([2, 1, 2], {"classes": (1, 2)}),
        ([7.0, 0.0, 3.0], {"trials": [7.0, 3.0, 3.0]}),
        ([[0.0, 7.0], [3.0, 0.0], [0.0, 3.0]], {}),
        ([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], {}),
    ],
)
def test_two_classes_in_other_words(t: list[Any] | np.ndarray, options: dict[str, Any]) -> None:
    found = resolve_targets(t, binary=True, **options)
    assert found.fraction.tolist() == [1, 0, 1]
    assert found.fraction.flags.c_contiguous


def test_classes_turn_the_sides() -> None:
    t = ["late", "early"]
    assert resolve_targets(t, binary=True, classes=("late", "early")).fraction.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("t", "classes"),
    [
        ([1, 0], [1, 0]),
        ([True, False], [True, False]),
        ([2, 1], [2.0, 1.0]),
        ([True, False], np.array([1, 0])),
    ],
)
def test_classes_turn_the_sides_of_numbers_too(t: list[Any], classes: list[Any] | np.ndarray) -> None:
    assert resolve_targets(t, binary=True, classes=classes).fraction.tolist() == [0, 1]


def test_floats_under_classes_one_and_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="may be the label of the first class or a share of the second"):
        resolve_targets([1.0, 0.0], binary=True, classes=[1, 0])


def test_soft_labels_and_successes() -> None:
    assert resolve_targets([0.25, 1.0], binary=True).fraction.tolist() == [0.25, 1.0]
    found = resolve_targets([1, 0, 0], binary=True, trials=[4, 2, 0])
    assert found.fraction.tolist() == [0.25, 0, 0]
    assert found.weight.tolist() == [4, 2, 0]
    assert found.n_effective == 6


def test_successes_are_counts_even_where_they_look_like_classes() -> None:
    found = resolve_targets([1, 2], binary=True, trials=[4, 4], classes=(1, 2))
    assert found.fraction.tolist() == [0.25, 0.5]


def test_sample_weights_multiply_trials() -> None:
    found = resolve_targets([1, 0], binary=True, trials=[4, 2], sample_weight=[0.5, 3])
    assert found.weight.tolist() == [2, 6]


def test_labels_of_k_classes_are_one_hot_in_the_order_given() -> None:
    found = resolve_targets(["b", "c", "a"], binary=False)
    assert found.classes == ("a", "b", "c")
    assert found.fraction.argmax(axis=1).tolist() == [1, 2, 0]
    found = resolve_targets(["b", "a"], binary=False, classes=("c", "b", "a"))
    assert found.fraction.argmax(axis=1).tolist() == [1, 2]


def test_vote_counts_are_fractions_with_a_weight() -> None:
    found = resolve_targets([[3, 1, 0], [0, 0, 0], [1, 1, 2]], binary=False)
    assert found.fraction[0].tolist() == [0.75, 0.25, 0]
    assert found.weight.tolist() == [4, 0, 4]
    assert found.fraction.sum(axis=1).tolist() == [1, 1, 1]


def test_soft_labels_of_k_classes_have_no_weight() -> None:
    found = resolve_targets([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]], binary=False)
    assert found.weight is None


@pytest.mark.parametrize(
    ("t", "binary", "options", "message"),
    [
        ([-1, 1], True, {"trials": [2, 1]}, r"between 0 and the trials, got -1.0 of 2.0 at row 0"),
        ([1, 1], True, {"trials": [2, -1]}, r"trials must not be negative, got -1.0 at row 1"),
        ([1, 1], True, {"trials": [2]}, r"trials have 1 rows but the targets have 2"),
        (
            np.ma.masked_equal([0, 1, 1], 0),
            True,
            {},
            r"masked values in 1 row\(s\), the first of them row 0; .*leave",
        ),
        (
            [1 + 2j, 0, 1],
            True,
            {"trials": [1, 1, 1]},
            r"targets must be real numbers, got an array of complex128",
        ),
        (np.array([None, "a"]), True, {}, r"got NoneType, str; expected all strings, all numbers"),
        (
            [0, 1],
            True,
            {"sample_weight": [1e300, 1]},
            r"holds 1e\+300 at row 0; expected absolute values below 1e\+100",
        ),
        ([1, 0], True, {"sample_weight": [1, np.inf]}, r"sample_weight holds 1 value\(s\)"),
        ([0, 1], True, {"classes": ("a", "b", "c")}, r"two classes, got 3.*use 'softmax'"),
        ([0, 1], True, {"classes": ("a",)}, r"at least two classes, got \['a'\]"),
        ([[1, 0, 0]], True, {}, r"must be \(N,\) or \(N, 2\), got \(1, 3\); use 'softmax'"),
        ([0, 1], True, {"classes": (0, 2)}, r"labels \[1\] are not among the classes \[0, 2\]"),
        ([0, 1], True, {"classes": (1, 1)}, r"classes are \[1, 1\], expected each once"),
        (["a", "x"], False, {"classes": ("a", "b")}, r"labels \['x'\] are not among the classes"),
        (["a", "a"], False, {}, r"at least two classes, got \['a'\]"),
        ([[1], [2]], False, {}, r"at least two classes, got targets of one column"),
        ([[1, 0], [2, 1]], False, {"classes": ("a", "b", "c")}, r"2 columns but there are 3 classes"),
        ([[1, np.nan]], False, {}, r"targets holds 1 value\(s\).*row 0, column 1"),
        ([1.0, np.nan, 2.0], False, {}, r"labels holds 1 value\(s\).*row 1"),
        (
            [1, 2, 3],
            False,
            {"trials": [1, 1, 1]},
            r"trials can only be used with the successes of two classes",
        ),
    ],
)
def test_says_what_is_wrong_and_where(t: Any, *, binary: bool, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_targets(t, binary=binary, **options)
