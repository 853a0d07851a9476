"""Which parts of a model are checked against the exact posterior, and the verdict that comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.models.candidates import CandidatePart, PosteriorCheck
from flows.models.description import TrustSummary
from flows.models.store import Store
from flows.training._checks import checked_parts, served_trust
from tests.flows.candidates import CANDIDATE
from tests.flows.verbs import train

OWN = TrustSummary(verdict="red", reasons=("the posterior is skewed",), numbers={"shift": 4.0})


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


SPECIFICATION = """
name = "separable"
[catalog]
paths = ["survey.parquet"]
id = "name"
[label]
column = "type"
[label.classes]
star = ["star"]
galaxy = ["galaxy"]
[split]
held_out = 0
[features]
"""


@pytest.fixture
def separable(tmp_path: Path) -> Any:
    """Fifty objects in twelve features, two of which tell their classes apart without error."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, 12))
    star = x[:, 0] + x[:, 1] > 0
    x[:, 0] += np.where(star, 1.0, -1.0)
    columns = {f"x{j}": x[:, j] for j in range(12)}
    named = {"name": [f"o{i}" for i in range(50)], "type": np.where(star, "star", "galaxy").tolist()}
    pq.write_table(pa.table(named | columns), tmp_path / "survey.parquet")
    features = "".join(f'{name} = "{name}"\n' for name in columns)
    (tmp_path / "spec.toml").write_text(SPECIFICATION + features)
    return tmp_path


def test_a_separable_training_uses_the_posterior_of_the_check(*, separable: bool) -> None:
    told = train(separable / "spec.toml", separable / "models")
    best = told.candidates[told.selected]
    assert best.verdict == "red"  # of the Gaussian at the mode
    said = [reason for row in told.candidates for reason in row.reasons]
    assert any("tell galaxy and star apart" in r or "tell star and galaxy apart" in r for r in said)
    assert not any("column" in reason for reason in said)
    ways = {found.way for row in told.candidates for found in row.checks if found}
    assert ways & {"confirmed", "matched", "sampled"}  # other scales may be less skewed
    assert "failed" not in ways
    assert told.trust.verdict != "red"
    model = Store(separable / "models").load("separable")
    assert not model.classifier.untrusted
    found = [x.log_evidence for row in told.candidates for x in row.checks if x]
    assert all(abs(x - best.log_evidence) < 20 for x in found if x is not None)
    assert any(x is not None for x in found)  # chains give the evidence, too
