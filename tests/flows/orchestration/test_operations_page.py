"""The settings that docs/operations.md has a team make: Prefect knows them all, and takes them as they are meant."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "operations.md").read_text(encoding="utf-8")
ASK = """
import json
from prefect.settings import get_current_settings
s = get_current_settings()
print(json.dumps({
    "home": str(s.home),
    "url": s.api.url,
    "auth": [s.server.api.auth_string.get_secret_value(), s.api.auth_string.get_secret_value()],
    "hosts": [s.server.api.host, s.worker.webserver.host],
    "serializer": s.results.default_serializer,
    "leases": s.server.concurrency.lease_storage,
    "vacuum": sorted(s.server.services.db_vacuum.enabled_vacuum_types & {"events", "flow_runs"}),
    "days": [s.server.services.db_vacuum.retention_period.days, s.server.events.retention_period.days],
    "analytics": s.server.analytics_enabled,
    "roots": __import__("os").environ["BLR_ROOTS"],
}))
"""


def test_the_settings_are_prefects_and_are_taken(tmp_path: Path) -> None:
    (settings,) = re.findall(r"```sh\n(set -a .*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "blr.env").write_text(settings)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        ["sh", "-c", '. ./blr.env && exec "$0" -W error -c "$1"', sys.executable, ASK],
        cwd=tmp_path,
        env=clean | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), "a setting that is not known is warned of"
    assert json.loads(done.stdout) == {
        "home": f"{tmp_path}/blr-prefect",
        "url": "http://127.0.0.1:4200/api",
        "auth": ["blr:choose-one", "blr:choose-one"],
        "hosts": ["127.0.0.1", "127.0.0.1"],
        "serializer": "json",
        "leases": "prefect.server.concurrency.lease_storage.filesystem",
        "vacuum": ["events", "flow_runs"],
        "days": [30, 7],
        "analytics": False,
        "roots": "/srv/survey",
    }


@pytest.mark.parametrize("path", sorted((DOCS / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_automations_of_events_that_there_are(path: Path) -> None:
    from prefect.automations import Automation

    told = yaml.safe_load(re.sub(r"\b[A-Z]+_ID\b", "00000000-0000-0000-0000-000000000000", path.read_text()))
    assert Automation.model_validate(told).actions
    ours = [name for name in told["trigger"]["expect"] if name.startswith("blr.")]
    assert all(f"| `{name}` |" in (DOCS / "reprocessing.md").read_text() for name in ours)
    assert ours or path.stem == "zombie-runs"


def test_the_example_for_silent_runs_forces_nothing() -> None:
    """The server decides by the state that a run has when it fires: only one that has not ended can be crashed."""
    told = yaml.safe_load((DOCS / "examples" / "zombie-runs.yaml").read_text())
    assert told["actions"][0]["force"] is False
    left = {"Completed", "Failed", "TimedOut", "Cancelled", "Crashed", "Suspended", "AwaitingRetry"}
    assert left <= {event.removeprefix("prefect.flow-run.") for event in told["trigger"]["expect"]}


def test_the_automation_for_silent_runs_is_the_example() -> None:
    from flows.orchestration.deployments import _of_all, _teller

    example = yaml.safe_load((DOCS / "examples" / "zombie-runs.yaml").read_text())
    _, silent = _of_all(_teller(None))[-1]
    ours = silent.trigger.model_dump(mode="json")
    assert {key: ours[key] for key in ("posture", "match", "threshold", "within")} == {
        key: example["trigger"][key] for key in ("posture", "match", "threshold", "within")
    }
    for key in ("expect", "after", "for_each"):
        assert sorted(ours[key]) == sorted(example["trigger"][key])
    (action,) = silent.actions
    assert action.model_dump(mode="json", exclude_none=True) == example["actions"][0]
