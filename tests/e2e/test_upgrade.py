"""A team's Prefect, upgraded and put back as docs/operations.md says: what was there is there, and goes on.

Needs a second environment, with a newer Prefect and this checkout in it.  BLR_NEWER_PREFECT tells its programs:

    sed 's/^prefect==.*/prefect==3.9.1/' requirements.lock > newer.lock
    uv venv newer && uv pip install --python newer/bin/python --no-deps --requirement newer.lock
    uv pip install --python newer/bin/python --no-deps --editable .     # and what `uv pip check` asks for
    BLR_NEWER_PREFECT=newer/bin pytest tests/e2e/test_upgrade.py
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.deploying import database, deploy
from tests.e2e.postgres import programs
from tests.e2e.running import PROGRAMS, Prefect, clean_environment, end, running, wait_for

NEWER = os.environ.get("BLR_NEWER_PREFECT")
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
ZOMBIES = "crash runs that are silent"

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),  # its own waits are over before
    pytest.mark.skipif(NEWER is None, reason="BLR_NEWER_PREFECT names no second environment"),
]


@pytest.fixture(scope="module")
def newer() -> Path:
    folder = Path(str(NEWER)).resolve()
    told = [version(at) for at in (PROGRAMS, folder)]
    assert told[0] < told[1], f"{folder} has Prefect {told[1]}, ours is {told[0]}"
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, survey: Path, tmp_path: Path) -> Iterator[Prefect]:
    """Yield the Prefect of before the upgrade; a copy of the survey is beside its home."""
    shutil.copytree(survey, tmp_path / "survey")
    with database(request.param) as settings:
        yield Prefect(tmp_path, settings)


def test_an_upgrade_keeps_everything_and_so_does_the_way_back(old: Prefect, newer: Path) -> None:
    new, folder = replace(old, programs=newer), old.folder / "survey"
    before = a_first_day(old, folder)
    revision, copy = database_revision(old), copied_database(old)

    new.cli("server", "database", "upgrade", "-y", cwd=folder)
    assert database_revision(new) != revision, "no migration between the two: nothing was tried"
    with new.server():
        assert server_version(new) == version(newer)
        assert kept(new) == before
        with team_worker(new, folder):
            assert_work_goes_on(new, folder, "as deployed before")
            new.cli("--no-prompt", "deploy", "--all", cwd=folder)
            assert not lost(kept(new), before)
            assert_work_goes_on(new, folder, "as deployed again")
        after = kept(new)

    # Back, with what the newer one has added: it takes its own migrations back, then the older one starts.
    new.cli("server", "database", "downgrade", "-y", "--revision", revision, cwd=folder)
    with old.server():
        assert server_version(old) == version(PROGRAMS)
        assert kept(old) == after
        with team_worker(old, folder):
            assert_work_goes_on(old, folder, "after the way back")

    # Back by the copy: the days since are lost.
    put_back(old, copy)
    with old.server():
        assert kept(old) == before


def test_a_laptops_runs_and_models_survive_an_upgrade(survey: Path, newer: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(survey, tmp_path / "survey"))
    environment = clean_environment() | {"PREFECT_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}

    def classify(at: Path, out: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [at / "blr", "classify", "release", "--model", "morphology", "--out", out]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    for at, out in ((PROGRAMS, "before"), (newer, "after")):
        done = classify(at, out)
        assert done.returncode == 0, done.stderr
    for name in ("field-0.parquet", "field-1.parquet"):
        assert (folder / "before" / name).read_bytes() == (folder / "after" / name).read_bytes()

    log = tmp_path / "serve.log"
    with running([newer / "blr", "serve"], log, cwd=folder, env=environment) as process:

        def address() -> str | None:
            found = re.search(r"its pages: (http://\S+)", log.read_text())
            assert found or process.poll() is None, log.read_text()
            return found.group(1) if found else None

        prefect = Prefect(tmp_path, port=int(str(urlsplit(str(wait_for(address, "the address"))).port)))
        runs = prefect.find("flow_runs", state_name="Completed")
        assert len(runs) == 2, "one with each version"
        wait_for(lambda: prefect.find("deployments", name="reprocess"), "the deployments")
        shown = subprocess.run(
            [newer / "blr", "ui", "--no-open"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert prefect.url in shown.stdout, shown.stderr
        process.send_signal(signal.SIGINT)
        end(process)

    refused = classify(PROGRAMS, "late")
    assert refused.returncode == 1
    assert "server did not start" in refused.stderr


def a_first_day(prefect: Prefect, folder: Path) -> dict[str, Any]:
    """Deploy, run by schedule and by event, and stop all; return what Prefect keeps of it."""
    with prefect.server():
        zombies = ("automation", "create", "--from-file", str(EXAMPLES / "zombie-runs.yaml"))
        deploy(prefect, folder, zombies)
        with team_worker(prefect, folder):
            assert_work_goes_on(prefect, folder, "at first")
        return kept(prefect)


@contextmanager
def team_worker(prefect: Prefect, folder: Path) -> Iterator[None]:
    """Run the team's worker."""
    with prefect.worker("blr", BLR_ROOTS=str(folder)):
        yield


