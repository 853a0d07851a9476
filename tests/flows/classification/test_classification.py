"""Annotating catalogues: what is written, grouped, found done already, repeated or refused; without Prefect."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blr.classifier import Classifier
from blr.decisions import Flag
from catalogs.errors import CatalogError, OutputExistsError
from flows.classification._plan import MOST_TASKS, groups
from flows.classification._tally import summarise, tally_of, total
from flows.classification.execution import annotate_file
from flows.documents import read_document
from flows.errors import Interrupted, UsageError
from flows.models.store import Store
from flows.reports.counts import classification_message
from flows.runs.manifest import SUMMARY, Manifest, file_sha256
from flows.runs.results import Summary
from flows.specification.toml_file import load_specification
from tests.flows.verbs import classify
from tests.lasting import lasting_contents

FILES = ("survey.fits", "survey.parquet")


@pytest.fixture(scope="module")
def done_once(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the survey in both formats, a model and the survey's release; not to be written to."""
    folder = tmp_path_factory.mktemp("done")
    for name in (*FILES, "spec.toml"):
        shutil.copy(trained / name, folder)
    shutil.copytree(trained / "models", folder / "models")
    run(folder)
    return folder


@pytest.fixture
def work(done_once: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder without the release."""
    return shutil.copytree(done_once, tmp_path, dirs_exist_ok=True, ignore=lambda *_: ["out"])


@pytest.fixture
def done(done_once: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder."""
    return shutil.copytree(done_once, tmp_path, dirs_exist_ok=True)


def run(work: Path, *names: str, **options: object) -> dict:
    chosen = {"model": "morphology", "store": work / "models", "out": work / "out"} | options
    return classify([work / name for name in names or FILES], **chosen)


def test_rows_are_what_the_classifier_says(done: Path) -> None:
    table = pq.read_table(done / "out/survey.parquet").to_pandas()
    model = Store(done / "models").load("morphology")
    X = np.stack([table.bmag - table.jmag, table.jmag - table.kmag], axis=1)[:, : len(model.features)]
    missing = np.repeat((table.jmag == -9999).to_numpy()[:, None], X.shape[1], axis=1)
    scores = model.classifier.score(np.where(missing, 0, X), missing)
    np.testing.assert_allclose(table.blr_p_late, scores.probability[:, 1], rtol=1e-6)
    np.testing.assert_array_equal(table.blr_flags, scores.flags)
    assert (table.blr_class[missing.all(axis=1)] == "").all()


def test_manifest_and_summary(done: Path) -> None:
    manifest = json.loads((done / "out/manifest.json").read_text())
    table = pq.read_table(done / "out" / manifest["table"]["path"]).to_pylist()
    assert [o["name"] for o in table] == sorted(FILES)
    for output in table:
        assert output["input_sha256"] == file_sha256((done / "out" / output["input_path"]).resolve())
        assert output["sha256"] == file_sha256(done / "out" / output["name"])
    assert manifest["model"] == Store(done / "models").find("morphology").label
    summary = json.loads((done / "out/summary.json").read_text())
    p = pq.read_table(done / "out/survey.parquet").to_pandas()
    of_one = summary["files"]["survey.parquet"]
    assert of_one["classes"]["late"]["expected"] == pytest.approx(p.blr_p_late.sum(), rel=1e-5)
    assert of_one["classes"]["late"]["assigned"] == (p.blr_class == "late").sum()
    assert of_one["flags"]["LOW_CONFIDENCE"]["count"] == (p.blr_flags & 1 > 0).sum()
    assert 0 < of_one["classes"]["late"]["error_weights"] < of_one["classes"]["late"]["error"]
    assert summary["n_rows"] == 2 * of_one["n_rows"] == 800


def test_a_file_more_joins_the_others_and_a_lost_output_is_made_again(work: Path) -> None:
    run(work, "survey.parquet")
    made = (work / "out/survey.parquet").stat().st_mtime_ns
    whole = run(work, "survey.fits")
    assert (whole.status, whole.summary.n_rows) == ("done", 800)
    assert (work / "out/survey.parquet").stat().st_mtime_ns == made
    before = lasting_contents(work / "out")
    (work / "out/survey.fits").unlink()
    assert run(work).files["survey.fits"]["to_do"]
    run(work)
    (work / "out/summary.json").unlink()
    assert run(work).summary == whole.summary
    assert lasting_contents(work / "out") == before
    assert classification_message(run(work, "survey.parquet")).startswith(
        "Nothing to do: 2 files, 800 objects"
    )
    (work / "out/survey.fits").unlink()
    assert run(work, "survey.parquet").summary.n_rows == 400, "what is lost does not count"
    assert [o.name for o in Manifest.read(work / "out").outputs] == ["survey.parquet"]


def run_with(annotate: Any, work: Path, *names: str, **options: object) -> dict:
    """Run with another way to annotate a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.classification.execution.annotate_file", annotate)
        return run(work, *names, **options)


def annotated_by_a_rerun(work: Path) -> list[str]:
    names = []
    count = lambda given, job: (names.append(job.name), annotate_file(given, job))[1]  # noqa: E731
    run_with(count, work)
    return names


@pytest.mark.parametrize("step", ["annotate", "publish"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_a_rerun_gives_the_same_bytes(
    done_once: Path, work: Path, step: str, when: str
) -> None:
    expected = lasting_contents(done_once / "out")
    done = []

    def killed(*arguments: object) -> object:
        done.append(arguments)
        if when == "before" and len(done) == (2 if step == "annotate" else 1):
            raise KeyboardInterrupt
        result = arguments[-1]() if step == "publish" else annotate_file(*arguments)
        if when == "after":
            raise KeyboardInterrupt
        return result

    def as_task(kind: str, _: str, do: Any) -> Any:
        return killed(do) if kind == step == "publish" else do()

    with pytest.raises(KeyboardInterrupt):
        run_with(killed if step == "annotate" else annotate_file, work, task=as_task)
    if (step, when) != ("publish", "after"):
        assert not any(p.suffix in (".fits", ".parquet") for p in (work / "out").glob("*"))
    assert len(annotated_by_a_rerun(work)) == {"annotate": 1, "publish": 0}[step]
    assert lasting_contents(work / "out") == expected


def test_ctrl_c_finishes_the_file_in_hand(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def annotate(given: Any, job: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return annotate_file(given, job)

    with pytest.raises(Interrupted, match="run the same command again"):
        run_with(annotate, work)
    assert capsys.readouterr().err == "finishing the work in hand; press Ctrl-C again to stop now\n"
    assert annotated_by_a_rerun(work) == ["survey.parquet"]


def test_outputs_of_another_model_are_not_mixed(done: Path) -> None:
    before, label = lasting_contents(done / "out"), "morphology@0123456789ab"
    store = Store(done / "models")
    store.save(replace(store.load("morphology"), version="0123456789ab"), card="")

    def annotate(given: Any, job: Any) -> Any:
        if job.name == "survey.parquet":
            raise KeyboardInterrupt
        return annotate_file(given, job)

    message = f"out: got a folder with outputs of the model .*{label}.*--overwrite"
    with pytest.raises(OutputExistsError, match=message):
        run(done, model=label)
    message = r"got survey.parquet, written by the model .* which this run would not replace"
    with pytest.raises(OutputExistsError, match=message):
        run(done, "survey.fits", model=label, overwrite=True)
    assert lasting_contents(done / "out") == before
    with pytest.raises(KeyboardInterrupt):
        run_with(annotate, done, model=label, overwrite=True)
    assert {n: b for n, b in lasting_contents(done / "out").items() if not n.startswith(".")} == before
    assert run(done, model=label, overwrite=True).status == "done"
    assert Manifest.read(done / "out").model == label
    assert set(pq.read_table(done / "out/survey.parquet")["blr_model"].to_pylist()) != {0}


def test_a_changed_input_and_a_foreign_file_in_the_way(work: Path, make: SimpleNamespace) -> None:
    copy = work / "out/survey.fits"

    def meanwhile(given: Any, job: Any) -> Any:
        copy.write_text("mine")
        return annotate_file(given, job)

    for annotate in (meanwhile, annotate_file):
        with pytest.raises(OutputExistsError, match="got another file than the annotated copy"):
            run_with(annotate, work)
        assert copy.read_text() == "mine"
    copy.unlink()
    assert annotated_by_a_rerun(work) == []
    make.parquet(work / "survey.parquet", make.survey(seed=2))
    with pytest.raises(OutputExistsError, match="got another file than the annotated copy"):
        run(work, "survey.parquet")
    assert run(work, "survey.parquet", overwrite=True).status == "done"


def specified(work: Path, text: str) -> Path:
    """Return the specification with more text."""
    (work / "spec.toml").write_text((work / "spec.toml").read_text() + text)
    return work / "spec.toml"


def test_the_target_has_other_names_and_a_where(work: Path) -> None:
    table = pq.read_table(work / "survey.parquet").rename_columns(["id", "type", "hubble", "B", "J", "K"])
    pq.write_table(table, work / "release.parquet")
    target = "\n[target]\nwhere = 'bmag < 14'\ncolumns = { bmag = 'B', jmag = 'J', kmag = 'K' }\n"
    run(work, "release.parquet", specification=load_specification(specified(work, target)))
    run(work, "survey.parquet", out=work / "own")
    found = pq.read_table(work / "out/release.parquet").to_pandas()
    expected = pq.read_table(work / "own/survey.parquet").to_pandas()
    inside = (found.B < 14).to_numpy()
    np.testing.assert_array_equal(found.blr_p_late[inside], expected.blr_p_late[inside])
    assert found.blr_p_late[~inside].isna().all()
    assert (found.blr_flags[~inside] == 32).all()
    assert (found.blr_class[~inside] == "").all()


def test_a_review_budget_scores_each_row_once(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(work, "survey.parquet").summary
    scored, score = [], Classifier.score

    def counted(self: Classifier, X: np.ndarray, *rest: Any, **how: Any) -> Any:
        scored.append(len(X))
        return score(self, X, *rest, **how)

    monkeypatch.setattr(Classifier, "score", counted)
    spec = specified(work, "\n[flags]\nbudget = 0.1\n")
    told = run(work, "survey.parquet", specification=spec, out=work / "budget").summary
    assert 0.08 < told.flags["LOW_CONFIDENCE"]["count"] / told.n_classified <= 0.1
    assert sum(scored) == told.n_rows
    assert {**told.flags, "LOW_CONFIDENCE": 0} == {**plain.flags, "LOW_CONFIDENCE": 0}


def test_the_budget_of_a_large_catalogue_is_found_from_some_of_its_rows(work: Path) -> None:
    survey = pq.read_table(work / "survey.parquet")
    many = pa.concat_tables([survey] * (140_000 // len(survey) + 1))
    rng = np.random.default_rng(0)
    for j, name in enumerate(survey.column_names):
        if name.endswith("mag"):
            noise = rng.normal(0, 0.3, len(many))
            many = many.set_column(j, name, pa.array(many[name].to_numpy(zero_copy_only=False) + noise))
    pq.write_table(many, work / "many.parquet")
    spec = specified(work, "\n[flags]\nbudget = 0.1\n")
    told = run(work, "many.parquet", specification=spec).summary
    assert abs(told.flags["LOW_CONFIDENCE"]["count"] / told.n_classified - 0.1) < 0.005


def test_two_inputs_of_one_name_an_output_folder_that_is_the_inputs_and_an_empty_catalogue(
    work: Path, make: SimpleNamespace
) -> None:
    make.parquet(work / "none.parquet", {n: c[:0] for n, c in make.survey().items()})
    assert run(work, "none.parquet").summary.n_rows == 0
    with pytest.raises(UsageError, match="would replace its own input"):
        run(work, out=work)
    shutil.copy(work / "survey.fits", work / "report.html")
    with pytest.raises(CatalogError, match=r"would be called report\.html, .*; rename the input"):
        run(work, "report.html")
    (work / "other").mkdir()
    shutil.copy(work / "survey.fits", work / "other")
    with pytest.raises(UsageError, match=r"whose outputs would have the same name.*two folders"):
        run(work, "survey.fits", "other/survey.fits")


def test_every_file_once_in_order_and_few_tasks() -> None:
    few, many = ([], [0], [10**9]), ([200] * 1000, [0] * 1000, [10**6] * 1000, [1, 10**9] * 2000)
    for rows in (*few, *many, range(0, 3_000_000, 1000)):
        made = groups([SimpleNamespace(name=f"f{i}", n_rows=n) for i, n in enumerate(rows)])
        assert [j.name for g in made for j in g] == [f"f{i}" for i in range(len(rows))]
        assert len(made) <= 2 * MOST_TASKS + 1
        assert all(made)


def test_the_order_does_not_matter_to_the_last_bit() -> None:
    rng, parts = np.random.default_rng(3), []
    for _ in range(40):
        p = rng.dirichlet([1, 2, 3], size=50)
        p[:3] = np.nan
        draws, flags = np.nansum(p, axis=0) + rng.normal(size=(64, 3)), rng.integers(0, 512, 50)
        parts.append(tally_of(p, draws, flags.astype(np.int32), rng.random((50, 2)) < 0.2))
    halves = [total(parts[::2]), total(parts[1::2])]
    assert total(parts) == total(parts[::-1])
    assert total(halves).expected == pytest.approx(total(parts).expected, rel=1e-14)


def test_the_error_has_both_parts_and_shares_are_of_all_rows() -> None:
    p = np.tile([0.3, 0.7], (1000, 1))
    draws = np.array([[300.0, 700.0], [320.0, 680.0], [280.0, 720.0]])
    p[990:] = np.nan
    flags = np.repeat([0, int(Flag.MISSING_INPUT)], [750, 250]).astype(np.int32)
    counts = summarise(tally_of(p, draws, flags, np.arange(1000)[:, None] >= 500), ("a", "b"), ("x",))
    estimate = counts.classes["a"]
    assert estimate["assigned"] == 0
    assert estimate["expected"] == pytest.approx(297)
    assert estimate["error_objects"] == pytest.approx(np.sqrt(990 * 0.3 * 0.7))
    assert estimate["error_weights"] == pytest.approx(20)
    assert estimate["error"] == pytest.approx(np.hypot(20, np.sqrt(207.9)))
    assert (counts.n_rows, counts.n_classified) == (1000, 990)
    assert [counts.flags["MISSING_INPUT"][key] for key in ("bit", "count", "share")] == [4, 250, 0.25]
    assert counts.missing == {"x": 0.5}
    assert set(counts.flags) == {flag.name for flag in Flag}


def test_the_summary_of_many_files_does_not_list_them(
    done_once: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = read_document(Summary, done_once / "out" / SUMMARY)
    assert set(listed.files) == set(FILES)
    for room in ("_publishing", "execution"):
        monkeypatch.setattr(f"flows.classification.{room}.MOST_SHOWN", 1)
    told = run(work)
    assert told.summary == read_document(Summary, work / "out" / SUMMARY) == listed.totals
    again = run(work)
    assert (again.status, again.summary) == ("nothing to do", told.summary)
