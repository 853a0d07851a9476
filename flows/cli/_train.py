"""`blr train`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from functools import partial
from pathlib import Path

from catalogs.remote.urls import is_remote
from flows.cli._flow_runs import runs_as_flow
from flows.cli._options import TrainOptions
from flows.cli._printing import say_next, show
from flows.cli._progress import shown_progress
from flows.cli._show import show_trained
from flows.models.description import ModelDescription
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification
from flows.training import steps as training
from flows.training.report import TrainingPlan, TrainingResult
from flows.training.request import TrainRequest

__all__ = ["run_train"]


def run_train(request: TrainRequest, options: TrainOptions) -> None:
    """Train, as a flow where Prefect is wanted."""
    typed, request = request, training.specified(request)
    with shown_progress(quiet=options.quiet):
        if options.dry_run:
            result: TrainingResult = training.plan(request)
        elif runs_as_flow(options.prefect):
            from flows.train import train

            result = train(**vars(request))
        else:
            result = training.train(request)
    show(result, partial(show_trained, verbose=options.verbose), json=options.json)
    if not options.json and not isinstance(result, TrainingPlan) and result.path:
        _say_next(typed, read_specification(request.specification), result)


def _say_next(typed: TrainRequest, wanted: Specification, model: ModelDescription) -> None:
    """Print the command that uses a model: on the specification's target, else on the labelled catalogue."""
    store = () if typed.store == Path("models") else ("--store", typed.store)
    label = model.name if model.champion in {None, model.version} else model.model
    if wanted.target.paths not in {None, wanted.catalog.paths} and label == model.name:
        say_next("blr", "reprocess", typed.specification, *store)
        return
    paths = (
        p if is_remote(p) else Path(wanted.base_folder, p)
        for p in wanted.target.paths or wanted.catalog.paths
    )
    say_next("blr", "classify", *paths, "--model", label, *store, "--out", "annotated")
