"""`blr reprocess`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from flows import reprocessing
from flows.cli_prefect import start_prefect
from flows.cli_progress import shown_progress
from flows.cli_show import print_tables, say, show
from flows.config_file import load_specification
from flows.monitoring import run_tables

__all__ = ["PARTLY", "leave_partly", "run_reprocess"]

PARTLY = 3


def run_reprocess(
    spec: Path, options: Mapping[str, Any], *, dry_run: bool, direct: bool, json: bool, quiet: bool
) -> None:
    """Reprocess, as a flow unless it is direct."""
    specification = load_specification(spec)
    with shown_progress(quiet=quiet):
        if direct or dry_run:
            told = reprocessing.reprocess(specification, dry_run=dry_run, **options)
        else:
            server = start_prefect()
            from flows.reprocess import reprocess

            server.wait()
            told = reprocess(specification, **options)
    show(told, show_reprocessed, json=json)
    leave_partly(told)


def show_reprocessed(told: Mapping[str, Any]) -> None:
    """Show what was done to a release, or would be."""
    said = {
        "planned": "is up to date: nothing would be done"
        if told.get("up_to_date")
        else "would be brought up to date",
        "nothing to do": "is up to date",
        "waiting": "waits: its inputs are still being written",
        "done": f"is at release {told['release']}",
    }
    report = f"; {told['report']}" if "report" in told else ""
    print_tables(*run_tables(told).values())
    say(f"{told['out']} {said[told['status']]}, by {told['model']}{report}")


def leave_partly(told: Mapping[str, Any]) -> None:
    """Leave with the status of a run that could not annotate some of its files."""
    if told.get("quarantined"):
        raise typer.Exit(PARTLY)
