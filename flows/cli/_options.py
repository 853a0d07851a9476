"""From what is typed to requests and options, and the options that only the command line has.

Annotations are evaluated here, as in the modules of requests: a command reads them.
"""

# ruff: noqa: PLC0415 -- `blr --help` is quick: what most commands do not need is imported when it is

import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.runs.parameters import Parameter, request_fields


def verb(app: typer.Typer, name: str, run: str, kind: str, options: str = "") -> None:
    """Register a command, which makes a request of what is typed, and calls a function with it and with the options.

    `kind` names a request of a folder of `flows`, such as "training.TrainRequest", whose docstring is the command's
    help; of a command without a request it is the help.  `options` are names of `Options`.  `run` names a function of
    `flows.cli`, such as "_models.run_train"; or work of `flows` on the request, then what shows people its result.
    Their modules are imported when the command runs.
    """
    request = None if " " in kind else _named(f"flows.{kind.replace('.', '.request.')}")
    typed, own = [] if request is None else list(_typed_fields(request)), options.split()

    def command(**values: Any) -> None:
        made = [] if request is None else [request(**{p.name: parse(values[p.name]) for p, parse in typed})]
        given = {option: values[option] for option in own}
        work, _, shown = run.partition(" then ")
        if not shown:
            _named(f"flows.cli.{run}")(*made, **given)
            return
        json = given.pop("json")
        result = _named(f"flows.{work}")(*made, **given)
        _named("flows.cli._printing.show")(result, _named(f"flows.cli.{shown}"), json=json)

    parameters = [parameter for parameter, _ in typed]
    for option in own:
        default = getattr(Options, option, inspect.Parameter.empty)
        parameters.append(_keyword(option, Options.__annotations__[option], default))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    words = kind if request is None else (inspect.getdoc(request) or "").partition("\n\n")[0]
    app.command(name, help=words)(command)


def _named(path: str) -> Any:
    """Return what a module has under a name."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _typed_fields(request: type) -> Iterator[tuple[inspect.Parameter, Callable[[Any], Any]]]:
    """Yield what Typer takes for each field that can be typed, and what makes the field's value of it."""
    for field, parameter in request_fields(request):
        if parameter.flag is not None:
            default = inspect.Parameter.empty if parameter.required else field.default
            parse = parameter.parse
            yield (
                _keyword(field.name, _annotated(field, parameter), default),
                lambda v, parse=parse: v if parse is None or v is None else parse(v),  # type: ignore[misc]
            )


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotated(field: inspect.Parameter, parameter: Parameter) -> Any:
    """Return the type of a field on the command line, annotated with Typer's option or argument."""
    kind = field.annotation if parameter.command_line_type is None else parameter.command_line_type
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


OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="File to write to; default: print it.", callback=_on_this_machine
    ),
]


class Options:
    """The options that only the command line has, by the names of the parameters."""

    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on standard output.")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")] = (
        False
    )
    prefect: Annotated[
        bool | None,
        typer.Option(
            "--prefect/--direct",
            help="Run as a flow of Prefect, or without Prefect: the same work, the same files. Default: as a flow "
            "where a Prefect server is configured or running.",
            show_default=False,
        ),
    ] = None
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", callback=_say_start, help="Print few lines instead of a progress bar."),
    ] = False
    store: Annotated[
        Path,
        typer.Option("--store", metavar="DIR", help="Folder of the model store.", callback=_on_this_machine),
    ] = Path("models")
    # Of a training, and of a promotion without a question to a person
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print the tables of the report too, not only its answers.")
    ] = False
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
    # Of commands without a request
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for everything that the demonstration writes.",
            callback=_on_this_machine,
        ),
    ] = Path("blr-demo")
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of the outputs of `classify` or `reprocess`.",
            callback=_here_or_in_a_store,
        ),
    ]
    reference: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="Default version: the champion.")]
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File of the deployments; default: prefect.yaml in this folder, or else the one of this package.",
        ),
    ] = Path("prefect.yaml")
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Number of runs at the same time.")] = 1
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=1,
            max=65535,
            help="Port on 127.0.0.1; default: 4200, or another port if that one is in use.",
        ),
    ] = None
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True
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
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Name of the document whose schema is printed; default: list the names."
        ),
    ] = None
