"""The parameters of a command (`train`, `classify`, ...), each defined once, as a field of a request.

A request is a frozen dataclass.  Each field has a `Parameter`, which describes it and bounds it: in its annotation or,
with its default, by `option`.  `flows.cli` turns the fields into options of the command line.
`flows.orchestration.run_page` turns them into the signature of a flow, from which Prefect draws its form.

A module of requests has no `from __future__ import annotations`, so Python evaluates its annotations when it is
imported.  The command line reads them as they are.  A type in quotes, such as "Specification | Path", stays a text
there, so that `blr --help` need not import what a specification needs.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
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
    least, most
        Smallest and largest value allowed; None for no bound.
    flag
        Flag on the command line, or several.  "" means the field's name with two hyphens in front; None means that the
        command line does not have the parameter, and only the form and the signature do.
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
    most: float | None = None
    flag: str | None = ""
    positional: bool = False
    command_line_type: Any = None
    parse: Callable[[Any], Any] | None = None
    written: bool = False
    published: bool = False
    required: bool = False


def option(default: Any, words: str | Parameter, metavar: str | None = None, **form: Any) -> Any:
    """Return a field of a request with its default, and with the `Parameter` of these words and this form."""
    parameter = words if isinstance(words, Parameter) else Parameter(words, metavar, **form)
    return field(default=default, metadata={"parameter": parameter})


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
LIMIT = Parameter("Look at this many rows only.", "N", least=1)
TABLE = Parameter("Name or number of the table, in a file with several.", "NAME")
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
    for asked in fields(request):
        annotation: Any = asked.type
        parameter = asked.metadata.get("parameter")
        if parameter is None and hasattr(annotation, "__metadata__"):
            parameter, annotation = annotation.__metadata__[0], annotation.__origin__
        if not isinstance(parameter, Parameter):
            raise TypeError(f"{request.__name__}.{asked.name}: got no Parameter, expected option(...)")
        default = inspect.Parameter.empty if asked.default is MISSING else asked.default
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        yield inspect.Parameter(asked.name, kind, default=default, annotation=annotation), parameter
