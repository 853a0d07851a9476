"""The parameters of a command (`train`, `classify`, ...), each defined once, as a field of a request.

A request is a frozen dataclass.  Each field is annotated with its type and a `Parameter`, which describes it and bounds
it.  `flows.cli` turns the fields into options of the command line.  `flows.orchestration.run_page` turns them into the
signature of a flow, from which Prefect draws its form.

A module of requests has no `from __future__ import annotations`, so Python evaluates its annotations when it is
imported.  The command line reads them as they are.  A type in quotes, such as "Specification | Path", stays a text
there, so that `blr --help` need not import what a specification needs.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from itertools import pairwise
from typing import Any

from flows.errors import UsageError


@dataclass(frozen=True)
class Parameter:
    """The description of a parameter, its bound, and its form on the command line.

    Attributes
    ----------
    words
        One sentence on what the parameter is for; `--help`, the form and the docstring all show it.
    metavar
        Placeholder for the value in `--help`; None for Typer's own.
    least
        Smallest value allowed; None for no bound.
    flag
        Flag on the command line.  "" means the field's name with two hyphens in front; None means that the command
        line does not have the parameter, and only the form and the signature do.
    positional
        Whether the command line takes the value by its position, without a flag.
    command_line_type
        Type of the value on the command line, where a person cannot type the field's own type; None for the same type.
    parse
        Function that turns the typed value into the field's value; None where they are the same.  It raises UsageError
        for a value that it cannot read.
    written
        Whether the value is a path that is written to, which has to be on this machine.
    published
        Whether the value is the folder of a release, which may be in an object store.
    required
        Whether the command line requires the value although the field has a default.
    """

    words: str
    metavar: str | None = None
    _: KW_ONLY
    least: float | None = None
    flag: str | None = ""
    positional: bool = False
    command_line_type: Any = None
    parse: Callable[[str], Any] | None = None
    written: bool = False
    published: bool = False
    required: bool = False


STORE = Parameter("Folder of the model store.", "DIR", written=True)
STORE_OF_COPIES = Parameter(
    "Folder of the model store; default: the one that the copies' manifest names, or else models.",
    "DIR",
    written=True,
)
OUTPUT_FOLDER = Parameter("Folder that `blr classify` has written.", "OUT", positional=True, published=True)
IDENTIFIER = Parameter(
    "Column with the names of the objects; default: the one that looks like it.", "COLUMN", flag="--id"
)
THREADS = Parameter("Threads for the computation; default: the cores of the machine.", "N", least=1)
ENGINE = Parameter(
    "Where the work is done: threads, local:N for N processes of this machine, tcp://HOST:PORT of a Dask "
    "scheduler, or its scheduler file; default: the specification's, or else threads.",
    "ENGINE",
)


def read_edges(text: str) -> list[float]:
    """Return the numbers in a text such as 16,18,20; UsageError where they do not ascend."""
    try:
        edges = [float(part) for part in text.split(",")]
    except ValueError:
        edges = []
    if not edges or any(a >= b for a, b in pairwise(edges)):
        raise UsageError(f"--edges: got '{text}', expected numbers in ascending order, as in 16,18,20")
    return edges


BINS = Parameter("Number of bins of the expression, each with the same number of objects.", "N", least=2)
EDGES = Parameter(
    "Edges between the bins, instead of their number.",
    "A,B,...",
    command_line_type=str | None,
    parse=read_edges,
)


def request_fields(request: type) -> Iterator[tuple[inspect.Parameter, Parameter]]:
    """Yield the fields of a request as parameters of a function, in their order, each with its description.

    TypeError if a field has no `Parameter`: a bug of ours.
    """
    for field in fields(request):
        annotated: Any = field.type
        parameters = [m for m in getattr(annotated, "__metadata__", ()) if isinstance(m, Parameter)]
        if not parameters:
            raise TypeError(
                f"{request.__name__}.{field.name}: got no Parameter, expected Annotated[..., Parameter(...)]"
            )
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = inspect.Parameter(field.name, kind, default=default, annotation=annotated.__origin__)
        yield own, parameters[0]
