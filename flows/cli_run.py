"""What the commands do: call the work, with or without Prefect, and show what came of it."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows import classification, training
from flows.cli_progress import shown_progress
from flows.cli_show import show_classified, show_inspected, show_models, show_promoted, show_trained
from flows.config_file import load_specification
from flows.inspection import inspect_file
from flows.progress import tell
from flows.runtime import EmbeddedServer, prefect_environment, start_embedded_server
from flows.store import Store

__all__ = ["run_classify", "run_inspect", "run_list", "run_promote", "run_show", "run_train"]

Json = dict[str, Any]


def run_train(
    spec: Path,
    store: Path,
    options: Mapping[str, Any],
    *,
    dry_run: bool,
    direct: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Train, as a flow unless it is direct."""
    specification = load_specification(spec)
    with shown_progress(quiet=quiet):
        if direct or dry_run:
            told = training.train(specification, store, dry_run=dry_run, **options)
        else:
            told = _train_flow()(specification, store, **options)
    _print(told, show_trained, json=json)


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
            told = _classify_flow()(list(catalogues), **options)
    _print(told, show_classified, json=json)


def _train_flow() -> Callable[..., Json]:
    server = _server()
    from flows.train import train

    server.wait()
    return train


def _classify_flow() -> Callable[..., Json]:
    server = _server()
    from flows.classify import classify

    server.wait()
    return classify


def _server() -> EmbeddedServer:
    """Give Prefect its settings, and start its server beside the import, which is slow too."""
    # Prefect itself logs each failure with its traceback; the message is ours to show.
    tell().note(prefect_environment(console_level="CRITICAL"))
    return start_embedded_server()


def run_inspect(file: Path, *, limit: int | None, json: bool) -> None:
    """Say what a file holds."""
    _print(inspect_file(file, limit=limit), show_inspected, json=json)


def run_list(store: Path, *, json: bool) -> None:
    """List a store."""
    found = [
        {"name": m.name, "version": m.version, "model": m.label, "champion": m.champion, "path": str(m.path)}
        for m in Store(store).models()
    ]
    _print({"store": str(store), "models": found}, show_models, json=json)


def run_show(reference: str, store: Path, *, json: bool) -> None:
    """Show a model."""
    place = Store(store)
    model = place.load(place.find(reference).label)
    history = [vars(promotion) for promotion in place.history(model.name)]
    told = training.told(model, place, "stored") | {"history": history}
    _print(told, show_trained, json=json)


def run_promote(reference: str, store: Path, *, why: str, dry_run: bool, json: bool) -> None:
    """Promote a model; the model is read first, so that a damaged one never takes the champion's place."""
    place = Store(store)
    model = place.load(place.find(reference).label)
    before = place.champion(model.name)
    if not dry_run and before != model.version:
        place.promote(model.label, why=why)
    told = {"status": "planned" if dry_run else "promoted", "model": model.label, "previous": before}
    _print(told, show_promoted, json=json)


def _print(told: Json, show: Callable[[Json], None], *, json: bool) -> None:
    if json:
        sys.stdout.write(json_text.dumps(told, indent=1, allow_nan=False) + "\n")
    else:
        show(told)
