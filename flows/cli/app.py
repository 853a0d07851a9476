"""The command line: `blr train`, `blr classify`, and what goes with them.

Only options live here.  What a command needs is imported when it runs, so that `blr --help` is quick and
imports no Prefect.
"""

# ruff: noqa: FBT001, FBT002, PLC0415 -- Typer makes switches of such defaults; imports wait for their command

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.cli._options import (
    AnnotatedFolder,
    ClassPrior,
    ColumnNamesFile,
    DemoFolder,
    Direct,
    DryRun,
    Json,
    Limit,
    LookLimit,
    OutFile,
    OutFolder,
    Overwrite,
    Port,
    Quiet,
    ReleaseFolder,
    Store,
    Table,
    Threads,
)
from flows.runs.interrupt import terminable

__all__ = ["app", "main", "run"]

INTERRUPTED = 130

app = typer.Typer(
    name="blr",
    help="Classify galaxy catalogues with Bayesian logistic models that know when they do not know.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
models = typer.Typer(help="The models of a store.")
app.add_typer(models, name="models")


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
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print it and exit.")
    ] = False,
) -> None:
    """Classify galaxy catalogues with Bayesian logistic models that know when they do not know."""
    del debug, version  # `run` looks for the one, since errors are shown there; the other has been seen to


@app.command()
def demo(
    out: DemoFolder = Path("blr-demo"),
    direct: Direct = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Classify the galaxies of OpenNGC: catalogues, two models, reports, annotated copies."""
    from flows.cli._demo import run_demonstration

    run_demonstration(out, direct=direct, json=json, quiet=quiet)


@app.command()
def train(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The specification, a TOML file.")],
    store: Store = Path("models"),
    overwrite: Overwrite = False,
    limit: Limit = None,
    threads: Threads = None,
    dry_run: DryRun = False,
    direct: Direct = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit the candidates of a specification to labelled catalogues, and save the best of them."""
    from flows.cli._train import run_train

    run_train(
        spec,
        store,
        {"overwrite": overwrite, "limit": limit, "threads": threads},
        dry_run=dry_run,
        direct=direct,
        json=json,
        quiet=quiet,
    )


@app.command()
def classify(
    catalogs: Annotated[
        list[str], typer.Argument(metavar="CATALOG", help="Files, folders, patterns or URLs.")
    ],
    model: Annotated[
        str, typer.Option("--model", metavar="NAME[@VERSION]", help="Default version: the champion.")
    ],
    out: OutFolder,
    store: Store = Path("models"),
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec", metavar="FILE", help="Target, flags and output other than those of the training."
        ),
    ] = None,
    class_prior: ClassPrior = None,
    output_format: Annotated[
        Literal["same", "parquet", "fits"] | None,
        typer.Option("--format", help="Of the copies; default: each input's own."),
    ] = None,
    overwrite: Overwrite = False,
    verify: Annotated[bool, typer.Option("--verify", help="Hash files again that look as they did.")] = False,
    limit: Limit = None,
    threads: Threads = None,
    dry_run: DryRun = False,
    direct: Direct = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write annotated copies of catalogues: class probabilities, uncertainties and flags for every row."""
    from flows.cli._classify import read_shares, run_classify

    chosen = {"model": model, "out": out, "store": store, "specification": spec, "verify": verify}
    chosen |= {"class_prior": read_shares(class_prior), "output_format": output_format}
    run_classify(
        catalogs,
        chosen | {"overwrite": overwrite, "limit": limit, "threads": threads},
        dry_run=dry_run,
        direct=direct,
        json=json,
        quiet=quiet,
    )


@app.command()
def reprocess(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The specification, a TOML file.")],
    store: Store = Path("models"),
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME[@VERSION]", help="Default: the specification's champion."),
    ] = None,
    out: ReleaseFolder = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash files again that look as they did.")] = False,
    threads: Threads = None,
    quiet_seconds: Annotated[
        float, typer.Option("--settle", metavar="S", min=0, help="A file changed since is still written.")
    ] = 5.0,
    dry_run: DryRun = False,
    direct: Direct = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Bring a release up to date: classify what is new or changed, retire what is gone, report differences."""
    from flows.cli._reprocess import run_reprocess

    chosen = {"store": store, "model": model, "out": out, "verify": verify}
    run_reprocess(
        spec,
        chosen | {"threads": threads, "quiet_seconds": quiet_seconds},
        dry_run=dry_run,
        direct=direct,
        json=json,
        quiet=quiet,
    )


