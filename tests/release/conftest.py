"""Two runs of one survey, and a published release of the first of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.demo.openngc import write_parquet
from tests.flows.verbs import reprocess, train
from tests.release.fields import SPECIFICATION, galaxies, season, write_fields

pytest.importorskip("pyongc", reason="the galaxies are OpenNGC's")


def classified(folder: Path, table: object, form: str, name: str) -> Path:
    """Write a survey's fields and classify them; return the folder of the run."""
    write_fields(folder / name / "survey", table, form)
    spec = folder / name / "spec.toml"
    spec.write_text(SPECIFICATION)
    reprocess(spec, folder / "models", out=folder / name / "run", quiet_seconds=0)
    return folder / name / "run"


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, and with two seasons that it has classified, as FITS and as Parquet."""
    folder = tmp_path_factory.mktemp("release")
    table = galaxies()
    write_parquet(table, folder / "labelled.parquet")
    (folder / "spec.toml").write_text(SPECIFICATION)
    train(folder / "spec.toml", folder / "models")
    for form in ("fits", "parquet"):
        classified(folder, season(table, 1), form, f"{form}-1")
        classified(folder, season(table, 2), form, f"{form}-2")
    return folder


@pytest.fixture
def work(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a folder of one's own with the model and the runs, as the working folder."""
    shutil.copytree(survey, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLR_SIGNER", "Ada Lovelace")
    return SimpleNamespace(folder=tmp_path, releases=tmp_path / "releases")
