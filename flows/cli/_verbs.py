"""Commands made of requests: Typer's options from the fields, the help from their words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from flows.cli._options import on_this_machine
from flows.runs.parameters import Field, Parameter, request_fields

__all__ = ["verb"]

Request = TypeVar("Request")
Options = TypeVar("Options")


def verb(
    app: typer.Typer,
    request: Callable[..., Request],
    options: Callable[..., Options],
    name: str | None = None,
) -> Callable[[Callable[[Request, Options], None]], None]:
    """Register a command that takes a request and the command line's own options, both made of what is typed in.

    `options` is a frozen dataclass whose fields are annotated for Typer.
    """
    assert isinstance(request, type)  # noqa: S101  classes, which the types say as what they take
    assert isinstance(options, type)  # noqa: S101
    asked = [field for field in request_fields(request) if field.parameter.flag is not None]
    own = get_type_hints(options, include_extras=True)
    defaults = {field.name: field.default for field in fields(options)}

    def register(run: Callable[[Request, Options], None]) -> None:
        def command(**typed: Any) -> None:
            values = {field.name: _read(field.parameter, typed[field.name]) for field in asked}
            run(request(**values), options(**{key: typed[key] for key in own}))

        shown = [
            *(_shown(field.name, _annotated(field), _default(field)) for field in asked),
            *(_shown(key, hint, defaults[key]) for key, hint in own.items()),
        ]
        command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in shown}
        app.command(name or run.__name__, help=inspect.getdoc(run))(command)

    return register


def _shown(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(field: Field) -> Any:
    return inspect.Parameter.empty if field.parameter.required else field.default


def _read(parameter: Parameter, typed: Any) -> Any:
    return typed if parameter.read is None or typed is None else parameter.read(typed)


def _annotated(field: Field) -> Any:
    """Return the type that the command line asks for, with Typer's description of the field."""
    parameter = field.parameter
    kind = field.type if parameter.asked is None else parameter.asked
    written = Path in {kind, *get_args(kind)}
    shared: dict[str, Any] = {"help": parameter.words, "metavar": parameter.metavar}
    if written:
        shared["callback"] = on_this_machine
    if parameter.positional:
        return Annotated[kind, typer.Argument(**shared)]
    flag = parameter.flag or "--" + field.name.replace("_", "-")
    return Annotated[kind, typer.Option(flag, min=parameter.least, **shared)]
