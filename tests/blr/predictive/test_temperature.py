"""Temperature scaling: powers of probabilities, only where left-out rows ask for them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from blr.arrays import Matrix
from blr.calibration import log_loss
from blr.predictive.mixture import Temperature, estimate_temperature, predicted

SHARP = Temperature(np.array([2.0]), np.array([1.0]))


def labels(p: Matrix, rng: np.random.Generator) -> tuple[np.ndarray, Matrix]:
    """Draw a class of each row (N, K), one-hot."""
    t = np.array([rng.choice(p.shape[1], p=row) for row in p])
    return t, np.eye(p.shape[1])[t]


def activations(n: int, k: int, rng: np.random.Generator, scale: float) -> Matrix:
    return scale * rng.normal(size=(n, k))


@pytest.mark.parametrize("power", [0.6, 1.8])
@pytest.mark.parametrize("k", [2, 5])
def test_a_power_that_the_rows_ask_for_is_found(power: float, k: int) -> None:
    rng = np.random.default_rng(3)
    p = softmax(activations(600, k, rng, 1.5), axis=1)
    true = softmax(power * np.log(p), axis=1)
    temperature = estimate_temperature(p, labels(true, rng)[1])
    assert temperature is not None
    assert temperature.mean_power == pytest.approx(power, rel=0.2)
    new = softmax(activations(4000, k, rng, 1.5), axis=1)
    t_new, _ = labels(softmax(power * np.log(new), axis=1), rng)
    best = log_loss(softmax(power * np.log(new), axis=1), t_new)
    assert log_loss(temperature.scaled(new), t_new) < best + 0.01 < log_loss(new, t_new)


def test_calibrated_probabilities_stay_as_they_are() -> None:
    """In nearly all of many draws, of few rows and many."""
    rng = np.random.default_rng(4)
    changed = 0
    for n in (50, 100, 1000):
        for _ in range(40):
            p = softmax(activations(n, 3, rng, 2.0), axis=1)
            changed += estimate_temperature(p, labels(p, rng)[1]) is not None
    assert changed <= 6


def test_few_rows_that_are_all_right_do_not_ask_for_certainty() -> None:
    """The power of highest likelihood is infinite there."""
    p = np.tile([0.9, 0.1], (60, 1))
    temperature = estimate_temperature(p, np.tile([1.0, 0.0], (60, 1)))
    assert temperature is None or temperature.scaled(p)[0, 0] < 0.99


def test_scaling_is_the_power_of_each_row() -> None:
    rng = np.random.default_rng(5)
    p = softmax(activations(20, 4, rng, 1.0), axis=1)
    two = Temperature(np.array([0.5, 2.0]), np.array([0.3, 0.7]))
    slow = np.array([sum(s * row**b / np.sum(row**b) for b, s in ((0.5, 0.3), (2.0, 0.7))) for row in p])
    np.testing.assert_allclose(two.scaled(p), slow, rtol=1e-12)
    assert np.array_equal(two.scaled(p).argmax(axis=1), p.argmax(axis=1))


def test_other_class_priors_are_not_taken_to_the_power() -> None:
    """Scaled first and shifted then is the same."""
    rng = np.random.default_rng(6)
    p, shift = softmax(activations(10, 3, rng, 1.0), axis=1), np.log([2.0, 1.0, 0.2])
    shifted = softmax(np.log(p) + shift, axis=1)
    wanted = softmax(np.log(SHARP.scaled(p)) + shift, axis=1)
    np.testing.assert_allclose(SHARP.scaled(shifted, shift), wanted, rtol=1e-12)


@pytest.mark.parametrize("binary", [True, False])
def test_entropies_keep_their_ratio(*, binary: bool) -> None:
    rng = np.random.default_rng(7)
    mean = rng.normal(size=30) if binary else activations(30, 3, rng, 1.0)
    if not binary:
        mean -= mean.mean(axis=1, keepdims=True)
    one = np.eye(3) - 1 / 3
    base = predicted(mean, np.full(30, 0.8) if binary else np.tile(0.8 * one, (30, 1, 1)))
    sharp = SHARP.prediction(base)
    before, after = base.mutual_information, sharp.mutual_information
    assert np.all(after >= 0)
    np.testing.assert_allclose(
        after / (after + sharp.expected_entropy), before / (before + base.expected_entropy), rtol=1e-10
    )
    np.testing.assert_allclose(sharp.logit_std, 2 * base.logit_std)


def test_certain_rows_stay_certain() -> None:
    p = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert np.array_equal(SHARP.scaled(p), p)


def test_it_comes_back_from_its_dict() -> None:
    again = Temperature.from_dict(SHARP.to_dict())
    assert np.array_equal(again.power, SHARP.power)
    assert np.array_equal(again.share, SHARP.share)
