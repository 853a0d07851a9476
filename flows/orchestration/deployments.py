"""`prefect.yaml`: which flows Prefect runs, with which parameters, when; for `prefect deploy` and for `blr serve`.

The one in a survey's folder is the user's; without one, ours, which lies in `flows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from flows.errors import UsageError

FILE = "prefect.yaml"
TEMPLATE = Path(__file__).parents[1] / FILE
RELATIVE = "flows/deployed.py"
"""The entry point as our own file has it: right in a checkout."""


@dataclass(frozen=True, kw_only=True)
class AutomationWork:
    """One automation, and what was done about it, or would be."""

    name: str
    alerts: str  # in words: of what
    status: Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, kw_only=True)
class AutomationsResult:
    """The automations of deployments; `missing` says what has to be there before, and how it is made."""

    status: Literal["planned", "done"]
    deployments: tuple[str, ...]  # those that are watched, FLOW/NAME
    notify: str  # name of the block that sends the alerts
    automations: tuple[AutomationWork, ...]
    missing: tuple[str, ...]


def deployments_text() -> str:
    """Return our file with the entry points of this installation, wherever it is."""
    entry = (Path(__file__).parents[1] / "deployed.py").resolve()
    return TEMPLATE.read_text(encoding="utf-8").replace(f"{RELATIVE}:", f"{entry}:")


def deployments(path: Path) -> list[Mapping[str, Any]]:
    """Return the deployments of a file, as it says them, each with a name and an entry point; ours without a file."""
    text = path.read_text(encoding="utf-8") if path.exists() else deployments_text()
    try:
        entries = yaml.safe_load(text)["deployments"]
        return [{**entry, "name": entry["name"], "entrypoint": entry["entrypoint"]} for entry in entries]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        result = " ".join(str(error).split())
        raise UsageError(
            f"{path}: got {type(error).__name__} ({result}), expected a list 'deployments' of entries with "
            "name and entrypoint; `blr deployments` prints one that you can adapt"
        ) from error
