"""The error of the evidence beyond its second-order term, against quadrature in one dimension."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from blr.gaussian import GaussianPrior
from blr.posterior.laplace import fit
from blr.trust.verdict import evidence_left


@pytest.mark.parametrize("variance", [0.5, 4.0, 50.0])
def test_is_that_of_quadrature(variance: float) -> None:
    t, x = np.array([1.0, 1.0, 0.0, 1.0]), np.array([0.3, 1.0, -0.5, 2.0])
    q = fit(x[:, None], t, GaussianPrior(0.0, variance))

    def joint(w: float) -> float:
        log_p = -np.logaddexp(0.0, np.where(t > 0, -1, 1) * x * w).sum() - 0.5 * w**2 / variance
        return np.exp(log_p) / np.sqrt(2 * np.pi * variance)

    truth = np.log(quad(joint, -100, 100, points=[0, 5], limit=200)[0])
    left, error = evidence_left(q.problem, q.gaussian, q.second_order, 0.01, len(t))
    assert left == pytest.approx(truth - q.log_evidence - q.second_order, abs=0.002 + 4 * error)


def test_of_a_gaussian_posterior_is_nothing() -> None:
    """Labels of one half at weights of zero: hardly any likelihood, so the posterior is the prior."""
    q = fit(np.full((2, 1), 1e-6), [0.5, 0.5], GaussianPrior(0.0, 1.0))
    left, error = evidence_left(q.problem, q.gaussian, q.second_order, 0.01, 2)
    assert abs(left) < 1e-9
    assert error < 1e-9
