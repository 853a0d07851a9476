"""Deployments as a team makes them, those that a part of the campaign needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.running import Prefect


def deploy(prefect: Prefect, survey: Path, schedules: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Deploy the flows that are named, with these schedules; `reprocess` one run at a time."""
    prefect.cli("deployments", "--out", "prefect.yaml", cwd=survey, program="blr")
    told: dict[str, Any] = yaml.safe_load((survey / "prefect.yaml").read_text())
    for entry in told["deployments"]:
        entry["schedules"] = [dict(schedule) for schedule in schedules.get(entry["name"], ())]
    (survey / "prefect.yaml").write_text(yaml.safe_dump(told))
    prefect.cli("work-pool", "create", "blr", "--type", "process", cwd=survey)
    prefect.cli("work-queue", "create", "nightly", "--pool", "blr", "--limit", "1", cwd=survey)
    for name in schedules:
        prefect.cli("--no-prompt", "deploy", "--name", name, cwd=survey)
