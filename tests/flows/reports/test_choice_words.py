"""Words and pictures of a report: classes that look alike, and models that predict nothing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blr.basis.kinds import fit_basis
from blr.calibration import Skill
from blr.classifier import Classifier
from blr.member import Member
from blr.selection.evidence import fit_evidence
from flows.cli._list import run_list, show_models
from flows.cli._models import show_trained
from flows.cli.app import run
from flows.documents import from_document, to_document
from flows.models.promotion import compare
from flows.models.store import ModelListing, SkillSummary, Store, skill_words
from flows.reports import tables
from flows.reports.data import BoundaryPicture, boundary_picture, read_notes
from flows.reports.tables import comparison_tables, model_card, render_report
from flows.request import PromoteRequest
from tests.flows.verbs import train

LINES = {"E/S0": ["E", "S0"], "Sb/Sc": ["Sb", "Sc"]}


def test_groups_are_printed_reported_and_trained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The colour of the survey's galaxies tells E and S0 from Sb and Sc, and nothing else."""
    specification, store = folder / "spec.toml", folder / "models"
    grouped = 'classes = { early = ["E", "S0"], late = ["Sb", "Sc"] }\n'
    four = 'classes = { E = ["E"], S0 = ["S0"], Sb = ["Sb"], Sc = ["Sc"] }\n'
    specification.write_text(specification.read_text().replace(grouped, four))
    assert run(["train", str(specification), "--store", str(store)]) == 0
    printed = capsys.readouterr().out
    assert "The features cannot tell all classes apart (" in printed
    lines = printed.partition("[label.classes]\n")[2].partition("\n\n")[0]
    assert tomllib.loads(lines) == LINES
    (report,) = store.rglob("report.html")
    assert "Classes that could be one" in report.read_text()
    text = specification.read_text().replace(four, "") + f"\n[label.classes]\n{lines}\n"
    specification.write_text(text)
    assert run(["train", str(specification), "--store", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == [*LINES]


def test_init_groups_classes_that_are_alike(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    specification = folder / "new.toml"
    asked = ["init", str(folder / "survey.parquet"), "--label", "hubble", "--out", str(specification)]
    assert run(asked) == 0
    printed = capsys.readouterr().out
    assert "A quick linear fit cannot tell all classes apart (" in printed
    assert "They stand under [label.classes], ready to use" in printed
    text = specification.read_text()
    assert {*tomllib.loads(text)["label"]["classes"]} == {"E", "S0", "Sb", "Sc"}
    offer = text.partition("# Or groups of classes")[2].partition("\n")[2]
    lines = [line.removeprefix("# ") for line in offer.splitlines() if line.startswith('# "')][:2]
    assert tomllib.loads("\n".join(lines)) == LINES
    before, rest = text.partition("\n[label.classes]")[0], text.partition("[split]")[2]
    specification.write_text("\n".join([before, "[label.classes]", *lines, "[split]", rest]))
    assert run(["train", str(specification), "--store", str(folder / "models"), "--dry-run"]) == 0


def test_a_class_too_rare_to_be_compared_stays_in_the_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b", "c"], 40_000).astype(object)
    colour = rng.normal(np.where(kind == "c", 3.0, 0.0), 1.0)
    kind[[10, 30_000]] = "odd"
    pq.write_table(pa.table({"kind": kind, "colour": colour}), tmp_path / "x.parquet")
    assert run(["init", str(tmp_path / "x.parquet"), "--label", "kind", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == {"a/b": ["a", "b"], "c": ["c"], "odd": ["odd"]}


def rows(rng: np.random.Generator, n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    labels = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3)) + np.outer(labels, [1.0, 0.0, 2.0])
    missing = np.zeros(X.shape, dtype=bool)
    missing[::9, 2] = True
    X[missing] = 0.0
    return X, missing, labels


def drawn(X: np.ndarray, missing: np.ndarray, labels: np.ndarray) -> BoundaryPicture:
    basis, names = fit_basis("linear", X), ("x0", "x1", "x2")
    member = Member(basis, fit_evidence(basis(X), labels), (0, 1, 2))
    classifier = Classifier.build([member], X, missing, features=names, classes=["a", "b"])
    picture = boundary_picture(classifier, X, missing, labels, names=names)
    assert picture is not None
    return picture


def test_shows_the_two_features_that_separate_most() -> None:
    X, missing, labels = rows(np.random.default_rng(0))
    picture = drawn(X, missing, labels)
    assert (picture["x_name"], picture["y_name"]) == ("x2", "x0")
    assert picture["moderated"].shape == (picture["y"].size, picture["x"].size, 2)
    np.testing.assert_allclose(picture["moderated"].sum(axis=2), 1, atol=1e-9)
    # The second class grows along both axes.
    assert np.all(np.diff(picture["moderated"][20, :, 1]) > 0)
    assert np.all(np.diff(picture["moderated"][:, 25, 1]) > 0)
    both = ~missing[:, 2]
    np.testing.assert_array_equal(picture["point_x"], X[both, 2])
    np.testing.assert_array_equal(picture["point_class"], labels[both])


def test_a_feature_of_two_values_is_an_axis_only_where_others_are_lacking() -> None:
    X, missing, labels = rows(np.random.default_rng(4))
    X[:, 1] = labels ^ (np.random.default_rng(5).random(len(X)) < 0.02)
    picture = drawn(X, missing, labels)
    assert (picture["x_name"], picture["y_name"]) == ("x2", "x0")
    X[:, 0] = 1.0
    picture = drawn(X, missing, labels)
    assert (picture["x_name"], picture["y_name"]) == ("x2", "x1")


def test_no_skill_is_said_first_and_in_words(
    tmp_path: Path, make: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a model whose labels are shuffled."""
    columns = make.survey(1500)
    columns["hubble"] = np.random.default_rng(5).permutation(columns["hubble"])
    make.parquet(tmp_path / "survey.parquet", columns)
    (tmp_path / "spec.toml").write_text(make.specification)
    told, store = train(tmp_path / "spec.toml", tmp_path / "models"), Store(tmp_path / "models")
    capsys.readouterr()
    assert told.trust.verdict == "amber"
    assert told.trust.answer("computed").colour == "green"
    assert told.metrics.skill.verdict != "better"
    model = store.load("morphology")
    show_trained(told)
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("No skill")
    assert [line for line in others if "verdict on its probabilities" in line]
    assert model_card(model, told, ()).splitlines()[2].startswith("**No skill")
    assert "**Can I use it?** No:" in tables.markdown_report(told)
    page = render_report(told, read_notes(told))
    assert "No: it is not known" in page[: page.index("<b>Reliability")]
    table = tables.candidate_table(told)
    assert "green, no skill" in table.rows[table.marked]
    run_list(store=store.root, json=True)
    listed = json.loads(capsys.readouterr().out)
    assert listed["models"][0]["has_skill"] is False
    show_models(from_document(ModelListing, listed, source="list"))
    assert "no skill" in capsys.readouterr().out
    compared = comparison_tables(compare(PromoteRequest("morphology", store=store.root)))[0]
    assert "No skill" in dict(row[:2] for row in compared.rows)["beside class shares"]


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
    ends = {"low": gain - 0.1, "high": gain + 0.1}
    found = SkillSummary.of(Skill(gain=gain, **ends, baseline=0.7, level=0.95, n=3, n_groups=3))
    assert skill_words(found).startswith(words)
    assert from_document(SkillSummary, to_document(found), source="skill") == found
