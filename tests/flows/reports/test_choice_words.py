"""Words under the table of candidates say why one with a better held-out loss was not selected."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flows.models.store import Store
from flows.reports import tables
from flows.reports.data import TrainReport
from flows.reports.tables import choice_words
from tests.flows.reports.test_report import changed


@pytest.fixture(scope="module")
def report(trained: Path) -> Any:
    store = Store(trained / "models")
    found = TrainReport.of(store.described(store.load("morphology"), "stored"))
    assert found.model.selected_by == "evidence"
    return changed(found, selected=0)


def judged(report: Any, *losses: float, selected_by: str = "evidence", **second: object) -> Any:
    """Return the report with other held-out losses of its two candidates, and other values of the second."""
    first, other = (replace(c, log_loss=x) for c, x in zip(report.model.candidates, losses, strict=True))
    return changed(report, candidates=(first, replace(other, **second)), selected_by=selected_by)


def test_nothing_is_said_where_the_selected_one_is_best(report: Any) -> None:
    assert choice_words(judged(report, 0.4, 0.5).model) == ""
    assert choice_words(judged(report, 0.4, 0.4).model) == ""


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"verdict": "green", "weight": 1e-5}, "its probability is < 0.001 against"),
        ({"bic": -200.0, "selected_by": "bic"}, "ranked by BIC on the training objects, where it has −200.0"),
        ({"loo": None, "selected_by": "loo"}, "not known of it"),
        ({"selected_by": "stack"}, "the model is a mixture of candidates, weighed as left-out"),
    ],
)
def test_the_reason(report: Any, second: dict[str, Any], words: str) -> None:
    said = choice_words(judged(report, 0.5, 0.4, **second).model)
    assert words in said
    assert said.startswith("polynomial, degree 2 of b_j has the smallest held-out log loss, 0.4000")


def test_it_is_shown_by_all_that_show_the_table(report: Any) -> None:
    table = tables.candidate_table(judged(report, 0.5, 0.4).model)
    assert table.remark in tables.to_markdown(table).replace("\\", "")
    stream = io.StringIO()
    Console(file=stream, width=100).print(table)
    assert table.remark in " ".join(stream.getvalue().split())


def test_red_candidates_compete(report: Any) -> None:
    said = choice_words(judged(report, 0.5, 0.4, verdict="red").model)
    assert "red" not in said
    assert "ranked by log evidence" in said


@pytest.mark.parametrize(
    ("by", "words"),
    [("stack", "The left-out objects set the shares too"), ("evidence", "Left-out objects judge the model")],
)
def test_left_out_objects_are_not_called_held_out(report: Any, by: str, words: str) -> None:
    said = choice_words(changed(judged(report, 0.5, 0.4, selected_by=by), judged_by="left-out").model)
    assert words in said
    assert "smallest left-out log loss" in said
    assert "eld-out" not in said
