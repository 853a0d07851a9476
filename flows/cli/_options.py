"""Options of the command line: those that several commands have, those that name what is written, and long ones."""

# ruff: noqa: PLC0415 -- `blr --help` is quick: what most commands do not need is imported when it is

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AsJson",
    "AutomateOptions",
    "DemoFolder",
    "DryRun",
    "IdleDays",
    "Notify",
    "OutFile",
    "Port",
    "Prefect",
    "PrintOptions",
    "PromoteOptions",
    "Quiet",
    "ReviewOptions",
    "RunOptions",
    "Store",
    "TrainOptions",
    "Watched",
    "WriteOptions",
    "here_or_in_a_store",
    "on_this_machine",
]


def on_this_machine(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of what is written; UsageError where it is a URL, before anything is started."""
    if path is not None and ":/" in str(path):
        from flows.runs.allowed_roots import check_local

        name = parameter.opts[0]
        check_local(path, key=name if name.startswith("-") else name.upper())
    return path


def here_or_in_a_store(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the folder of a release; UsageError where none can be published there, before anything is started."""
    if path is not None and ":/" in str(path):
        from flows.runs.release_store import check_store

        name = parameter.opts[0]
        check_store(path, key=name if name.startswith("-") else name.upper())
    return path


Store = Annotated[
    Path,
    typer.Option("--store", metavar="DIR", help="Folder of the model store.", callback=on_this_machine),
]
DemoFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for everything that the demonstration writes.",
        callback=on_this_machine,
    ),
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="File to write to; default: print it.", callback=on_this_machine
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on standard output.")
]
Prefect = Annotated[
    bool | None,
    typer.Option(
        "--prefect/--direct",
        help="Run as a flow of Prefect, or without Prefect: the same work, the same files. Default: as a flow where "
        "a Prefect server is configured or running.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")]


def _say_start(context: typer.Context, quiet: bool) -> bool:  # noqa: FBT001  Typer passes it so
    """Print at once what starts, since the libraries take seconds to load."""
    if not quiet and not context.resilient_parsing:
        sys.stderr.write(f"blr {context.info_name}: loading the numerical libraries\n")
        sys.stderr.flush()
    return quiet


Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", callback=_say_start, help="Print few lines instead of a progress bar."),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="N",
        min=1,
        max=65535,
        help="Port on 127.0.0.1; default: 4200, or another port if that one is in use.",
    ),
]

Notify = Annotated[
    str,
    typer.Option(
        "--notify",
        metavar="BLOCK",
        help="Block that sends the alerts, by its name on the server's page Blocks.",
    ),
]
IdleDays = Annotated[
    int,
    typer.Option(
        "--idle-days",
        metavar="N",
        min=0,
        help="Days without a release after which an alert is sent; 0: never.",
    ),
]
Watched = Annotated[
    list[str] | None,
    typer.Option(
        "--deployment", metavar="FLOW/NAME", help="Deployment to watch; default: all that have a schedule."
    ),
]


@dataclass(frozen=True)
class PrintOptions:
    """Options of a command that only reads and prints."""

    json: AsJson = False


@dataclass(frozen=True)
class WriteOptions:
    """Options of a command that writes and is not a flow."""

    dry_run: DryRun = False
    json: AsJson = False


@dataclass(frozen=True)
class ReviewOptions:
    """Options of a quick command that may run as a flow."""

    dry_run: DryRun = False
    prefect: Prefect = None
    json: AsJson = False


@dataclass(frozen=True)
class RunOptions:
    """Options of a long command that may run as a flow."""

    dry_run: DryRun = False
    prefect: Prefect = None
    json: AsJson = False
    quiet: Quiet = False


@dataclass(frozen=True)
class AutomateOptions:
    """Options of the automations that alert a team."""

    notify: str
    idle_days: int
    deployment: tuple[str, ...]
    dry_run: bool
    json: bool


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """Options of a training: those of a run, and how much is printed."""

    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print the tables of the report too, not only its answers.")
    ] = False


@dataclass(frozen=True)
class PromoteOptions:
    """Options of a promotion without a question to a person."""

    if_better: Annotated[
        bool,
        typer.Option(
            "--if-better",
            help="Promote only if it is better on objects that neither model has seen, and its verdict is not red.",
        ),
    ] = False
    reject: Annotated[
        bool, typer.Option("--reject", help="Reject the version, with a reason in --why; the champion stays.")
    ] = False
    undo: Annotated[
        bool,
        typer.Option(
            "--undo", help="Undo the last promotion of NAME: the previous champion takes its place again."
        ),
    ] = False
    dry_run: DryRun = False
    json: AsJson = False
