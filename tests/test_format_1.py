"""Files of format 1 (`tests/format_1/make.py`) are read: models, classified folders, releases, specifications."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import flows
from flows.cli.app import run
from tests.format_1.make import HERE, rows

KINDS = sorted(path.stem for path in (HERE / "kinds").glob("*.asdf"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the files, which is the working folder."""
    shutil.copytree(HERE, tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    return tmp_path / "files"


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_of_each_kind_says_what_it_said(kind: str) -> None:
    classifier = flows.read_classifier(HERE / "kinds" / f"{kind}.asdf")
    said = np.loadtxt(HERE / "kinds" / f"{kind}.txt")
    np.testing.assert_allclose(classifier.predict_proba(rows()[2]), said, atol=1e-6)


def test_a_model_classifies_as_it_did(here: Path) -> None:
    assert run(["models", "show", "morphology", "--json"]) == 0
    again = ["classify", "catalogue/north.parquet", "--model", "morphology", "--out", "again", "--direct"]
    assert run(again) == 0
    old, new = (pq.read_table(here / folder / "north.parquet") for folder in ("annotated", "again"))
    assert old.column_names == new.column_names
    assert old["blr_class"].equals(new["blr_class"])
    np.testing.assert_allclose(old["blr_p_early"].to_numpy(), new["blr_p_early"].to_numpy(), atol=1e-6)


@pytest.mark.usefixtures("here")
def test_a_classified_folder_is_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["catalogue/north.parquet", "catalogue/south.fits"]
    assert run(["classify", *files, "--model", "morphology", "--out", "annotated", "--direct", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "nothing to do"
    assert run(["census", "annotated", "--json"]) == 0
    assert run(["explain", "annotated/north.parquet", "--id", "G00003", "--json"]) == 0
    assert run(["review", "annotated", "--budget", "5", "--json"]) == 0


@pytest.mark.usefixtures("here")
def test_a_release_is_as_it_was_published() -> None:
    assert run(["release", "verify", "releases/survey/1"]) == 0
    assert run(["release", "draft", "survey", "2", "--run", "annotated", "--store", "models"]) == 0
    assert run(["release", "check", "survey", "2"]) == 0


@pytest.mark.usefixtures("here")
def test_a_specification_trains(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "spec.toml", "--dry-run", "--direct", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == ["early", "late"]
