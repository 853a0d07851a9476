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
    make.parquet(folder / "t4.parquet", survey(make, 2199, 60))
    told, _ = classified(folder, trained, capsys)
    assert told["repeats"][1] == (
        "1 identifier is in more than one file, such as G0002199 in t2.parquet and t4.parquet; each row counts as an "
        "object"
    )


@pytest.mark.parametrize("form", ["parquet", "fits"])
def test_repeated_identifiers_are_said_in_the_counts(
    trained: Path,
    make: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: str,
) -> None:
    """Three rows have the name of an earlier one, in another batch too; rows without a name are no repeats."""
    monkeypatch.chdir(tmp_path)
    rows = make.survey(400)
    rows["name"][[7, 100, 399]] = rows["name"][[6, 6, 5]]
    rows["name"][[20, 21]] = ""
    getattr(make, form)(tmp_path / f"twice.{form}", rows)
    command = ["classify", f"twice.{form}", "--model", "morphology", "--store", str(trained / "models")]
    assert run([*command, "--out", "out", "--direct"]) == 0
    said = (
        "3 of 400 rows have the identifier of an earlier row of the same file; each row counts as an object."
    )
    assert said in " ".join(capsys.readouterr().out.split())
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["repeated"] == 3
    assert said[:-1] in (tmp_path / "out/report.html").read_text()


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
    rowless, shared = told["repeats"]
    assert rowless == "t3.parquet: no rows, expected some; copy it again if it is not whole"
    assert shared == (
        "2 identifiers are in more than one file, such as G0000051 in t0.parquet and t2.parquet; each row counts "
        "as an object"
    )
    assert all(sentence in said for sentence in told["repeats"])
    report = (tmp_path / "out/report.html").read_text()
    assert "2 identifiers are in more than one file" in report
    assert "t3.parquet: no rows" in report
    monkeypatch.setattr("flows.classification._publishing.MOST_IDENTIFIERS", 500)
    make.parquet(folder / "t3.parquet", survey(make, 3000, 200))
    shutil.rmtree(tmp_path / "out")
    told, _ = classified(folder, trained, capsys)
    (sentence,) = told["repeats"]
    assert sentence == (
        "whether an object is in two files is not known: identifiers of 800 rows were not compared, expected at "
        "most 500"
    )
