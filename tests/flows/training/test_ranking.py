"""The choice among candidates is the same as that of `blr.selection.compare` from the posteriors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import blr
from blr.selection.compare import compare
from flows.training._left_out import LeftOut
from flows.training._ranking import rank, stacked
from tests.flows.candidates import CANDIDATE


def row(
    evidence: Any, *, verdict: str = "green", second_order: float = 0.0, bic: float = 0.0, prior: float = 1.0
) -> Any:
    return replace(
        CANDIDATE,
        log_evidence=evidence,
        second_order=second_order,
        bic=bic,
        verdict=verdict,
        prior_probability=prior,
    )


def test_evidence_with_prior_probability() -> None:
    found = rank([row(-10.0), row(-9.0), row(-9.5, prior=3.0)], by="evidence")
    assert found.selected == 2
    assert np.sum(found.weights) == pytest.approx(1)
    assert found.weights[1] / found.weights[0] == pytest.approx(np.e)


def test_bic_is_another_order() -> None:
    assert rank([row(-10.0, bic=-1.0), row(-9.0, bic=-2.0)], by="bic").selected == 0


def test_a_red_verdict_bars_no_candidate() -> None:
    """It condemns the Gaussian approximation of the weights, not the model."""
    found = rank([row(-10.0), row(-1.0, verdict="red")], by="evidence")
    assert found.selected == 1
    assert found.weights[1] > 0.99


def test_the_second_order_term_counts_for_all_candidates_or_for_none() -> None:
    rows = [row(-10.0, second_order=0.1), row(-9.95)]
    assert rank(rows, by="evidence").selected == 0
    assert rank([*rows, row(-50.0, verdict="amber")], by="evidence").selected == 1
    assert rank([*rows, row(-50.0, verdict="red", second_order=None)], by="evidence").selected == 1


def test_an_average_leaves_out_candidates_of_small_weight() -> None:
    found = rank([row(-10.0), row(-9.0), row(-40.0)], by="average")
    assert [index for index, _ in found.members] == [0, 1]
    assert sum(share for _, share in found.members) == pytest.approx(1)
    assert rank([row(-10.0), row(-9.0)], by="evidence").members == ((1, 1.0),)


def test_a_stack_has_the_shares_that_predict_left_out_rows_best() -> None:
    truth = np.eye(2)[np.arange(60) % 2]
    good, bad = 0.1 + 0.8 * truth, 0.9 - 0.8 * truth
    left_out = [LeftOut(p, truth) for p in (bad, good, good)]
    rows = [row(-1.0), row(-9.0), row(-10.0, verdict="red")]
    shares = stacked(rows, left_out)
    assert shares[0] < 0.05
    assert shares[2] == pytest.approx(shares[1])  # a red verdict bars no candidate
    found = rank(rows, by="stack", shares=shares)
    assert found.selected in (1, 2)
    assert found.weights[0] > 0.999  # the evidence has another opinion
    assert stacked([row(-1.0, prior=3.0), row(-1.0)], [left_out[1]] * 2) == pytest.approx([0.75, 0.25])


def test_the_table_alone_ranks_as_the_posteriors_do() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(200, 3))
    t = rng.random(200) < 1 / (1 + np.exp(-x[:, 0]))
    designs = [np.column_stack([np.ones(200), x[:, :m]]) for m in (1, 2, 3)]
    posteriors = [blr.fit_evidence(Phi, t) for Phi in designs]
    prior = [1.0, 2.0, 0.5]
    expected = compare(posteriors, prior)
    rows = [
        row(q.log_evidence, verdict=q.trust.verdict, second_order=q.second_order, bic=q.bic, prior=p)
        for q, p in zip(posteriors, prior, strict=True)
    ]
    found = rank(rows, by="evidence")
    assert found.weights == pytest.approx([r.weight for r in expected.rows])
    assert found.second_order_applied == expected.second_order_applied
    assert rank(rows, by="bic").selected == expected.best["bic"]
