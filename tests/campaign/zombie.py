"""The automation of docs/examples, tried: worker and run are killed at once, and nobody is left to tell.

About two minutes, since Prefect's shortest heartbeat is half a minute.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil

from tests.campaign.deployed import deploy
from tests.e2e.running import Prefect, wait_for
from tests.e2e.survey import make_survey

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "zombie-runs.yaml"
HEARTBEAT, SILENCE = 30, 75


def kill(pid: int) -> None:
    """Kill a process and whatever it runs, from the top, so that none of them tells of another's end."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in family:
        os.kill(process.pid, signal.SIGSTOP)
    for process in family:
        os.kill(process.pid, signal.SIGKILL)


def passes(folder: Path) -> bool:
    """Print how long it took until the state was true; return whether it was."""
    folder.mkdir()
    survey = make_survey(folder / "survey")
    prefect = Prefect(folder, {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT)})
    with prefect.server():
        deploy(prefect, survey, {"reprocess": []})
        text = EXAMPLE.read_text().replace("within: 540", f"within: {SILENCE}")
        (folder / "zombie.yaml").write_text(text)
        prefect.cli("automation", "create", "--from-file", folder / "zombie.yaml", cwd=survey)
        with prefect.worker("blr") as worker:
            # Files that are still being written are waited for: a run that lasts.
            waits = {"specification": "spec.toml", "quiet_seconds": 3600, "patience": 3600}
            path = f"/deployments/{prefect.deployment('reprocess')['id']}/create_flow_run"
            run = prefect.ask("POST", path, {"parameters": waits})[1]
            beat = {"filter": {"event": {"name": ["prefect.flow-run.heartbeat"]}}}
            wait_for(lambda: prefect.ask("POST", "/events/filter", beat)[1]["events"], "a heartbeat")
            kill(worker.pid)
            start = time.monotonic()
        nobody_told = prefect.find("flow_runs", id=run["id"])[0]["state_name"] == "Running"
        state = prefect.run_ended(id=run["id"])["state_type"]
    print(f"zombie: {state} {time.monotonic() - start:.0f} s after the kill; silence allowed: {SILENCE} s")
    return nobody_told and state == "CRASHED"
