"""`blr train`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from functools import partial

from flows.cli._flow_runs import runs_as_flow
from flows.cli._options import TrainOptions
from flows.cli._printing import show
from flows.cli._progress import shown_progress
from flows.cli._show import show_trained
from flows.training import steps as training
from flows.training.request import TrainRequest
from flows.training.results import TrainingResult

__all__ = ["run_train"]


def run_train(request: TrainRequest, options: TrainOptions) -> None:
    """Train, as a flow where Prefect is wanted."""
    request = training.specified(request)
    with shown_progress(quiet=options.quiet):
        if options.dry_run:
            result: TrainingResult = training.plan(request)
        elif runs_as_flow(options.prefect):
            from flows.train import train

            result = train(**vars(request))
        else:
            result = training.train(request)
    show(result, partial(show_trained, verbose=options.verbose), json=options.json)
