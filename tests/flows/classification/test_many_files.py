"""Folders whose files are in a table: the same results as with files listed in JSON, whenever a run is killed."""

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
from flows.runs import outputs as file_table
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
    """Return a folder with a store and a release, whose files are more than JSON lists."""
    shutil.copytree(trained / "models", tmp_path / "models")
    (tmp_path / "release").mkdir()
    for seed in range(N_FILES):
        make.parquet(tmp_path / f"release/p{seed}.parquet", make.survey(100, seed=seed))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.classification._publishing.write_classification_report", no_report)
    monkeypatch.setattr(file_table, "MOST_LISTED", N_FILES - 1)
    return tmp_path


def run(name: str = "out", **options: object) -> object:
    return classify(["release"], model="morphology", store="models", out=Path(name), **options)


def tables(folder: str = "out") -> list[str]:
    return [path.name for path in Path(folder, "_files").iterdir()]


def named(folder: str = "out") -> str:
    return Path(json.loads(Path(folder, MANIFEST).read_text())["table"]["path"]).name


@pytest.mark.usefixtures("work")
def test_a_table_says_what_json_says(monkeypatch: pytest.MonkeyPatch) -> None:
    told = run()
    with monkeypatch.context() as patched:
        patched.setattr(file_table, "MOST_LISTED", N_FILES)
        listed = run("listed")
        in_json = Manifest.read(Path("listed"))
        assert set(read_document(Summary, Path("listed") / SUMMARY).files) == {
            f"p{i}.parquet" for i in range(N_FILES)
        }
    in_table = Manifest.read(Path("out"))
    assert [(o.name, o.sha256, o.n_rows, o.input) for o in in_table.outputs] == [
        (o.name, o.sha256, o.n_rows, o.input) for o in in_json.outputs
    ]
    assert (told.summary.files, tables()) == ({}, [named()])
    for name, estimate in told.summary.classes.items():
        other = listed.summary.classes[name]
        assert (estimate.assigned, estimate.expected) == (other.assigned, other.expected)
        assert estimate.error == pytest.approx(other.error, rel=0.05)
    assert (told.summary.flags, told.summary.missing) == (listed.summary.flags, listed.summary.missing)
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
