"""A team's set-up, once for all tests of a database: server, pool, deployments, worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.postgres import postgresql, programs
from tests.e2e.running import Prefect
from tests.e2e.survey import make_survey


@dataclass
class Team:
    """A folder with a survey, and the Prefect that works on it."""

    folder: Path
    prefect: Prefect
    database: str


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def team(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Deploy as docs/operations.md says, in a folder that has a `flows` of its own; scheduled every few seconds."""
    if request.param == "postgresql" and programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    base = tmp_path_factory.mktemp(request.param)
    survey = make_survey(base / "survey")
    with ExitStack() as stack:
        settings = {}
        if request.param == "postgresql":
            settings["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = stack.enter_context(postgresql())
        prefect = Prefect(base, settings)
        stack.enter_context(prefect.server())
        prefect.cli("deployments", "--out", "prefect.yaml", cwd=survey, program="blr")
        schedule_soon(survey / "prefect.yaml")
        prefect.cli("work-pool", "create", "blr", "--type", "process", cwd=survey)
        prefect.cli("work-queue", "create", "nightly", "--pool", "blr", "--limit", "1", cwd=survey)
        prefect.cli("--no-prompt", "deploy", "--all", cwd=survey)
        stack.enter_context(prefect.worker("blr", BLR_ROOTS=str(survey)))
        yield Team(survey, prefect, request.param)


def schedule_soon(file: Path) -> None:
    """Edit the file as a team would: one schedule is due within seconds."""
    told: dict[str, Any] = yaml.safe_load(file.read_text())
    (classify,) = (entry for entry in told["deployments"] if entry["name"] == "classify")
    classify["schedules"].append({"slug": "soon", "interval": 30})
    (reprocess,) = (entry for entry in told["deployments"] if entry["name"] == "reprocess")
    reprocess["parameters"]["quiet_seconds"] = 0
    file.write_text(yaml.safe_dump(told))
