"""`blr classify`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

import time

from flows.classification import steps as classification
from flows.classification.request import ClassifyRequest
from flows.cli._flow_runs import runs_as_flow
from flows.cli._options import RunOptions
from flows.cli._printing import print_tables, say, show
from flows.cli._progress import shown_progress
from flows.cli._reprocess import leave_partly, say_done
from flows.inputs.resolve import check_parameters
from flows.orchestration.tables import trouble_table
from flows.reports.catalogue_answers import trusted_in_part
from flows.reports.census import census_tables
from flows.reports.data import Classification
from flows.reports.tables import class_count_table, flag_table, set_tables
from flows.runs.results import ClassificationResult

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


def show_classified(result: ClassificationResult) -> None:
    """Show a classification, or what it would do."""
    if result.summary:
        counts = Classification.of("all files", result.summary)
        print_tables(class_count_table(counts), flag_table(counts), *set_tables(counts))
        if result.status != "trial" and result.summary.census is not None:
            print_tables(*census_tables(result.summary.census))
        if in_part := trusted_in_part(counts):
            say(f"Can I use it? {in_part}")
    if result.status == "trial":
        say(f"A trial of {result.model}: nothing written")
        return
    if result.quarantined or result.deferred:
        print_tables(trouble_table(result))
    to_do = [name for name, file in result.files.items() if file.to_do]
    if result.status == "planned":
        say(
            f"{result.model} would annotate {len(to_do)} of {len(result.files)} files: "
            f"{', '.join(to_do) or 'none'}"
        )
    elif result.status == "nothing to do":
        say(f"Nothing to do: the files in {result.out} are up to date with {result.model}")
    else:
        say(f"Annotated by {result.model}: {result.out}; {result.manifest} lists the files")
    if result.published and result.status != "planned":
        say(f"Published at {result.published}")
    for sentence in (*result.repeats, *filter(None, [result.advice])):
        say(sentence[:1].upper() + sentence[1:])
