"""The tutorial and the page on reviewing: every command is run as it stands there, in this process, reports undrawn."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

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
    assert all(words[0] == "blr" for words in found if words)
    return [words[1:] for words in found if words]


def test_the_tutorial_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "flows.training._saving.write_report", lambda report, path: path.write_text(" ".join(report.remarks))
    )
    said = {}
    for kind, text in blocks("tutorial.md"):
        if kind == "python":
            exec(compile(text, "tutorial.md", "exec"), {})  # noqa: S102  our own page
        elif kind == "toml":
            name, where = re.match(r"# (\S+?)(?:, under (\[\w+\]))?\n", text).groups()
            there = Path(name).read_text() if where else ""
            assert (where or "") in there
            Path(name).write_text(there.replace(where, f"{where}\n{text}") if where else text)
        else:
            for words in commands(text):
                assert run(words) == 0, words
                said[" ".join(words[:2])] = capsys.readouterr().out
    assert "-99 in 65 rows: no value?" in said["inspect galaxies.csv"]
    assert "Suspected identifier: objid" in said["inspect galaxies.csv"]
    first, second = Store(Path("models")).versions("types")
    description = Store(Path("models")).read(second).training.labels
    assert (description.reviewed, description.disputed) == (60, 1)
    report = (second.folder / "report.html").read_text()
    assert "60 labels are from review." in report
    assert "Objects whose reviewers' answers differ, so that they count as votes: 1 (G" in report
    assert first.version != second.version


def test_the_commands_of_the_page_on_reviewing(trained, tmp_path, monkeypatch):
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
def test_the_page_on_reviewing_names_the_options(option):
    assert option in (DOCS / "reviewing.md").read_text(encoding="utf-8")
