"""The model store: `<store>/<name>/<version>/` holds a model, `<store>/<name>/champion` names the one in use.

Text files and renames only: a store can be copied, archived and put under version control as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from catalogs.errors import nearest
from catalogs.files.atomic import atomic_write_text, check_links, own_folder
from flows.errors import ModelError
from flows.models.description import ModelDescription, description_file
from flows.models.model import Model, read_model, write_model
from flows.models.store_folder import (
    MODEL_FILE,
    Promotion,
    StoredModel,
    StoreFolder,
    write_decision,
    write_description,
)
from flows.runs.allowed_roots import check_inside
from flows.runs.model_reference import ModelReference, check_name

SHORTEST_PREFIX = 4


@dataclass(frozen=True)
class Store(StoreFolder):
    """A folder of models.  A trial has a `temporary` store, among the machine's temporary files.

    Examples
    --------
    >>> store = flows.Store.named("models")
    >>> [m.label for m in store.models()]
    []
    """

    temporary: bool = False

    @classmethod
    def around(cls, file: Path) -> Store:
        """Return the store that a model file lies in."""
        return cls(file.parent.parent.parent)

    def find(self, reference: str, *, newest: bool = False) -> StoredModel:
        """Return the model that `NAME@VERSION` (or the start of one) means, or `NAME`: its champion, or its newest."""
        wanted = ModelReference.parse(reference)
        if newest and not wanted.version:
            return [*self.versions(self._known(wanted.name))][-1]
        return self._stored(wanted)

    def at(self, name: str, version: str) -> StoredModel:
        """Return the model of a name and a version."""
        return self._stored(ModelReference(name, version))

    def _stored(self, reference: ModelReference) -> StoredModel:
        name, wanted = reference.name, reference.version
        versions = {m.version: m for m in self.versions(self._known(name))}
        if not wanted:
            champion = self.champion(name)
            if champion not in versions:
                raise ModelError(
                    f"{self.root}: got '{name}' without a version, but its champion is "
                    f"{champion or 'not chosen'}, expected one of its versions: {', '.join(versions)}; "
                    f"choose with `blr models promote {name}@VERSION`"
                )
            return self._without_links(versions[champion])
        matches = [v for v in versions if v.startswith(wanted) and len(wanted) >= SHORTEST_PREFIX]
        if len(matches) != 1:
            raise ModelError(
                f"{self.root}: got version '{wanted}' of '{name}', expected one of its versions or the first "
                f"digits of one ({SHORTEST_PREFIX} or more); {nearest(wanted, versions)}"
            )
        return self._without_links(versions[matches[0]])

    def _without_links(self, stored: StoredModel) -> StoredModel:
        check_links(stored.folder, self.root, inside=True)
        return stored

    def load(self, reference: str) -> Model:
        """Return the model that a reference means, read and checked."""
        return self.read(self.find(reference))

    def read(self, stored: StoredModel) -> Model:
        """Return a model of the store; ModelError where its file is damaged, or another's."""
        if not self.temporary:
            check_inside(stored.path, key="store")
        model = read_model(stored.path)
        if (model.name, model.version) != (stored.name, stored.version):
            raise ModelError(
                f"{stored.path}: got the model {model.label}, expected {stored.label}; move the folder back "
                "to its place"
            )
        return model

    def save(self, model: Model, *, card: str, interval: tuple[float, float] | None = None) -> StoredModel:
        """Write a model with its card, then the model file, and last its description, which a list can do without.

        `interval` is that of its log loss, 95 %; None where it is not known.
        """
        folder = self.make_folder(model.name, model.version)
        atomic_write_text(folder / "card.md", card)
        write_model(model, folder / MODEL_FILE)
        described = description_file(
            model.label,
            model.metrics,
            trust=model.trust.verdict,
            interval=interval,
            size=(folder / MODEL_FILE).stat().st_size,
            trained=datetime.now(UTC),
            code_version=model.code_version,
        )
        write_description(folder, described)
        return StoredModel(model.name, model.version, folder, self.champion(model.name) == model.version)

    def make_folder(self, name: str, version: str, *, staging: bool = False) -> Path:
        """Make and return a model's folder, or the hidden one in which it is trained."""
        folder = self.folder(name, version)
        if staging:
            folder = folder.with_name(f".training-{version}")
        if not self.temporary:
            check_inside(folder, key="store")
        try:
            own_folder(folder, self.root)
            check_links(folder, self.root, inside=True)
        except OSError as error:
            raise ModelError(
                f"{folder}: got '{error.strerror}' on making the folder, expected a model store that you may "
                "write to; check its permissions, or choose another with --store"
            ) from error
        return folder

    def described(self, model: Model, status: Literal["trained", "exists", "stored"]) -> ModelDescription:
        """Describe a model for people: what it is, where it lies, and which is the champion."""
        path = str(self.folder(model.name, model.version))
        return model.described(status, path=path, champion=self.champion(model.name))

    def promote(
        self, stored: StoredModel, *, why: str, who: str, kind: Literal["promoted", "undone"] = "promoted"
    ) -> Promotion:
        """Put a model in the champion's place, and write down when, who and why; `kind` says whether it was there."""
        done = _decision(stored.version, self.champion(stored.name), who, why, kind)
        folder = self.root / stored.name
        made = [d for d in self.history(stored.name) if d.kind != "rejected"]
        last = made[-1] if made else None
        if last is None or (last.version, last.previous, last.kind) != (done.version, done.previous, kind):
            write_decision(folder, done)  # or a promotion that was killed had
        atomic_write_text(folder / "champion", stored.version + "\n")
        return done

    def reject(self, stored: StoredModel, *, why: str, who: str) -> Promotion:
        """Write down that a model is not to be the champion, who said so and why."""
        done = _decision(stored.version, self.champion(stored.name), who, why, "rejected")
        write_decision(self.root / stored.name, done)
        return done

    def _known(self, name: str) -> str:
        names = self.names()
        if check_name(name) not in names:
            if not names:
                lacking = "a store without any model" if self.root.is_dir() else "no such folder"
                raise ModelError(
                    f"{self.root}: got {lacking}, expected the model '{name}' in it; correct the path, or train one "
                    f"with `blr train SPEC --store {self.root}`"
                )
            raise ModelError(
                f"{self.root}: got no model '{name}', expected one of the store's; {nearest(name, names)}"
            )
        return name


def _decision(
    version: str,
    previous: str | None,
    who: str,
    why: str,
    kind: Literal["promoted", "undone", "rejected"],
) -> Promotion:
    return Promotion(datetime.now(UTC).isoformat(timespec="seconds"), version, previous, who, why, kind)
