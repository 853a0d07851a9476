"""What Prefect loads, by path: `…/flows/deployed.py:classify`, and so on for every flow.

A run starts in the team's folder, which Prefect puts first on the module path.  If the team has a folder `flows` or
`catalogs`, Python would import it instead of our package. So the three names are bound to the packages beside this
file before anything is imported.
"""

# ruff: noqa: E402 -- the names first, then what is imported by them

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

FLOWS = ("classify", "promote", "publish", "reprocess", "train")
"""What may follow the colon: each a flow, in the module of that name."""

ENTRY = Path(__file__).resolve()
"""This file, the entry point of deployments."""


def _bind(package: str) -> None:
    """Let the name of a package mean the one beside this file, whatever the module path says."""
    folder = ENTRY.parent.parent / package
    known = sys.modules.get(package)
    if known is not None and Path(known.__file__ or "").resolve() == folder / "__init__.py":
        return
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        del sys.modules[name]
    spec = spec_from_file_location(package, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder}: the package of {ENTRY} is not there; install galaxyblr again")
    sys.modules[package] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[package])


for _package in ("blr", "catalogs", "flows"):
    _bind(_package)

from flows.orchestration.run_page import read_json_only

read_json_only()


def __getattr__(name: str) -> Any:
    """Import a flow when it is asked for: a run is of one, and that of another takes as long as its own work."""
    if name not in FLOWS:
        raise AttributeError(
            f"{ENTRY} has no flow '{name}', expected one of {', '.join(FLOWS)}; correct the entrypoint"
        )
    return getattr(import_module(f"flows.{name}"), name)
