"""What lies in a model store, without opening a model: names, versions, champions, and who decided about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from catalogs.files.atomic import check_links
from flows.models.history import Promotion, read_history
from flows.runs.allowed_roots import check_output
from flows.runs.model_reference import ModelReference, check_name, check_version

__all__ = ["BEGIN", "MODEL_FILE", "StoreFolder", "StoredModel", "is_model_file"]

MODEL_FILE = "model.asdf"
BEGIN = b"#ASDF"
"""First bytes of a model file."""


def is_model_file(path: Path) -> bool:
    """Say whether a file begins as ASDF files do."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(BEGIN)) == BEGIN


@dataclass(frozen=True)
class StoredModel:
    """A place in the store; the model itself is not read yet."""

    name: str
    version: str
    folder: Path
    champion: bool

    @property
    def label(self) -> str:
        """`NAME@VERSION`."""
        return ModelReference(self.name, self.version).label

    @property
    def path(self) -> Path:
        """The model file."""
        return self.folder / MODEL_FILE


@dataclass(frozen=True)
class StoreFolder:
    """The folders of models below a folder."""

    root: Path

    @classmethod
    def named(cls, folder: str | Path) -> Self:
        """Return the store in a folder that a user named; UsageError where it may not be written to."""
        return cls(check_output(folder, key="store"))

    def folder(self, name: str, version: str) -> Path:
        """Return where a model lies, or would."""
        return self.root / check_name(name) / check_version(version)

    def contains(self, name: str, version: str) -> bool:
        """Say whether a model is there; its file is written last, so then all of it is."""
        return (self.folder(name, version) / MODEL_FILE).is_file()

    def models(self) -> Iterator[StoredModel]:
        """Yield what is in the store, by name and then by age."""
        for name in self.names():
            yield from self.versions(name)

    def names(self) -> list[str]:
        """Return the names of the models."""
        return sorted({path.parent.parent.name for path in self.root.glob(f"[!.]*/[!.]*/{MODEL_FILE}")})

    def versions(self, name: str) -> Iterator[StoredModel]:
        """Yield the models of a name, by age."""
        champion = self.champion(name)
        paths = (self.root / name).glob(f"[!.]*/{MODEL_FILE}")
        for path in sorted(paths, key=lambda p: (p.stat().st_mtime_ns, p.parent.name)):
            version = path.parent.name
            yield StoredModel(name, version, path.parent, version == champion)

    def champion(self, name: str) -> str | None:
        """Return the version in use."""
        pointer = self.root / check_name(name) / "champion"
        check_links(pointer, self.root)
        return check_version(pointer.read_text().strip()) if pointer.is_file() else None

    def history(self, name: str) -> list[Promotion]:
        """Return the decisions about a name, oldest first."""
        return read_history(self.root / check_name(name))
