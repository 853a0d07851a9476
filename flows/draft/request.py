"""What `inspect` and `init` are asked for.  Annotations are evaluated here: see `flows.runs.parameters`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from flows.runs.parameters import Parameter

LIMIT = Parameter(words="Look at this many rows only.", least=1, metavar="N")
TABLE = Parameter(words="Name or number of the table, in a file with several.", metavar="NAME")


@dataclass(frozen=True)
class InspectRequest:
    """Say what a file holds: a catalogue's columns and what looks odd in them, or a model."""

    file: Annotated[
        str, Parameter(words="A catalogue, also at a URL, or a model file.", metavar="FILE", positional=True)
    ]
    label: Annotated[
        str | None,
        Parameter(words="Column of the class: look for columns that give it away.", metavar="COLUMN"),
    ] = None
    limit: Annotated[int | None, LIMIT] = None
    table: Annotated[str | None, TABLE] = None


@dataclass(frozen=True)
class InitRequest:
    """Write a commented specification for a labelled catalogue, which trains as it is."""

    file: Annotated[
        str, Parameter(words="A labelled catalogue, also at a URL.", metavar="CATALOG", positional=True)
    ]
    label: Annotated[str, Parameter(words="Column of the class.", metavar="COLUMN")]
    out: Annotated[
        Path | None,
        Parameter(
            words="File to write the specification to, instead of printing it.", metavar="FILE", written=True
        ),
    ] = None
    overwrite: Annotated[bool, Parameter(words="Replace an existing file.")] = False
    limit: Annotated[int | None, LIMIT] = None
    table: Annotated[str | None, TABLE] = None
    columns: Annotated[
        Path | None,
        Parameter(
            words="TOML file with more names of columns (docs/column-names.md); default: blr-columns.toml in "
            "the folder of --out, or in this folder.",
            metavar="FILE",
        ),
    ] = None
