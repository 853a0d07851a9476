"""The command line: `blr train`, `blr classify`, and what goes with them.

What a command needs, its own request too, is imported when it is called: `blr --help` is quick and imports no Prefect.
"""

# ruff: noqa: FBT001, FBT002, PLC0415 -- Typer makes switches of such defaults; imports wait for their command

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli._options import OutFile, verb
from flows.errors import UsageError
from flows.runs.progress import terminable

INTERRUPTED = 130

VERBS = {
    "demo": (
        "_demo.run_demonstration",
        "Classify the galaxies of OpenNGC: catalogues, two models, reports, annotated copies.",
        "out prefect json quiet",
    ),
    "train": ("_models.run_train", "training.TrainRequest", "dry_run prefect json quiet verbose"),
    "classify": (
        "_classification.run_classify",
        "classification.ClassifyRequest",
        "dry_run prefect json quiet",
    ),
    "reprocess": (
        "_classification.run_reprocess",
        "classification.ReprocessRequest",
        "dry_run prefect json quiet",
    ),
    "status": (
        "_classification.run_status",
        "List the files of a release: which are current, stale or quarantined, since when and why.",
        "folder json",
    ),
    "review": ("_classification.run_review", "reviews.ReviewRequest", "dry_run prefect json"),
    "explain": ("_classification.run_explain", "classification.ExplainRequest", "json"),
    "audit draw": (
        "reviews.audit_draw.draw_audit then _audit.show_drawn",
        "reviews.AuditDrawRequest",
        "dry_run json",
    ),
    "audit estimate": ("_audit.run_audit_estimate", "reviews.AuditEstimateRequest", "dry_run json"),
    "map": (
        "classification.sky_maps.make_map then _classification.show_map",
        "classification.MapRequest",
        "dry_run json",
    ),
    "census": (
        "classification.census_taking.take_census then _classification.show_census",
        "classification.CensusRequest",
        "dry_run json",
    ),
    "inspect": ("_inspect.run_inspect", "draft.InspectRequest", "json"),
    "init": ("_inspect.run_init", "draft.InitRequest", "json"),
    "models list": (
        "_list.run_list",
        "List the models of a store, the champion of each name marked.",
        "store json",
    ),
    "models show": (
        "_models.run_show",
        "Show a model: its candidates, how good it is, where it came from.",
        "reference store json",
    ),
    "models promote": ("_models.run_promote", "models.PromoteRequest", "if_better reject undo dry_run json"),
    "release draft": ("release.draft.draft then _release.show_state", "release.DraftRequest", "json"),
    "release check": ("_release.run_check", "release.ReleaseRequest", "json"),
    "release sign": ("release.record.sign then _release.show_state", "release.SignRequest", "json"),
    "release publish": ("release.record.publish then _release.show_state", "release.PublishRequest", "json"),
    "release rollback": (
        "release.record.rollback then _release.show_state",
        "release.RollbackRequest",
        "json",
    ),
    "release patch": ("release.draft.patch then _release.show_state", "release.PatchRequest", "json"),
    "release verify": ("_release.run_verify", "release.VerifyRequest", "json"),
    "release replay": ("_release.run_replay", "release.ReplayRequest", "json"),
    "serve": (
        "_serve.run_serve",
        "Run the deployments of this folder at their times, with a server and its pages, until Ctrl-C.",
        "file limit port",
    ),
    "ui": (
        "_serve.run_ui",
        "Show runs and their results: Prefect's pages of the database in which `blr` keeps them.",
        "opened port",
    ),
    "deployments automate": (
        "_serve.run_automate",
        "Alert the team when a scheduled run failed, is late, or released nothing for days.",
        "notify idle_days deployment dry_run json",
    ),
    "schema": (
        "_schemas.run_schema",
        "Print the JSON Schema of what a command prints with --json, or of a file that it leaves.",
        "name",
    ),
}
"""What runs each command, its request, or its help without one, and its further options, as of `verb`."""
GROUPS = {
    "models": "The models of a store.",
    "audit": "Counts, purity and completeness from objects that people look at.",
    "release": "Releases: drafted, checked, signed, published, rolled back.",
    "deployments": "Print a prefect.yaml for a survey's folder: what `prefect deploy` and `blr serve` read.",
}


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
    """Print the version that models and outputs name, and end."""
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
WITHOUT_MODELS = WITHOUT_TABLES | {"init", "inspect", "report"}
"""First words of commands that compute nothing with models."""


def main() -> None:
    """Run the command of this process."""
    # One BLAS thread in each of our own; the pools of more are not even started.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = sys.argv[1:]
    if arguments and arguments[0] not in WITHOUT_TABLES and "--help" not in arguments:
        hide_pandas_from_arrow()
        if arguments[0] not in WITHOUT_MODELS:
            import_scipy()
    sys.exit(run(arguments))
