"""`blr reprocess`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from flows.classification import reprocessing
from flows.cli._prefect_server import start_prefect
from flows.cli._progress import shown_progress
from flows.cli._show import print_tables, say, show
from flows.orchestration.tables import run_tables, trouble_table
from flows.specification.toml_file import read_specification

__all__ = ["PARTLY", "leave_partly", "run_reprocess"]

PARTLY = 3


def run_reprocess(
    spec: Path, options: Mapping[str, Any], *, dry_run: bool, direct: bool, json: bool, quiet: bool
) -> None:
    """Reprocess, as a flow unless it is direct."""
    specification = read_specification(spec)
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
    if told["status"] == "nothing to do" or told.get("up_to_date"):
        _show_unchanged(told)
    else:
        print_tables(*run_tables(told).values())
    say(f"{told['out']} {said[told['status']]}, by {told['model']}{report}")


def _show_unchanged(told: Mapping[str, Any]) -> None:
    """Show in a line that no file has changed, and which files are in trouble still."""
    if told.get("quarantined") or told.get("deferred"):
        print_tables(trouble_table(told))
    rows = (told.get("summary") or {}).get("n_rows", 0)
    say(f"Nothing changed: {len(told['files']):,} files, {rows:,} objects, as at release {told['release']}")


def leave_partly(told: Mapping[str, Any]) -> None:
    """Leave with the status of a run that could not annotate some of its files."""
    if told.get("quarantined"):
        raise typer.Exit(PARTLY)
