"""`blr census`."""

from __future__ import annotations

from flows.classification.census_taking import take_census
from flows.classification.request import CensusRequest
from flows.cli._options import WriteOptions
from flows.cli._printing import print_tables, say, show
from flows.reports.catalogue_page import REPORT_KEPT
from flows.reports.census import census_tables
from flows.runs.census import CensusResult

__all__ = ["run_census"]


def run_census(request: CensusRequest, options: WriteOptions) -> None:
    """Take the census of an output folder again."""
    show(take_census(request, dry_run=options.dry_run), show_census, json=options.json)


def show_census(result: CensusResult) -> None:
    """Show the census of an output folder."""
    print_tables(*census_tables(result.census))
    files = ", ".join(str(path) for path in (result.written, result.report) if path is not None)
    said = f"written to {files}" if files else "nothing written"
    say(f"Release {result.release} of {result.out}, by {result.model}: {said}")
    if result.written is not None and result.report is None:
        say(REPORT_KEPT)
