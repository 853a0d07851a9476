"""From what is typed to requests and options, and the options that only the command line has.

Annotations are evaluated here, as in the modules of requests: a command reads the fields of its dataclasses.
"""

# ruff: noqa: PLC0415 -- `blr --help` is quick: what most commands do not need is imported when it is

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.runs.parameters import Field, Parameter, request_fields


def verb(app: typer.Typer, name: str, run: str | Callable[..., None], *parts: type) -> None:
    """Register a command, which makes each of its parts of what is typed and calls a function with them.

    A part is a request, or a frozen dataclass of options whose fields are annotated for Typer.  The first part's
    docstring is the command's help.  `run` is the function, or names one of `flows.cli`, such as "_models.run_train":
    its module is imported when the command runs.
    """
    typed = {part: list(_typed_fields(part)) for part in parts}

    def command(**values: Any) -> None:
        made = [part(**{p.name: parse(values[p.name]) for p, parse in typed[part]}) for part in parts]
        _function(run)(*made)

    parameters = [parameter for some in typed.values() for parameter, _ in some]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command(name, help=(inspect.getdoc(parts[0]) or "").partition("\n\n")[0])(command)


def _function(run: str | Callable[..., None]) -> Callable[..., Any]:
    if not isinstance(run, str):
        return run
    module, _, name = run.partition(".")
    function: Callable[..., Any] = getattr(import_module(f"flows.cli.{module}"), name)
    return function


def _typed_fields(part: Any) -> Iterator[tuple[inspect.Parameter, Callable[[Any], Any]]]:
    """Yield what Typer takes for each field that can be typed, and what makes the field's value of it."""
    if any(isinstance(m, Parameter) for m in getattr(fields(part)[0].type, "__metadata__", ())):
        for field in request_fields(part):
            if field.parameter.flag is not None:
                default = inspect.Parameter.empty if field.parameter.required else field.default
                parse = field.parameter.parse
                yield (
                    _keyword(field.name, _annotated(field), default),
                    lambda v, parse=parse: v if parse is None or v is None else parse(v),  # type: ignore[misc]
                )
        return
    for own in fields(part):
        default = inspect.Parameter.empty if own.default is MISSING else own.default
        yield _keyword(own.name, own.type, default), lambda value: value


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotated(field: Field) -> Any:
    """Return the type of a field on the command line, annotated with Typer's option or argument."""
    parameter = field.parameter
    kind = field.type if parameter.command_line_type is None else parameter.command_line_type
    shared: dict[str, Any] = {"help": parameter.words, "metavar": parameter.metavar}
    if parameter.written:
        shared["callback"] = _on_this_machine
    if parameter.published:
        shared["callback"] = _here_or_in_a_store
    if parameter.positional:
        return Annotated[kind, typer.Argument(**shared)]
    flag = parameter.flag or "--" + field.name.replace("_", "-")
    return Annotated[kind, typer.Option(flag, min=parameter.least, **shared)]


def _on_this_machine(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of what is written; UsageError where it is a URL, before anything is started."""
    if path is not None and ":/" in str(path):
        from flows.runs.allowed_roots import check_local

        check_local(path, key=_key(parameter))
    return path


def _here_or_in_a_store(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the folder of a release; UsageError where none can be published there, before anything is started."""
    if path is not None and ":/" in str(path):
        from flows.runs.release_store import check_store

        check_store(path, key=_key(parameter))
    return path


def _key(parameter: typer.CallbackParam) -> str:
    name = parameter.opts[0]
    return name if name.startswith("-") else name.upper()


def _say_start(context: typer.Context, quiet: bool) -> bool:  # noqa: FBT001  Typer passes it so
    """Print at once what starts, since the libraries take seconds to load."""
    if not quiet and not context.resilient_parsing:
        sys.stderr.write(f"blr {context.info_name}: loading the numerical libraries\n")
        sys.stderr.flush()
    return quiet


Store = Annotated[
    Path,
    typer.Option("--store", metavar="DIR", help="Folder of the model store.", callback=_on_this_machine),
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="File to write to; default: print it.", callback=_on_this_machine
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on standard output.")
]
Prefect = Annotated[
    bool | None,
    typer.Option(
        "--prefect/--direct",
        help="Run as a flow of Prefect, or without Prefect: the same work, the same files. Default: as a flow where "
        "a Prefect server is configured or running.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", callback=_say_start, help="Print few lines instead of a progress bar."),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="N",
        min=1,
        max=65535,
        help="Port on 127.0.0.1; default: 4200, or another port if that one is in use.",
    ),
]


