"""Tutorials and the page on reviewing: every command is run as it stands there, in this process, reports undrawn."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from astropy.table import Table

from flows.cli.app import run
from flows.models.store import Store
from flows.specification.toml_file import parse_specification
from tests.flows.verbs import classify

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def commands(text: str) -> list[list[str]]:
    found = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    found = [words for words in found if words and words[0] != "pip"]
    assert all(words[0] == "blr" for words in found)
    return [words[1:] for words in found]


def work_through(page: str, said: Callable[[], str]) -> dict[str, str]:
    """Run a page's examples, files and commands in this folder, top to bottom; return what the commands said."""
    told, names = {}, {}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page, "exec"), names)  # noqa: S102  our own page
        elif kind == "toml":
            found = re.match(r"# (\S+?)(?:, under (\[\w+\]))?\n", text)
            if found is None:  # shown, and not for this example's files
                continue
            name, where = found.groups()
            there = Path(name).read_text() if where else ""
            assert (where or "") in there
            Path(name).write_text(there.replace(where, f"{where}\n{text}") if where else text)
        elif kind == "sh":
            for words in commands(text):
                assert run(words) == 0, words
                told[" ".join(words[:2])] = said()
    return told


@pytest.fixture
def undrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "flows.training._saving.write_report", lambda report, path: path.write_text(" ".join(report.remarks))
    )


@pytest.mark.usefixtures("undrawn")
def test_the_tutorial_does_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    said = work_through("tutorial.md", lambda: capsys.readouterr().out)
    assert "-99 in 65 rows: a mark for 'no value'?" in said["inspect galaxies.csv"]
    assert "Suspected identifier: objid" in said["inspect galaxies.csv"]
    first, second = Store(Path("models")).versions("types")
    description = Store(Path("models")).read(second).training.labels
    assert (description.reviewed, description.disputed) == (60, 1)
    report = (second.folder / "report.html").read_text()
    assert "60 labels are from review; reviews have answers to 60 objects." in report
    assert "Objects whose reviewers' answers differ, so that they count as votes: 1 (G" in report
    assert first.version != second.version


@pytest.mark.usefixtures("undrawn", "few_draws")
def test_votes_train_and_are_classified(capsys: pytest.CaptureFixture[str]) -> None:
    said = work_through("tutorials/galaxy-zoo-votes.md", lambda: capsys.readouterr().out)
    assert said.keys() == {"train zoo.toml", "classify zoo.fits"}
    (model,) = Store(Path("models")).versions("zoo")
    assert Store(Path("models")).read(model).training.overdispersion > 1.5
    table = Table.read("annotated/zoo.fits")
    cast = table["n_smooth"] + table["n_featured"]
    sure = table["blr_p_smooth"] > 0.6
    assert table["n_smooth"][sure].sum() / cast[sure].sum() == pytest.approx(
        np.average(table["blr_p_smooth"][sure], weights=cast[sure]), abs=0.05
    )


@pytest.mark.usefixtures("undrawn", "few_draws")
def test_one_survey_trains_and_another_is_classified(capsys: pytest.CaptureFixture[str]) -> None:
    said = work_through("tutorials/two-surveys.md", lambda: capsys.readouterr().out)
    assert said.keys() == {"train spec.toml", "classify deep.fits"}
    table = Table.read("annotated/deep.fits")
    missing = (table["blr_flags"] & 16) != 0
    assert np.array_equal(missing, table["MAG_G"] == -99)
    assert np.isfinite(table["blr_p_quiescent"]).all()


@pytest.mark.usefixtures("undrawn", "few_draws")
def test_a_release_is_kept_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    work_through("tutorials/nightly.md", lambda: capsys.readouterr().out)
    assert {path.name for path in Path("annotated").glob("*.fits")} == {
        "night1.fits",
        "night3.fits",
        "night4.fits",
    }
    assert [path.name for path in Path("annotated/_retired").rglob("*.fits")] == ["night2.fits"]


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_the_first_model_of_real_galaxies(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyongc", reason="pyongc has the galaxies; it comes with the extra 'demo'")
    said = work_through("tutorials/first-model.md", lambda: capsys.readouterr().out)
    assert "sbrightn" in said["inspect openngc.fits"]
    assert len(Table.read("annotated/openngc.fits")) > 10_000


def test_the_commands_of_the_page_on_reviewing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "models", "models")
    classify([trained / "survey.parquet"], model="morphology", store=Path("models"), out=Path("annotated"))
    tried = 0
    specification = (trained / "spec.toml").read_text()
    for kind, text in blocks("reviewing.md"):
        if kind == "toml":
            options = text.removeprefix("[label]\n")
            parse_specification(specification.replace("[label]\n", f"[label]\n{options}"), source="the page")
            continue
        for words in commands(text):
            assert run([*words, "--direct"]) == 0
            tried += 1
    assert tried == 2
    assert Path("annotated/review.html").exists()
    assert Path("annotated/outliers.html").exists()


@pytest.mark.parametrize(
    "option", ["--budget", "--outliers", "--per-class", "--by", "--edges", "--top", "--draw"]
)
def test_the_page_on_reviewing_names_the_options(option: str) -> None:
    assert option in (DOCS / "reviewing.md").read_text(encoding="utf-8")
