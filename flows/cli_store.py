"""`blr models` and `blr inspect`."""

from __future__ import annotations

from pathlib import Path

from flows.cli_show import show, show_inspected, show_models, show_promoted, show_trained
from flows.inspection import inspect_file
from flows.store import Store

__all__ = ["run_inspect", "run_list", "run_promote", "run_show"]


def run_inspect(file: Path, *, limit: int | None, json: bool) -> None:
    """Say what a file holds."""
    show(inspect_file(file, limit=limit), show_inspected, json=json)


def run_list(store: Path, *, json: bool) -> None:
    """List a store."""
    found = [
        {"name": m.name, "version": m.version, "model": m.label, "champion": m.champion, "path": str(m.path)}
        for m in Store(store).models()
    ]
    show({"store": str(store), "models": found}, show_models, json=json)


def run_show(reference: str, store: Path, *, json: bool) -> None:
    """Show a model."""
    place = Store(store)
    model = place.load(place.find(reference).label)
    history = [vars(promotion) for promotion in place.history(model.name)]
    told = place.described(model, "stored") | {"history": history}
    show(told, show_trained, json=json)


def run_promote(reference: str, store: Path, *, why: str, dry_run: bool, json: bool) -> None:
    """Promote a model; the model is read first, so that a damaged one never takes the champion's place."""
    place = Store(store)
    model = place.load(place.find(reference).label)
    before = place.champion(model.name)
    if not dry_run and before != model.version:
        place.promote(model.label, why=why)
    told = {"status": "planned" if dry_run else "promoted", "model": model.label, "previous": before}
    show(told, show_promoted, json=json)
