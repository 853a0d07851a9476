"""The mixture over the prior's scale against quadrature over a fine grid, and at its corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import t as student

import blr
from blr.arrays import Matrix
from blr.selection.evidence import SCALES, ScaleFit, fit_scales, log_hyperprior


def problem(n: int = 80, F: int = 3, seed: int = 0, slope: float = 1.5) -> tuple[Matrix, np.ndarray]:
    rng = np.random.default_rng(seed)
    Phi = np.hstack([np.ones((n, 1)), rng.normal(size=(n, F))])
    t = rng.random(n) < 1 / (1 + np.exp(-slope * Phi[:, 1]))
    return Phi, t


def test_hyperprior_is_a_half_t_density_in_the_logarithm() -> None:
    s = np.array([0.1, 1.0, 3.0, 30.0])
    twin = 2 * student.pdf(s / 3, 4) / 3 * s
    np.testing.assert_allclose(np.exp(log_hyperprior(s)), twin, rtol=1e-12)
    total, _ = quad(lambda u: float(np.exp(log_hyperprior(np.exp(u)))), -20, 20)
    assert total == pytest.approx(1, abs=1e-8)


def test_each_fit_is_that_of_its_prior() -> None:
    Phi, t = problem()
    found = fit_scales(Phi, t)
    for q, s in zip(found.posteriors, found.scale, strict=True):
        twin = blr.fit(Phi, t, blr.GaussianPrior.isotropic(4, precision=s**-2, intercept=0))
        np.testing.assert_allclose(q.mean, twin.mean, rtol=1e-7, atol=1e-9)
        assert q.log_evidence == pytest.approx(twin.log_evidence, abs=1e-4)  # the last Hessian is a step old


@pytest.mark.parametrize("likelihood", ["logistic", "softmax"])
def test_the_mixture_is_that_of_a_fine_grid(likelihood: str) -> None:
    Phi, t = problem(slope=2.5)
    new = np.hstack([np.ones((50, 1)), np.random.default_rng(5).normal(size=(50, 3)) * 2])

    def predicted(found: ScaleFit) -> Matrix:
        parts = (
            w * q.prediction(new).probability for q, w in zip(found.posteriors, found.weight, strict=True)
        )
        return sum(parts)

    coarse = fit_scales(Phi, t, likelihood)
    fine = fit_scales(Phi, t, likelihood, scales=np.geomspace(0.3, 50, 41))
    assert coarse.log_evidence == pytest.approx(fine.log_evidence, abs=0.05)
    # The fine grid keeps its four best scales only, all near the maximum.
    np.testing.assert_allclose(predicted(coarse), predicted(fine), atol=0.02)


def test_weights_sum_to_one_and_small_ones_are_left_out() -> None:
    found = fit_scales(*problem())
    assert found.weight.sum() == pytest.approx(1)
    assert len(found.posteriors) == len(found.scale) == len(found.weight) <= 4
    assert found.weight.min() > 0.03 * found.weight.max()
    assert set(found.scale.tolist()) <= set(SCALES)


def test_separable_classes_do_not_run_into_a_corner() -> None:
    """The evidence's maximum has a scale far beyond any; the mixture stays within the hyperprior's reach."""
    rng = np.random.default_rng(3)
    Phi = np.hstack([np.ones((60, 1)), rng.normal(size=(60, 2))])
    t = Phi[:, 1] > 0
    found = fit_scales(Phi, t)
    assert found.scale.max() <= SCALES[-1]
    assert found.weight @ np.log(found.scale) < np.log(20)


def test_separable_classes_of_many_rows_stay_within_the_scales() -> None:
    """Their evidence rises beyond the largest scale, so slowly that sixty rounds of the ascent do not reach its top."""
    rng = np.random.default_rng(0)
    t = rng.integers(0, 3, 6000)
    Phi = np.hstack([np.ones((6000, 1)), 4 * rng.normal(size=(3, 20))[t] + rng.normal(size=(6000, 20))])
    found = fit_scales(Phi, t, "softmax")
    assert set(found.scale.tolist()) <= set(SCALES)
    few = fit_scales(Phi[:600], t[:600], "softmax")
    assert set(few.scale.tolist()) & set(found.scale.tolist())


def test_many_parameters_that_the_data_fix_have_one_scale() -> None:
    rng = np.random.default_rng(7)
    Phi = np.hstack([np.ones((6000, 1)), rng.normal(size=(6000, 60))])
    t = rng.random(6000) < 1 / (1 + np.exp(-Phi[:, 1:] @ (0.2 * rng.normal(size=60))))
    found = fit_scales(Phi, t)
    assert len(found.posteriors) == 1
    assert found.scale[0] == pytest.approx(0.2, rel=0.3)
    twin = blr.fit_evidence(Phi, t)
    # Every twelfth row has told the scale.
    assert found.posteriors[0].log_evidence == pytest.approx(twin.log_evidence, abs=1.0)
    # The integral over ln s by Laplace's method, against the sum over a fine grid.
    grid = np.geomspace(0.1, 0.4, 25)
    sums = [
        blr.fit(Phi, t, blr.GaussianPrior.isotropic(61, precision=s**-2, intercept=0)).log_evidence
        + log_hyperprior(s)
        for s in grid
    ]
    summed = np.logaddexp.reduce(sums) + np.log(np.log(grid[1] / grid[0]))
    assert found.log_evidence == pytest.approx(summed, abs=0.1)


@pytest.mark.parametrize("size", [0.55, 1.0, 1.2])
def test_the_one_scale_of_few_rows_is_that_of_highest_evidence(size: float) -> None:
    """The slow twin takes the evidence's gradient; it stands between two scales of the grid, or near one."""
    rng = np.random.default_rng(3)
    Phi = np.hstack([np.ones((900, 1)), rng.normal(size=(900, 40))])
    W = np.column_stack([np.zeros(40), size * rng.normal(size=(40, 2))])
    t = (Phi[:, 1:] @ W + rng.gumbel(size=(900, 3))).argmax(axis=1)
    found = fit_scales(Phi, t, "softmax")
    assert len(found.posteriors) == 1
    twin = blr.fit_evidence(Phi, t, "softmax")
    assert found.posteriors[0].log_evidence == pytest.approx(twin.log_evidence, abs=0.01)
    precision = np.diag(np.atleast_2d(twin.prior.precision(41)))[1]
    assert found.scale[0] == pytest.approx(precision**-0.5, rel=0.03)


