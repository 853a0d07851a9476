"""The parameters of a command, defined once: fields of a request, options of a command, arguments of a function."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from flows.cli._options import PrintOptions, verb
from flows.orchestration.run_state import takes
from flows.runs.parameters import Parameter, request_fields


@dataclass(frozen=True)
class Request:
    """A request."""

    name: Annotated[str, Parameter(words="Who.", metavar="NAME", positional=True)]
    limit: Annotated[int | None, Parameter(words="How many.", least=1, flag="--most")] = None
    shares: Annotated[
        list[str],
        Parameter(
            words="Shares.", command_line_type=str, parse=lambda text: text.split(","), flag="--shares"
        ),
    ] = ()
    out: Annotated[Path, Parameter(words="Where.", written=True, required=True)] = Path("here")
    table: Annotated[Path | None, Parameter(words="Which.")] = None
    hidden: Annotated[int, Parameter(words="On a form alone.", flag=None)] = 3


@takes(Request)
def work(request: Request) -> Request:
    """Work."""
    return request


def typed(*words: str) -> Any:
    app, seen = typer.Typer(), []
    verb(app, "work", lambda request, options: seen.append((request, options)), Request, PrintOptions)
    result = CliRunner().invoke(app, words)
    return result, seen


def test_a_function_takes_the_fields() -> None:
    assert work("a", limit=2) == Request("a", 2)
    signature = inspect.signature(work)
    assert list(signature.parameters) == ["name", "limit", "shares", "out", "table", "hidden"]
    assert signature.parameters["out"].default == Path("here")
    assert signature.parameters["limit"].annotation.__metadata__[0].ge == 1
    assert signature.return_annotation is Request
    assert "Args:\n    name: Who.\n    limit: How many." in work.__doc__


def test_a_command_makes_a_request_of_what_is_typed() -> None:
    result, [(request, options)] = typed("a", "--most", "4", "--shares", "x,y", "--out", "there", "--json")
    assert result.exit_code == 0
    assert request == Request("a", 4, ["x", "y"], Path("there"))
    assert options == PrintOptions(json=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a"], "Missing option '--out'"),
        (["--out", "x"], "Missing argument"),
        (["a", "--out", "x", "--most", "0"], "greater than or equal to 1"),
        (["a", "--out", "x", "--hidden", "1"], "No such option"),
    ],
)
def test_impossible_values_are_refused(words: list[str], said: str) -> None:
    result, seen = typed(*words)
    assert result.exit_code == 2
    assert said in result.output
    assert not seen


def test_a_field_without_a_parameter_is_a_mistake() -> None:
    @dataclass(frozen=True)
    class Bare:
        name: str

    with pytest.raises(TypeError, match=r"Bare\.name: got no Parameter"):
        list(request_fields(Bare))


def test_only_output_paths_must_be_on_this_machine() -> None:
    result, seen = typed("a", "--out", "s3://bucket/out")
    assert "--out: got 's3://bucket/out', expected a path on this machine" in str(result.exception)
    assert not seen
    _, [(request, _)] = typed("a", "--out", "x", "--table", "s3://bucket/table")
    assert request.table == Path("s3://bucket/table")
