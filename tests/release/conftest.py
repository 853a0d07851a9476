"""Two runs of one survey, a published release of the first, a checked draft of the second, and processes to race."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import run
from flows.demo.steps import write_parquet
from tests.campaign.zygote import Zygote, zygote
from tests.flows.conftest import s3, s3_endpoint  # noqa: F401 - fixtures
from tests.flows.verbs import reprocess, train
from tests.release.fields import SPECIFICATION, galaxies, season, write_fields

pytest.importorskip("pyongc", reason="the galaxies are OpenNGC's")


@pytest.fixture(scope="session")
def processes() -> Iterator[Zygote]:
    """Return what starts processes of the command line."""
    with zygote() as forks:
        yield forks


def told_by(log: Path) -> str:
    """Return what a process has said to its user."""
    return log.read_text() + log.with_suffix(".err").read_text()


def classified(folder: Path, table: object, form: str, name: str) -> Path:
    """Write a survey's fields and classify them; return the folder of the run."""
    write_fields(folder / name / "survey", table, form)
    spec = folder / name / "spec.toml"
    spec.write_text(SPECIFICATION)
    reprocess(spec, folder / "models", out=folder / name / "run", quiet_seconds=0)
    return folder / name / "run"


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, and with two seasons that it has classified."""
    folder = tmp_path_factory.mktemp("release")
    table = galaxies()
    write_parquet(table, folder / "labelled.parquet")
    (folder / "spec.toml").write_text(SPECIFICATION)
    train(folder / "spec.toml", folder / "models")
    for k in (1, 2):
        classified(folder, season(table, k), "parquet", f"parquet-{k}")
    return folder


def release(verb: str, *words: object) -> int:
    """Run `blr release VERB` with these words; return the exit status."""
    return run(["release", verb, *map(str, words)])


@pytest.fixture
def says(says: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same for the verbs of `blr release`."""
    return lambda status, verb, *words: says(status, "release", verb, *words)


def draft(name: str, version: str, run_folder: Path, survey: Path, *more: object) -> None:
    """Draft a release of a run with a survey's models."""
    assert release("draft", name, version, "--run", run_folder, "--store", survey / "models", *more) == 0


def publish(name: str, version: str, run_folder: Path, survey: Path) -> None:
    """Draft, check, sign and publish a release below the working folder."""
    draft(name, version, run_folder, survey)
    assert release("check", name, version) == 0
    assert release("sign", name, version, "--by", "Ada Lovelace") == 0
    assert release("publish", name, version) == 0


@pytest.fixture(scope="session")
def drafted(survey: Path) -> Callable[[str], Path]:
    """Return what gives the survey's releases in a form: version 1 is published, version 2 drafted and checked."""

    @cache
    def releases(form: str) -> Path:
        if form == "fits":  # the survey's runs are of Parquet
            for k in (1, 2):
                classified(survey, season(galaxies(), k), "fits", f"fits-{k}")
        folder = survey / f"drafted-{form}"
        folder.mkdir()
        with chdir(folder):
            publish(form, "1", survey / f"{form}-1" / "run", survey)
            draft(form, "2", survey / f"{form}-2" / "run", survey)
            assert release("check", form, "2") == 0
        return folder / "releases"

    return releases


def working_folder(survey: Path, releases: Path) -> Path:
    """Return a new folder with a copy of releases, as deep as they were, so that drafts find their inputs."""
    folder = Path(tempfile.mkdtemp(dir=survey))
    shutil.copytree(releases, folder / "releases")
    return folder


@pytest.fixture
def here(survey: Path, drafted: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder with version 1 published and version 2 checked; return the survey's folder."""
    folder = working_folder(survey, drafted("parquet"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BLR_SIGNER", "Ada Lovelace")
    yield survey
    monkeypatch.undo()
    shutil.rmtree(folder)
