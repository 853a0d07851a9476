"""`blr classify`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

import time

from flows.classification import steps as classification
from flows.classification.request import ClassifyRequest
from flows.cli._flow_runs import runs_as_flow
from flows.cli._options import RunOptions
from flows.cli._printing import show
from flows.cli._progress import shown_progress
from flows.cli._reprocess import leave_partly
from flows.cli._show import say_done, show_classified
from flows.inputs.resolve import check_parameters

__all__ = ["run_classify"]


def run_classify(request: ClassifyRequest, options: RunOptions) -> None:
    """Classify, as a flow where Prefect is wanted."""
    began = time.monotonic()
    with shown_progress(quiet=options.quiet):
        if options.dry_run or not runs_as_flow(options.prefect):
            result = classification.classify(request, dry_run=options.dry_run)
        else:
            check_parameters(request.catalogues)
            from flows.classify import classify

            result = classify(**vars(request))
    seconds = time.monotonic() - began
    show(result, show_classified, json=options.json)
    if not options.json:
        say_done(result, seconds)
    leave_partly(result)
