"""The signature of a flow, built from the fields of a request; Prefect draws the form of the flow from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

from annotated_types import Ge
from pydantic import BeforeValidator

from flows.orchestration.run_state import failing_in_words
from flows.runs.parameters import Parameter, request_fields

__all__ = ["takes"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

TEXTS = list[Annotated[str, BeforeValidator(str)]]
"""A list of texts; other values in it, such as paths, are converted to texts."""


def takes(
    request: Callable[P, R], names: Mapping[str, object] | None = None
) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Return a decorator: a function that took a request takes the request's fields as its parameters instead.

    An error that the user can correct ends its run in one sentence.

    The signature, the annotations and the docstring of the decorated function show these parameters, with their types,
    defaults, bounds and descriptions.  `names` maps a name in the annotations, in quotes and not imported by the
    request's module, to what it stands for.
    """
    # `request` is a class; it is annotated as a Callable so that type checkers know the parameters of the result.
    assert isinstance(request, type)  # noqa: S101
    hints = get_type_hints(request, localns=dict(names or {}))
    fields = list(request_fields(request))

    def decorate(work: Callable[[R], T]) -> Callable[P, T]:
        @wraps(work)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return failing_in_words(lambda: work(request(*args, **kwargs)))

        parameters = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=field.default,
                annotation=_bounded(hints[field.name], field.parameter),
            )
            for field in fields
        ]
        result = get_type_hints(work)["return"]
        call.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": result}
        lines = (f"    {field.name}: {field.parameter.words}" for field in fields)
        call.__doc__ = "\n".join([f"{inspect.getdoc(work)}\n\nArgs:", *lines])
        return call

    return decorate


def _bounded(hint: Any, parameter: Parameter) -> Any:
    """Return the type that Prefect checks with pydantic: the annotated one with the parameter's bound."""
    if hint == list[str]:
        return TEXTS
    return hint if parameter.least is None else Annotated[hint, Ge(parameter.least)]
