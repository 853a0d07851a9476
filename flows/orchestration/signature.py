"""The signature of a flow, made of the fields of a request: Prefect draws its form from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

from annotated_types import Ge
from pydantic import BeforeValidator

from flows.runs.parameters import Parameter, request_fields

__all__ = ["takes"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

TEXTS = list[Annotated[str, BeforeValidator(str)]]
"""A list of texts, which may be given as paths."""


def takes(
    request: Callable[P, R], names: Mapping[str, object] | None = None
) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Give a function of a request the parameters of that request's fields, in its signature and its docstring.

    `names` are those that the annotations mention and that their module does not import.
    """
    assert isinstance(request, type)  # noqa: S101  a class, which the type says as what it takes
    hints = get_type_hints(request, localns=dict(names or {}))
    fields = list(request_fields(request))

    def decorate(work: Callable[[R], T]) -> Callable[P, T]:
        @wraps(work)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return work(request(*args, **kwargs))

        shown = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=field.default,
                annotation=_checked(hints[field.name], field.parameter),
            )
            for field in fields
        ]
        result = get_type_hints(work)["return"]
        call.__signature__ = inspect.Signature(shown, return_annotation=result)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in shown} | {"return": result}
        lines = (f"    {field.name}: {field.parameter.words}" for field in fields)
        call.__doc__ = "\n".join([f"{inspect.getdoc(work)}\n\nArgs:", *lines])
        return call

    return decorate


def _checked(hint: Any, parameter: Parameter) -> Any:
    """Return the type that pydantic checks, with the parameter's bound."""
    if hint == list[str]:
        return TEXTS
    return hint if parameter.least is None else Annotated[hint, Ge(parameter.least)]
