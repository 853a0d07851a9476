"""The verdict on a model names the parts that were checked by their shares."""

from __future__ import annotations

from typing import Any

from flows.checks import checked_parts, served_trust

ROW: dict[str, Any] = {"verdict": "red", "reasons": ["separable"], "numbers": {"shift": 4.0}}


def check(way: str, verdict: str, reason: str) -> dict[str, Any]:
    return {"way": way, "verdict": verdict, "reasons": [reason], "reason": reason}


def test_reasons_name_the_share_of_their_part():
    found = served_trust(
        ROW,
        (0.6, 0.3, 0.1),
        (check("confirmed", "green", "it holds"), check("failed", "red", "no mixing"), None),
    )
    assert found["verdict"] == "red"
    assert found["reasons"] == [
        "30% of the mixture: no mixing",
        "60% of the mixture: it holds",
        "parts with 10% of the mixture, none of them large, were not compared with the exact posterior",
    ]


def test_a_part_that_is_the_model_has_no_share():
    assert served_trust(ROW, (1.0,), (check("matched", "green", "moments"),))["reasons"] == ["moments"]


def test_without_a_check_the_verdict_is_that_on_the_mode():
    assert served_trust(ROW, (1.0,), (None,)) == ROW


def test_the_largest_shares_are_checked():
    rows = [
        {"parts": [{"weight": 0.9}, {"weight": 0.1}]},
        {"parts": [{"weight": w} for w in (0.4, 0.3, 0.3)]},
    ]
    assert checked_parts([(0, 0.5), (1, 0.5)], rows) == {0: [0], 1: [0, 1, 2]}
