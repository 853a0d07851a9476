"""Options of the command line: those that several commands have, those that name what is written, and long ones."""

# ruff: noqa: PLC0415 -- `blr --help` is quick: what most commands do not need is imported when it is

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AnnotatedFolder",
    "ClassPrior",
    "ColumnNamesFile",
    "DemoFolder",
    "Direct",
    "DryRun",
    "Json",
    "Limit",
    "LookLimit",
    "OutFile",
    "OutFolder",
    "Overwrite",
    "Port",
    "Quiet",
    "ReleaseFolder",
    "Store",
    "Table",
    "Threads",
    "on_this_machine",
]


def on_this_machine(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of what is written; UsageError where it is a URL, before anything is started."""
    if path is not None and ":/" in str(path):
        from flows.runs.allowed_roots import check_local

        name = parameter.opts[0]
        check_local(path, key=name if name.startswith("-") else name.upper())
    return path


Store = Annotated[
    Path,
    typer.Option("--store", metavar="DIR", help="Folder of the model store.", callback=on_this_machine),
]
OutFolder = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Folder of the annotated copies.", callback=on_this_machine),
]
ReleaseFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Default: the specification's folder.", callback=on_this_machine
    ),
]
AnnotatedFolder = Annotated[
    Path, typer.Argument(metavar="OUT", help="Folder of annotated copies.", callback=on_this_machine)
]
DemoFolder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where everything goes.", callback=on_this_machine)
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="Write it here instead of printing it.", callback=on_this_machine
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on standard output.")
]
Direct = Annotated[bool, typer.Option("--direct", help="Run without Prefect: the same work, the same files.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="A trial: N rows, nothing written.")
]
LookLimit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Look at N rows only.")]
ClassPrior = Annotated[
    str | None,
    typer.Option("--class-prior", metavar="em|A=X,B=Y", help="The classes' shares here; em: estimate them."),
]
ColumnNamesFile = Annotated[
    Path | None,
    typer.Option(
        "--columns",
        metavar="FILE",
        help="Names of columns beside those we know, in TOML (docs/column-names.md); "
        "default: blr-columns.toml beside --out, or here.",
    ),
]
Table = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="Of a file with several: its name or number.")
]


def _say_start(context: typer.Context, quiet: bool) -> bool:  # noqa: FBT001  Typer passes it so
    """Say at once what starts: the libraries alone take seconds to load, on a busy machine many."""
    if not quiet and not context.resilient_parsing:
        sys.stderr.write(f"blr {context.info_name}: loading the numerical libraries\n")
        sys.stderr.flush()
    return quiet


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", callback=_say_start, help="Lines instead of a progress bar, and few of them."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", min=1, help="Default: all cores.")]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="N", min=1, max=65535, help="On 127.0.0.1; default: 4200, if free."),
]
