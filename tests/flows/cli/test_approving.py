"""docs/approving.md: each command of the page runs, and does what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flows.cli.app import run
from flows.models.store import Store
from tests.flows.verbs import classify

PAGE = Path(__file__).resolve().parents[3] / "docs" / "approving.md"
VERSION = "0123456789ab"


def commands() -> list[str]:
    """Return the commands of the page that are ours, in their order."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("blr ")]


def test_the_commands_of_the_page_in_their_order(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    store = Store(Path("models"))
    first = store.load("morphology")
    classify([trained / "survey.parquet"], model="morphology", store="models", out="annotated")
    better = replace(first.metrics, log_loss=first.metrics.log_loss - 0.1)
    store.save(replace(first, version=VERSION, metrics=better), card="")
    said = {}
    for command in commands():
        arguments = shlex.split(command, comments=True)[1:]
        if "--reject" in arguments:  # the champion by then, so that another challenger is rejected
            store.save(replace(first, version="0123456789ac"), card="")
            arguments = [a.replace(f"@{VERSION}", "@0123456789ac") for a in arguments]
        assert run(arguments) == 0, capsys.readouterr().err
        said[command] = capsys.readouterr().out
    listed, shown, planned, by_rule, by_hand, rejected, undone = said.values()
    assert "champion" in listed
    assert "Decisions" in shown
    assert "would change class" in planned
    assert f"morphology@{VERSION} is the champion" in by_rule
    assert "is the champion already" in by_hand
    assert "is rejected (C. Critic: loses the dwarfs)" in rejected
    assert f"morphology@{first.version} is the champion again" in undone
    decisions = [(d.kind, d.who) for d in store.history("morphology")[-2:]]
    assert decisions == [("rejected", "C. Critic"), ("undone", "A. Astronomer")]


@pytest.mark.parametrize("pair", [["--undo", "--reject"], ["--undo", "--if-better"]])
def test_one_decision_at_a_time(trained: Path, pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["models", "promote", "morphology", "--store", str(trained / "models"), *pair]
    assert run(asked) == 2
    assert "expected one; choose one" in capsys.readouterr().err
