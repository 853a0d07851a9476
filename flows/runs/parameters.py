"""The parameters of a verb, written once: a request's fields, from which command line, form and signature are made.

A request is a frozen dataclass; each field is annotated with its type and a `Parameter`, which says what it is for and
what it may be.  `flows.cli` makes options of them, `flows.orchestration.signature` the signature of a flow, from which
Prefect draws its form.  A module of requests evaluates its annotations, without `from __future__ import annotations`:
so the command line reads them without importing what they name.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any

__all__ = ["STORE", "THREADS", "Field", "Parameter", "request_fields"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """What people read of a parameter, and its bound.

    Attributes
    ----------
    words
        What it is for, in a sentence; the same everywhere.
    least
        The smallest number that it may be.
    flag
        Its name on the command line, where that is not the field's with two hyphens; `None` there for a form alone.
    metavar
        What stands for its value in `--help`; of a positional argument its name.
    positional
        Whether the command line takes it without a flag.
    asked
        The type that the command line asks for, where the field's own cannot be typed in.
    read
        Makes the field's value of what was typed in, where that is of another type; UsageError where it cannot.
    required
        Whether the command line wants it, although it has a default.
    """

    words: str
    least: float | None = None
    flag: str | None = ""
    metavar: str | None = None
    positional: bool = False
    asked: Any = None
    read: Callable[[str], Any] | None = None
    required: bool = False


STORE = Parameter(words="Folder of the model store.", metavar="DIR")
THREADS = Parameter(words="Threads of the numerics; default: the cores of the machine.", least=1, metavar="N")


@dataclass(frozen=True)
class Field:
    """A field of a request: its name, type as annotated, default (`inspect.Parameter.empty` for none), `Parameter`."""

    name: str
    type: Any
    default: Any
    parameter: Parameter


def request_fields(request: type) -> Iterator[Field]:
    """Yield the fields of a request, in their order.

    Raises
    ------
    TypeError
        If a field has no `Parameter`: a mistake of ours.
    """
    for field in fields(request):
        annotated: Any = field.type
        parameters = [m for m in getattr(annotated, "__metadata__", ()) if isinstance(m, Parameter)]
        if not parameters:
            raise TypeError(
                f"{request.__name__}.{field.name}: got no Parameter, expected Annotated[..., Parameter(...)]"
            )
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield Field(field.name, annotated.__origin__, default, parameters[0])
