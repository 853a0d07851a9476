"""Audits by the command line, of a made catalogue whose truth is known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

from blr.census.results import Census, ClassCensus
from flows.cli.app import run
from flows.documents import from_document, read_document, write_document
from flows.errors import UsageError
from flows.reviews._lists import ValueSample, bins_of
from flows.reviews.audit_draw import AuditDesign, AuditDraw
from flows.reviews.audit_estimate import Audit
from flows.runs.manifest import Manifest
from flows.runs.results import Summary
from tests.flows.verbs import classify

CLASS_OF = {"E": "early", "S0": "early", "Sb": "late", "Sc": "late"}
Blr = Callable[..., Mapping[str, object]]
Answer = Callable[[int, str], str]


@pytest.fixture(scope="module")
def annotated(trained: Path, make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 3,000 annotated galaxies; a tenth of them is of no class of the model."""
    folder = tmp_path_factory.mktemp("audit")
    make.parquet(folder / "big.parquet", make.survey(3000, seed=5))
    classify([folder / "big.parquet"], model="morphology", store=trained / "models", out=folder / "out")
    return folder / "out"


@pytest.fixture
def out(annotated: Path, tmp_path: Path) -> Path:
    shutil.copytree(annotated, tmp_path / "out", copy_function=shutil.copy2)
    return tmp_path / "out"


@pytest.fixture
def blr(capsys: pytest.CaptureFixture[str]) -> Blr:
    def ask(*words: object, status: int = 0) -> Mapping[str, object]:
        capsys.readouterr()
        assert run([*map(str, words), "--json"]) == status
        printed: Mapping[str, object] = json.loads(capsys.readouterr().out)
        return printed

    return ask


def truth(folder: Path) -> pd.DataFrame:
    table = pq.read_table(folder / "big.parquet").to_pandas()
    table = table[table.blr_p_max.notna()]
    return table.assign(truth=table.hubble.map(CLASS_OF).fillna("other")).set_index("name")


def answered(folder: Path, answer: Answer = lambda _, label: label) -> Path:
    known, path = truth(folder).truth, folder.parent / "answers.csv"
    names = pd.read_csv(folder / "audit.csv").name
    labels = [answer(i, known[name]) for i, name in enumerate(names)]
    pd.DataFrame({"name": names, "label": labels}).to_csv(path, index=False)
    return path


