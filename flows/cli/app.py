"""The command line: `blr train`, `blr classify`, and what goes with them.

Each line of the table names a command, the function that runs it, and the dataclasses of what it takes.  What a
command needs is imported when it runs, so that `blr --help` is quick and imports no Prefect.
"""

# ruff: noqa: FBT001, FBT002, PLC0415 -- Typer makes switches of such defaults; imports wait for their command

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.classification.request import (
    CensusRequest,
    ClassifyRequest,
    ExplainRequest,
    MapRequest,
    ReprocessRequest,
)
from flows.cli._options import (
    AutomateOptions,
    DemoOptions,
    ListOptions,
    OutFile,
    PrintOptions,
    PromoteOptions,
    ReviewOptions,
    RunOptions,
    SchemaOptions,
    ServeOptions,
    ShowOptions,
    StatusOptions,
    TrainOptions,
    UiOptions,
    WriteOptions,
    verb,
)
from flows.draft.request import InitRequest, InspectRequest
from flows.errors import UsageError
from flows.models.request import PromoteRequest
from flows.release.request import (
    DraftRequest,
    PatchRequest,
    PublishRequest,
    ReleaseRequest,
    ReplayRequest,
    RollbackRequest,
    SignRequest,
    VerifyRequest,
)
from flows.reviews.request import AuditDrawRequest, AuditEstimateRequest, ReviewRequest
from flows.runs.interrupt import terminable
from flows.training.request import TrainRequest

INTERRUPTED = 130

app = typer.Typer(
    name="blr",
    help="Classify galaxy catalogues with Bayesian logistic models that know when they do not know.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
models = typer.Typer(help="The models of a store.")
app.add_typer(models, name="models")
audit = typer.Typer(help="Counts, purity and completeness from objects that people look at.")
app.add_typer(audit, name="audit")
release = typer.Typer(help="Releases: drafted, checked, signed, published, rolled back.")
app.add_typer(release, name="release")
deployments = typer.Typer()
app.add_typer(deployments, name="deployments")


def _show_version(asked: bool) -> None:
    """Print the version that models and outputs name, and end."""
    if asked:
        from flows.version import code_version

        typer.echo(f"blr {code_version()}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Classify galaxy catalogues with Bayesian logistic models that know when they do not know."""
    del debug, version  # `run` reads `--debug`, since it shows errors; `--version` was handled above.


verb(app, "demo", "_demo.run_demonstration", DemoOptions)
verb(app, "train", "_models.run_train", TrainRequest, TrainOptions)
verb(app, "classify", "_classification.run_classify", ClassifyRequest, RunOptions)
verb(app, "reprocess", "_classification.run_reprocess", ReprocessRequest, RunOptions)
verb(app, "status", "_classification.run_status", StatusOptions)
verb(app, "review", "_classification.run_review", ReviewRequest, ReviewOptions)
verb(app, "explain", "_classification.run_explain", ExplainRequest, PrintOptions)
verb(audit, "draw", "_audit.run_audit_draw", AuditDrawRequest, WriteOptions)
verb(audit, "estimate", "_audit.run_audit_estimate", AuditEstimateRequest, WriteOptions)
verb(app, "map", "_classification.run_map", MapRequest, WriteOptions)
verb(app, "census", "_classification.run_census", CensusRequest, WriteOptions)
verb(app, "inspect", "_inspect.run_inspect", InspectRequest, PrintOptions)
verb(app, "init", "_inspect.run_init", InitRequest, PrintOptions)
verb(models, "list", "_list.run_list", ListOptions)
verb(models, "show", "_models.run_show", ShowOptions)
verb(models, "promote", "_models.run_promote", PromoteRequest, PromoteOptions)
verb(release, "draft", "_release.run_draft", DraftRequest, PrintOptions)
verb(release, "check", "_release.run_check", ReleaseRequest, PrintOptions)
verb(release, "sign", "_release.run_sign", SignRequest, PrintOptions)
verb(release, "publish", "_release.run_publish", PublishRequest, PrintOptions)
verb(release, "rollback", "_release.run_rollback", RollbackRequest, PrintOptions)
verb(release, "patch", "_release.run_patch", PatchRequest, PrintOptions)
verb(release, "verify", "_release.run_verify", VerifyRequest, PrintOptions)
verb(release, "replay", "_release.run_replay", ReplayRequest, PrintOptions)
verb(app, "serve", "_serve.run_serve", ServeOptions)
verb(app, "ui", "_serve.run_ui", UiOptions)
verb(deployments, "automate", "_serve.run_automate", AutomateOptions)
verb(app, "schema", "_schemas.run_schema", SchemaOptions)


@deployments.callback(invoke_without_command=True)
def deployments_text(context: typer.Context, out: OutFile = None) -> None:
    """Print a prefect.yaml for a survey's folder: what `prefect deploy` and `blr serve` read."""
    if context.invoked_subcommand is None:
        from flows.cli._serve import run_deployments

        run_deployments(out)


# Packages of other projects with the names of ours: `flows` and `blr` are on the package index too.
#
# Both would lie in the same folder, where whichever was installed last has overwritten files of the other.

PACKAGES = ("blr", "catalogs", "flows")
OURS = Path(__file__).resolve().parent.parent.parent
"""The folder that our three packages lie in."""


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


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit status: 0 done, 1 failed, 2 wrong use, 3 partly done, 130 interrupted."""
    try:
        check_packages()
        with terminable("run the same command again"):
            result: Any = app(args=list(arguments), prog_name="blr", standalone_mode=False)
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


def main() -> None:
    """Run the command of this process."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] not in WITHOUT_TABLES and "--help" not in arguments:
        hide_pandas_from_arrow()
    sys.exit(run(arguments))
