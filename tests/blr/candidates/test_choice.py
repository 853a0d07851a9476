"""The choice of candidates, which is that of `blr.selection.compare`, and the verdict on what they make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import blr
from blr.candidates.candidate import CandidatePart, PosteriorCheck
from blr.candidates.choice import LeftOut, checked_parts, choose, integrated_share, mixed, served_trust
from blr.selection.compare import compare
from blr.trust.verdict import Trust
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
        row(q.log_evidence, verdict=q.trust.verdict, second_order=q.second_order, bic=q.bic, prior=p)
        for q, p in zip(posteriors, prior, strict=True)
    ]
    found = rank(rows, by="evidence")
    assert found.weights == pytest.approx([r.weight for r in expected.rows])
    assert found.second_order_applied == expected.second_order_applied
    assert rank(rows, by="bic").selected == expected.best["bic"]


OWN = Trust("red", ("the posterior is skewed",), {"shift": 4.0})


def check(verdict: str = "green", way: str = "confirmed", reason: str = "it holds") -> Any:
    return PosteriorCheck(
        verdict=verdict,
        way=way,
        reason=reason,
        reasons=(reason,),
        mean_difference=None,
        largest_difference=None,
        log_evidence=None,
        log_evidence_error=None,
    )


def test_parts_of_large_shares_are_checked() -> None:
    mixture = (0.7, 0.3), (1.0,)
    rows = [
        replace(CANDIDATE, parts=tuple(CandidatePart(scale=1.0, weight=w, width=0) for w in weights))
        for weights in mixture * 2
    ]
    chosen = checked_parts([(0, 0.5), (1, 0.2), (2, 0.25), (3, 0.05)], rows)
    assert chosen == {0: {0: 0.35}, 1: {0: 0.2}, 2: {0: 0.175}, 3: {}}
    of_small = checked_parts([(i, 0.01) for i in range(4)], rows)
    assert [*of_small.values()] == [{}, {0: 0.01}, {}, {0: 0.01}]


def test_reasons_name_the_share_of_their_part() -> None:
    found = served_trust(
        OWN,
        (0.6, 0.3, 0.1),
        (check("green", "confirmed", "it holds"), check("red", "failed", "no mixing"), None),
    )
    assert found.verdict == "red"
    assert found.reasons == (
        "30% of the mixture: no mixing",
        "60% of the mixture: it holds",
        "small parts with 10% of the mixture in total were not compared with the exact posterior",
    )


def test_a_part_that_is_the_model_has_no_share() -> None:
    assert served_trust(OWN, (1.0,), (check("green", "matched", "moments"),)).reasons == ("moments",)


def test_a_green_fit_says_nothing_of_what_was_not_checked() -> None:
    found = served_trust(OWN, [0.5, 0.5], [check(way="unchanged", reason="fine"), None])
    assert (found.verdict, found.reasons) == ("green", ("50% of the mixture: fine",))


def test_without_a_check_the_candidates_own_verdict_stands() -> None:
    assert served_trust(OWN, [1.0], [None]) == OWN


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
