"""`blr models`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.cli._show import show, show_models, show_promoted, show_trained
from flows.errors import ModelError
from flows.models.asdf_file import read_facts
from flows.models.promotion import Rule, promote
from flows.models.store import Store
from flows.orchestration.settings import configured_server, prefect_environment
from flows.reports.skill import has_skill, read_skill

__all__ = ["run_list", "run_promote", "run_show"]


def run_list(store: Path, *, json: bool) -> None:
    """List a store."""
    found = [
        {"name": m.name, "version": m.version, "model": m.label, "champion": m.champion, "path": str(m.path)}
        | _facts(m.path)
        for m in Store.named(store).models()
    ]
    show({"store": str(store), "models": found}, show_models, json=json)


def _facts(path: Path) -> dict[str, Any]:
    """Return skill and trust of a stored model; None where its file is damaged: the others are still listed."""
    try:
        facts = read_facts(path)
        metrics, verdict = facts["metrics"], facts["trust"]["verdict"]
        skill, loss, baseline = metrics.get("skill"), metrics["log_loss"], metrics["log_loss_baseline"]
        known = has_skill(read_skill(skill), log_loss=loss, baseline=baseline)
    except (ModelError, KeyError, TypeError):
        return {"has_skill": None, "skill": None, "trust": None}
    return {"has_skill": known, "skill": skill, "trust": verdict}


def run_show(reference: str, store: Path, *, json: bool) -> None:
    """Show a model."""
    place = Store.named(store)
    model = place.load(reference)
    history = [vars(promotion) for promotion in place.history(model.name)]
    result = place.described(model, "stored") | {"history": history}
    show(result, show_trained, json=json)


def run_promote(
    reference: str, store: Path, *, rule: Rule, margin: float, why: str | None, dry_run: bool, json: bool
) -> None:
    """Promote a model; where a Prefect server is configured, it hears of it."""
    result = promote(reference, store=store, rule=rule, margin=margin, why=why, dry_run=dry_run)
    if result["status"] == "promoted" and configured_server() is not None:
        prefect_environment(console_level="CRITICAL")
        from flows.orchestration.events import model_promoted

        model_promoted(result)
    show(result, show_promoted, json=json)
