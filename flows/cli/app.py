"""The command line: `blr train`, `blr classify`, and what goes with them.

Only options live here.  What a command needs is imported when it runs, so that `blr --help` is quick and
imports no Prefect.
"""

# ruff: noqa: FBT001, FBT002, PLC0415 -- Typer makes switches of such defaults; imports wait for their command

from __future__ import annotations

import sys
from collections.abc import Sequence
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
    AsJson,
    AutomateOptions,
    DemoFolder,
    DryRun,
    IdleDays,
    Notify,
    OutFile,
    Port,
    Prefect,
    PrintOptions,
    PromoteOptions,
    Quiet,
    ReviewOptions,
    RunOptions,
    Store,
    TrainOptions,
    Watched,
    WriteOptions,
    here_or_in_a_store,
)
from flows.cli._other_makers import check_packages, hide_pandas_from_arrow
from flows.cli._verbs import verb
from flows.draft.request import InitRequest, InspectRequest
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

__all__ = ["app", "main", "run"]

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


@app.command()
def demo(
    out: DemoFolder = Path("blr-demo"),
    prefect: Prefect = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Classify the galaxies of OpenNGC: catalogues, two models, reports, annotated copies."""
    from flows.cli._demo import run_demonstration

    run_demonstration(out, prefect=prefect, json=json, quiet=quiet)


@verb(app, TrainRequest, TrainOptions)
def train(request: TrainRequest, options: TrainOptions) -> None:
    """Fit the candidates of a specification to labelled catalogues, and save the best of them."""
    from flows.cli._train import run_train

    run_train(request, options)


@verb(app, ClassifyRequest, RunOptions)
def classify(request: ClassifyRequest, options: RunOptions) -> None:
    """Write annotated copies of catalogues: class probabilities, uncertainties and flags for every row."""
    from flows.cli._classify import run_classify

    run_classify(request, options)


@verb(app, ReprocessRequest, RunOptions)
def reprocess(request: ReprocessRequest, options: RunOptions) -> None:
    """Bring a release up to date: classify what is new or changed, retire what is gone, report differences."""
    from flows.cli._reprocess import run_reprocess

    run_reprocess(request, options)


@app.command()
def status(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of the outputs of `classify` or `reprocess`.",
            callback=here_or_in_a_store,
        ),
    ],
    json: AsJson = False,
) -> None:
    """List the files of a release: which are current, stale or quarantined, since when and why."""
    from flows.cli._reprocess import run_status

    run_status(folder, json=json)


@verb(app, ReviewRequest, ReviewOptions)
def review(request: ReviewRequest, options: ReviewOptions) -> None:
    """Write a list of objects for a human look: VOTable, CSV, and a page with links to sky surveys."""
    from flows.cli._review import run_review

    run_review(request, options)


@verb(app, ExplainRequest, PrintOptions)
def explain(request: ExplainRequest, options: PrintOptions) -> None:
    """Say why an object has its class: what each feature contributes, and which labelled objects are like it."""
    from flows.cli._explain import run_explain

    run_explain(request, json=options.json)


@verb(audit, AuditDrawRequest, WriteOptions, name="draw")
def audit_draw(request: AuditDrawRequest, options: WriteOptions) -> None:
    """Draw objects by design, and write the list that people fill in: VOTable, CSV, and a page with links."""
    from flows.cli._audit import run_audit_draw

    run_audit_draw(request, options)


@verb(audit, AuditEstimateRequest, WriteOptions, name="estimate")
def audit_estimate(request: AuditEstimateRequest, options: WriteOptions) -> None:
    """Estimate counts, purity and completeness from the answers, and quote the counts in summary.json."""
    from flows.cli._audit import run_audit_estimate

    run_audit_estimate(request, options)


@verb(app, MapRequest, WriteOptions, "map")
def map_(request: MapRequest, options: WriteOptions) -> None:
    """Map how many objects are of a class over the sky, or how contaminated or complete its selection is."""
    from flows.cli._map import run_map

    run_map(request, options)


@verb(app, CensusRequest, WriteOptions)
def census(request: CensusRequest, options: WriteOptions) -> None:
    """Say how many objects of each class a classified catalogue has, with intervals, and what they rest on."""
    from flows.cli._census import run_census

    run_census(request, options)


@verb(app, InspectRequest, PrintOptions)
def inspect(request: InspectRequest, options: PrintOptions) -> None:
    """Say what a file holds: a catalogue's columns and what looks odd in them, or a model."""
    from flows.cli._inspect import run_inspect

    run_inspect(request, json=options.json)


@verb(app, InitRequest, PrintOptions)
def init(request: InitRequest, options: PrintOptions) -> None:
    """Write a commented specification for a labelled catalogue, which trains as it is."""
    from flows.cli._inspect import run_init

    run_init(request, json=options.json)


@models.command("list")
def models_list(store: Store = Path("models"), json: AsJson = False) -> None:
    """List the models of a store, the champion of each name marked."""
    from flows.cli._list import run_list

    run_list(store, json=json)


@models.command("show")
def models_show(
    reference: Annotated[
        str, typer.Argument(metavar="NAME[@VERSION]", help="Default version: the champion.")
    ],
    store: Store = Path("models"),
    json: AsJson = False,
) -> None:
    """Show a model: its candidates, how good it is, where it came from."""
    from flows.cli._models import run_show

    run_show(reference, store, json=json)


@verb(models, PromoteRequest, PromoteOptions)
def promote(request: PromoteRequest, options: PromoteOptions) -> None:
    """Put a model in the champion's place, reject it (--reject), or undo the last promotion (--undo)."""
    from flows.cli._models import run_promote

    run_promote(request, options)


@verb(release, DraftRequest, PrintOptions, name="draft")
def release_draft(request: DraftRequest, options: PrintOptions) -> None:
    """Draft a release where no reader sees it: adopt a finished run, or classify by a specification."""
    from flows.cli._release import run_draft

    run_draft(request, options)


@verb(release, ReleaseRequest, PrintOptions, name="check")
def release_check(request: ReleaseRequest, options: PrintOptions) -> None:
    """Check every row of a draft; exit status 1 where a check says stop."""
    from flows.cli._release import run_check

    run_check(request, options)


@verb(release, SignRequest, PrintOptions, name="sign")
def release_sign(request: SignRequest, options: PrintOptions) -> None:
    """Sign the digest of a checked draft, or refuse it (--refuse)."""
    from flows.cli._release import run_sign

    run_sign(request, options)


@verb(release, PublishRequest, PrintOptions, name="publish")
def release_publish(request: PublishRequest, options: PrintOptions) -> None:
    """Make a signed draft visible, for ever, and the latest."""
    from flows.cli._release import run_publish

    run_publish(request, options)


@verb(release, RollbackRequest, PrintOptions, name="rollback")
def release_rollback(request: RollbackRequest, options: PrintOptions) -> None:
    """Make an earlier version the latest again; every version stays."""
    from flows.cli._release import run_rollback

    run_rollback(request, options)


@verb(release, PatchRequest, PrintOptions, name="patch")
def release_patch(request: PatchRequest, options: PrintOptions) -> None:
    """Draft a point release of listed rows that a run changes; refused where other rows change."""
    from flows.cli._release import run_patch

    run_patch(request, options)


@verb(release, VerifyRequest, PrintOptions, name="verify")
def release_verify(request: VerifyRequest, options: PrintOptions) -> None:
    """Verify the folder of a release by itself: every byte, and who signed it."""
    from flows.cli._release import run_verify

    run_verify(request, options)


@verb(release, ReplayRequest, PrintOptions, name="replay")
def release_replay(request: ReplayRequest, options: PrintOptions) -> None:
    """Score rows of an annotated file again, and say whether the model gives what is published."""
    from flows.cli._release import run_replay

    run_replay(request, options)


@app.command()
def serve(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File of the deployments; default: prefect.yaml in this folder, or else the one of this package.",
        ),
    ] = Path("prefect.yaml"),
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Number of runs at the same time.")
    ] = 1,
    port: Port = None,
) -> None:
    """Run the deployments of this folder at their times, with a server and its pages, until Ctrl-C."""
    from flows.cli._serve import run_serve

    run_serve(file, limit=limit, port=port)


