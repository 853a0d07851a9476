"""All deployments of a `prefect.yaml` served by one process: it waits for their times and runs them beside itself.

For a laptop.  It needs no work pool and no worker; a team has those, and `prefect deploy`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import prefect
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentTriggerTypes
from prefect.schedules import Schedule
from pydantic import TypeAdapter, ValidationError

from flows.errors import UsageError
from flows.orchestration.deployments import deployments

_TRIGGER: TypeAdapter[Any] = TypeAdapter(DeploymentTriggerTypes)


def serve(file: Path, *, limit: int) -> None:
    """Serve the deployments of a file until Ctrl-C or SIGTERM, at most `limit` runs at a time.

    While nobody serves them, their schedules rest: what was missed is not made up for.
    """
    for category in (ResourceWarning, RuntimeWarning):
        # Prefect's runner does not await its end, nor close its client.
        warnings.filterwarnings("ignore", category=category)
    prefect.serve(*served(file), limit=limit, print_starting_message=False)


def served(file: Path) -> list[RunnerDeployment]:
    """Return the deployments of a file as Prefect's runner takes them."""
    return [_served(deployment, file) for deployment in deployments(file)]


def _served(deployment: Mapping[str, Any], file: Path) -> RunnerDeployment:
    try:
        return RunnerDeployment.from_entrypoint(
            deployment["entrypoint"],
            deployment["name"],
            parameters=dict(deployment.get("parameters") or {}),
            schedules=[_schedule(entry) for entry in deployment.get("schedules") or ()],
            triggers=[
                _TRIGGER.validate_python({"name": f"{deployment['name']} {t.get('expect', '')}"} | dict(t))
                for t in deployment.get("triggers") or ()
            ],
            tags=list(deployment.get("tags") or ()),
            description=deployment.get("description"),
            paused=False,  # the runner pauses them when it ends
        )
    except (ValidationError, ValueError, TypeError) as error:
        raise UsageError(
            f"{file}: deployment '{deployment['name']}': {error}; see docs/operations.md for entries that work"
        ) from error


def _schedule(entry: Any) -> Schedule:
    """Return the schedule that `prefect deploy` makes of an entry."""
    known = dict(entry)
    if "interval" in known:
        known["interval"] = timedelta(seconds=known["interval"])
    return Schedule(**known)