def test_a_direction_that_only_large_scales_free_is_found() -> None:
    """Two columns differ by little, and that tells all: the evidence falls along the grid before it rises."""
    rng = np.random.default_rng(0)
    noise, difference = rng.normal(size=(1000, 40)), rng.normal(size=1000)
    Phi = np.column_stack([np.ones(1000), noise, noise[:, 0] + 0.01 * difference])
    t = difference + 0.3 * rng.normal(size=1000) > 0
    found = fit_scales(Phi, t)
    highest = max(
        blr.fit(Phi, t, blr.GaussianPrior.isotropic(42, precision=s**-2, intercept=0)).log_evidence
        for s in SCALES
    )
    assert max(q.log_evidence for q in found.posteriors) >= highest - 1e-6


def test_vote_counts_and_weights_are_taken() -> None:
    Phi, t = problem()
    once = fit_scales(np.repeat(Phi, 2, axis=0), np.repeat(t, 2))
    twice = fit_scales(Phi, t, sample_weight=np.full(len(t), 2.0))
    assert once.log_evidence == pytest.approx(twice.log_evidence, abs=1e-6)


@pytest.mark.parametrize("scales", [[1.0], [2.0, 1.0], [0.0, 1.0], [[1.0, 2.0]]])
def test_scales_must_ascend(scales: list[Any]) -> None:
    with pytest.raises(ValueError, match="scales must be two or more positive numbers in ascending order"):
        fit_scales(*problem(), scales=scales)


def test_an_intercept_alone_has_no_scale() -> None:
    with pytest.raises(ValueError, match="which is the intercept"):
        fit_scales(np.ones((10, 1)), np.arange(10) % 2)
