"""`blr models`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.cli._options import PromoteOptions
from flows.cli._show import show, show_model, show_models, show_promoted
from flows.errors import ModelError
from flows.models.asdf_file import read_facts
from flows.models.description import ListedModel, ModelListing
from flows.models.promotion import promote
from flows.models.request import PromoteRequest
from flows.models.store import Store, StoredModel
from flows.orchestration.settings import configured_server, prefect_environment
from flows.reports.skill import has_skill

__all__ = ["run_list", "run_promote", "run_show"]


def run_list(store: Path, *, json: bool) -> None:
    """List a store."""
    models = tuple(_listed(stored) for stored in Store.named(store).models())
    show(ModelListing(store=str(store), models=models), show_models, json=json)


def _listed(stored: StoredModel) -> ListedModel:
    """Return a stored model's line; without skill and trust where its file is damaged: the others are still listed."""
    line = ListedModel(
        name=stored.name,
        version=stored.version,
        model=stored.label,
        champion=stored.champion,
        path=str(stored.path),
        has_skill=None,
        skill=None,
        trust=None,
    )
    try:
        facts = read_facts(stored.path)
    except ModelError:
        return line
    metrics = facts.metrics
    known = has_skill(metrics.skill, log_loss=metrics.log_loss, baseline=metrics.log_loss_baseline)
    return replace(line, has_skill=known, skill=metrics.skill, trust=facts.trust.verdict)


def run_show(reference: str, store: Path, *, json: bool) -> None:
    """Show a model."""
    place = Store.named(store)
    model = place.load(reference)
    history = tuple(place.history(model.name))
    show(replace(place.described(model, "stored"), history=history), show_model, json=json)


def run_promote(request: PromoteRequest, options: PromoteOptions) -> None:
    """Promote a model; where a Prefect server is configured, it hears of it."""
    request = replace(request, how="better" if options.if_better else "now")
    result = promote(request, dry_run=options.dry_run)
    if result.status == "promoted" and configured_server() is not None:
        prefect_environment(console_level="CRITICAL")
        from flows.orchestration.events import model_promoted

        model_promoted(result.model, previous=result.previous, who=result.who, why=result.why)
    show(result, show_promoted, json=options.json)
