"""The table of a folder's files: what was done before is read from it, whenever a run is killed."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.classification._plan import Plan
from flows.documents import read_document
from flows.runs.manifest import SUMMARY
from flows.runs.results import Summary
from tests.flows.verbs import classify

N_FILES = 3


def no_report(model: object, plan: Plan, *_: object) -> None:  # noqa: ARG001 - the signature of the report
    """Write a report without pictures, which take a second."""
    (plan.out / "report.html").write_text("a report")


@pytest.fixture
def work(trained: Path, make: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a store and a release."""
    shutil.copytree(trained / "models", tmp_path / "models")
    (tmp_path / "release").mkdir()
    for seed in range(N_FILES):
        make.parquet(tmp_path / f"release/p{seed}.parquet", make.survey(100, seed=seed))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.classification._publishing.write_classification_report", no_report)
    return tmp_path


def run(name: str = "out", **options: object) -> object:
    return classify(["release"], model="morphology", store="models", out=Path(name), **options)


@pytest.mark.usefixtures("work")
def test_the_summary_of_many_files_does_not_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = run("listed")
    assert set(read_document(Summary, Path("listed") / SUMMARY).files) == set(listed.summary.files)
    assert len(listed.summary.files) == N_FILES
    for room in ("_publishing", "execution"):
        monkeypatch.setattr(f"flows.classification.{room}.MOST_SHOWN", N_FILES - 1)
    told = run()
    assert told.summary == read_document(Summary, Path("out") / SUMMARY) == listed.summary.totals
    again = run()
    assert (again.status, again.summary) == ("nothing to do", told.summary)
