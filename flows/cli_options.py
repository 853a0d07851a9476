"""Options that several commands of the command line have, with the same name and the same meaning in each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Direct", "DryRun", "Json", "Limit", "Overwrite", "Port", "Quiet", "Store", "Table", "Threads"]

Store = Annotated[Path, typer.Option("--store", metavar="DIR", help="Folder of the model store.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on standard output.")
]
Direct = Annotated[bool, typer.Option("--direct", help="Run without Prefect: the same work, the same files.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="A trial: N rows, nothing written.")
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
