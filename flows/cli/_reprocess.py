"""`blr reprocess`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

import time
from pathlib import Path

import typer

from flows.classification import reprocessing
from flows.classification.request import ReprocessRequest
from flows.cli._flow_runs import runs_as_flow
from flows.cli._options import RunOptions
from flows.cli._printing import print_tables, say, say_next, show
from flows.cli._progress import shown_progress
from flows.orchestration.tables import run_tables, status_table, trouble_table
from flows.runs.release_store import output_folder
from flows.runs.results import ClassificationResult, FinishedClassification, ReleaseResult
from flows.runs.status import FolderStatus, read_status

__all__ = ["PARTLY", "leave_partly", "run_reprocess", "run_status", "say_done"]

PARTLY = 3


def run_reprocess(request: ReprocessRequest, options: RunOptions) -> None:
    """Reprocess, as a flow where Prefect is wanted."""
    request = reprocessing.specified(request)
    began = time.monotonic()
    with shown_progress(quiet=options.quiet):
        if options.dry_run or not runs_as_flow(options.prefect):
            result = reprocessing.reprocess(request, dry_run=options.dry_run)
        else:
            from flows.reprocess import reprocess

            result = reprocess(**vars(request))
    seconds = time.monotonic() - began
    show(result, show_reprocessed, json=options.json)
    if not options.json:
        say_done(result, seconds)
    leave_partly(result)


TO_LOOK_AT = {"LOW_CONFIDENCE": "of low confidence", "OUT_OF_DOMAIN": "unlike the training set"}
"""Flags whose objects a person should look at, in words."""


def say_done(result: ClassificationResult, seconds: float) -> None:
    """Say how fast files were annotated, how many of all objects need a look, and how to look at them."""
    if not isinstance(result, FinishedClassification):
        return
    rows = sum(file.n_rows for file in result.files.values() if file.to_do)
    if rows:
        say(f"{rows:,} rows in {seconds:,.1f} s, {rows / seconds:,.0f} rows/s")
    counts = {words: result.summary.flags[name].count for name, words in TO_LOOK_AT.items()}
    told = " and ".join(f"{n:,} {words}" for words, n in counts.items() if n)
    say(f"To be looked at: {told or 'none'}, of {result.summary.n_rows:,} objects")
    if told:
        say_next("blr", "review", result.out, "--budget", 100)


def show_reprocessed(result: ReleaseResult) -> None:
    """Show what was done to a release, or would be."""
    unchanged = result.status == "nothing to do" or (result.status == "planned" and result.up_to_date)
    if unchanged:
        _show_unchanged(result)
    else:
        print_tables(*run_tables(result).values())
        for sentence in result.repeats:
            say(sentence[:1].upper() + sentence[1:])
    report = f"; {result.report}" if result.status == "done" and result.report else ""
    say(f"{result.out} {_state(result)}, by {result.model}{report}")


def _state(result: ReleaseResult) -> str:
    """Return in words in which state a release is."""
    if result.status == "planned":
        return "is up to date: nothing would be done" if result.up_to_date else "would be brought up to date"
    if result.status == "nothing to do":
        return "is up to date"
    if result.status == "waiting":
        return "waits: its inputs are still being written"
    return f"is at release {result.release}"


def _show_unchanged(result: ReleaseResult) -> None:
    """Show in a line that no file has changed, and which files are in trouble still."""
    if result.quarantined or result.deferred:
        print_tables(trouble_table(result))
    rows = result.summary.n_rows if result.summary else 0
    say(f"Nothing changed: {len(result.files):,} files, {rows:,} objects, as at release {result.release}")


def run_status(out: Path, *, json: bool) -> None:
    """Show the state of each file of a release; leave with the status of a run that quarantined some of them."""
    with output_folder(out, key="FOLDER", publish=False) as folder:
        status = read_status(folder)
    show(status, _show_status, json=json)
    if status.quarantined:
        raise typer.Exit(PARTLY)


def _show_status(status: FolderStatus) -> None:
    print_tables(status_table(status))
    troubled = f", {status.quarantined:,} quarantined" if status.quarantined else ""
    say(f"{status.out} is at release {status.release}{troubled}, by {status.model}")


def leave_partly(result: ClassificationResult) -> None:
    """Leave with the status of a run that could not annotate some of its files."""
    if result.status != "trial" and result.quarantined:
        raise typer.Exit(PARTLY)
