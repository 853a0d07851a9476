"""What `classify` and `reprocess` are asked for.  Annotations are evaluated here: see `flows.runs.parameters`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from flows.errors import UsageError
from flows.inputs.still_written import PATIENCE, QUIET
from flows.runs.parameters import STORE, THREADS, Parameter

if (
    TYPE_CHECKING
):  # the command line reads these annotations, and does not wait for what a specification needs
    from flows.specification.specification import Specification

__all__ = ["ClassifyRequest", "ReprocessRequest", "read_shares"]

VERIFY = Parameter(words="Hash inputs and outputs again, even where size and time are as they were.")


def read_shares(text: str) -> str | dict[str, float]:
    """Return "em", or the shares in a text such as early=0.3,late=0.7; UsageError where it is neither."""
    if text == "em":
        return text
    shares = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        try:
            shares[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise UsageError(
                f"--class-prior: got '{part}', expected em, or the share of each class as in early=0.3,late=0.7; "
                "names with commas go into [shift] of a specification"
            )
    return shares


@dataclass(frozen=True)
class ClassifyRequest:
    """Which catalogues are to be classified, by which model, and where the copies go."""

    catalogues: Annotated[
        list[str], Parameter(words="Files, folders, patterns or URLs.", metavar="CATALOG", positional=True)
    ]
    model: Annotated[
        str, Parameter(words="NAME, for its champion, or NAME@VERSION.", metavar="NAME[@VERSION]")
    ]
    store: Annotated[Path, STORE] = Path("models")
    out: Annotated[Path, Parameter(words="Folder of the annotated copies.", metavar="DIR", required=True)] = (
        Path("annotated")
    )
    specification: Annotated[
        "Specification | Path | None",
        Parameter(
            words="Target, flags and output other than those the model was trained with.",
            flag="--spec",
            metavar="FILE",
            asked=Path | None,
        ),
    ] = None
    class_prior: Annotated[
        Literal["em"] | dict[str, float] | None,
        Parameter(
            words="The classes' shares in these catalogues, where they are not the training's; em estimates them.",
            metavar="em|A=X,B=Y",
            asked=str | None,
            read=read_shares,
        ),
    ] = None
    output_format: Annotated[
        Literal["same", "parquet", "fits"] | None,
        Parameter(
            words="Of the copies: each input's own, or another; default: what the specification says.",
            flag="--format",
        ),
    ] = None
    overwrite: Annotated[
        bool, Parameter(words="Replace what another model or specification has left in the folder.")
    ] = False
    verify: Annotated[bool, VERIFY] = False
    limit: Annotated[
        int | None,
        Parameter(
            words="A trial: score that many rows of each catalogue, and write nothing.", least=1, metavar="N"
        ),
    ] = None
    threads: Annotated[int | None, THREADS] = None


@dataclass(frozen=True)
class ReprocessRequest:
    """Which release is to be brought up to date."""

    specification: Annotated[
        "Specification | Path",
        Parameter(
            words="Target, flags, output folder: the path of a specification, a TOML file; a form may hold it itself.",
            metavar="SPEC",
            positional=True,
            asked=Path,
        ),
    ]
    store: Annotated[Path, STORE] = Path("models")
    model: Annotated[
        str | None,
        Parameter(
            words="NAME or NAME@VERSION; default: the champion of the specification's name.",
            metavar="NAME[@VERSION]",
        ),
    ] = None
    out: Annotated[
        Path | None,
        Parameter(words="Folder of the annotated copies; default: the specification's.", metavar="DIR"),
    ] = None
    verify: Annotated[bool, VERIFY] = False
    threads: Annotated[int | None, THREADS] = None
    quiet_seconds: Annotated[
        float,
        Parameter(
            words="A file that changed less than so many seconds ago is still being written.",
            least=0,
            flag="--settle",
            metavar="S",
        ),
    ] = QUIET
    patience: Annotated[
        float,
        Parameter(
            words="Seconds to wait for such files, before they are left for the next run.",
            least=0,
            metavar="S",
        ),
    ] = PATIENCE
