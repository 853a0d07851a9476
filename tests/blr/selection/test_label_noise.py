"""Rates of wrong labels: their gradient by differences, their coverage, and what a fit that knows them is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blr.arrays import Matrix
from blr.fitting.problem import pose
from blr.likelihood.targets import most_likely_class
from blr.selection.label_noise import LabelNoise, NoiseDensity, estimate_label_noise


def simulated(
    seed: int, n: int = 800, rate: tuple[float, ...] = (0.0, 0.2), slope: float = 1.5, F: int = 3
) -> tuple[Matrix, np.ndarray, np.ndarray]:
    """Return Phi (n, F + 1), recorded classes and true ones; a class k is recorded as another at rate[k]."""
    rng, K = np.random.default_rng(seed), len(rate)
    Phi = np.hstack([np.ones((n, 1)), rng.normal(size=(n, F))])
    W = rng.normal(size=(F + 1, K))
    W *= slope / np.sqrt(
        np.mean((W - W.mean(axis=1, keepdims=True))[1:] ** 2)
    )  # none too weak to tell anything
    W[0] *= 0.3
    p = np.exp(Phi @ W)
    truth = (rng.random((n, 1)) > np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)).sum(axis=1)
    wrong = rng.random(n) < np.asarray(rate)[truth]
    return Phi, np.where(wrong, (truth + rng.integers(1, K, n)) % K, truth), truth


@pytest.mark.parametrize(("K", "A"), [(2, 1), (3, 1), (2, 3)])
def test_the_gradient_is_that_of_the_density(K: int, A: int) -> None:
    Phi, label, _ = simulated(0, n=200, rate=(0.1,) * K)
    name = "logistic" if K == 2 else "softmax"
    weight = np.random.default_rng(1).random(200) + 0.5
    problem = pose(Phi, label, None, name, classes=range(K), confusion=0.1, sample_weight=weight)
    who = np.arange(200) % A
    shape = np.zeros((A, K)) + 0.5, np.full((A, K), 3.0)
    density = NoiseDensity(problem, most_likely_class(problem.data.t), who, 0, 1e4, *shape)
    x = np.concatenate([[0.4], np.linspace(0.05, 0.2, A * K)])
    gradient = density.gradient(x, density.posterior(x))
    for i in range(len(x)):
        step = np.where(np.arange(len(x)) == i, 1e-4, 0.0)
        numeric = (density.density(x + step) - density.density(x - step)) / 2e-4
        assert gradient[i] == pytest.approx(numeric, rel=1e-4, abs=1e-4)


def covered(rate: Any, seeds: Any, n: int) -> Any:
    name = "logistic" if len(rate) == 2 else "softmax"
    hits = []
    for seed in seeds:
        Phi, label, _ = simulated(seed, n=n, rate=rate)
        found = estimate_label_noise(Phi, label, name, classes=range(len(rate)))
        hits.append((found.low <= rate) & (found.high >= rate))
    return np.mean(hits, axis=0)


@pytest.mark.long
def test_intervals_cover_in_a_few_repeats() -> None:
    assert covered((0.05, 0.2), range(10), 400).min() >= 0.8


@pytest.mark.long
@pytest.mark.parametrize("rate", [(0.0, 0.2), (0.05, 0.2)])
def test_intervals_cover(rate: tuple[float, ...]) -> None:
    hits = covered(rate, range(100, 160), 800)
    assert hits.min() >= 0.9
    assert hits.mean() <= 0.995


def test_annotators_are_told_apart_and_who_labels_little_is_as_the_others() -> None:
    Phi, _, truth = simulated(3, n=1500)
    rng = np.random.default_rng(0)
    who = rng.choice(3, size=1500, p=[0.5, 0.495, 0.005])
    rate = np.array([0.02, 0.3, 0.3])[who]
    label = np.where(rng.random(1500) < rate, 1 - truth, truth)
    found = estimate_label_noise(Phi, label, annotator=who, classes=(0, 1))
    assert found.rate.shape == found.low.shape == (3, 2)
    assert found.high[0].max() < found.rate[1].min()
    assert (found.low[1] <= 0.3).all()
    assert (found.high[1] >= 0.3).all()
    assert found.common is not None
    assert np.abs(found.rate[2] - found.common.rate).max() < 0.1
    assert (found.standard_error[2] > found.standard_error[0]).all()
    assert found.of_rows(who)[:, 0, 1] == pytest.approx(found.rate[who, 0])
    again = LabelNoise.from_dict(found.to_dict())
    assert again.rate == pytest.approx(found.rate)
    assert again.common.low == pytest.approx(found.common.low)


def test_what_is_no_annotator_is_said() -> None:
    Phi, label, _ = simulated(0, n=60)
    with pytest.raises(ValueError, match="60 integers from 0"):
        estimate_label_noise(Phi, label, annotator=np.array(["a"] * 60), classes=(0, 1))
    with pytest.raises(TypeError, match="got a posterior that was fitted to a stream"):
        estimate_label_noise([(Phi, label, None)], None, classes=(0, 1))
