"""Two weights: importance draws have the moments of long chains, the Gaussians those of the fits."""

from __future__ import annotations

import numpy as np
import pytest

import blr
from blr.posterior.pair import weight_pair


def problem(n_classes: int) -> tuple[np.ndarray, np.ndarray, blr.GaussianPrior]:
    rng = np.random.default_rng(3)
    Phi = np.column_stack([np.ones(60), rng.normal(size=(60, 2))])
    a = np.stack([k * (Phi @ [0.2, 1.5, -1.0]) for k in range(n_classes)], axis=1)
    t = (a + rng.gumbel(size=a.shape)).argmax(axis=1)
    return Phi, t, blr.GaussianPrior.isotropic(3, precision=0.2, intercept=0)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_moments_are_those_of_the_posteriors(n_classes: int) -> None:
    Phi, t, prior = problem(n_classes)
    q = blr.fit(Phi, t, prior, likelihood="logistic" if n_classes == 2 else "softmax")
    refined = blr.refine(q)
    pair = weight_pair(q.fitted, refined, np.random.default_rng(0))
    assert pair is not None
    both = list(pair.indices)
    for (mean, covariance), posterior in ((pair.laplace, q), (pair.refined, refined)):
        np.testing.assert_allclose(mean, posterior.mean[both], atol=1e-10)
        draws = posterior.sample(40_000, np.random.default_rng(1))[:, both]
        if n_classes == 2:
            np.testing.assert_allclose(covariance, np.linalg.inv(posterior.precision)[np.ix_(both, both)])
            np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.02)
    exact = blr.sample_posterior(q)
    assert pair.weight.sum() == pytest.approx(1)
    sd = np.sqrt(np.diag(pair.refined[1]))
    np.testing.assert_allclose(pair.weight @ pair.draws, exact.mean[both], atol=0.1 * sd.max())


@pytest.mark.usefixtures("few_draws")
def test_draws_of_chains_are_taken_as_they_are() -> None:
    Phi, t, prior = problem(2)
    q = blr.fit(Phi, t, prior)
    chains = blr.sample_posterior(q)
    pair = weight_pair(q.fitted, chains, np.random.default_rng(0))
    assert pair is not None
    np.testing.assert_array_equal(pair.draws, chains.draws[:, list(pair.indices)])
    np.testing.assert_allclose(pair.weight, 1 / len(chains.draws))


def test_one_weight_makes_no_pair() -> None:
    Phi, t, _ = problem(2)
    prior = blr.GaussianPrior.isotropic(1, precision=1.0, intercept=None)
    q = blr.fit(Phi[:, 1:2], t, prior)
    assert weight_pair(q.fitted, blr.refine(q), np.random.default_rng(0)) is None


def test_the_path_leads_from_the_start_to_the_mode() -> None:
    Phi, t, prior = problem(2)
    q = blr.fit(Phi, t, prior).fitted
    assert q.path is not None
    assert len(q.path) == q.n_iter
    np.testing.assert_array_equal(q.path[0], 0)
    np.testing.assert_array_equal(q.path[-1], q.mean)
    P = np.diag([1e-4, 0.2, 0.2])  # of the intercept, and of the others
    w = np.zeros(3)  # the textbook's step, PRML (4.92) with a prior
    for step in q.path[1:3]:
        y = 1 / (1 + np.exp(-Phi @ w))
        A = Phi.T @ (Phi * (y * (1 - y))[:, None]) + P
        w = w + np.linalg.solve(A, Phi.T @ (t - y) - P @ w)
        np.testing.assert_allclose(step, w, atol=1e-10)
