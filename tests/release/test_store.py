"""Releases in an object store: a real S3 server; what is published is whole, and never changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import run

RELEASES = "s3://survey/releases"


def signed(survey: Path, machine: Path, season: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draft, check and sign version 1 on a machine of its own."""
    monkeypatch.setenv("BLR_STAGING", str(machine))
    words = ["release", "draft", "types", "1", "--run", str(survey / f"parquet-{season}" / "run")]
    assert run([*words, "--store", str(survey / "models"), "--releases", RELEASES]) == 0
    assert run(["release", "check", "types", "1", "--releases", RELEASES]) == 0
    assert run(["release", "sign", "types", "1", "--releases", RELEASES, "--by", "Ada"]) == 0


def test_published_verified_and_never_changed(
    survey: Path, tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    signed(survey, tmp_path / "one", 1, monkeypatch)
    assert not s3.exists("survey/releases/types/releases.json")
    signed(survey, tmp_path / "two", 2, monkeypatch)
    assert run(["release", "publish", "types", "1", "--releases", RELEASES]) == 0
    log = json.loads(s3.cat("survey/releases/types/releases.json"))
    assert log["latest"] == "1"
    assert s3.exists(f"survey/releases/types/{log['events'][0]['folder']}/SHA256SUMS")
    monkeypatch.setenv("BLR_STAGING", str(tmp_path / "one"))
    capsys.readouterr()
    assert run(["release", "publish", "types", "1", "--releases", RELEASES]) == 1
    assert "is published with other bytes" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "two")
    monkeypatch.setenv("BLR_STAGING", str(tmp_path / "three"))
    assert run(["release", "verify", f"{RELEASES}/types/1"]) == 0
