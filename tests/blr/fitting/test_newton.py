"""Newton's method on its own: quadratic functions in one step, hard starts, and correct reports on convergence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from blr.arrays import Matrix, Vector
from blr.fitting.newton import SolverPrior, maximise, newton_step
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import LINKS, Bernoulli
from blr.sums import Rows, likelihood_terms
from tests.blr.conftest import Twin

FLAT = SolverPrior(np.zeros(3), np.zeros((3, 3)))


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_priors_trace_and_determinant_are_the_dense_ones(dense: Twin, *, diagonal: bool) -> None:
    rng = np.random.default_rng(4)
    P, A = np.linalg.inv(dense.covariance(rng, 4)), np.linalg.inv(dense.covariance(rng, 4))
    P = np.diag(np.diag(P)) if diagonal else P
    prior, q = SolverPrior(np.zeros(4), P), Gaussian(np.zeros(4), A)
    assert prior.trace(q.inverse_cholesky) == pytest.approx(np.trace(P @ np.linalg.inv(A)), rel=1e-12)
    away = rng.normal(size=(3, 4))
    np.testing.assert_allclose(prior.pull(away), away @ P, rtol=1e-12)
    assert prior.log_det_precision == pytest.approx(np.linalg.slogdet(P)[1], rel=1e-12)


def quadratic(dense: Twin) -> tuple[Callable[..., Any], Vector]:
    H = dense.covariance(np.random.default_rng(0), 3)
    centre = np.array([1.0, -2.0, 3.0])

    def evaluate(theta: Vector) -> tuple[float, Vector, Matrix]:
        d = theta - centre
        return -0.5 * d @ H @ d, -H @ d, H

    return evaluate, centre


def problem(Phi: Matrix, t: Vector, link: str = "logistic") -> Callable[..., Any]:
    data, likelihood = Rows(Phi, t), Bernoulli(LINKS[link])
    return lambda theta: data.accumulate(likelihood_terms(likelihood, theta))


def test_a_gradient_rounded_coarsely_is_an_end(dense: Twin) -> None:
    """With huge weights beside a broad prior rounding leaves 1e-5 sd, which no step makes smaller."""
    evaluate, centre = quadratic(dense)
    rng = np.random.default_rng(0)

    def rounded(theta: Vector) -> tuple[float, Vector, Matrix]:
        value, gradient, H = evaluate(theta)
        return value - 1e6, gradient + 1e-5 * rng.standard_normal(3), H

    mode = maximise(rounded, FLAT, np.zeros(3))
    assert mode.converged
    assert mode.n_iter < 40
    assert mode.theta == pytest.approx(centre, abs=1e-4)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("start", [0.0, 8.0, -8.0])
def test_finds_the_mode_from_far(dense: Twin, link: str, start: float) -> None:
    Phi, t = dense.binary(1, N=150, M=3)
    evaluate, prior = problem(Phi, t, link), SolverPrior(np.zeros(3), 0.1 * np.eye(3))
    if link == "cauchit" and start:
        start = np.sign(start)  # its likelihood is flat far out, so that the far ends are ends
    mode = maximise(evaluate, prior, np.full(3, start))

    def energy(w: Vector) -> tuple[float, Vector]:
        value, gradient, _ = evaluate(w)
        return prior.energy(w) - value, prior.precision @ w - gradient

    theirs = minimize(energy, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-9})
    sd = 1 / np.sqrt(np.linalg.eigvalsh(mode.precision(prior))[0])
    assert mode.converged
    assert np.abs(mode.theta - theirs.x).max() < 1e-6 * sd


def test_the_stop_does_not_depend_on_scales(dense: Twin) -> None:
    Phi, t = dense.binary(1, N=150, M=3)
    scale = np.array([1.0, 1e-9, 1e9])
    modes = [
        maximise(problem(Phi * s, t), SolverPrior(np.zeros(3), np.diag(s**2)), np.zeros(3))
        for s in (np.ones(3), scale)
    ]
    assert modes[0].n_iter == modes[1].n_iter
    assert modes[1].theta * scale == pytest.approx(modes[0].theta, rel=1e-9)


def test_an_indefinite_curvature_still_descends() -> None:
    g = np.array([1.0, 1.0])
    for A in (np.diag([1.0, -1.0]), np.diag([1.0, 0.0]), np.array([[1.0, 3.0], [3.0, 1.0]])):
        step, decrement = newton_step(g, A)
        assert g @ step > 0
        assert np.isfinite(decrement)


def test_running_out_of_iterations_is_data(dense: Twin) -> None:
    Phi, t = dense.binary(1, N=150, M=3)
    mode = maximise(problem(Phi, t), FLAT, np.full(3, 5.0), max_iter=2)
    assert not mode.converged
    assert mode.status == "iterations exhausted"
    assert mode.n_iter == 2
