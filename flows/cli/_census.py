"""`blr census`."""

from __future__ import annotations

from flows.classification.census_taking import take_census
from flows.classification.request import CensusRequest
from flows.cli._options import WriteOptions
from flows.cli._printing import show
from flows.cli._show import show_census

__all__ = ["run_census"]


def run_census(request: CensusRequest, options: WriteOptions) -> None:
    """Take the census of an output folder again."""
    show(take_census(request, dry_run=options.dry_run), show_census, json=options.json)
