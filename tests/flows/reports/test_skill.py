"""A model that predicts nothing says so first and in words, wherever a reader meets it; its verdict is amber."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from blr.calibration import Skill
from flows.cli._list import run_list, show_models
from flows.cli._models import show_trained
from flows.documents import from_document, to_document
from flows.models.promotion import compare
from flows.models.store import ModelListing, SkillSummary, Store, skill_words
from flows.reports import tables
from flows.reports.data import TrainReport
from flows.reports.html import render_report
from flows.reports.tables import comparison_tables, model_card
from flows.request import PromoteRequest
from tests.flows.verbs import train


@pytest.fixture(scope="module")
def useless_once(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Any:
    """Return what is told of a model whose labels are shuffled, and its store."""
    folder = tmp_path_factory.mktemp("useless")
    columns = make.survey(1500)
    columns["hubble"] = np.random.default_rng(5).permutation(columns["hubble"])
    make.parquet(folder / "survey.parquet", columns)
    (folder / "spec.toml").write_text(make.specification)
    return train(folder / "spec.toml", folder / "models"), Store(folder / "models")


@pytest.fixture
def useless(useless_once: Any, tmp_path: Path) -> Any:
    """Return the same, with a copy of the store, to be written to."""
    told, store = useless_once
    copy = Store(Path(shutil.copytree(store.root, tmp_path / "models")))
    return replace(told, path=str(copy.folder("morphology", told.version))), copy


def test_no_skill_is_said_first_and_in_words(useless: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told, store = useless
    assert told.trust.verdict == "amber"
    assert told.trust.answer("computed").colour == "green"
    assert told.metrics.skill.verdict != "better"
    model, report = store.load("morphology"), TrainReport.of(told)
    show_trained(told)
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("No skill")
    assert [line for line in others if "verdict on its probabilities" in line]
    assert model_card(model, report).splitlines()[2].startswith("**No skill")
    assert "**Can I use it?** No:" in tables.markdown_report(report)
    page = render_report(report)
    assert "No: it is not known" in page[: page.index("<b>Reliability")]
    rows = tables.candidate_table(report.model).rows
    assert "green, no skill" in rows[tables.candidate_table(report.model).marked]
    run_list(store=store.root, json=True)
    listed = json.loads(capsys.readouterr().out)
    assert listed["models"][0]["has_skill"] is False
    show_models(from_document(ModelListing, listed, source="list"))
    assert "no skill" in capsys.readouterr().out
    compared = comparison_tables(compare(PromoteRequest("morphology", store=store.root)))[-1]
    assert "No skill" in dict(row[:2] for row in compared.rows)["skill"]


def test_skill_is_told_with_its_interval(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(trained / "models")
    model = store.load("morphology")
    found = model.metrics.skill
    assert 0 < found.low < found.gain < found.high
    assert found.n == found.n_groups == model.metrics.n
    assert found.gain == pytest.approx(model.metrics.log_loss_baseline - model.metrics.log_loss)
    show_trained(store.described(model, "stored"))
    shown = capsys.readouterr().out
    assert not shown.startswith("No skill")
    assert "Does it know more than the class shares? Yes: it is right for" in " ".join(shown.split())
    assert "of the doubt that class shares alone leave" in shown


def test_objects_that_the_split_keeps_together_count_once(folder: Path, make: SimpleNamespace) -> None:
    """Each object twice, under one name: the interval is that of the single ones."""
    columns = make.survey()
    make.parquet(folder / "survey.parquet", {k: np.concatenate([v, v]) for k, v in columns.items()})
    found = train(folder / "spec.toml", folder / "models").metrics.skill
    assert found.n == 2 * found.n_groups


@pytest.mark.parametrize(
    ("loss", "words"),
    [(0.4, "Skill: on 3 held-out objects"), (0.9, "No skill: on 3"), (0.69, "No skill shown: on 3")],
)
def test_words(loss: float, words: str) -> None:
    gain = 0.7 - loss
    found = SkillSummary.of(
        Skill(gain=gain, low=gain - 0.1, high=gain + 0.1, baseline=0.7, level=0.95, n=3, n_groups=3)
    )
    assert skill_words(found).startswith(words)
    assert from_document(SkillSummary, to_document(found), source="skill") == found
