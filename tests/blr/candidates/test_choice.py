"""The choice of candidates, which is that of `blr.selection.compare`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import blr
from blr.candidates.candidate import LeftOut, choose, integrated_share, mixed
from blr.selection.compare import compare
from tests.flows.candidates import CANDIDATE

GAUSSIAN = {
    "shift": 0.1,
    "second_order": 0.01,
    "evidence_left": 0.0,
    "k_hat": 0.2,
    "effective_draws": 0.9,
    "jitter": 0.0,
}


def row(
    evidence: Any,
    *,
    verdict: str = "green",
    second_order: float | None = 0.0,
    bic: float = 0.0,
    prior: float = 1.0,
    **numbers: float,
) -> Any:
    return replace(
        CANDIDATE,
        log_evidence=evidence,
        second_order=second_order,
        bic=bic,
        verdict=verdict,
        numbers=GAUSSIAN | numbers,
        prior_probability=prior,
    )


def kept(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: numbers[name] for name in GAUSSIAN if name != "second_order"}


NOTHING_LEARNT = LeftOut(np.full((4, 2), 0.5), np.eye(2)[[0, 1, 0, 1]])


def rank(candidates: Any, *, by: str) -> Any:
    """Return the choice among candidates whose left-out rows tell nothing."""
    return choose(candidates, [NOTHING_LEARNT] * len(candidates), by=by)


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
    assert rank([*rows, row(-50.0, shift=1.2)], by="evidence").selected == 1
    assert rank([*rows, row(-50.0, k_hat=0.9, second_order=None)], by="evidence").selected == 1


@pytest.mark.parametrize("by", ["evidence", "bic", "average"])
def test_trees_are_no_choice_by_evidence_but_by_left_out_rows(by: str) -> None:
    trees = replace(row(50.0, bic=50.0), basis="forest, trees 64", loo=-1.0)
    others = [row(-10.0, bic=-10.0), row(-11.0, bic=-11.0)]
    assert 0 not in dict(rank([trees, *others], by=by).members)
    assert rank([trees, *others], by=by).weights[0] == 0
    assert rank([trees, *(replace(one, loo=-2.0) for one in others)], by="loo").selected == 0
    assert rank([trees], by=by).members == ((0, 1.0),)


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
    found = choose(rows, left_out, by="stack")
    assert found.shares[0] < 0.05
    assert found.shares[2] == pytest.approx(found.shares[1])  # a red verdict bars no candidate
    assert found.selected in (1, 2)
    assert found.weights[0] > 0.999  # the evidence has another opinion
    of_prior = choose([row(-1.0, prior=3.0), row(-1.0)], [left_out[1]] * 2, by="stack")
    assert of_prior.shares == pytest.approx([0.75, 0.25])


def test_the_table_alone_ranks_as_the_posteriors_do() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(200, 3))
    t = rng.random(200) < 1 / (1 + np.exp(-x[:, 0]))
    designs = [np.column_stack([np.ones(200), x[:, :m]]) for m in (1, 2, 3)]
    posteriors = [blr.fit_evidence(Phi, t) for Phi in designs]
    prior = [1.0, 2.0, 0.5]
    expected = compare(posteriors, prior)
    rows = [
        row(q.log_evidence, second_order=q.second_order, bic=q.bic, prior=p, **kept(q.trust.numbers))
        for q, p in zip(posteriors, prior, strict=True)
    ]
    found = rank(rows, by="evidence")
    assert found.weights == pytest.approx([r.weight for r in expected.rows])
    assert found.second_order_applied == expected.second_order_applied
    assert rank(rows, by="bic").selected == expected.best["bic"]


def simulated(truth: float, n: int = 4000) -> LeftOut:
    """Return left-out probabilities of rows whose classes are drawn with so large a share integrated out."""
    rng = np.random.default_rng(3)
    p, flat = rng.uniform(0.02, 0.98, n), rng.uniform(0.3, 0.9, n)
    filled = np.column_stack([p, 1 - p])
    integrated = 0.5 + (filled - 0.5) * flat[:, None]
    drawn = ((1 - truth) * filled + truth * integrated)[:, 0] > rng.random(n)
    return LeftOut(filled, np.column_stack([drawn, ~drawn]).astype(float), integrated)


@pytest.mark.parametrize("truth", [0.0, 0.5, 1.0])
def test_left_out_rows_say_how_much_is_integrated(truth: float) -> None:
    assert integrated_share(simulated(truth)) == pytest.approx(truth, abs=0.12)


def test_few_rows_leave_the_whole_excess() -> None:
    assert integrated_share(simulated(1.0, n=8)) > 0.7


def test_a_mixture_has_complete_members_too() -> None:
    """A candidate may use features that no row lacks."""
    some, whole = simulated(0.5, n=9), LeftOut(np.full((9, 2), 0.5), simulated(0.5, n=9).share)
    mixture = mixed([some, whole], [0.25, 0.75])
    assert mixture.at(1.0) == pytest.approx(0.25 * some.at(1.0) + 0.375)
    assert mixture.filled == pytest.approx(0.25 * some.filled + 0.375)


@pytest.mark.parametrize("alike", [True, False])
def test_a_stack_has_four_candidates_unless_left_out_rows_ask_for_more(*, alike: bool) -> None:
    """Six candidates that say the same; or each is right about another sixth of the rows."""
    rng = np.random.default_rng(0)
    truth = np.eye(2)[rng.integers(2, size=600)]
    sure = np.where(np.arange(600)[None] % 6 == np.arange(6)[:, None], 0.99, 0.4)
    p = np.full(sure.shape, 0.7) if alike else sure
    left_out = [LeftOut(np.where(truth > 0, one[:, None], 1 - one[:, None]), truth) for one in p]
    found = choose([row(-1.0)] * 6, left_out, by="stack")
    assert len(found.members) == (4 if alike else 6)
    assert sum(found.shares) == pytest.approx(1)