@app.command()
def review(
    out: AnnotatedFolder,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="Flagged, least certain first.")
    ] = 100,
    draw: Annotated[
        int, typer.Option("--draw", metavar="N", min=0, help="Drawn by mutual information, with a weight.")
    ] = 0,
    identifier: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Names an object; default: what looks like it."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the draw.")] = 0,
    dry_run: DryRun = False,
    direct: Direct = False,
    json: Json = False,
) -> None:
    """Write a list of objects for a human look: VOTable, CSV, and a page with links to sky surveys."""
    from flows.cli._review import run_review

    chosen = {"top": top, "draw": draw, "identifier": identifier, "seed": seed}
    run_review(out, chosen, dry_run=dry_run, direct=direct, json=json)


@app.command()
def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A catalogue, also at a URL, or a model file.")],
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="COLUMN", help="Of the class: look for columns that give it away."),
    ] = None,
    limit: LookLimit = None,
    table: Table = None,
    json: Json = False,
) -> None:
    """Say what a file holds: a catalogue's columns and what looks odd in them, or a model."""
    from flows.cli._inspect import run_inspect

    run_inspect(file, limit=limit, label=label, table=table, json=json)


@app.command()
def init(
    file: Annotated[str, typer.Argument(metavar="CATALOG", help="A labelled catalogue, also at a URL.")],
    label: Annotated[str, typer.Option("--label", metavar="COLUMN", help="Column of the class.")],
    out: OutFile = None,
    overwrite: Overwrite = False,
    limit: LookLimit = None,
    table: Table = None,
    columns: ColumnNamesFile = None,
    json: Json = False,
) -> None:
    """Write a commented specification for a labelled catalogue, which trains as it is."""
    from flows.cli._inspect import run_init

    run_init(file, label, out=out, overwrite=overwrite, limit=limit, table=table, columns=columns, json=json)


@models.command("list")
def models_list(store: Store = Path("models"), json: Json = False) -> None:
    """List the models of a store, the champion of each name marked."""
    from flows.cli._models import run_list

    run_list(store, json=json)


@models.command("show")
def models_show(
    reference: Annotated[
        str, typer.Argument(metavar="NAME[@VERSION]", help="Default version: the champion.")
    ],
    store: Store = Path("models"),
    json: Json = False,
) -> None:
    """Show a model: its candidates, how good it is, where it came from."""
    from flows.cli._models import run_show

    run_show(reference, store, json=json)


@models.command("promote")
def models_promote(
    reference: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The model to use from now on.")],
    store: Store = Path("models"),
    why: Annotated[str | None, typer.Option("--why", help="For the log.")] = None,
    if_better: Annotated[
        bool, typer.Option("--if-better", help="Only if it is better on objects new to both, and not red.")
    ] = False,
    margin: Annotated[
        float, typer.Option("--margin", metavar="NATS", min=0, help="By how much, an object.")
    ] = 0.005,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Put a model in the champion's place."""
    from flows.cli._models import run_promote

    rule: Literal["now", "better"] = "better" if if_better else "now"
    run_promote(reference, store, rule=rule, margin=margin, why=why, dry_run=dry_run, json=json)


@app.command()
def serve(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The deployments; default: prefect.yaml here, or else ours."),
    ] = Path("prefect.yaml"),
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Runs at the same time.")] = 1,
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


@app.command()
def deployments(
    out: OutFile = None,
) -> None:
    """Print a prefect.yaml for a survey's folder: what `prefect deploy` and `blr serve` read."""
    from flows.cli._serve import run_deployments

    run_deployments(out)


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit status: 0 done, 1 failed, 2 wrong use, 3 partly done, 130 interrupted."""
    try:
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


def main() -> None:
    """Run the command of this process."""
    sys.exit(run(sys.argv[1:]))