def test_answers_to_another_list_are_refused(
    out: Path, blr: Blr, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two lists of one model: what the page of the first gave is not taken for answers to the second."""
    blr("audit", "draw", out, "--n", 400)
    answers = pd.read_csv(out / "audit.csv", dtype=str).assign(label="early")
    answers.to_csv(tmp_path / "first.csv", index=False)
    blr("audit", "estimate", out, tmp_path / "first.csv", "--dry-run")
    blr("audit", "draw", out, "--n", 400, "--seed", 1, "--overwrite")
    again = pd.read_csv(out / "audit.csv", dtype=str)
    both = answers[answers.name.isin(again.name)]
    assert len(both)
    both.to_csv(tmp_path / "second.csv", index=False)
    assert run(["audit", "estimate", str(out), str(tmp_path / "second.csv")]) == 2
    assert "of another list or object than its 'blr_list' names" in capsys.readouterr().err


def test_a_drawn_sample_stands_for_the_catalogue(out: Path, blr: Blr) -> None:
    drawn = from_document(AuditDraw, blr("audit", "draw", out, "--n", 150, "--by", "bmag"), source="")
    table = truth(out)
    assert (drawn.n_rows, drawn.n_drawn, len(drawn.bins)) == (len(table), 150, 3)
    assert sum(s["n_rows"] for s in drawn.strata) == len(table)
    rows = pd.read_csv(out / "audit.csv")
    assert len(rows) == rows.name.nunique() == 150
    assert rows.weight.sum() == pytest.approx(len(table))
    assert rows.label.isna().all()
    columns = "name ra dec stratum inclusion_probability weight blr_list label"
    assert list(rows.columns) == columns.split()
    votable = Table.read(out / "audit.vot")
    assert list(votable["name"]) == list(rows.name)
    assert "early" in (out / "audit.html").read_text(encoding="utf-8")
    # Every drawn object lies in its stratum, and the strata have as many objects as the design says.
    design = read_document(AuditDesign, out / "audit_design.json")
    for drawn_object in design.objects:
        row, stratum = table.loc[drawn_object["id"]], design.strata[drawn_object["stratum"]]
        assert row.blr_class == stratum["class_given"]
        assert stratum["low"] <= row.blr_p_max < stratum["high"] or stratum["high"] == 1
        assert drawn_object["probabilities"] == (row.blr_p_early, row.blr_p_late)
    for stratum in design.strata:
        if stratum["bin"].startswith("bmag <"):
            inside = (table.blr_class == stratum["class_given"]) & (table.bmag < float(stratum["bin"][7:]))
            inside &= table.blr_p_max.between(stratum["low"], stratum["high"], inclusive="left")
            assert inside.sum() == stratum["n_rows"]


def test_estimates_hold_the_truth_and_are_quoted(out: Path, blr: Blr) -> None:
    blr("audit", "draw", out, "--n", 300, "--by", "bmag > 15", "--threshold", "early=0.8")
    path = answered(out)
    planned = blr("audit", "estimate", out, path, "--dry-run")
    assert (planned["status"], planned["files"]) == ("planned", [])
    assert not (out / "audit.json").exists()
    audit = from_document(Audit, blr("audit", "estimate", out, path, "--threshold", "late=0.7"), source="")
    assert read_document(Audit, out / "audit.json") == audit
    assert (audit.n_answered, audit.n_unanswered, audit.joined) == (300, 0, 0)
    table = truth(out)
    parts = {"": (table, audit.classes)} | {
        name: (table[(table.bmag > 15) == (name == "bmag > 15: True")], part["classes"])
        for name, part in audit.bins.items()
    }
    assert len(parts) == 3
    held = []
    for rows, classes in parts.values():
        for name, judged in classes.items():
            assigned, of_class = rows.blr_class == name, rows.truth == name
            both = (assigned & of_class).sum()
            assert judged["assigned"] == assigned.sum()
            values = of_class.sum(), both / assigned.sum(), both / of_class.sum()
            for key, value in zip(("count", "purity", "completeness"), values, strict=True):
                interval = judged[key]
                assert interval["value"] is not None
                assert interval["low"] < interval["value"] < interval["high"]
                held.append(interval["low"] <= value <= interval["high"])
    for chosen in audit.selections:
        selected = table[f"blr_p_{chosen['class_name']}"] >= chosen["threshold"]
        both = (selected & (table.truth == chosen["class_name"])).sum()
        held.append(chosen["purity"]["low"] <= both / selected.sum() <= chosen["purity"]["high"])
        of_class = (table.truth == chosen["class_name"]).sum()
        held.append(chosen["completeness"]["low"] <= both / of_class <= chosen["completeness"]["high"])
    assert len(held) == 22
    assert sum(held) >= 20  # one seed; coverage is tested in tests/blr/census
    # Quoted in the summary and in the manifest's totals, beside what the model says.
    census = read_document(Summary, out / "summary.json").census
    assert census == audit.census
    assert Manifest.read(out).totals.census == census
    early, judged = audit.census.classes["early"], audit.classes["early"]
    assert (early.source, early.assumes, early.count) == ("audit", None, judged["count"]["value"])
    seen = f"300 of 300 objects that were drawn by design, of which {audit.n_other} of no class"
    assert seen in early.reason
    assert early.assigned is not None
    told = (early.assigned.objects, early.assigned.purity)
    assert told == (judged["assigned"], judged["purity"]["value"])
    # And in the report.
    page = (out / "report.html").read_text(encoding="utf-8")
    assert audit.files[-1] == out / "report.html"
    assert "The counts are from an audit: people looked at 300 of 300" in page
    assert census.contradicted
    assert "With care: an audit contradicts the model" in page
    assert f">{early.assigned.purity:.1%}<" in page
    assert audit.n_other > 15
    # More answers later: the same, from the same design.
    again = blr("audit", "estimate", out, path, "--threshold", "late=0.7")
    assert again["classes"] == json.loads((out / "audit.json").read_text())["classes"]


def test_rows_without_an_answer_are_said(out: Path, blr: Blr, capsys: pytest.CaptureFixture[str]) -> None:
    blr("audit", "draw", out, "--n", 100)
    path = answered(out, lambda i, label: "" if i % 10 == 0 else "?" if i % 10 == 5 else label)
    audit = from_document(Audit, blr("audit", "estimate", out, path), source="")
    assert (audit.n_answered, audit.n_undecided, audit.n_unanswered) == (80, 10, 10)
    assert run(["audit", "estimate", str(out), str(path)]) == 0
    said = "Drawn objects with an answer: 80 of 100 (undecided: 10, blank: 10); of none of the classes: "
    assert said in capsys.readouterr().out
    assert "assumes that the other ones are like these" in audit.census.classes["late"].reason
    (out / "summary.json").write_text("{")  # the answers are counted all the same
    audit = from_document(Audit, blr("audit", "estimate", out, path), source="")
    assert audit.n_answered == 80
    assert audit.remarks == (
        f"{out / 'summary.json'} cannot be read, so the counts are written to audit.json only",
    )


def test_the_draw_is_the_same_whatever_the_batches_and_the_format(
    trained: Path, make: SimpleNamespace, out: Path, tmp_path: Path, blr: Blr
) -> None:
    """And of slim copies, which have the identifier."""
    slim = tmp_path / "slim.toml"
    slim.write_text((trained / "spec.toml").read_text() + '\n[output]\nmode = "slim"\n')
    make.fits(tmp_path / "big.fits", make.survey(3000, seed=5))
    asked = {"model": "morphology", "store": trained / "models", "specification": slim}
    classify([tmp_path / "big.fits"], out=tmp_path / "slim", **asked)
    blr("audit", "draw", out, "--n", 60, "--seed", 4)
    blr("audit", "draw", tmp_path / "slim", "--n", 60, "--seed", 4)
    ours, theirs = (read_document(AuditDesign, f / "audit_design.json") for f in (out, tmp_path / "slim"))
    assert ours.strata == theirs.strata
    assert [o["id"] for o in ours.objects] == [o["id"] for o in theirs.objects]
    assert run(["audit", "draw", str(tmp_path / "slim"), "--by", "bmag", "--overwrite"]) == 2


def test_nothing_is_lost_and_nothing_is_mixed(
    trained: Path, make: SimpleNamespace, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def works(*words: object) -> bool:
        return run([str(word) for word in words]) == 0

    def fails(*words: object, message: str) -> None:
        capsys.readouterr()
        assert run([str(word) for word in words]) == 2
        assert message in capsys.readouterr().err.replace("\n", " ")

    draw, estimate = ("audit", "draw", out, "--n", "60"), ("audit", "estimate", out)
    fails(*estimate, out / "none.csv", message="run `blr audit draw` first")
    assert works(*draw, "--dry-run")
    assert not (out / "audit.csv").exists()
    fails(*draw, "--by", "nothing", message="there is no column 'nothing'")
    fails(*draw, "--by", "bmag", "--bins", "40", message="strata of class, probability and bin")
    fails(*draw, "--threshold", "round=0.9", message="expected one of early, late")
    fails(*draw, "--threshold", "early=9", message="between 0 and 1")
    fails(*draw, "--by", "bmag", "--edges", "16,15", message="expected numbers in ascending order")
    assert works(*draw)
    fails(*draw, message="was drawn here already")
    assert works(*draw, "--overwrite")
    path = answered(out)
    right = path.read_text(encoding="utf-8")
    first = right.splitlines()[1].split(",")[0]
    for text, message in (
        (right + "G99999,early\n", "not drawn ('G99999')"),
        (right + f"{first},early\n{first},late\n", "3 answers to"),
        (right.replace("early", "erly"), "expected a class of the model"),
        ("name,label\n" + "".join(f"{r.split(',')[0]},\n" for r in right.splitlines()[1:]), "got no answer"),
        (right.replace("name", "who", 1), "without the column 'name'"),
        (right.replace("label", "answer", 1), "without the column 'label'"),
    ):
        path.write_text(text, encoding="utf-8")
        fails(*estimate, path, message=message)
    path.write_text(right.replace("early", "Early"), encoding="utf-8")
    other = path.with_name("other.csv")
    swapped = "late" if right.splitlines()[1].endswith("early") else "early"
    other.write_text(f"name,label\n{first},{swapped}\n", encoding="utf-8")
    fails(*estimate, path, other, message="a different answer in an earlier row")
    assert works(*estimate, path)
    # Answers in the list itself are not written over.
    shutil.copy(path, out / "audit.csv")
    fails(*draw, "--overwrite", message="move it to another folder first")
    # Of copies that have changed, the audit says nothing.
    make.parquet(out.parent / "more.parquet", make.survey(50, seed=6))
    classify([out.parent / "more.parquet"], model="morphology", store=trained / "models", out=out)
    census = read_document(Summary, out / "summary.json").census
    assert census is None or all(c.source != "audit" for c in census.classes.values())
    fails(*estimate, path, message="have changed since")


def test_the_models_census_is_tested_and_kept(out: Path, blr: Blr) -> None:
    """A census that is wrong and sure of itself, and one that cannot be said."""
    blr("audit", "draw", out, "--n", 200)
    path = answered(out, lambda _, label: label if label != "other" else "late")
    known = truth(out).truth.replace("other", "late").value_counts()
    summary = read_document(Summary, out / "summary.json")

    def said(count: float | None) -> ClassCensus:
        if count is None:
            nothing = dict.fromkeys(("count", "low", "high", "assumes"))
            return ClassCensus(**nothing, source="cannot be said", reason="x")
        ends = {"low": count - 5, "high": count + 5}
        return ClassCensus(count=count, **ends, source="model", assumes="same", reason="x")

    n = int(known.sum())
    for early, differs in ((float(known["early"]), False), (known["early"] - 0.2 * n, True), (None, None)):
        late = None if early is None else n - early
        census = Census(n_rows=n, level=0.95, classes={"early": said(early), "late": said(late)})
        write_document(out / "summary.json", replace(summary, census=census))
        for _ in range(2):  # of the second time, the summary has the audit's
            audit = from_document(Audit, blr("audit", "estimate", out, path), source="")
            assert audit.model_census == census
            for judged in audit.classes.values():
                assert judged.get("model", {}).get("differs") is differs
        reason = audit.census.classes["early"].reason
        assert ("rejects" in reason, "agrees" in reason) == (differs is True, differs is False)
        assert audit.census.contradicted is (differs is True)


def test_bins_of_numbers_texts_and_conditions() -> None:
    sample = ValueSample(np.random.default_rng(0))
    values = np.array([1.0, 2.0, 3.0, np.nan, 4.0, 5.0])
    sample.add(values)
    bins = bins_of("r", sample, 2, None)
    assert bins.names == ("r < 3", "r >= 3", "r: missing")
    assert bins.places(values).tolist() == [0, 0, 1, 2, 1, 1]
    stated = bins_of("r", sample, 9, [2.5, 4.5])
    assert stated.names == ("r < 2.5", "2.5 <= r < 4.5", "r >= 4.5", "r: missing")
    texts = ValueSample(np.random.default_rng(0))
    fields = np.array(["B", "", "A", "B"], dtype=object)
    texts.add(fields)
    assert bins_of("field", texts, 2, None).names == ("field: A", "field: B", "field: missing")
    assert bins_of("field", texts, 2, None).places(fields).tolist() == [1, 2, 0, 1]
    with pytest.raises(UsageError, match="more than 20 different texts"):
        texts.add(np.array([f"f{i}" for i in range(30)], dtype=object))
    same = ValueSample(np.random.default_rng(0))
    same.add(np.ones(5))
    with pytest.raises(UsageError, match="which has the same value in all rows"):
        bins_of("r", same, 3, None)


def test_answers_give_prediction_sets_that_copies_can_have(
    out: Path, blr: Blr, trained: Path, make: SimpleNamespace
) -> None:
    table = truth(out)
    blr("audit", "draw", out, "--n", 300)
    answers = answered(out)
    found = from_document(Audit, blr("audit", "estimate", out, answers, "--sets", 0.9), source="").sets
    assert found is not None
    assert read_document(Audit, out / "audit.json").sets == found
    for name, rule in found["classes"].items():
        kept = table[table.truth == name][f"blr_p_{name}"] >= rule["least"]
        assert kept.mean() == pytest.approx(0.9, abs=4 * rule["spread"])
        assert rule["effective"] <= rule["rows"]
    stated = {name: rule["least"] for name, rule in found["classes"].items()}
    thresholds = ", ".join(f"{name} = {least!r}" for name, least in stated.items())
    text = make.specification + f"\n[output]\nsets = 0.9\nset_thresholds = {{ {thresholds} }}\n"
    (out.parent / "sets.toml").write_text(text)
    asked = {"model": "morphology", "store": trained / "models", "specification": out.parent / "sets.toml"}
    classify([out / "big.parquet"], out=out.parent / "again", **asked)
    again = pq.read_table(out.parent / "again" / "big.parquet").to_pandas().set_index("name")
    bits = sum((table[f"blr_p_{name}"] >= least) * 2**k for k, (name, least) in enumerate(stated.items()))
    assert (again.loc[table.index, "blr_set"] == bits).all()
    sets = read_document(Summary, out.parent / "again" / "summary.json").sets
    assert sets is not None
    assert sets.source == "stated"
    assert run(["audit", "estimate", str(out), str(answers), "--sets", "1.5"]) == 2
    (out.parent / "sets.toml").write_text(text.replace(", late =", ", lat ="))
    with pytest.raises(UsageError, match=r"output\.set_thresholds: got thresholds of early"):
        classify([out / "big.parquet"], out=out.parent / "third", **asked)
