"""`blr models list`: in a moment, for it opens no model file but reads the description beside it."""

from __future__ import annotations

from pathlib import Path

from catalogs.files import StorageError, check_links
from catalogs.remote.urls import scrubbed
from flows.cli._printing import print_table, say, show
from flows.models import store as stores


def run_list(*, store: Path, json: bool) -> None:
    """List a store."""
    folder = stores.Store.named(store)
    models = tuple(_listed(folder, stored) for stored in folder.models())
    # Of a store that is not there, the name may be a URL that somebody wrote in its place.
    listing = stores.ModelListing(store=str(store) if models else scrubbed(str(store)), models=models)
    show(listing, show_models, json=json)


def _listed(store: stores.Store, stored: stores.StoredModel) -> stores.ListedModel:
    """Return a stored model's line; where its files are damaged, only what the store itself knows of it."""
    vetoes = stores.standing_vetoes(store.history(stored.name), stored.version)
    line = stores.ListedModel(
        name=stored.name,
        version=stored.version,
        model=stored.label,
        champion=stored.champion,
        path=str(stored.path),
        has_skill=None,
        skill=None,
        trust=None,
        rejected="; ".join(map(stores.veto_words, vetoes)) or None,
    )
    try:
        check_links(stored.folder, store.root, inside=True)
    except StorageError:
        return line
    return stores.with_description(line, stored.folder, size=stored.path.stat().st_size)


def show_models(listing: stores.ModelListing) -> None:
    """Show what is in a store."""
    skill = {True: "better than the class shares", False: "no skill", None: "cannot be read"}
    rows = []
    for m in listing.models:
        trained = "–" if m.trained is None else m.trained[:16].replace("T", " ")
        standing = "champion" if m.champion else "rejected" if m.rejected else ""
        rows.append((m.name, m.version, trained, _loss(m), skill[m.has_skill], m.trust or "–", standing))
    if not rows:
        say(f"No models in {listing.store}: `blr train SPEC --store {listing.store}` makes one")
        return
    columns = ("name", "version", "trained (UTC)", "log loss, 95%", "skill", "verdict", "")
    print_table(f"Models in {listing.store}", columns, rows)
    say(*(f"{m.model}: {m.rejected}" for m in listing.models if m.rejected))


def _loss(model: stores.ListedModel) -> str:
    if model.log_loss_low is None or model.log_loss_high is None:
        return "–" if model.log_loss is None else f"{model.log_loss:.4f}"
    return f"{model.log_loss:.4f} ({model.log_loss_low:.4f} to {model.log_loss_high:.4f})"
