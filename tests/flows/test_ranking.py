"""The choice among candidates, held to the one that `blr.selection` makes of the posteriors themselves."""

from __future__ import annotations

import numpy as np
import pytest

from flows.ranking import rank


def row(evidence, *, verdict="green", second_order=0.0, bic=0.0, prior=1.0):
    return {
        "log_evidence": evidence,
        "second_order": second_order,
        "bic": bic,
        "loo": None,
        "verdict": verdict,
        "prior_probability": prior,
    }


def test_evidence_with_prior_probability():
    found = rank([row(-10.0), row(-9.0), row(-9.5, prior=3.0)], by="evidence")
    assert found.selected == 2
    assert np.sum(found.weights) == pytest.approx(1)
    assert found.weights[1] / found.weights[0] == pytest.approx(np.e)


def test_bic_is_another_order():
    assert rank([row(-10.0, bic=-1.0), row(-9.0, bic=-2.0)], by="bic").selected == 0


def test_a_red_fit_is_no_contender_unless_all_are():
    found = rank([row(-10.0), row(-1.0, verdict="red")], by="evidence")
    assert found.selected == 0
    assert found.weights == (1.0, 0.0)
    assert rank([row(-10.0, verdict="red"), row(-1.0, verdict="red")], by="evidence").selected == 1


def test_the_second_order_term_counts_for_all_contenders_or_for_none():
    rows = [row(-10.0, second_order=0.1), row(-9.95)]
    assert rank(rows, by="evidence").selected == 0
    assert rank([*rows, row(-50.0, verdict="amber")], by="evidence").selected == 1
    assert rank([*rows, row(-50.0, verdict="red", second_order=None)], by="evidence").selected == 0
