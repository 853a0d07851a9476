"""Objects that are in two files of a release: told before publication, whatever the format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flows
from flows.classification._publishing import repeats
from flows.cli.app import run
from flows.runs.manifest import Manifest
from flows.runs.references import check_output
from flows.runs.release_store import Staging


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


def test_equal_files_and_identifiers_in_two_files_are_told(
    trained: Path, tmp_path: Path, make: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run finds what an earlier one has published, and so does one with few hashes in memory at a time."""
    folder = tmp_path / "tiles"
    folder.mkdir()
    for k in range(3):
        make.parquet(folder / f"t{k}.parquet", survey(make, 1000 * k, 200))
    told, said = classified(folder, trained, capsys)
    assert "repeats" not in told
    assert "before publication" not in said
    shutil.copy(folder / "t1.parquet", folder / "t3.parquet")
    make.parquet(folder / "t4.parquet", survey(make, 2197, 200))
    told, said = classified(folder, trained, capsys)
    equal, common = told["repeats"]
    assert equal.startswith(
        "t1.parquet, t3.parquet are copies of one file, byte for byte: each of its 200 rows is in"
    )
    assert common.startswith("t2.parquet and t4.parquet have 3 identifiers in common, such as 'G0002197'")
    assert said.index("before publication: t1.parquet") < said.index("before publication: t2.parquet")
    page = (tmp_path / "out/report.html").read_text()
    assert "have 3 identifiers in common" in page
    hidden = {path.name[:16] for path in (tmp_path / "out/.blr-identifiers").iterdir()}
    assert len(hidden) == 4, "one sketch for equal copies, none of another copy"
    shutil.rmtree(tmp_path / "out/.blr-identifiers")
    manifest, out = Manifest.read(tmp_path / "out"), check_output(tmp_path / "out", key="out")
    assert manifest is not None
    specification = flows.read_specification(trained / "spec.toml")
    few = repeats(manifest.outputs, Staging.of(out, "", ""), specification, run=64)
    assert list(few) == told["repeats"]
