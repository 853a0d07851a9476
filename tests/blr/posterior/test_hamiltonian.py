"""Hamiltonian chains leave the density invariant, exactly, and find their coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from blr.arrays import Matrix, Vector
from blr.posterior.sampling import Hamiltonian, warm_up
from tests.blr.conftest import Twin


def normal(dense: Twin, D: int = 4, scale: float = 1.0) -> tuple[Callable[..., Any], Matrix]:
    """Return the log density and gradient of a correlated normal, and its covariance."""
    S = scale * dense.covariance(np.random.default_rng(0), D)
    P = np.linalg.inv(S)
    return lambda z: (-0.5 * np.einsum("sd,de,se->s", z, P, z), -z @ P), S


def test_energy_is_nearly_conserved_and_time_is_reversible(dense: Twin) -> None:
    evaluate, _ = normal(dense)
    sampler = Hamiltonian(evaluate, np.zeros(4), np.eye(4), 0.01)
    rng = np.random.default_rng(0)
    state = sampler.at(rng.standard_normal((3, 4)))
    p = rng.standard_normal((3, 4))
    end, final = sampler._leapfrog(state, p, 0.01, n=100)
    energy = -state.log_density + 0.5 * np.sum(p**2, axis=1)
    assert -end.log_density + 0.5 * np.sum(final**2, axis=1) == pytest.approx(energy, rel=1e-4)
    back, turned = sampler._leapfrog(end, -final, 0.01, n=100)
    assert back.x == pytest.approx(state.x, abs=1e-10)
    assert turned == pytest.approx(-p, abs=1e-10)


def test_invariance_with_a_step_far_too_large() -> None:
    """Whatever the step, exact draws stay exact: here a coarse one, that errs much before Metropolis mends it."""

    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:  # a skewed density: Gumbel
        return (z - np.exp(z)).sum(axis=1), 1 - np.exp(z)

    rng = np.random.default_rng(1)
    start = stats.gumbel_l.rvs(size=(20_000, 1), random_state=rng)
    sampler = Hamiltonian(evaluate, np.zeros(1), np.eye(1), 1.3)
    state = sampler.at(start)
    for _ in range(6):
        state, probability = sampler.move(state, rng)
    assert 0.3 < probability.mean() < 0.95
    assert stats.kstest(state.x[:, 0], stats.gumbel_l.cdf).pvalue > 1e-3


def test_warming_up_finds_the_coordinates(dense: Twin) -> None:
    """From draws that are a hundred times too narrow in one direction and ten times too wide in another."""
    evaluate, S = normal(dense)
    rng = np.random.default_rng(0)
    stretch = np.diag([0.01, 10.0, 1.0, 1.0]) @ np.linalg.inv(np.linalg.cholesky(S))
    white = np.linalg.inv(stretch)

    def stretched(x: Matrix) -> tuple[Vector, Matrix]:
        value, gradient = evaluate(x @ white.T)
        return value, gradient @ white

    sampler, state = warm_up(stretched, rng.standard_normal((32, 4)), rng)
    state, z, value, acceptance = sampler.run(state, 300, rng)
    truth = stretch @ S @ stretch.T
    found = np.cov(z.reshape(-1, 4).T)
    sd = np.sqrt(np.diag(truth))
    assert found / np.outer(sd, sd) == pytest.approx(truth / np.outer(sd, sd), abs=0.08)
    assert 0.6 < acceptance < 0.99
    assert value.shape == z.shape[:2] == (32, 300)


def test_white_coordinates_are_kept(dense: Twin) -> None:
    evaluate, _ = normal(dense)
    P = np.linalg.cholesky(normal(dense)[1])

    def white(x: Matrix) -> tuple[Vector, Matrix]:
        value, gradient = evaluate(x @ P.T)
        return value, gradient @ P

    rng = np.random.default_rng(0)
    sampler, _ = warm_up(white, rng.standard_normal((32, 4)), rng)
    assert np.array_equal(sampler.W, np.eye(4))


def test_a_density_that_overflows_is_not_accepted() -> None:
    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:
        return -np.exp(z**2).sum(axis=1), -2 * z * np.exp(z**2)

    rng = np.random.default_rng(0)
    sampler = Hamiltonian(evaluate, np.zeros(1), np.eye(1), 50.0)
    state, probability = sampler.move(sampler.at(np.zeros((4, 1))), rng)
    assert np.all(np.isfinite(state.x))
    assert np.all(probability < 1e-6)
