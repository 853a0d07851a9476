"""Posteriors on public data, scikit-learn's and real galaxies, against independent chains."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from blr.arrays import Vector
from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior, RefinedPosterior
from blr.posterior.laplace import fit
from blr.posterior.sampling import sample_posterior
from blr.posterior.variational import refine
from tests.reference.posteriors import Problem
from tests.reference.public_posteriors import RESULTS, fingerprint, problems

RESULT = json.loads(RESULTS.read_text(encoding="utf-8"))


@cache
def known_problems() -> dict[str, Problem]:
    """Return the problems by name: reading the galaxies takes seconds, so the import does not."""
    return {problem.name: problem for problem in problems()}


@pytest.fixture
def problem(name: str) -> Problem:
    return known_problems()[name]


def fitted(problem: Problem) -> LaplacePosterior:
    prior = GaussianPrior(problem.mean, problem.covariance)
    return fit(problem.Phi, problem.t, prior, problem.likelihood)


def errors(problem: Problem, q: LaplacePosterior | RefinedPosterior) -> Vector:
    """Return the errors of probabilities, beyond three standard errors of the reference's own."""
    p, known = np.asarray(q.predict_proba(problem.test)), RESULT[problem.name]
    return np.maximum(np.abs(p - np.array(known["probability"])) - 3 * known["error"], 0)


@pytest.mark.parametrize("name", RESULT)
def test_the_data_are_those_of_the_chains(name: str, problem: Problem) -> None:
    assert fingerprint(problem) == RESULT[name]["data"], "python -m tests.reference.public_posteriors"


@pytest.mark.parametrize("name", RESULT)
def test_refined_probabilities(problem: Problem) -> None:
    q = fitted(problem)
    found = errors(problem, refine(q))
    assert found.max() < 0.01
    assert found.mean() < 1e-3
    assert found.mean() < errors(problem, q).mean(), "the Laplace posterior's"


@pytest.mark.long
@pytest.mark.parametrize("name", RESULT)
def test_sampled_probabilities(problem: Problem) -> None:
    found = sample_posterior(fitted(problem), rng=np.random.default_rng(0))
    assert errors(problem, found).max() < 0.01


@pytest.mark.parametrize("name", RESULT)
def test_evidence(name: str, problem: Problem) -> None:
    q, known = fitted(problem), RESULT[name]
    error = abs(q.log_evidence + q.second_order - known["log_evidence"])
    if q.trust.second_order_holds:
        assert error < 0.015 + 3 * known["log_evidence_error"]
    else:
        assert error < 0.3, "said to be rough"
