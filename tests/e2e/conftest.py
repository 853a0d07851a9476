"""A team's set-up, once for all tests of a database: server, pool, deployments, worker, and a release that arrives.

A run takes the processor for some ten seconds, most of it for imports.  So what takes time is begun here, all of it at
once, and the tests wait for it: the run of a schedule, and the run that an event starts.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.postgres import postgresql, programs
from tests.e2e.running import Prefect, wait_for
from tests.e2e.survey import make_survey

HOSTILE = "late<img src=x onerror=\"document.title='bad'\">|`x`"
"""A class of a survey that somebody else has made: text on every page, never markup."""

ONE_AFTER_ANOTHER = """
import json, sys
from prefect.cli import app
for command in json.loads(sys.argv[1]):
    sys.argv[1:] = command
    try:
        app()
    except SystemExit as end:
        if end.code:
            raise
"""


@dataclass
class Team:
    """A folder with a survey, and the Prefect that works on it."""

    folder: Path
    prefect: Prefect
    database: str


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a survey's folder, its model trained; to be copied."""
    return make_survey(tmp_path_factory.mktemp("made") / "survey", late=HOSTILE)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def team(
    request: pytest.FixtureRequest, survey: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    """Deploy as docs/operations.md says, in a folder that has a `flows` of its own; scheduled every few seconds."""
    if request.param == "postgresql" and programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    base = tmp_path_factory.mktemp(request.param)
    folder = Path(shutil.copytree(survey, base / "survey"))
    shutil.copy(folder / "spec.toml", folder / "dr6.toml")
    with ExitStack() as stack:
        settings = {}
        if request.param == "postgresql":
            settings["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = stack.enter_context(postgresql())
        prefect = Prefect(base, settings)
        stack.enter_context(prefect.server())
        prefect.cli("deployments", "--out", "prefect.yaml", cwd=folder, program="blr")
        schedule_soon(folder / "prefect.yaml")
        arrived = ("event", "emit", "blr.release.arrived", "--resource-id", "blr.release.dr6")
        one_after_another(
            prefect,
            folder,
            ("work-pool", "create", "blr", "--type", "process"),
            ("work-queue", "create", "nightly", "--pool", "blr", "--limit", "1"),
            ("--no-prompt", "deploy", "--all"),
            (*arrived, "--payload", '{"specification": "dr6.toml"}'),
        )
        stack.enter_context(prefect.worker("blr", BLR_ROOTS=str(folder)))
        once(prefect, "classify")
        yield Team(folder, prefect, request.param)


def one_after_another(prefect: Prefect, folder: Path, *commands: Sequence[str]) -> None:
    """Run commands of `prefect` to a good end in one process, since Prefect takes seconds to import."""
    done = subprocess.run(
        # -P: as for an installed command, the folder is not on the module path
        [prefect.programs / "python", "-P", "-c", ONE_AFTER_ANOTHER, json.dumps(commands)],
        env=prefect.environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def schedule_soon(file: Path) -> None:
    """Edit the file as a team would: one schedule is due within seconds."""
    told: dict[str, Any] = yaml.safe_load(file.read_text())
    (classify,) = (entry for entry in told["deployments"] if entry["name"] == "classify")
    classify["schedules"].append({"slug": "soon", "interval": 30})
    (reprocess,) = (entry for entry in told["deployments"] if entry["name"] == "reprocess")
    reprocess["parameters"]["quiet_seconds"] = 0
    file.write_text(yaml.safe_dump(told))


def once(prefect: Prefect, name: str) -> None:
    """Wait until a scheduled run has been taken, then let the schedule rest: the machine has other things to do."""
    deployment = prefect.deployment(name)

    def taken() -> bool:
        runs = prefect.find("flow_runs", deployment_id=deployment["id"], auto_scheduled=True)
        return any(run["state_type"] != "SCHEDULED" for run in runs)

    wait_for(taken, f"a scheduled run of {name}")
    status, answer = prefect.ask("PATCH", f"/deployments/{deployment['id']}", {"paused": True})
    assert status == 204, answer
