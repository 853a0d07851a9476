"""`blr train`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.cli._prefect_server import start_prefect
from flows.cli._progress import shown_progress
from flows.cli._show import show, show_trained
from flows.specification.toml_file import read_specification
from flows.training import steps as training

__all__ = ["run_train"]


def run_train(
    spec: Path,
    store: Path,
    options: Mapping[str, Any],
    *,
    dry_run: bool,
    direct: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Train, as a flow unless it is direct."""
    specification = read_specification(spec)
    with shown_progress(quiet=quiet):
        if direct or dry_run:
            result = training.train(specification, store, dry_run=dry_run, **options)
        else:
            server = start_prefect()
            from flows.train import train

            server.wait()
            result = train(specification, store, **options)
    show(result, show_trained, json=json)
