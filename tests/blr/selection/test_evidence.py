"""Evidence maximisation and the mixture over the prior's scale: against grids, quadrature, and what must not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import t as student

import blr
import blr.posterior.laplace
from blr.arrays import Matrix, Vector
from blr.fitting.problem import pose
from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import fit, part_of
from blr.selection.evidence import (
    _MAX_STEP,
    SCALES,
    _Place,
    _skewness,
    as_groups,
    fit_evidence,
    fit_scales,
    log_hyperprior,
)
from tests.blr import dense

_VARIANCE = 25.0  # of the intercept


def alphas(q: LaplacePosterior) -> Vector:
    """Return ln of the fitted precisions, the intercept's left out."""
    return np.log(1 / q.prior.covariance[1:])


def evidence(Phi: Matrix, t: Vector, likelihood: str, log_alpha: float) -> float:
    """Return Laplace's evidence at ln precisions, one a column, by a fit from scratch."""
    variance = np.concatenate([[_VARIANCE], np.exp(-np.broadcast_to(log_alpha, Phi.shape[1] - 1))])
    return fit(Phi, t, GaussianPrior(np.zeros(Phi.shape[1]), variance), likelihood).log_evidence


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "cloglog", "cauchit", "softmax"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_gradient_vanishes_and_no_grid_point_is_better(likelihood: str, seed: int) -> None:
    Phi, t = dense.drawn(likelihood, seed, N=120, M=5, scale=0.7)
    q = fit_evidence(Phi, t, likelihood, intercept_variance=_VARIANCE)
    best = alphas(q)[0]
    assert q.converged
    assert q.prior.covariance[0] == _VARIANCE
    assert np.ptp(alphas(q)) == 0
    assert evidence(Phi, t, likelihood, best) == pytest.approx(q.log_evidence, abs=1e-8)
    h = 1e-2
    up, down = (evidence(Phi, t, likelihood, best + d) for d in (h, -h))
    curvature = (up + down - 2 * q.log_evidence) / h**2
    assert (up - down) / (2 * h) == pytest.approx(0.0, abs=1e-3 * abs(curvature) + 1e-6)
    grid = [evidence(Phi, t, likelihood, x) for x in np.linspace(-6, 8, 15)]
    assert max(grid) <= q.log_evidence + 1e-7


def test_of_many_classes_no_grid_point_is_better() -> None:
    Phi, t = dense.softmax(0, N=300, M=4, K=12)
    q = fit_evidence(Phi, t, "softmax", intercept_variance=_VARIANCE)
    best = alphas(q)[0]
    assert evidence(Phi, t, "softmax", best) == pytest.approx(q.log_evidence, abs=1e-8)
    assert max(evidence(Phi, t, "softmax", best + d) for d in (-0.05, 0.05, -1.0, 1.0)) < q.log_evidence


@pytest.mark.parametrize("likelihood", ["logistic", "softmax"])
def test_groups_have_their_own_precision(likelihood: str) -> None:
    Phi, t = dense.drawn(likelihood, N=120, M=5, scale=0.7)
    groups = np.array([9, 0, 0, 3, 3])
    q = fit_evidence(Phi, t, likelihood, groups=groups, intercept_variance=_VARIANCE)
    x = alphas(q)
    assert x[0] == x[1]
    assert x[2] == x[3]
    assert x[0] != x[2]
    one = fit_evidence(Phi, t, likelihood, intercept_variance=_VARIANCE)
    assert q.log_evidence > one.log_evidence - 1e-9
    for d in (np.array([1, 1, 0, 0]), np.array([0, 0, 1, 1])):
        h = 1e-2
        up, down = (evidence(Phi, t, likelihood, x + s * h * d) for s in (1, -1))
        assert up <= q.log_evidence + 1e-8
        assert down <= q.log_evidence + 1e-8


def test_without_an_intercept() -> None:
    Phi, t = dense.binary(0, N=100, M=4)
    q = fit_evidence(Phi[:, 1:], t, intercept=None)
    assert np.ptp(q.prior.covariance) == 0
    last = fit_evidence(np.roll(Phi, -1, axis=1), t, intercept=-1)
    assert last.prior.covariance[-1] == 1e4
    assert last.log_evidence == pytest.approx(fit_evidence(Phi, t).log_evidence, abs=1e-7)


