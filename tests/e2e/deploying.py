"""A team's Prefect, deployed in the words of docs/operations.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.postgres import postgresql, programs
from tests.e2e.running import Prefect
from tests.flows.children import ran

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


@contextmanager
def database(kind: str) -> Iterator[Mapping[str, str]]:
    """Yield the server's settings for a database of that kind, which is gone afterwards."""
    if kind == "sqlite":
        yield {}
        return
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with postgresql() as address:
        yield {"PREFECT_SERVER_DATABASE_CONNECTION_URL": address}


def deploy(prefect: Prefect, folder: Path, *then: Sequence[str]) -> None:
    """Write `prefect.yaml`, make pool and queue, deploy all; one schedule is due within seconds."""
    prefect.cli("deployments", "--out", "prefect.yaml", cwd=folder, program="blr")
    schedule_soon(folder / "prefect.yaml")
    one_after_another(
        prefect,
        folder,
        ("work-pool", "create", "blr", "--type", "process"),
        ("work-queue", "create", "nightly", "--pool", "blr", "--limit", "1"),
        ("--no-prompt", "deploy", "--all"),
        *then,
    )


def one_after_another(prefect: Prefect, folder: Path, *commands: Sequence[str]) -> None:
    """Run commands of `prefect` to a good end in one process, since Prefect takes seconds to import."""
    # -P: as for an installed command, the folder is not on the module path
    command = (prefect.programs / "python", "-P", "-c", ONE_AFTER_ANOTHER, json.dumps(commands))
    done = ran(*command, env=prefect.environment, cwd=folder, timeout=400)
    assert done.returncode == 0, f"{commands}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def schedule_soon(file: Path) -> None:
    """Edit the file as a team would: one schedule is due within seconds."""
    told: dict[str, Any] = yaml.safe_load(file.read_text())
    (classify,) = (entry for entry in told["deployments"] if entry["name"] == "classify")
    classify["schedules"].append({"slug": "soon", "interval": 30})
    (reprocess,) = (entry for entry in told["deployments"] if entry["name"] == "reprocess")
    reprocess["parameters"]["quiet_seconds"] = 0
    file.write_text(yaml.safe_dump(told))
