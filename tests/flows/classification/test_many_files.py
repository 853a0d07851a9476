"""The table of a folder's files: what was done before is read from it, whenever a run is killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.classification._plan import Plan
from flows.classification.census_taking import take_census
from flows.classification.request import CensusRequest
from flows.documents import read_document
from flows.runs import manifest
from flows.runs.counts import Summary
from flows.runs.manifest import MANIFEST, SUMMARY, Manifest
from tests.flows.verbs import classify
from tests.lasting import lasting_contents

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


def tables(folder: str = "out") -> list[str]:
    return [path.name for path in Path(folder, "_files").iterdir()]


def named(folder: str = "out") -> str:
    return Path(json.loads(Path(folder, MANIFEST).read_text())["table"]["path"]).name


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


def test_what_was_done_before_is_read_from_the_table(work: Path, make: SimpleNamespace) -> None:
    run()
    make.parquet(work / "release/p1.parquet", make.survey(70, seed=9))
    told = run(overwrite=True)
    assert {name for name, file in told.files.items() if file.to_do} == {"p1.parquet"}
    run("fresh")
    assert lasting_contents(Path("out"))[SUMMARY] == lasting_contents(Path("fresh"))[SUMMARY]
    assert tables() == [named()], "the table before is gone"
    census = take_census(CensusRequest(Path("out"), store="models")).census
    assert Manifest.read(Path("out")).totals.census == census
    assert read_document(Summary, Path("out") / SUMMARY).census == census
    assert run().status == "nothing to do"


@pytest.mark.parametrize("before", [False, True])
def test_killed_between_table_and_manifest_a_rerun_gives_the_same_bytes(
    work: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    run()
    if before:
        make.parquet(work / "release/p1.parquet", make.survey(70, seed=9))
    run("expected")
    if not before:
        shutil.rmtree("out")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    old = lasting_contents(Path("out")).get(MANIFEST)
    with monkeypatch.context() as patched:
        patched.setattr(manifest, "write_document", killed)
        with pytest.raises(KeyboardInterrupt):
            run(overwrite=before)
    assert len(tables()) == 1 + before
    assert lasting_contents(Path("out")).get(MANIFEST) == old
    assert (Manifest.read(Path("out")) is not None) == before
    assert run(overwrite=before).status == "done"
    assert tables() == [named()]
    here, expected = lasting_contents(Path("out")), lasting_contents(Path("expected"))
    for name in (SUMMARY, "_files/table", *(f"p{i}.parquet" for i in range(N_FILES))):
        assert here[name] == expected[name]
