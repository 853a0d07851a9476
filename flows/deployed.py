"""What Prefect loads, by path: `…/flows/deployed.py:classify`, and so on for every flow.

A run starts in the team's folder, which Prefect puts first on the module path.  If the team has a folder `flows` or
`catalogs`, Python would import it instead of our package. So the folder of ours comes before it.
"""

# ruff: noqa: E402 -- the path first, then what is imported by it

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

FLOWS = ("classify", "promote", "publish", "reprocess", "train")
"""What may follow the colon: each a flow, in the module of that name."""

ENTRY = Path(__file__).resolve()
"""This file, the entry point of deployments."""


OURS = str(ENTRY.parent.parent)
sys.path.insert(0, OURS)
for _name, _module in [*sys.modules.items()]:
    if _name.partition(".")[0] in {"blr", "catalogs", "flows"}:
        _file = getattr(_module, "__file__", None) or ""
        if not _file.startswith(f"{OURS}/"):
            del sys.modules[_name]

from flows.orchestration.run_page import read_json_only

read_json_only()


def __getattr__(name: str) -> Any:
    """Import a flow when it is asked for: a run is of one, and that of another takes as long as its own work."""
    if name not in FLOWS:
        raise AttributeError(
            f"{ENTRY} has no flow '{name}', expected one of {', '.join(FLOWS)}; correct the entrypoint"
        )
    return getattr(import_module(f"flows.{name}"), name)
