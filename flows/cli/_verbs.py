"""Commands built from requests: each field becomes an option of Typer, and its description becomes the help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from flows.cli._options import here_or_in_a_store, on_this_machine
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
    """Return a decorator that registers a function of a request and of options as a command of `app`.

    The command parses what was typed into a `request` and into `options`, and calls the function with both.  `options`
    is a frozen dataclass of what only the command line has, such as `--json`; its fields are annotated for Typer.
    `name` is the command's name, by default the function's.
    """
    # Both are classes; they are annotated as Callables so that type checkers know what they return.
    assert isinstance(request, type)  # noqa: S101
    assert isinstance(options, type)  # noqa: S101
    requested = [field for field in request_fields(request) if field.parameter.flag is not None]
    own = get_type_hints(options, include_extras=True)
    defaults = {field.name: field.default for field in fields(options)}

    def register(run: Callable[[Request, Options], None]) -> None:
        def command(**typed: Any) -> None:
            values = {field.name: _parsed(field.parameter, typed[field.name]) for field in requested}
            run(request(**values), options(**{key: typed[key] for key in own}))

        parameters = [
            *(_keyword(field.name, _annotated(field), _default(field)) for field in requested),
            *(_keyword(key, hint, defaults[key]) for key, hint in own.items()),
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(name or run.__name__, help=inspect.getdoc(run))(command)

    return register


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(field: Field) -> Any:
    return inspect.Parameter.empty if field.parameter.required else field.default


def _parsed(parameter: Parameter, typed: Any) -> Any:
    return typed if parameter.parse is None or typed is None else parameter.parse(typed)


def _annotated(field: Field) -> Any:
    """Return the type of a field on the command line, annotated with Typer's option or argument."""
    parameter = field.parameter
    kind = field.type if parameter.command_line_type is None else parameter.command_line_type
    shared: dict[str, Any] = {"help": parameter.words, "metavar": parameter.metavar}
    if parameter.written:
        shared["callback"] = on_this_machine
    if parameter.published:
        shared["callback"] = here_or_in_a_store
    if parameter.positional:
        return Annotated[kind, typer.Argument(**shared)]
    flag = parameter.flag or "--" + field.name.replace("_", "-")
    return Annotated[kind, typer.Option(flag, min=parameter.least, **shared)]