@app.command()
def ui(
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    port: Port = None,
) -> None:
    """Show runs and their results: Prefect's pages of the database in which `blr` keeps them."""
    from flows.cli._serve import run_ui

    run_ui(opened=opened, port=port)


@deployments.callback(invoke_without_command=True)
def deployments_text(
    context: typer.Context,
    out: OutFile = None,
) -> None:
    """Print a prefect.yaml for a survey's folder: what `prefect deploy` and `blr serve` read."""
    if context.invoked_subcommand is not None:
        return
    from flows.cli._serve import run_deployments

    run_deployments(out)


@deployments.command()
def automate(
    notify: Notify = "blr",
    idle_days: IdleDays = 3,
    deployment: Watched = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Alert the team when a scheduled run failed, is late, or released nothing for days."""
    from flows.cli._serve import run_automate

    options = AutomateOptions(notify, idle_days, tuple(deployment or ()), dry_run, json)
    run_automate(options)


@app.command()
def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Name of the document whose schema is printed; default: list the names."
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of what a command prints with --json, or of a file that it leaves."""
    from flows.cli._schemas import run_schema

    run_schema(name)


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit status: 0 done, 1 failed, 2 wrong use, 3 partly done, 130 interrupted."""
    try:
        check_packages()
        with terminable("run the same command again"):
            result: Any = app(args=list(arguments), prog_name="blr", standalone_mode=False)
        if result == INTERRUPTED:
            raise KeyboardInterrupt  # noqa: TRY301  Typer has made a number of it
    except BaseException as error:  # noqa: BLE001  whatever ends a command has an exit status
        from flows.cli._errors import exit_status

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
