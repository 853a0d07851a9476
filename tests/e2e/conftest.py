"""A team's set-up, once for all tests of a database: server, pool, deployments, worker, and a release that arrives.

A run takes the processor for some ten seconds, most of it for imports.  So what takes time is begun here, all of it at
once, and the tests wait for it: the run of a schedule, and the run that an event starts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.deploying import database, deploy
from tests.e2e.running import Prefect, wait_for
from tests.e2e.survey import make_survey

HOSTILE = "late<img src=x onerror=\"document.title='bad'\">|`x`"
"""A class of a survey that somebody else has made: text on every page, never markup."""


@dataclass
class Team:
    """A folder with a survey, and the Prefect that works on it."""

    folder: Path
    prefect: Prefect
    database: str


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_survey(tmp_path_factory.mktemp("made") / "survey", late=HOSTILE)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def team(
    request: pytest.FixtureRequest, survey: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    """Deploy as docs/operations.md says, in a folder that has a `flows` of its own; scheduled every few seconds."""
    base = tmp_path_factory.mktemp(request.param)
    folder = Path(shutil.copytree(survey, base / "survey"))
    shutil.copy(folder / "spec.toml", folder / "dr6.toml")
    with ExitStack() as stack:
        prefect = Prefect(base, stack.enter_context(database(request.param)))
        stack.enter_context(prefect.server())
        arrived = ("event", "emit", "blr.release.arrived", "--resource-id", "blr.release.dr6")
        deploy(prefect, folder, (*arrived, "--payload", '{"specification": "dr6.toml"}'))
        stack.enter_context(prefect.worker("blr", BLR_ROOTS=str(folder)))
        once(prefect, "classify")
        yield Team(folder, prefect, request.param)


def once(prefect: Prefect, name: str) -> None:
    """Wait until a scheduled run has been taken, then let the schedule rest: the machine has other things to do."""
    deployment = prefect.deployment(name)

    def taken() -> bool:
        runs = prefect.find("flow_runs", deployment_id=deployment["id"], auto_scheduled=True)
        return any(run["state_type"] != "SCHEDULED" for run in runs)

    wait_for(taken, f"a scheduled run of {name}")
    status, answer = prefect.ask("PATCH", f"/deployments/{deployment['id']}", {"paused": True})
    assert status == 204, answer
