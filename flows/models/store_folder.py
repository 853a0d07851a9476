"""The folder of a store: names, versions, champions and the history of promotions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from catalogs.files.atomic import check_links
from flows.runs.allowed_roots import check_output
from flows.runs.model_reference import ModelReference, check_name, check_version

# Who decided what about a model's name, and when: `champion.log`, a line a decision, from which one can be undone.

LOG = "champion.log"


@dataclass(frozen=True)
class Promotion:
    """A line of the champion's log: a decision about a version of the name.

    `promoted` put it in the champion's place.  `undone` put it back there, and `previous` is the one whose promotion
    was undone.  `rejected` is a veto: `previous` stayed the champion.
    """

    when: str  # ISO 8601, UTC
    version: str
    previous: str | None  # version of the champion before; None for the first
    who: str  # name of the person, or "the rule"
    why: str
    kind: Literal["promoted", "undone", "rejected"] = "promoted"


def read_history(folder: Path) -> list[Promotion]:
    """Return the decisions in the folder of a name, oldest first."""
    log = folder / LOG
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    return [decision for line in lines if (decision := _decision(line)) is not None]


def write_decision(folder: Path, decision: Promotion) -> None:
    """Add a line to the log; earlier versions of `blr` read a promotion as ever, and pass over the other kinds."""
    line = {key: value for key, value in vars(decision).items() if (key, value) != ("kind", "promoted")}
    _append(folder / LOG, json.dumps(line))


def champion_before(history: Sequence[Promotion], champion: str) -> str | None:
    """Return the champion that was in place before the present one; None where the log knows of none.

    A promotion that was undone does not count, so undoing twice goes back by two.
    """
    places: list[str] = []
    for decision in history:
        if decision.kind == "promoted":
            if not places and decision.previous:
                places.append(decision.previous)
            if places[-1:] != [decision.version]:
                places.append(decision.version)
        elif decision.kind == "undone":
            places = _up_to(places, decision.version) or [decision.version]
    # A promotion that was killed has its line, and did not come to be the champion.
    places = _up_to(places, champion)
    return places[-2] if len(places) > 1 else None


def standing_vetoes(history: Sequence[Promotion], version: str) -> tuple[Promotion, ...]:
    """Return who rejected a version since it was last promoted."""
    of_version = [d for d in history if d.version == version and d.kind in {"promoted", "rejected"}]
    promoted = [i for i, d in enumerate(of_version) if d.kind == "promoted"]
    return tuple(of_version[promoted[-1] + 1 :] if promoted else of_version)


def veto_words(veto: Promotion) -> str:
    """Return who rejected a model, when and why."""
    return f"{veto.who} rejected it on {veto.when[:10]}: {veto.why}"


def _up_to(places: list[str], version: str) -> list[str]:
    """Return the champions up to the last time that a version was one; none where it never was."""
    if version not in places:
        return []
    return places[: len(places) - places[::-1].index(version)]


def _decision(line: str) -> Promotion | None:
    """Return the decision in a line of the log; None of a line that a full disk has cut."""
    try:
        return Promotion(**json.loads(line))
    except (ValueError, TypeError):
        return None


def _append(log: Path, line: str) -> None:
    # The line is written at once in append mode, so two simultaneous decisions leave two complete lines.
    cut = log.is_file() and not log.read_bytes().endswith(b"\n")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        os.write(descriptor, ("\n" * cut + line + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# What lies in a model store, without opening a model: names, versions, champions, and who decided about them.

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