def assert_work_goes_on(prefect: Prefect, folder: Path, when: str) -> None:
    """Have a schedule fire and an event start a run, both with the model of the beginning; leave all at rest."""
    classify = prefect.deployment("classify")
    known = {run["id"] for run in prefect.find("flow_runs")} - scheduled(prefect)

    def taken(deployment: dict[str, Any]) -> list[dict[str, Any]]:
        runs = prefect.find("flow_runs", deployment_id=deployment["id"])
        return [run for run in runs if run["id"] not in known and run["state_type"] != "SCHEDULED"]

    def completed(deployment: dict[str, Any]) -> list[dict[str, Any]]:
        ended = [run for run in taken(deployment) if run["end_time"]]
        for run in ended:  # a slow machine is given the next one while the first still runs
            message = run["state"]["message"] or ""
            fine = run["state_name"] == "Completed" or "another run is writing" in message
            assert fine, prefect.logs(run)
        return [run for run in ended if run["state_name"] == "Completed"]

    told = ("event", "emit", "blr.release.arrived", "--resource-id", "blr.release.dr6")
    prefect.cli(*told, "--payload", '{"specification": "spec.toml"}', cwd=folder)
    resting(prefect, classify, paused=False)
    wait_for(lambda: taken(classify), f"a scheduled run of classify {when}")
    resting(prefect, classify, paused=True)
    for deployment in (classify, prefect.deployment("reprocess")):
        for run in wait_for(lambda it=deployment: completed(it), f"a run of {deployment['name']} {when}"):
            assert prefect.find("artifacts", flow_run_id=run["id"])
    (automation,) = prefect.find("automations", name=ZOMBIES)
    assert automation["enabled"]
    wait_for(lambda: not busy(prefect), f"the end of all runs {when}")


def resting(prefect: Prefect, deployment: dict[str, Any], *, paused: bool) -> None:
    status, answer = prefect.ask("PATCH", f"/deployments/{deployment['id']}", {"paused": paused})
    assert status == 204, answer


def scheduled(prefect: Prefect) -> set[str]:
    return {run["id"] for run in prefect.find("flow_runs", state_type="SCHEDULED")}


def busy(prefect: Prefect) -> list[dict[str, Any]]:
    return [run for run in prefect.find("flow_runs") if run["state_type"] in ("PENDING", "RUNNING")]


def kept(prefect: Prefect) -> dict[str, Any]:
    """Return what must not be lost: by kind and identity, that which people see."""
    fields = {
        "flow_runs": (
            "name",
            "state_name",
            "parameters",
            "start_time",
            "end_time",
            "deployment_id",
            "work_queue_name",
        ),
        "artifacts": ("key", "type", "data", "flow_run_id"),
        "automations": ("name", "enabled", "actions"),
        "deployments": ("name", "entrypoint", "parameters", "paused", "work_queue_name"),
        "work_pools": ("name", "type"),
        "logs": ("message", "level", "timestamp", "flow_run_id"),
    }
    seen: dict[str, dict[str, Any]] = {
        kind: {item["id"]: {name: item[name] for name in names} for item in found(prefect, kind)}
        for kind, names in fields.items()
    }
    seen["schedules"] = {
        schedule["id"]: (deployment["name"], schedule["slug"], schedule["active"], told(schedule["schedule"]))
        for deployment in prefect.find("deployments")
        for schedule in deployment["schedules"]
    }
    return seen