@pytest.mark.parametrize("likelihood", ["logistic", "softmax"])
def test_rows_classes_weights_and_threads_do_not_matter(likelihood: str) -> None:
    Phi, t = dense.drawn(likelihood, N=120, M=5, scale=0.7)
    q = fit_evidence(Phi, t, likelihood)
    order = np.random.default_rng(0).permutation(len(t))
    turned = t[:, ::-1] if likelihood == "softmax" else 1 - t
    weight = np.where(np.arange(len(t)) < 30, 2.0, 1.0)
    for other in (
        fit_evidence(Phi[order], t[order], likelihood),
        fit_evidence(Phi, turned, likelihood),
        fit_evidence([(Phi[i : i + 50], t[i : i + 50], None) for i in (0, 50, 100)], None, likelihood),
    ):
        assert other.log_evidence == pytest.approx(q.log_evidence, abs=1e-7)
        assert alphas(other) == pytest.approx(alphas(q), abs=1e-3)
    twice = fit_evidence(np.r_[Phi, Phi[:30]], np.r_[t, t[:30]], likelihood)
    weighted = fit_evidence(Phi, t, likelihood, sample_weight=weight)
    assert weighted.log_evidence == pytest.approx(twice.log_evidence, abs=1e-7)
    runs = [fit_evidence(Phi, t, likelihood, threads=n) for n in (1, 3)]
    assert np.array_equal(runs[0].mean, runs[1].mean)


def test_large_data_start_on_part_of_the_rows_and_end_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    Phi, t = dense.binary(0, N=6000, M=5, scale=0.5)
    whole = fit_evidence(Phi, t)
    monkeypatch.setattr(blr.posterior.laplace, "_FEWEST_ROWS", 1000)
    assert len(part_of(whole.problem).data.Phi) == 1000
    part = fit_evidence(Phi, t)
    assert part.log_evidence == pytest.approx(whole.log_evidence, abs=1e-6)
    assert alphas(part) == pytest.approx(alphas(whole), abs=2e-3)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e3, 1e12])
def test_a_common_scale_of_the_features_moves_alpha_alone(scale: float) -> None:
    Phi, t = dense.binary(0)
    s = np.r_[1.0, np.full(3, scale)]
    one, other = fit_evidence(Phi, t), fit_evidence(Phi * s, t)
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-6)
    assert alphas(other) - 2 * np.log(scale) == pytest.approx(alphas(one), abs=1e-3)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_groups_of_any_scale_are_each_found(scale: float) -> None:
    Phi, t = dense.binary(0)
    one = fit_evidence(Phi, t, groups=[0, 1, 2, 2])
    other = fit_evidence(Phi * [1.0, scale, 1.0, 1.0], t, groups=[0, 1, 2, 2])
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"groups": [0, 1]},
            r"groups must be 4 integers, the group of each column of Phi, got int64 of shape \(2,\)",
        ),
        ({"groups": [0.0, 1.0, 1.0, 1.0]}, r"groups must be 4 integers.*float64"),
        ({"intercept": 7}, r"intercept is column 7 but Phi has 4 columns; give None for no intercept"),
        ({"groups": [0, 0, 0, 0], "intercept": -5}, r"intercept is column -5"),
        ({"intercept_variance": 0.0}, r"intercept_variance must be positive and finite, got 0.0"),
        ({"intercept_variance": np.inf}, "positive and finite, got inf"),
        ({"intercept": True}, "intercept is column True"),
        ({"intercept": 0.5}, "intercept is column 0.5"),
        ({"sample_weight": [1.0]}, r"sample_weight has 1 rows"),
    ],
)
def test_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    Phi, t = dense.binary(0)
    with pytest.raises(ValueError, match=message):
        fit_evidence(Phi, t, **options)


def test_an_intercept_alone_has_no_precision_to_be_found() -> None:
    with pytest.raises(ValueError, match=r"1 column\(s\), which is the intercept.*intercept=None"):
        fit_evidence(np.ones((3, 1)), [0, 1, 1])
    with pytest.raises(ValueError, match="which is the intercept"):
        fit_scales(np.ones((10, 1)), np.arange(10) % 2)


def model(log_alpha: float, M: int = 6, intercept: int = 0, seed: int = 0, K: int = 2) -> Any:
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([np.ones(80), rng.normal(size=(80, M - 1))])
    t = (Phi @ rng.normal(size=(M, K)) + rng.gumbel(size=(80, K))).argmax(axis=1)
    problem = pose(Phi, t, None, "logistic" if K == 2 else "softmax")
    groups = as_groups(None, M, problem.likelihood.n_outputs, intercept, 1e4)
    theta = 0.1 * rng.normal(size=problem.n_solved)
    evaluated = problem.evaluate(theta)
    g = _skewness(problem, theta, evaluated[2] + np.eye(len(theta)))
    place = _Place.first(problem, groups, problem.n_effective, -np.inf)
    return replace(place, theta=theta, log_alpha=np.array([log_alpha]), skewness=g, evaluated=evaluated)


CASES = [{}, {"intercept": None}, {"intercept": 3}, {"K": 3}, {"K": 4, "intercept": None}, {"M": 2}]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("start", [-3.0, 0.0, 4.0])
def test_the_maximum_and_the_mode_are_those_of_the_search(case: dict[str, Any], start: float) -> None:
    quadratic, within = model(start, **case), (np.array([start - _MAX_STEP]), np.array([start + _MAX_STEP]))
    quick, slow = quadratic.best(), quadratic._searched(*within)
    assert quick[0][0] == pytest.approx(slow[0][0], abs=1e-4)
    np.testing.assert_allclose(quick[1], slow[1], atol=1e-4)
    np.testing.assert_allclose(quick[1], quadratic.solve(quick[0])[0], rtol=1e-9, atol=1e-12)


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


