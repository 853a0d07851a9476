"""Tutorials and the page on reviewing: every command is run as it stands there, in this process.

The outputs in `docs/tutorial.md` are those of the commands, numbers aside.  `BLR_WRITE_TUTORIAL=1` writes them anew.
"""

from __future__ import annotations

import json
import os
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
from flows.reports.data import training_remarks
from flows.specification.toml_file import parse_specification
from tests.flows.verbs import classify

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def commands(text: str) -> list[tuple[list[str], int]]:
    """Return each command of `blr`, without its name, and the exit status that a comment states."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words, status = shlex.split(line, comments=True), re.search(r"# exit status (\d)$", line)
        if words and words[0] not in {"pip", "python"}:
            assert words[0] == "blr"
            found.append((words[1:], int(status[1]) if status else 0))
    return found


def work_through(page: str, said: Callable[[], str]) -> list[tuple[str, str]]:
    """Run a page's examples, files and commands in this folder, top to bottom; return each command and what it said."""
    told: list[tuple[str, str]] = []
    names: dict[str, object] = {}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page, "exec"), names)  # noqa: S102  our own page
            said()
        elif kind == "toml":
            found = re.match(r"# (\S+?)(?:, under (\[\w+\]))?\n", text)
            if found is None:  # shown, and not for this example's files
                continue
            name, where = found.groups()
            there = Path(name).read_text() if where else ""
            assert (where or "") in there
            Path(name).write_text(there.replace(where, f"{where}\n{text}") if where else text)
        elif kind == "sh":
            for words, status in commands(text):
                assert run(words) == status, words
                told.append((shlex.join(words), said()))
    return told


@pytest.fixture
def undrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "flows.training.steps.render_report",
        lambda model, *_, **__: " ".join(training_remarks(model.training)),
    )


OUTPUT = re.compile(r"(^```sh\nblr .*\n```\n\n```text\n)((?:.*\n)*?)```$", re.MULTILINE)
"""A command with its output."""


def without_numbers(output: str) -> list[str]:
    """Return the words of an output, rules of tables left out, each number, version and name of a galaxy as #."""
    return [re.sub(r"[+-]?G?\d[\w.,:%-]*", "#", word) for word in output.split() if set(word) != {"─"}]


def test_the_tutorial_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = work_through("tutorial.md", lambda: capsys.readouterr().out)
    assert len(told) == 8, "ten, with `pip` and `python`"
    page = DOCS / "tutorial.md"
    if os.environ.get("BLR_WRITE_TUTORIAL"):
        said = ("".join(f"{line.rstrip()}\n" for line in output.splitlines()) for _, output in told)
        page.write_text(OUTPUT.sub(lambda found: f"{found[1]}{next(said)}```", page.read_text()))
    shown = [found[2] for found in OUTPUT.finditer(page.read_text(encoding="utf-8"))]
    assert [without_numbers(text) for text in shown] == [without_numbers(said) for _, said in told]
    first, second = Store(Path("models")).versions("galaxies")
    assert first.version != second.version
    assert second.read().training.labels.reviewed == 60


@pytest.mark.usefixtures("undrawn", "few_draws")
def test_votes_train_and_are_classified(capsys: pytest.CaptureFixture[str]) -> None:
    said = work_through("tutorials/galaxy-zoo-votes.md", lambda: capsys.readouterr().out)
    assert [command.split()[:2] for command, _ in said] == [["train", "zoo.toml"], ["classify", "zoo.fits"]]
    (model,) = Store(Path("models")).versions("zoo")
    assert model.read().training.overdispersion > 1.5
    table = Table.read("annotated/zoo.fits")
    cast = table["n_smooth"] + table["n_featured"]
    sure = table["blr_p_smooth"] > 0.6
    assert table["n_smooth"][sure].sum() / cast[sure].sum() == pytest.approx(
        np.average(table["blr_p_smooth"][sure], weights=cast[sure]), abs=0.05
    )


@pytest.mark.usefixtures("undrawn", "few_draws")
def test_one_survey_trains_and_another_is_classified(capsys: pytest.CaptureFixture[str]) -> None:
    said = work_through("tutorials/two-surveys.md", lambda: capsys.readouterr().out)
    assert [command.split()[:2] for command, _ in said] == [["train", "spec.toml"], ["classify", "deep.fits"]]
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


def test_releases_are_drafted_published_and_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyongc", reason="the galaxies are OpenNGC's")
    monkeypatch.chdir(tmp_path)
    said = work_through("releases.md", lambda: capsys.readouterr().out)
    assert "identifiers are there again" in "".join(words for _, words in said)
    log = json.loads(Path("releases/types/releases.json").read_text())
    assert [(e["what"], e["version"]) for e in log["events"]] == [
        ("published", "1.0"),
        ("published", "1.1"),
        ("rolled back", "1.0"),
    ]


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
        for words, status in commands(text):
            assert run([*words, "--direct"]) == status
            tried += 1
    assert tried == 2
    assert Path("annotated/review.html").exists()
    assert Path("annotated/outliers.html").exists()
