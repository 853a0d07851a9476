"""The command line: `blr train`, `blr classify` and the others, and how what is typed becomes a request.

What a command needs is imported when it is called: `blr --help` is quick and imports no Prefect.
Annotations are evaluated here, as in the modules of requests: a command reads them.
"""

# ruff: noqa: FBT001, FBT002, FBT003, PLC0415, RUF009 -- switches have such defaults; imports wait for their command

import gc
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.errors import UsageError
from flows.request import LIMIT, STORE, TABLE, Parameter, option, request_fields
from flows.runs.progress import terminable, write_error

INTERRUPTED = 130

HELP = {
    "demo": "Classify the galaxies of OpenNGC: catalogues, two models, reports, annotated copies.",
    "status": "List the files of a release: which are current, stale or quarantined, since when and why.",
    "inspect": "Say what a file holds: a catalogue's columns and what looks odd in them, or a model.",
    "models list": "List the models of a store, the champion of each name marked.",
    "models show": "Show a model: its candidates, how good it is, where it came from.",
    "release verify": "Verify the folder of a release by itself: every byte, and who signed it.",
    "serve": "Run the deployments of this folder at their times, with a server and its pages, until Ctrl-C.",
    "ui": "Show runs and their results: Prefect's pages of the database in which `blr` keeps them.",
    "deployments automate": "Alert the team when a scheduled run failed, is late, or released nothing for days.",
    "schema": "Print the JSON Schema of what a command prints with --json, or of a file that it leaves.",
}
"""What commands do that make no request."""
VERBS_TABLE = """
demo | _models.run_demonstration | | out prefect json quiet
train | _models.run_train | TrainRequest | dry_run prefect json quiet verbose
classify | _classification.run_annotation | ClassifyRequest | dry_run prefect json quiet
reprocess | _classification.run_annotation | ReprocessRequest | dry_run prefect json quiet
status | _classification.run_status | | folder json
review | _classification.run_review | ReviewRequest | dry_run prefect json
explain | _classification.run_explain | ExplainRequest | json
audit draw | reviews.audit_draw.draw_audit then _audit.show_drawn | AuditDrawRequest | dry_run json
audit estimate | reviews.audit_estimate.estimate_audit then _audit.show_audit | AuditEstimateRequest | dry_run json
map | classification.sky_maps.make_map then _classification.show_map | MapRequest | dry_run json
census | classification.census_taking.take_census then _classification.show_census | CensusRequest | dry_run json
inspect | _inspect.run_inspect | | inspected label limit table json
init | _inspect.run_init | InitRequest | json
models list | _list.run_list | | store json
models show | _models.run_show | | reference store json
models promote | _models.run_promote | PromoteRequest | if_better reject undo dry_run json
release draft | release.draft.draft then _release.show_state | DraftRequest | json
release check | release.record.check then _release.show_checked failing stops | ReleaseRequest | json
release sign | release.record.sign then _release.show_state | SignRequest | json
release publish | release.record.publish then _release.show_state | PublishRequest | json
release rollback | release.record.rollback then _release.show_state | RollbackRequest | json
release patch | release.draft.patch then _release.show_state | PatchRequest | json
release verify | release.record.verify then _release.show_verified failing faults | | release key json
release replay | release.replay.replay_file then _release.show_replayed failing not agrees | ReplayRequest | json
serve | _serve.run_serve | | file n_runs port
ui | _serve.run_ui | | opened port
deployments automate | _serve.run_automate | | notify idle_days dry_run json
schema | _schemas.run_schema | | name
"""
VERBS = {
    name: (run, request or HELP[name], options)
    for name, run, request, options in (re.split(r" *\| *", row) for row in VERBS_TABLE.strip().splitlines())
}
"""What runs each command, its request, or its help without one, and its further options, as of `verb`."""
WITHOUT_SCIPY = "_inspect.", "_list.", "_serve."  # modules of the commands that compute nothing with SciPy
GROUPS = {
    "models": "The models of a store.",
    "audit": "Counts, purity and completeness from objects that people look at.",
    "release": "Releases: drafted, checked, signed, published, rolled back.",
    "deployments": "Print a prefect.yaml for a survey's folder: what `prefect deploy` and `blr serve` read.",
}


