"""Files of earlier versions are still read: a version made each folder of tests/fixtures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catalogs
from flows.cli.app import run
from flows.models.comparison import compare
from flows.models.request import PromoteRequest
from flows.models.store import Store
from flows.runs.manifest import Manifest
from flows.specification.toml_file import read_specification
from tests.flows.verbs import classify, reprocess, train

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
VERSIONS = sorted(path for path in FIXTURES.iterdir() if (path / "models").is_dir())
NAMES = ("refined", "stacked", "sampled")


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of what a version made."""
    return Path(shutil.copytree(request.param, tmp_path / "old"))


def new_columns(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns that an annotation added."""
    catalog = catalogs.open(path)
    names = [name for name in catalog.names if name.startswith("blr_")]
    table = pa.Table.from_batches(catalog.batches(names))
    return {name: table[name].to_numpy() for name in names}


def assert_same_values(new: Path, before: Path) -> None:
    """Compare the new columns of two files; the last digits may be those of another machine."""
    got, expected = new_columns(new), new_columns(before)
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], values, err_msg=name)


def test_there_are_old_files_and_they_are_small() -> None:
    assert VERSIONS
    for version in VERSIONS:
        assert sum(path.stat().st_size for path in version.rglob("*") if path.is_file()) < 450_000


@pytest.mark.parametrize("name", NAMES)
def test_specifications_and_catalogues_open(old: Path, name: str) -> None:
    specification = read_specification(old / f"{name}.toml")
    assert specification.name == name
    for place in ("survey.parquet", "release/a.parquet", "release/b.fits", "annotated/b.fits"):
        assert catalogs.open(old / place).n_rows


def test_models_are_listed_and_shown(
    old: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(old)
    assert run(["models", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["models"]
    assert {model["name"] for model in listed if model["champion"]} == set(NAMES)
    for model in listed:
        assert run(["models", "show", model["model"], "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["version"], len(shown["history"])) == (model["version"], 1)
        assert run(["models", "show", model["model"]]) == 0
        assert "Candidates" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_models_classify_as_they_did(old: Path, name: str) -> None:
    classify([old / "release" / "a.parquet"], model=name, store=old / "models", out=old / "new")
    before = old / ("annotated" if name == "refined" else f"classified-{name}") / "a.parquet"
    assert_same_values(old / "new" / "a.parquet", before)


def test_a_release_is_still_up_to_date(old: Path) -> None:
    copies = [old / "annotated" / name for name in ("a.parquet", "b.fits", "_releases/0001.json")]
    before = [path.read_bytes() for path in copies]
    done = reprocess(old / "refined.toml", store=old / "models", quiet_seconds=0)
    assert (done.status, done.release) == ("nothing to do", 1)
    assert done.summary.n_rows == 100
    assert [path.read_bytes() for path in copies] == before


def test_a_release_goes_on(old: Path) -> None:
    """A new file is annotated, the old ones are left alone, and the manifest goes on from the old one's number."""
    shutil.copy(old / "release" / "a.parquet", old / "release" / "c.parquet")
    done = reprocess(old / "refined.toml", store=old / "models", quiet_seconds=0)
    assert {name for name, file in done.files.items() if file.why} == {"c.parquet"}
    assert (done.release, done.summary.n_rows) == (2, 160)
    assert {o.name for o in Manifest.read(old / "annotated").outputs} == {"a.parquet", "b.fits", "c.parquet"}


def test_an_old_release_is_compared_with_a_new_one(old: Path) -> None:
    """Another threshold flags more rows and moves none: the old annotation was read, and the model is the same."""
    with (old / "refined.toml").open("a") as file:
        file.write("\n[flags]\nlow_confidence = 0.9\n")
    done = reprocess(old / "refined.toml", store=old / "models", quiet_seconds=0)
    assert done.release == 2
    difference = json.loads((old / "annotated" / "_releases" / "0002.json").read_text())["difference"]
    assert {
        key: difference[key] for key in ("compared", "appeared", "vanished", "class_changed", "moved")
    } == {
        "compared": 100,
        "appeared": 0,
        "vanished": 0,
        "class_changed": 0,
        "moved": 0,
    }
    assert difference["flags_gained"]["LOW_CONFIDENCE"] == difference["flag_changed"] > 0
    assert difference["largest_move"] < 1e-5


def test_an_old_champion_is_compared_with_a_new_model(old: Path) -> None:
    """A model trained today on the same rows is tested on the rows that the old one was tested on."""
    text = (old / "sampled.toml").read_text()
    (old / "sampled.toml").write_text(text.replace('features = ["b_j"]', "").replace("sampled", "refined", 2))
    train(old / "sampled.toml", old / "models")
    comparison = compare(PromoteRequest("refined", store=old / "models"))
    assert comparison.champion == f"refined@{Store(old / 'models').champion('refined')}"
    assert comparison.challenger != comparison.champion
    assert comparison.same_rows
    assert abs(comparison.log_loss - comparison.champion_log_loss) < 0.2


def test_no_machine_is_named_in_them() -> None:
    for path in FIXTURES.rglob("*"):
        if path.is_file() and path.suffix != ".py":
            content = path.read_bytes()
            for words in (*(f"/{folder}/".encode() for folder in ("work", "home", "tmp")), b"root"):
                assert words not in content, path
