"""Each option is written once: help, form and signature show the same words, bounds and defaults."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from prefect.utilities.callables import parameter_schema

from flows.classify import classify
from flows.cli.app import Options, application
from flows.promote import promote
from flows.reprocess import reprocess
from flows.request import (
    ClassifyRequest,
    ExplainRequest,
    InitRequest,
    MapRequest,
    PromoteRequest,
    ReprocessRequest,
    ReviewRequest,
    TrainRequest,
    request_fields,
)
from flows.review import review
from flows.train import train

FLOWS = {
    "train": (TrainRequest, train),
    "classify": (ClassifyRequest, classify),
    "reprocess": (ReprocessRequest, reprocess),
    "review": (ReviewRequest, review),
    "promote": (PromoteRequest, promote),
}
REQUESTS = {name: request for name, (request, _) in FLOWS.items()} | {
    "explain": ExplainRequest,
    "map": MapRequest,
    "init": InitRequest,
}
OF_INSPECT = {"inspected", "label", "limit", "table", "json"}
COMMANDS = {name: [*request_fields(request)] for name, request in REQUESTS.items()} | {
    "inspect": [(field, words) for field, words in request_fields(Options) if field.name in OF_INSPECT]
}


def command(name: str) -> Any:
    group = typer.main.get_command(application())
    return (group.commands["models"] if name == "promote" else group).commands[name]


def number(text: str) -> Any:
    return None if text is None else float(text)


@pytest.mark.parametrize("name", FLOWS)
def test_the_form_shows_the_request(name: str) -> None:
    request, flow = FLOWS[name]
    schema = parameter_schema(flow.fn).model_dump_for_openapi()["properties"]
    asked = list(request_fields(request))
    assert list(schema) == [field.name for field, _ in asked]
    for place, (field, parameter) in enumerate(asked):
        shown = schema[field.name]
        assert shown["description"] == parameter.words
        assert shown["position"] == place
        least = [part["minimum"] for part in (shown, *shown.get("anyOf", ())) if "minimum" in part]
        assert least == ([] if parameter.least is None else [parameter.least])
        if field.default is inspect.Parameter.empty:
            assert "default" not in shown
        else:
            default = str(field.default) if isinstance(field.default, Path) else field.default
            assert shown.get("default") == default
    assert flow.parameters.required == [f.name for f, _ in asked if f.default is inspect.Parameter.empty]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_the_request(name: str) -> None:
    options = {option.name: option for option in command(name).params}
    for field, parameter in COMMANDS[name]:
        assert re.fullmatch(r"[A-Z].*\.", parameter.words), field.name
        if parameter.flag is None:
            assert field.name not in options
            continue
        option = options[field.name]
        assert option.help == parameter.words
        assert number(getattr(option, "min", None)) == number(parameter.least)
        assert option.required == (parameter.required or field.default is inspect.Parameter.empty)
        if not option.required:
            assert option.default == field.default