def verb(app: typer.Typer, name: str, run: str, kind: str, options: str = "") -> None:
    """Register a command, which makes a request of what is typed, and calls a function with it and with the options.

    `kind` names a request of `flows.request`, such as "TrainRequest", whose docstring is the command's help;
    of a command without a request it is the help.  `options` are names of `Options`.  `run` names a function of
    `flows.cli`, such as "_models.run_train"; or work of `flows` on the request, then what shows people its result, and
    the part of the result that makes the exit status 1 where it holds something.
    Their modules are imported when the command runs.
    """
    request = None if " " in kind else _named(f"flows.request.{kind}")
    asked = [] if request is None else [(f, p) for f, p in request_fields(request) if p.flag is not None]
    every = {field.name: (field, parameter) for field, parameter in request_fields(Options)}
    own = [every[option] for option in options.split()]

    def command(**values: Any) -> None:
        if not run.startswith(WITHOUT_SCIPY):
            import_scipy()
        typed = {
            f.name: values[f.name] if p.parse is None or values[f.name] is None else p.parse(values[f.name])
            for f, p in asked
        }
        made = [] if request is None else [request(**typed)]
        given = {field.name: values[field.name] for field, _ in own}
        work, _, shown = run.partition(" then ")
        done_by = _named(f"flows.{work}" if shown else f"flows.cli.{run}")
        if not gc.isenabled():  # as in `main`
            gc.freeze()
            gc.enable()
        if not shown:
            done_by(*made, **given)
            return
        json = given.pop("json")
        result = done_by(*made, **given)
        shown, _, fault = shown.partition(" failing ")
        _named("flows.cli._printing.show")(result, _named(f"flows.cli.{shown}"), json=json)
        if fault and bool(getattr(result, fault.removeprefix("not "))) != fault.startswith("not "):
            raise typer.Exit(1)

    parameters = [_typed(field, parameter) for field, parameter in (*asked, *own)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    words = kind if request is None else (inspect.getdoc(request) or "").partition("\n\n")[0]
    app.command(name, help=words)(command)


def _named(path: str) -> Any:
    """Return what a module has under a name."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _typed(field: inspect.Parameter, parameter: Parameter) -> inspect.Parameter:
    """Return what Typer takes for a field: its type on the command line, with Typer's option or argument."""
    kind = field.annotation if parameter.command_line_type is None else parameter.command_line_type
    shared: dict[str, Any] = {"help": parameter.words, "metavar": parameter.metavar}
    if parameter.written:
        shared["callback"] = _on_this_machine
    if parameter.published:
        shared["callback"] = _here_or_in_a_store
    if field.name == "quiet":
        shared["callback"] = _say_start
    if parameter.positional:
        shown = typer.Argument(**shared)
    else:
        flags = (parameter.flag or "--" + field.name.replace("_", "-")).split()
        shown = typer.Option(*flags, min=parameter.least, max=parameter.most, **shared)
    default = inspect.Parameter.empty if parameter.required else field.default
    return field.replace(
        kind=inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown]
    )


