"""One precision in the eigenvectors of the curvature, against a Cholesky factor for each trial of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blr.fitting.problem import pose
from blr.selection.evidence import _QuadraticModel, _skewness, as_groups, fit_evidence


def model(M: int = 6, intercept: int = 0, seed: int = 0, K: int = 2) -> Any:
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([np.ones(80), rng.normal(size=(80, M - 1))])
    t = (Phi @ rng.normal(size=(M, K)) + rng.gumbel(size=(80, K))).argmax(axis=1)
    problem = pose(Phi, t, None, "logistic" if K == 2 else "softmax")
    groups, _ = as_groups(None, M, problem.likelihood.n_outputs, intercept, 1e4).scaled(
        np.ones(problem.n_solved)
    )
    theta = 0.1 * rng.normal(size=problem.n_solved)
    _, gradient, hessian = problem.evaluate(theta)
    g = _skewness(problem, theta, hessian + np.eye(len(theta)))
    return _QuadraticModel(theta, gradient, hessian, g, groups)


CASES = [{}, {"intercept": None}, {"intercept": 3}, {"K": 3}, {"K": 4, "intercept": None}, {"M": 2}]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("start", [-3.0, 0.0, 4.0])
def test_the_maximum_and_the_mode_are_those_of_the_search(case: dict[str, Any], start: float) -> None:
    quadratic = model(**case)
    quick, slow = quadratic.best(np.array([start])), quadratic._searched(np.array([start]))
    assert quick[0][0] == pytest.approx(slow[0][0], abs=1e-4)
    np.testing.assert_allclose(quick[1], slow[1], atol=1e-4)
    np.testing.assert_allclose(quick[1], quadratic.solve(quick[0])[0], rtol=1e-9, atol=1e-12)


def test_two_groups_of_one_range_give_the_evidence_of_their_own() -> None:
    rng = np.random.default_rng(3)
    Phi = np.column_stack([np.ones(200), rng.normal(size=(200, 4))])
    t = rng.random(200) < 1 / (1 + np.exp(-Phi[:, 1]))
    one, two = fit_evidence(Phi, t), fit_evidence(Phi, t, groups=[0, 0, 0, 1, 1])
    assert two.log_evidence > one.log_evidence
