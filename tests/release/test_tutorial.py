"""The tutorial on releases does what it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "releases.md"
STATUS = re.compile(r"# exit status (\d)$")


def test_the_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    said = ""
    for kind, text in re.findall(
        r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        if kind == "python":
            exec(compile(text, PAGE.name, "exec"), names)  # noqa: S102 - our own page
        elif kind == "toml":
            Path("spec.toml").write_text(text)
        for line in text.splitlines() if kind == "sh" else []:
            expected = STATUS.search(line)
            assert run(shlex.split(line, comments=True)[1:]) == int(expected[1] if expected else 0), line
            said += capsys.readouterr().out
    assert "identifiers are there again" in said
    log = json.loads(Path("releases/types/releases.json").read_text())
    assert [(e["what"], e["version"]) for e in log["events"]] == [
        ("published", "1.0"),
        ("published", "1.1"),
        ("rolled back", "1.0"),
    ]
