"""Files of a release with objects in common, or without rows: told before publication."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flows.cli.app import run

SHARED = "identifiers in more than one file: {}; each row counts as an object"


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
    words = "t1.parquet, t3.parquet are copies of one file, byte for byte: each of its 200 rows is in"
    assert equal.startswith(words)
    assert "before publication: t1.parquet" in said
    assert "copies of one file" in (tmp_path / "out/report.html").read_text()
    make.parquet(folder / "t4.parquet", survey(make, 2199, 60))
    told, _ = classified(folder, trained, capsys)
    assert told["repeats"][1] == SHARED.format("1, such as G0002199 in t2.parquet and t4.parquet")


def test_shared_identifiers_and_files_without_rows_are_told(
    trained: Path,
    tmp_path: Path,
    make: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two objects are in two files of other bytes each; rows without a name are no object; one file has no rows."""
    folder = tmp_path / "tiles"
    folder.mkdir()
    rows = [survey(make, 1000 * k, 200) for k in range(3)]
    for part in rows:
        part["name"][:2] = ""
    rows[2]["name"][[5, 6, 7]] = [*rows[0]["name"][[50, 51]], rows[0]["name"][51]]
    for k, part in enumerate(rows):
        make.parquet(folder / f"t{k}.parquet", part)
    make.parquet(folder / "t3.parquet", survey(make, 3000, 0))
    told, said = classified(folder, trained, capsys)
    rowless, twice, shared = told["repeats"]
    assert rowless == "t3.parquet: no rows, expected some; copy it again if it is not whole"
    own = "t2.parquet: 1 of 200 rows have the identifier of an earlier row; each row counts as an object"
    assert twice == own
    assert shared == SHARED.format("2, such as G0000051 in t0.parquet and t2.parquet")
    assert all(sentence in said for sentence in told["repeats"])
    report = (tmp_path / "out/report.html").read_text()
    assert "identifiers in more than one file: 2" in report
    assert "t3.parquet: no rows" in report
    monkeypatch.setattr("flows.classification._publishing.MOST_IDENTIFIERS", 500)
    make.parquet(folder / "t3.parquet", survey(make, 3000, 200))
    shutil.rmtree(tmp_path / "out")
    told, _ = classified(folder, trained, capsys)
    (sentence,) = told["repeats"]
    assert sentence.startswith("whether an object is there twice is not known: identifiers of 800 rows were ")
    assert sentence.endswith(" rows were not compared, expected at most 500")
