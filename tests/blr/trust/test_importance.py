"""Pareto smoothing against SciPy's distribution, and ratios against the densities that they are of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import genpareto

from blr.fitting.newton import SolverPrior, maximise
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Bernoulli, Categorical
from blr.sums import Rows, likelihood_terms
from blr.trust.verdict import fit_pareto, laplace_ratios, smooth
from tests.blr.conftest import Twin


def laplace(dense: Twin, *, softmax: bool) -> tuple[Any, ...]:
    if softmax:
        Phi, t = dense.softmax(0, N=80, M=3, K=4)
        likelihood = Categorical(4)
    else:
        Phi, t = dense.binary(0, N=80, M=3)
        likelihood = Bernoulli()
    data = Rows(Phi, t, np.linspace(0.5, 1.5, len(Phi)))
    D = 3 * likelihood.n_outputs
    prior = SolverPrior(np.full(D, 0.2), np.eye(D))
    mode = maximise(lambda w: data.accumulate(likelihood_terms(likelihood, w)), prior, np.zeros(D))
    return data, likelihood, prior, Gaussian(mode.theta, mode.precision(prior))


@pytest.mark.parametrize("k", [-0.3, 0.2, 0.7, 1.5])
def test_the_pareto_shape_is_found(k: float) -> None:
    x = np.sort(genpareto.rvs(k, scale=3.0, size=20_000, random_state=np.random.default_rng(0)))
    shape, scale = fit_pareto(x)
    assert shape == pytest.approx(k, abs=0.03)
    assert scale == pytest.approx(3.0, rel=0.05)


def test_equal_ratios_are_a_perfect_approximation() -> None:
    found = smooth(np.full(500, 3.0))
    assert found[1:] == (0.0, pytest.approx(1.0))


@pytest.mark.parametrize(("sd", "low", "high"), [(1.2, -np.inf, 0.2), (0.6, 0.45, 1.0), (0.45, 0.6, 1.2)])
def test_k_hat_tells_a_proposal_that_is_too_narrow(sd: float, low: float, high: float) -> None:
    """For a normal target of sd 1 and a proposal of sd s the ratios' tail has k = 1 - s²."""
    x = sd * np.random.default_rng(0).standard_normal(4000)
    found = smooth(-0.5 * x**2 + 0.5 * (x / sd) ** 2)
    assert low < found[1] < high
    assert found[0].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("softmax", [False, True])
def test_ratios_are_posterior_over_approximation(dense: Twin, *, softmax: bool) -> None:
    data, likelihood, prior, gaussian = laplace(dense, softmax=softmax)
    ratio = laplace_ratios(data, likelihood, gaussian, 80)
    draws = np.random.default_rng(0).standard_normal((len(ratio), len(gaussian.mean)))
    w = gaussian.mean + draws @ gaussian.inverse_cholesky
    terms = likelihood_terms(likelihood, gaussian.mean, hessian=False)
    posterior = [
        data.accumulate(likelihood_terms(likelihood, x, hessian=False))[0] - prior.energy(x) for x in w
    ]
    at_mode = data.accumulate(terms)[0] - prior.energy(gaussian.mean)
    expected = np.array(posterior) - at_mode + 0.5 * np.sum(draws**2, axis=1)
    assert ratio == pytest.approx(expected, abs=1e-9)


def test_ratios_of_any_range_are_finite() -> None:
    found = smooth(np.linspace(0.0, 1e5, 500))
    assert np.isfinite(found[1])
    assert found[1] > 5
    assert found[2] == pytest.approx(1 / 500, rel=0.01)
