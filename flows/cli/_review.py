"""`blr review`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.cli._prefect_server import start_prefect
from flows.cli._show import say, show
from flows.reviews import selection as reviewing

__all__ = ["run_review"]


def run_review(out: Path, options: Mapping[str, Any], *, dry_run: bool, direct: bool, json: bool) -> None:
    """Review, as a flow unless it is direct."""
    if direct or dry_run:
        result = reviewing.review(out, dry_run=dry_run, **options)
    else:
        server = start_prefect()
        from flows.review import review

        server.wait()
        result = review(out, **options)
    show(result, show_reviewed, json=json)


def show_reviewed(result: reviewing.ReviewResult) -> None:
    """Show who was chosen, and where the list is."""
    files = ", ".join(str(path) for path in result.files) or "nothing written"
    say(
        f"{result.top} flagged and {result.drawn} drawn of {result.n_classified:,} classified objects: {files}"
    )
    for remark in result.remarks:
        say(remark)