def _checked(check: str) -> Callable[[typer.CallbackParam, Path | None], Path | None]:
    """Return what gives back the path of an option; UsageError of the `check` for a URL, before anything is started."""

    def checked(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
        if path is not None and ":/" in str(path):
            name = parameter.opts[0]
            _named(check)(path, key=name if name.startswith("-") else name.upper())
        return path

    return checked


_on_this_machine = _checked("flows.runs.references.check_local")
"""For what is written: it cannot be at a URL."""
_here_or_in_a_store = _checked("flows.runs.release_store.check_store")
"""For the folder of a release: some URLs can have one."""


def _say_start(context: typer.Context, quiet: bool) -> bool:
    """Print at once what starts, since the libraries take seconds to load."""
    if not quiet and not context.resilient_parsing:
        write_error(f"blr {context.info_name}: loading the numerical libraries\n")
    return quiet


@dataclass(frozen=True)
class Options:
    """The options that only the command line has."""

    folder: Annotated[
        Path,
        Parameter(
            "Folder of the outputs of `classify` or `reprocess`.", "FOLDER", positional=True, published=True
        ),
    ]
    reference: Annotated[str, Parameter("Default version: the champion.", "NAME[@VERSION]", positional=True)]
    inspected: Annotated[
        str, Parameter("A catalogue, also at a URL, or a model file.", "FILE", positional=True)
    ]
    release: Annotated[
        Path, Parameter("Folder of one release, or of all of a name.", "FOLDER", positional=True)
    ]
    json: bool = option(False, "Print the result as JSON, and nothing else, on standard output.")
    dry_run: bool = option(False, "Say what would be done, and write nothing.")
    prefect: bool | None = option(
        None,
        "Run as a flow of Prefect, or without Prefect: the same work, the same files. Default: as a flow "
        "where a Prefect server is configured or running.",
        flag="--prefect/--direct",
    )
    quiet: bool = option(False, "Print few lines instead of a progress bar.", flag="--quiet -q")
    store: Path = option(Path("models"), STORE)
    # Of a training, and of a promotion without a question to a person
    verbose: bool = option(False, "Print the tables of the report too, not only its answers.")
    if_better: bool = option(
        False,
        "Promote only if it is better on objects that neither model has seen, and its verdict is not red.",
    )
    reject: bool = option(False, "Reject the version, with a reason in --why; the champion stays.")
    undo: bool = option(
        False, "Undo the last promotion of NAME: the previous champion takes its place again."
    )
    # Of commands without a request
    label: str | None = option(None, "Column of the class: look for columns that give it away.", "COLUMN")
    limit: int | None = option(None, LIMIT)
    table: str | None = option(None, TABLE)
    key: Path | None = option(None, "Public Ed25519 key in PEM that must have signed.", "FILE")
    out: Path = option(
        Path("blr-demo"), "Folder for everything that the demonstration writes.", "DIR", written=True
    )
    file: Path = option(
        Path("prefect.yaml"),
        "File of the deployments; default: prefect.yaml in this folder, or else the one of this package.",
        "FILE",
        positional=True,
    )
    n_runs: int = option(1, "Number of runs at the same time.", "N", least=1, flag="--limit")
    port: int | None = option(
        None,
        "Port on 127.0.0.1; default: 4200, or another port if that one is in use.",
        "N",
        least=1,
        most=65535,
    )
    opened: bool = option(True, "Open a browser.", flag="--open/--no-open")
    notify: str = option(
        "blr", "Block that sends the alerts, by its name on the server's page Blocks.", "BLOCK"
    )
    idle_days: int = option(3, "Days without a release after which an alert is sent; 0: never.", "N", least=0)
    name: str | None = option(
        None,
        "Name of the document whose schema is printed; default: list the names.",
        "NAME",
        positional=True,
    )


OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="File to write to; default: print it.", callback=_on_this_machine
    ),
]


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the command line: with the one command that is called, or with all where none is, as for `--help`."""
    app = typer.Typer(
        name="blr",
        help="Classify galaxy catalogues with Bayesian logistic models that know when they do not know.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(options)
    called = [word for word in arguments if word != "--debug"]
    named = [name for name in VERBS if called[: name.count(" ") + 1] == name.split()]
    groups = {name: typer.Typer(help=words) for name, words in GROUPS.items()}
    groups["deployments"].callback(invoke_without_command=True)(deployments_text)
    for name, group in groups.items():
        if not named or named[0].startswith(f"{name} "):
            app.add_typer(group, name=name)
    for name in named or VERBS:
        before, _, last = name.rpartition(" ")
        verb(groups.get(before, app), last, *VERBS[name])
    return app


def _show_version(asked: bool) -> None:
    if asked:
        from flows.version import code_version

        typer.echo(f"blr {code_version()}")
        raise typer.Exit


def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Classify galaxy catalogues with Bayesian logistic models that know when they do not know."""
    del debug, version  # `run` reads `--debug`, since it shows errors; `--version` was handled above.


