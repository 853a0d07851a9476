"""Prediction sets keep the true class at the stated rate in every class, whatever the classes' shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from blr.census.prediction_sets import MOST_CLASSES, NO_SET, learn_sets, set_bits


def drawn(rng: np.random.Generator, counts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (N, K) and classes (N,) of Gaussian classes, by a model that is not calibrated."""
    target = np.repeat(np.arange(len(counts)), counts)
    centres = 1.5 * np.eye(len(counts))
    x = centres[target] + rng.normal(size=(len(target), len(counts)))
    a = np.exp(2.5 * x)
    return a / a.sum(axis=1, keepdims=True), target


def slow_threshold(p: list[float], level: float) -> float:
    """Return the threshold by sorting: between the two rows about rank (1 - level)(n + 1), by one over the rank."""
    rank = (1 - level) * (len(p) + 1)
    if rank < 1 - 1e-9:
        return 0.0
    lower = int(rank + 1e-9)
    a = sorted(logit(p))
    upper = min(lower, len(a) - 1)
    part = (1 / lower - 1 / rank) / (1 / lower - 1 / (lower + 1))
    return float(expit(a[lower - 1] + part * (a[upper] - a[lower - 1])))


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_thresholds_are_those_of_the_slow_twin(level: float) -> None:
    p, target = drawn(np.random.default_rng(1), (60, 25, 9))
    rule = learn_sets(p, target, level=level)
    slow = [slow_threshold(p[target == k, k].tolist(), level) for k in range(3)]
    np.testing.assert_allclose(rule.least, slow, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(rule.rows, [60, 25, 9])
    np.testing.assert_allclose(rule.effective, [60, 25, 9])


def test_each_class_is_kept_at_the_rate_and_its_spread_is_as_stated() -> None:
    """Many samples of labels, each with many new objects; the model need not be calibrated."""
    rng = np.random.default_rng(2)
    counts, rates = (120, 40, 12), []
    new, target = drawn(rng, (20_000, 20_000, 20_000))
    for _ in range(300):
        rule = learn_sets(*drawn(rng, counts), level=0.9)
        kept = rule.contains(new)[np.arange(len(target)), target]
        rates.append([kept[target == k].mean() for k in range(3)])
    np.testing.assert_allclose(np.mean(rates, axis=0), 0.9, atol=0.01)
    np.testing.assert_allclose(np.std(rates, axis=0), rule.spread, rtol=0.2)


def test_in_an_exponential_tail_the_mean_rate_is_exact_for_any_number_of_rows() -> None:
    """The share of new rows with a logit below a is exp(a): the classes' tails are like that."""
    rng = np.random.default_rng(8)
    for n in (9, 12, 17):
        below = []
        for _ in range(1000):
            p = expit(np.log(rng.random(n)))
            rule = learn_sets(np.stack([p, 1 - p], axis=1), np.zeros(n, int), level=0.9)
            below.append(np.exp(logit(rule.least[0])))
        assert np.mean(below) == pytest.approx(0.1, abs=4 * np.std(below) / np.sqrt(1000))


def test_shares_of_the_classes_change_nothing() -> None:
    rng = np.random.default_rng(3)
    p, target = drawn(rng, (300, 300))
    again = np.concatenate([np.arange(600), np.tile(np.flatnonzero(target == 1), 4)])
    few = learn_sets(p, target, level=0.9)
    many = learn_sets(p[again], target[again], level=0.9)
    assert few.least[0] == many.least[0]
    assert few.least[1] == pytest.approx(many.least[1], rel=0.1)


def test_rows_that_are_alike_are_kept_together() -> None:
    """Features of few values give equal probabilities: the threshold on them keeps all."""
    p = np.repeat([0.1, 0.3, 0.7], [40, 30, 30])
    rule = learn_sets(np.stack([p, 1 - p], axis=1), np.zeros(100, int), level=0.9)
    assert rule.contains(np.array([[0.1, 0.9]]))[0, 0]
    assert not rule.contains(np.array([[0.0999, 0.9001]]))[0, 0]


def test_few_rows_put_a_class_into_every_set() -> None:
    p, target = drawn(np.random.default_rng(4), (50, 8, 0))
    rule = learn_sets(p, target, level=0.9)
    assert rule.least[0] > 0
    np.testing.assert_array_equal(rule.least[1:], 0)
    np.testing.assert_array_equal(rule.spread[1:], 0)
    assert rule.contains(p)[:, 1:].all()
    nine = learn_sets(p, np.where(np.arange(58) < 49, 0, 1), level=0.9)
    assert nine.least[1] > 0


def test_weights_count_rows() -> None:
    """Equal weights of any size are none, rows of weight zero are not there, and uneven ones count as fewer rows."""
    rng = np.random.default_rng(5)
    p, target = drawn(rng, (100, 100))
    plain = learn_sets(p, target, level=0.9)
    np.testing.assert_allclose(
        learn_sets(p, target, level=0.9, weight=np.full(200, 7.0)).least, plain.least, rtol=1e-12
    )
    half = np.arange(200) % 2
    np.testing.assert_allclose(
        learn_sets(p, target, level=0.9, weight=half.astype(float)).least,
        learn_sets(p[half == 1], target[half == 1], level=0.9).least,
        rtol=1e-12,
    )
    uneven = learn_sets(p, target, level=0.9, weight=1.0 + 9 * half)
    np.testing.assert_allclose(uneven.effective, (50 * 11) ** 2 / (50 * 101))


def test_a_sample_drawn_by_design_keeps_the_rate_of_the_whole() -> None:
    """Rows drawn with known probabilities stand for the objects that were not drawn."""
    rng = np.random.default_rng(6)
    p, target = drawn(rng, (6000, 6000))
    inclusion = np.where(p.max(axis=1) < 0.9, 0.06, 0.015)
    rates = []
    for _ in range(200):
        drawn_rows = rng.random(12000) < inclusion
        rule = learn_sets(p[drawn_rows], target[drawn_rows], level=0.9, weight=1 / inclusion[drawn_rows])
        kept = rule.contains(p)[np.arange(12000), target]
        rates.append([kept[target == k].mean() for k in range(2)])
    np.testing.assert_allclose(np.mean(rates, axis=0), 0.9, atol=0.012)


def test_rows_without_probabilities_are_left_out_and_have_no_set() -> None:
    p, target = drawn(np.random.default_rng(7), (40, 40))
    holes = np.vstack([p, np.full((5, 2), np.nan)])
    rule = learn_sets(holes, np.concatenate([target, np.zeros(5, dtype=int)]), level=0.9)
    np.testing.assert_array_equal(rule.least, learn_sets(p, target, level=0.9).least)
    bits = set_bits(rule.contains(holes), holes)
    np.testing.assert_array_equal(bits[-5:], NO_SET)
    np.testing.assert_array_equal((bits[:-5] & 2) > 0, p[:, 1] >= rule.least[1])
    assert bits.dtype == np.int32


def test_bits_of_as_many_classes_as_there_are() -> None:
    K = MOST_CLASSES
    p = np.full((3, K), 1 / K)
    contained = np.stack([np.zeros(K, bool), np.ones(K, bool), np.arange(K) == K - 1])
    np.testing.assert_array_equal(set_bits(contained, p), [0, 2**31 - 1, 2**30])
    with pytest.raises(ValueError, match="got 32 classes, expected at most 31"):
        set_bits(np.ones((1, K + 1), bool), np.full((1, K + 1), 0.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": 1.0}, "got level 1.0"),
        ({"target": np.zeros(3, int)}, r"classes of shape \(3,\)"),
        ({"weight": np.zeros(3)}, r"weights of shape \(3,\)"),
        ({"weight": np.full(4, -1.0)}, "negative or not finite"),
    ],
)
def test_impossible_values_are_refused(change: dict[str, Any], message: str) -> None:
    p = np.full((4, 2), 0.5)
    arguments = {"target": np.zeros(4, int), "level": 0.9, **change}
    with pytest.raises(ValueError, match=message):
        learn_sets(p, arguments.pop("target"), **arguments)
