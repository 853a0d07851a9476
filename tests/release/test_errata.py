"""Errors that surveys have published are stopped, by a check that names them and their place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flows.cli.app import run
from tests.release.faults import FAULTS
from tests.release.planting import planted


@pytest.mark.parametrize("form", ["fits", "parquet"])
@pytest.mark.parametrize("what", FAULTS)
def test_each_error_is_stopped_by_name_and_place(
    what: str, form: str, survey: Path, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(published, tmp_path / "releases")
    fault = FAULTS[what]
    found = planted(fault, survey, tmp_path, form)
    mine = [
        c
        for c in found
        if c["verdict"] == "stop" and c["name"] == fault.check and fault.words in str(c["found"])
    ]
    assert mine, [(c["verdict"], c["name"], c["found"], c.get("file")) for c in found]
    assert any(str(c.get("file", "")).startswith(fault.place) for c in mine), mine
    assert run(["release", "sign", form, "2", "--by", "Ada"]) == 1