def summed(found: list[tuple[float, float, LaplacePosterior]]) -> float:
    """Return the log of the evidence integrated over the scale."""
    return float(np.logaddexp.reduce([w for _, w, _ in found]))


@pytest.mark.parametrize("likelihood", ["logistic", "softmax"])
def test_the_mixture_is_that_of_a_fine_grid(likelihood: str) -> None:
    Phi, t = problem(slope=2.5)
    new = np.hstack([np.ones((50, 1)), np.random.default_rng(5).normal(size=(50, 3)) * 2])

    def predicted(found: list[tuple[float, float, LaplacePosterior]]) -> Matrix:
        return sum(np.exp(w - summed(found)) * q.prediction(new).probability for _, w, q in found)

    coarse = fit_scales(Phi, t, likelihood)
    fine = fit_scales(Phi, t, likelihood, scales=np.geomspace(0.3, 50, 41))
    assert summed(coarse) == pytest.approx(summed(fine), abs=0.05)
    # The fine grid keeps its four best scales only, all near the maximum.
    np.testing.assert_allclose(predicted(coarse), predicted(fine), atol=0.02)


def test_small_weights_are_left_out() -> None:
    found = fit_scales(*problem())
    assert len(found) <= 4
    log_weight = np.array([w for _, w, _ in found])
    assert log_weight.min() > log_weight.max() + np.log(0.03)
    assert {scale for scale, _, _ in found} <= set(SCALES)


def test_separable_classes_of_many_rows_stay_within_the_scales() -> None:
    """Their evidence rises beyond the largest scale, so slowly that sixty rounds of the ascent do not reach its top."""
    rng = np.random.default_rng(0)
    t = rng.integers(0, 3, 6000)
    Phi = np.hstack([np.ones((6000, 1)), 4 * rng.normal(size=(3, 20))[t] + rng.normal(size=(6000, 20))])
    found = fit_scales(Phi, t, "softmax")
    assert {scale for scale, _, _ in found} <= set(SCALES)
    few = fit_scales(Phi[:600], t[:600], "softmax")
    assert {scale for scale, _, _ in few} & {scale for scale, _, _ in found}


def test_many_parameters_that_the_data_fix_have_one_scale() -> None:
    rng = np.random.default_rng(7)
    Phi = np.hstack([np.ones((6000, 1)), rng.normal(size=(6000, 60))])
    t = rng.random(6000) < 1 / (1 + np.exp(-Phi[:, 1:] @ (0.2 * rng.normal(size=60))))
    ((scale, log_weight, q),) = fit_scales(Phi, t)
    assert scale == pytest.approx(0.2, rel=0.3)
    twin = blr.fit_evidence(Phi, t)
    # Every twelfth row has told the scale.
    assert q.log_evidence == pytest.approx(twin.log_evidence, abs=1.0)
    # The integral over ln s by Laplace's method, against the sum over a fine grid.
    grid = np.geomspace(0.1, 0.4, 25)
    sums = [
        blr.fit(Phi, t, blr.GaussianPrior.isotropic(61, precision=s**-2, intercept=0)).log_evidence
        + log_hyperprior(s)
        for s in grid
    ]
    integral = np.logaddexp.reduce(sums) + np.log(np.log(grid[1] / grid[0]))
    assert log_weight == pytest.approx(integral, abs=0.1)


@pytest.mark.parametrize("size", [0.55, 1.0, 1.2])
def test_the_one_scale_of_few_rows_is_that_of_highest_evidence(size: float) -> None:
    """The slow twin takes the evidence's gradient; it stands between two scales of the grid, or near one."""
    rng = np.random.default_rng(3)
    Phi = np.hstack([np.ones((900, 1)), rng.normal(size=(900, 40))])
    W = np.column_stack([np.zeros(40), size * rng.normal(size=(40, 2))])
    t = (Phi[:, 1:] @ W + rng.gumbel(size=(900, 3))).argmax(axis=1)
    ((scale, _, q),) = fit_scales(Phi, t, "softmax")
    twin = blr.fit_evidence(Phi, t, "softmax")
    assert q.log_evidence == pytest.approx(twin.log_evidence, abs=0.01)
    precision = np.diag(np.atleast_2d(twin.prior.precision(41)))[1]
    assert scale == pytest.approx(precision**-0.5, rel=0.03)


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
    assert max(q.log_evidence for _, _, q in found) >= highest - 1e-6


@pytest.mark.parametrize("scales", [[1.0], [2.0, 1.0], [0.0, 1.0], [[1.0, 2.0]]])
def test_scales_must_ascend(scales: list[Any]) -> None:
    with pytest.raises(ValueError, match="scales must be two or more positive numbers in ascending order"):
        fit_scales(*problem(), scales=scales)
