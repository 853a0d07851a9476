"""Does Prefect work here?  Run by e2e/test_install.py in an environment made by a plain install.

`flow HOME`: a flow runs on the server of that home.  `schedule NAME`: a cron deployment gets scheduled runs on
the server of PREFECT_API_URL.  What was seen goes to standard output as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from flows.orchestration.settings import start_home_server

PATIENCE = 90.0


def run_flow(home: str) -> dict[str, object]:
    """Run a flow with a task, and find the run in the database of that home."""
    os.environ["PREFECT_HOME"] = home
    line = start_home_server(0).line
    flow = _flow()
    from prefect.client.orchestration import get_client

    state = flow(2, return_state=True)
    with get_client(sync_client=True) as client:
        stored = client.read_flow_run(state.state_details.flow_run_id)
    return {"server": line, "result": state.result(), "stored": stored.state.name}


def schedule(name: str) -> dict[str, object]:
    """Deploy with a cron schedule, and wait for the scheduler to plan its runs."""
    flow = _flow()
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId

    deployment = flow.to_deployment(name=name, cron="15 3 * * *", parameters={"x": 2}).apply()
    chosen = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
    with get_client(sync_client=True) as client:
        runs = wait_for(lambda: client.read_flow_runs(deployment_filter=chosen))
    return {
        "states": sorted({run.state.type.value for run in runs}),
        "times": sorted({f"{run.expected_start_time:%H:%M}" for run in runs}),
    }


def wait_for(condition: Callable[[], list[object]]) -> list[object]:
    """Return what the condition gives, as soon as that is something; nothing when patience ends."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def _flow() -> Any:
    from prefect import flow, task

    @task
    def double(x: int) -> dict[str, int]:
        return {"x": 2 * x}

    @flow
    def twice(x: int) -> dict[str, int]:
        return double(x)

    return twice


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"flow": run_flow, "schedule": schedule}[sys.argv[1]](sys.argv[2])))
