"""Files of a release that hold the same bytes: told before publication."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flows.cli.app import run


def survey(make: SimpleNamespace, first: int, n: int) -> dict[str, np.ndarray]:
    """Return rows whose identifiers count on from `first`."""
    return make.survey(n, seed=first) | {"name": np.array([f"G{i:07d}" for i in range(first, first + n)])}


def classified(folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """Classify a folder; return the result, and what was said on the way."""
    capsys.readouterr()
    command = ["classify", str(folder), "--model", "morphology", "--store", str(trained / "models")]
    assert run([*command, "--out", str(folder.parent / "out"), "--direct", "--json"]) == 0
    told = capsys.readouterr()
    return json.loads(told.out), told.err


def test_equal_files_are_told(
    trained: Path, tmp_path: Path, make: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run finds what an earlier one has published."""
    folder = tmp_path / "tiles"
    folder.mkdir()
    for k in range(3):
        make.parquet(folder / f"t{k}.parquet", survey(make, 1000 * k, 200))
    told, said = classified(folder, trained, capsys)
    assert "repeats" not in told
    assert "before publication" not in said
    shutil.copy(folder / "t1.parquet", folder / "t3.parquet")
    told, said = classified(folder, trained, capsys)
    (equal,) = told["repeats"]
    assert equal.startswith(
        "t1.parquet, t3.parquet are copies of one file, byte for byte: each of its 200 rows is in"
    )
    assert "before publication: t1.parquet" in said
    assert "copies of one file" in (tmp_path / "out/report.html").read_text()
