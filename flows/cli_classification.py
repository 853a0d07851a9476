"""`blr classify`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows import classification
from flows.cli_prefect import start_prefect
from flows.cli_progress import shown_progress
from flows.cli_reprocessing import leave_partly
from flows.cli_show import show, show_classified

__all__ = ["run_classify"]


def run_classify(
    catalogues: Sequence[Path],
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
            told = classification.classify(catalogues, dry_run=dry_run, **options)
        else:
            server = start_prefect()
            from flows.classify import classify

            server.wait()
            told = classify(list(catalogues), **options)
    show(told, show_classified, json=json)
    leave_partly(told)
