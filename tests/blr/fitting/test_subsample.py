"""A start on part of the rows ends where Newton's method on all of them ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blr.posterior.laplace
from blr.fitting.newton import maximise
from blr.fitting.problem import pose
from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import CLOSE, approach, fit, part_of
from blr.selection.evidence import fit_evidence
from blr.sums import Rows
from tests.blr.conftest import Twin

PRIOR = GaussianPrior.isotropic(5, precision=0.5)


@pytest.fixture(name="from_few")
def _from_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 4,000 rows be many."""
    monkeypatch.setattr(blr.posterior.laplace, "_FEWEST_ROWS", 500)


def distance(one: LaplacePosterior, other: LaplacePosterior) -> float:
    """Return how far the means of two posteriors lie apart, in sd of the first."""
    d = one.gaussian.mean - other.gaussian.mean
    return float(np.sqrt(d @ one.gaussian.precision @ d))


def hessian_passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which each pass over all 4,000 rows adds whether it made a Hessian."""
    passes, accumulate = [], Rows.accumulate

    def counted(self: object, function: Callable[..., Any]) -> tuple[Any, ...]:
        terms = accumulate(self, function)
        if len(self.Phi) == 4000:
            passes.append(len(terms) == 3)
        return terms

    monkeypatch.setattr(Rows, "accumulate", counted)
    return passes


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "cauchit", "cloglog", "softmax"])
def test_the_fit_is_that_of_newtons_method(
    dense: Twin, likelihood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Phi, t = dense.softmax(0, N=4000, M=5, K=3) if likelihood == "softmax" else dense.binary(0, N=4000, M=5)
    whole = fit(Phi, t, PRIOR, likelihood)
    with monkeypatch.context() as patch:
        patch.setattr(blr.posterior.laplace, "_FEWEST_ROWS", 500)
        passes = hessian_passes(patch)
        part = fit(Phi, t, PRIOR, likelihood)
    assert sum(passes) == 1
    assert distance(whole, part) < 1e-8
    assert part.converged
    np.testing.assert_allclose(part.gaussian.precision, whole.gaussian.precision, rtol=1e-3, atol=1e-2)
    assert part.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-7)
    assert part.log_evidence == pytest.approx(whole.log_evidence, abs=1e-3)


@pytest.mark.usefixtures("from_few")
def test_maximum_likelihood_weights_and_threads(dense: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    Phi, t = dense.binary(1, N=4000, M=5)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 4000)
    found = [fit(Phi, t, None, sample_weight=weight, threads=n) for n in (1, 3)]
    assert np.array_equal(found[0].mean, found[1].mean)
    monkeypatch.setattr(blr.posterior.laplace, "_FEWEST_ROWS", 10_000)
    assert distance(fit(Phi, t, None, sample_weight=weight), found[0]) < 1e-8


@pytest.mark.usefixtures("from_few")
def test_rows_in_a_bad_order_are_fitted_all_the_same(dense: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every eighth row is of one class: the sample says nothing of the other."""
    Phi, t = dense.binary(2, N=4000, M=5)
    order = np.argsort(t, kind="stable")
    first, rest = order[-500:], order[:-500]
    place = np.empty(4000, dtype=np.intp)
    place[::8], place[np.arange(4000) % 8 != 0] = first, rest
    Phi, t = Phi[place], t[place]
    assert part_of(pose(Phi, t, PRIOR)).data.t.min() == 1
    part, part_evidence = fit(Phi, t, PRIOR), fit_evidence(Phi, t)
    monkeypatch.setattr(blr.posterior.laplace, "_FEWEST_ROWS", 10_000)
    assert distance(fit(Phi, t, PRIOR), part) < 1e-8
    assert part_evidence.log_evidence == pytest.approx(fit_evidence(Phi, t).log_evidence, abs=1e-5)


def test_approach_comes_near_and_says_where_it_does_not(dense: Twin) -> None:
    Phi, t = dense.binary(3, N=4000, M=5)
    problem = pose(Phi, t, PRIOR)
    mode = maximise(problem.evaluate, problem.solver_prior, np.zeros(5))
    rough = 1.1 * mode.hessian
    away = mode.theta + np.linalg.solve(mode.hessian, np.random.default_rng(0).standard_normal(5))
    near = approach(problem, problem.solver_prior, away, rough)
    d = near - mode.theta
    assert np.sqrt(d @ mode.hessian @ d) < 2 * CLOSE
    assert approach(problem, problem.solver_prior, away, 0.01 * rough) is None  # steps far too long
    assert approach(problem, problem.solver_prior, away, 10 * rough) is None  # far too short
    assert approach(problem, problem.solver_prior, away, -rough) is None


def test_few_rows_and_streams_are_not_thinned(dense: Twin) -> None:
    Phi, t = dense.binary(0, N=400, M=5)
    assert part_of(pose(Phi, t, PRIOR)) is None
    assert part_of(pose([(Phi, t, None)], None, PRIOR)) is None
