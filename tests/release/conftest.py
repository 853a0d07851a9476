"""Two runs of one survey, and a published release of the first of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.cli.app import run
from flows.demo.openngc import write_parquet
from tests.flows.conftest import s3, s3_endpoint  # noqa: F401 - fixtures
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


def publish(name: str, version: str, run_folder: Path, store: Path) -> None:
    """Draft, check, sign and publish a release below the working folder."""
    assert run(["release", "draft", name, version, "--run", str(run_folder), "--store", str(store)]) == 0
    assert run(["release", "check", name, version]) == 0
    assert run(["release", "sign", name, version, "--by", "Ada Lovelace"]) == 0
    assert run(["release", "publish", name, version]) == 0


@pytest.fixture(scope="session")
def published(survey: Path) -> Path:
    """Return a folder of releases: version 1 of the survey as FITS and as Parquet."""
    before = Path.cwd()
    os.chdir(survey)
    try:
        for form in ("fits", "parquet"):
            publish(form, "1", survey / f"{form}-1" / "run", survey / "models")
    finally:
        os.chdir(before)
    return survey / "releases"