def deployments_text(context: typer.Context, out: OutFile = None) -> None:
    """Print our prefect.yaml, or write it."""
    if context.invoked_subcommand is None:
        from flows.cli._serve import run_deployments

        run_deployments(out)


# Packages of other projects with the names of ours: `flows` and `blr` are on the package index too.
#
# Both would lie in the same folder, where whichever was installed last has overwritten files of the other.

PACKAGES = ("blr", "catalogs", "flows")
OURS = Path(__file__).resolve().parent.parent.parent  # the folder that our three packages lie in


def check_packages() -> None:
    """Raise UsageError that names a package of another project in the place of one of ours, or inside it."""
    for package in PACKAGES:
        found = find_spec(package)
        folder = Path(found.origin).parent if found is not None and found.origin else None
        if folder is None or folder.resolve() != OURS / package:
            raise UsageError(
                f"got the package '{package}' in {folder}, expected the one of galaxyblr in "
                f"{OURS / package}: another project has a package of the same name, or there are two copies "
                "of galaxyblr; install galaxyblr into an environment of its own"
            )
        for record in OURS.glob(f"{package}-*.dist-info/RECORD"):
            version = record.parent.name.removesuffix(".dist-info").partition("-")[2]
            if f"\n{package}/" in "\n" + record.read_text(encoding="utf-8"):
                raise UsageError(
                    f"got the package '{package}' of the distribution {package} {version}, whose files are "
                    f"in the same folder as those of galaxyblr; remove it with `pip uninstall {package}` and "
                    "reinstall galaxyblr, or install galaxyblr into an environment of its own"
                )


class _NoPandas:
    """A finder of modules to which there is no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas; leave all else to the other finders."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("hidden from pyarrow", name=name)


def hide_pandas_from_arrow() -> None:
    """Make the first array of pyarrow, which imports pandas if it can: a third of a second, for frames of users."""
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


def import_scipy() -> None:
    """Import SciPy without the compilers and tests of NumPy, which it loads and has no use for: 0.15 s of 0.7."""
    import numpy as np

    unused = [name for name in ("core", "ctypeslib", "f2py", "testing") if name not in vars(np)]
    for name in unused:
        setattr(np, name, None)
    try:
        import scipy.linalg  # noqa: F401
    finally:
        for name in unused:
            delattr(np, name)  # it loads when used


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit status: 0 done, 1 failed, 2 wrong use, 3 partly done, 130 interrupted."""
    try:
        check_packages()
        with terminable("run the same command again"):
            result: Any = application(arguments)(args=list(arguments), prog_name="blr", standalone_mode=False)
        if result == INTERRUPTED:
            raise KeyboardInterrupt  # noqa: TRY301  Typer has made a number of it
    except BaseException as error:  # noqa: BLE001  whatever ends a command has an exit status
        from flows.cli._printing import exit_status

        if "--debug" in arguments and not isinstance(error, SystemExit):
            import traceback

            traceback.print_exc()
        return exit_status(error)
    return result if isinstance(result, int) else 0


WITHOUT_TABLES = frozenset({"--help", "--version", "deployments", "models", "schema", "serve", "ui"})
"""First words of commands that read no table."""


LONGEST_END = 10.0
"""Seconds that a command which has failed waits for Prefect to send its events: its server may be gone."""


def main() -> None:
    """Run the command of this process."""
    # One BLAS thread in each of our own; the pools of more are not even started.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = sys.argv[1:]
    if arguments and arguments[0] not in WITHOUT_TABLES and "--help" not in arguments:
        hide_pandas_from_arrow()
    # Modules stay to the end.  To seek garbage among them, while they are loaded and at exit, takes a fifth of a short
    # command's time.
    gc.disable()
    status = run(arguments)
    gc.freeze()
    if status == 1 and "prefect" in sys.modules:
        with suppress(OSError):
            sys.stdout.flush()
        end = threading.Timer(LONGEST_END, os._exit, [status])
        end.daemon = True
        end.start()
    sys.exit(status)