@dataclass(frozen=True)
class PrintOptions:
    """Options of a command that only reads and prints."""

    json: AsJson = False


@dataclass(frozen=True)
class WriteOptions:
    """Options of a command that writes and is not a flow."""

    dry_run: DryRun = False
    json: AsJson = False


@dataclass(frozen=True)
class ReviewOptions:
    """Options of a quick command that may run as a flow."""

    dry_run: DryRun = False
    prefect: Prefect = None
    json: AsJson = False


@dataclass(frozen=True)
class RunOptions(ReviewOptions):
    """Options of a long command that may run as a flow."""

    quiet: Quiet = False


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """Options of a training: those of a run, and how much is printed."""

    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print the tables of the report too, not only its answers.")
    ] = False


@dataclass(frozen=True)
class PromoteOptions:
    """Options of a promotion without a question to a person."""

    if_better: Annotated[
        bool,
        typer.Option(
            "--if-better",
            help="Promote only if it is better on objects that neither model has seen, and its verdict is not red.",
        ),
    ] = False
    reject: Annotated[
        bool, typer.Option("--reject", help="Reject the version, with a reason in --why; the champion stays.")
    ] = False
    undo: Annotated[
        bool,
        typer.Option(
            "--undo", help="Undo the last promotion of NAME: the previous champion takes its place again."
        ),
    ] = False
    dry_run: DryRun = False
    json: AsJson = False


# Commands without a request: their options are all that they take.


@dataclass(frozen=True)
class DemoOptions:
    """Classify the galaxies of OpenNGC: catalogues, two models, reports, annotated copies."""

    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for everything that the demonstration writes.",
            callback=_on_this_machine,
        ),
    ] = Path("blr-demo")
    prefect: Prefect = None
    json: AsJson = False
    quiet: Quiet = False


@dataclass(frozen=True)
class StatusOptions:
    """List the files of a release: which are current, stale or quarantined, since when and why."""

    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of the outputs of `classify` or `reprocess`.",
            callback=_here_or_in_a_store,
        ),
    ]
    json: AsJson = False


@dataclass(frozen=True)
class ListOptions:
    """List the models of a store, the champion of each name marked."""

    store: Store = Path("models")
    json: AsJson = False


@dataclass(frozen=True)
class ShowOptions:
    """Show a model: its candidates, how good it is, where it came from."""

    reference: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="Default version: the champion.")]
    store: Store = Path("models")
    json: AsJson = False


@dataclass(frozen=True)
class ServeOptions:
    """Run the deployments of this folder at their times, with a server and its pages, until Ctrl-C."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File of the deployments; default: prefect.yaml in this folder, or else the one of this package.",
        ),
    ] = Path("prefect.yaml")
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Number of runs at the same time.")] = 1
    port: Port = None


@dataclass(frozen=True)
class UiOptions:
    """Show runs and their results: Prefect's pages of the database in which `blr` keeps them."""

    opened: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True
    port: Port = None


@dataclass(frozen=True)
class AutomateOptions:
    """Alert the team when a scheduled run failed, is late, or released nothing for days."""

    notify: Annotated[
        str,
        typer.Option(
            metavar="BLOCK", help="Block that sends the alerts, by its name on the server's page Blocks."
        ),
    ] = "blr"
    idle_days: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Days without a release after which an alert is sent; 0: never."
        ),
    ] = 3
    deployment: Annotated[
        list[str] | None,
        typer.Option(metavar="FLOW/NAME", help="Deployment to watch; default: all that have a schedule."),
    ] = None
    dry_run: DryRun = False
    json: AsJson = False


@dataclass(frozen=True)
class SchemaOptions:
    """Print the JSON Schema of what a command prints with --json, or of a file that it leaves."""

    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Name of the document whose schema is printed; default: list the names."
        ),
    ] = None
