"""`blr classify`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.classification import steps as classification
from flows.cli._prefect_server import start_prefect
from flows.cli._progress import shown_progress
from flows.cli._reprocess import leave_partly
from flows.cli._show import show, show_classified
from flows.errors import UsageError
from flows.inputs.resolve import check_parameters

__all__ = ["read_shares", "run_classify"]


def read_shares(text: str | None) -> str | dict[str, float] | None:
    """Return "em", or the shares in a text such as early=0.3,late=0.7; UsageError where it is neither."""
    if text is None or text == "em":
        return text
    shares = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        try:
            shares[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise UsageError(
                f"--class-prior: got '{part}', expected em, or the share of each class as in early=0.3,late=0.7; "
                "names with commas go into [shift] of a specification"
            )
    return shares


def run_classify(
    catalogues: Sequence[str],
    options: Mapping[str, Any],
    *,
    dry_run: bool,
    direct: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Classify, as a flow unless it is direct."""
    with shown_progress(quiet=quiet):
        if direct or dry_run:
            result = classification.classify(catalogues, dry_run=dry_run, **options)
        else:
            check_parameters(catalogues)
            server = start_prefect()
            from flows.classify import classify

            server.wait()
            result = classify(list(catalogues), **options)
    show(result, show_classified, json=json)
    leave_partly(result)
