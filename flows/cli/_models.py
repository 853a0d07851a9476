"""`blr models show` and `blr models promote`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.classification.release_changes import in_release
from flows.cli._options import PromoteOptions
from flows.cli._printing import print_tables, say, show
from flows.cli._show import show_model
from flows.errors import UsageError
from flows.models.promotion import DecidedPromotion, RejectedPromotion, UndonePromotion, promote, reject, undo
from flows.models.request import PromoteRequest
from flows.models.store import Store
from flows.orchestration.home import connect
from flows.reports.comparison_tables import comparison_tables

__all__ = ["run_promote", "run_show"]


def run_show(reference: str, store: Path, *, json: bool) -> None:
    """Show a model."""
    place = Store.named(store)
    model = place.load(reference)
    history = tuple(place.history(model.name))
    show(replace(place.described(model, "stored"), history=history), show_model, json=json)


def run_promote(request: PromoteRequest, options: PromoteOptions) -> None:
    """Promote a model, reject it or undo a promotion; a Prefect server that is configured or runs hears of it."""
    if options.reject + options.undo + options.if_better > 1:
        raise UsageError("got several of --if-better, --reject and --undo, expected one; choose one")
    result = _decided(request, options)
    if result.status in {"promoted", "undone"} and connect(console_level="CRITICAL") is not None:
        from flows.orchestration.events import model_promoted

        model_promoted(result.model, previous=result.previous, who=result.who, why=result.why)
    show(result, show_promoted, json=options.json)


def _decided(request: PromoteRequest, options: PromoteOptions) -> DecidedPromotion:
    if options.undo:
        return undo(request, dry_run=options.dry_run)
    if options.reject:
        return reject(request, dry_run=options.dry_run)
    request = replace(request, how="better" if options.if_better else "now")
    return promote(request, dry_run=options.dry_run, in_release=in_release if options.dry_run else None)


def show_promoted(result: DecidedPromotion) -> None:
    """Show a decision about a model; of a plan, the comparison too."""
    would = "would be" if result.status == "planned" else "is"
    if isinstance(result, UndonePromotion):
        say(
            f"{result.model} {would} the champion again, in the place of {result.previous} ({result.who}: {result.why})"
        )
        return
    if isinstance(result, RejectedPromotion):
        stays = f"the champion stays: {result.previous or 'none'}"
        say(f"{result.model} {would} rejected ({result.who}: {result.why}); {stays}")
        return
    if result.status == "planned":
        print_tables(*comparison_tables(result.comparison))
    words = {
        "planned": "would be the champion",
        "promoted": f"is the champion ({result.who}: {result.why})",
        "is the champion": "is the champion already",
        "kept": f"is not promoted ({result.why}); the champion stays",
    }
    say(f"{result.model} {words[result.status]}; before: {result.previous or 'none'}")