def told(schedule: dict[str, Any]) -> dict[str, Any]:
    """Return what was said of a schedule; an interval begins when it is deployed, where no beginning was said."""
    return {name: value for name, value in schedule.items() if name != "anchor_date"}


def found(prefect: Prefect, kind: str) -> list[dict[str, Any]]:
    """Return all of a kind; of runs those that have ended, since those to come are planned anew all the time."""
    items: list[dict[str, Any]] = []
    while True:
        status, page = prefect.ask("POST", f"/{kind}/filter", {"limit": 200, "offset": len(items)})
        assert status == 200, page
        items += page
        if len(page) < 200:
            return [item for item in items if kind != "flow_runs" or item["end_time"]]


def lost(now: dict[str, Any], before: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what is gone, by kind; of triggers and schedules, which each `deploy` makes anew, what says the same."""
    gone: dict[str, list[Any]] = {}
    for kind, were in before.items():
        if kind in ("automations", "schedules"):
            left = list(now[kind].values())
            gone[kind] = [item for item in were.values() if item not in left]
        else:
            gone[kind] = [were[key] for key in were.keys() - now[kind].keys()]
    return {kind: items for kind, items in gone.items() if items}


def version(at: Path) -> str:
    ask = "from importlib.metadata import version; print(version('prefect'))"
    return subprocess.run(
        [at / "python", "-c", ask], capture_output=True, text=True, check=True
    ).stdout.strip()


def server_version(prefect: Prefect) -> str:
    status, answer = prefect.ask("GET", "/admin/version")
    assert status == 200, answer
    return str(answer).strip('"')


def told_database(prefect: Prefect) -> tuple[list[str], dict[str, str], str] | None:
    """Return the options of PostgreSQL's programs, their environment and the database's name."""
    url = prefect.settings.get("PREFECT_SERVER_DATABASE_CONNECTION_URL")
    if url is None:
        return None
    at = urlsplit(url)
    options = ["--host", str(at.hostname), "--port", str(at.port), "--username", str(at.username)]
    return options, os.environ | {"PGPASSWORD": str(at.password)}, at.path.removeprefix("/")


def postgres(program: str, prefect: Prefect, *arguments: str | Path) -> str:
    """Run a program of PostgreSQL on the database to a good end; return what it said."""
    told, folder = told_database(prefect), programs()
    assert told is not None
    assert folder is not None
    options, environment, name = told
    command = [folder / program, *options, "--dbname", name, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def database_revision(prefect: Prefect) -> str:
    ask = "select version_num from alembic_version"
    if told_database(prefect) is not None:
        return postgres("psql", prefect, "--tuples-only", "--no-align", "--command", ask)
    with sqlite3.connect(prefect.folder / "home" / "prefect.db") as database:
        (revision,) = database.execute(ask).fetchone()
    return str(revision)


def copied_database(prefect: Prefect) -> Path:
    if told_database(prefect) is not None:
        postgres("pg_dump", prefect, "--format", "custom", "--file", prefect.folder / "before.dump")
        return prefect.folder / "before.dump"
    copy = prefect.folder / "before.db"
    with sqlite3.connect(prefect.folder / "home" / "prefect.db") as database, sqlite3.connect(copy) as kept:
        database.backup(kept)
    return copy


def put_back(prefect: Prefect, copy: Path) -> None:
    if told_database(prefect) is not None:
        postgres("pg_restore", prefect, "--clean", "--if-exists", copy)
        return
    home = prefect.folder / "home"
    for name in ("prefect.db-wal", "prefect.db-shm"):
        (home / name).unlink(missing_ok=True)
    shutil.copy(copy, home / "prefect.db")
