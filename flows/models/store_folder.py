"""A model store without opening a model: names, versions, champions, decisions, and the list of models."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from catalogs.files.atomic import check_links
from flows.documents import read_document, write_document
from flows.errors import DocumentError
from flows.runs.allowed_roots import check_output
from flows.runs.model_reference import ModelReference, check_name, check_version

if TYPE_CHECKING:
    from blr.selection.skill import Skill

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


# The list of a store: a line a model, from the small `description.json` that lies beside each model file.
#
# Model files hold all of it too, and take a second to open; a list of a hundred models would take minutes.


@dataclass(frozen=True, kw_only=True)
class SkillSummary:
    """A model's skill in a form for JSON, with its verdict; `blr.selection.skill.Skill` explains the fields.

    Ends of an interval that is not known are None.
    """

    gain: float
    low: float | None
    high: float | None
    baseline: float
    level: float
    n: int
    n_groups: int
    verdict: str  # "better", "worse" or "none shown"

    @classmethod
    def of(cls, skill: Skill) -> SkillSummary:
        """Return the summary of a skill."""
        low, high = (end if math.isfinite(end) else None for end in (skill.low, skill.high))
        return cls(**{**vars(skill), "low": low, "high": high}, verdict=skill.verdict)

    @property
    def is_shown(self) -> bool:
        """Whether the model is known to predict better than the class shares alone."""
        return self.verdict == "better"


def gain_interval(skill: SkillSummary) -> str:
    """Return the interval of the gain, "0.102 to 0.134", in nats."""
    if skill.low is None or skill.high is None:
        return "not known"
    return f"{_signed(skill.low)} to {_signed(skill.high)}"


def skill_words(skill: SkillSummary, rows: str = "held-out") -> str:
    """Return the sentence on the skill; `rows` says how objects were kept from the fit, "held-out" or "left-out"."""
    gain, baseline = skill.gain, skill.baseline
    much = f"{abs(gain):.4f} nats an object ({abs(gain) / baseline:.1%} of {baseline:.4f})"
    interval = f"{skill.level:.0%} interval of the gain {gain_interval(skill)}"
    on = f"on {skill.n:,} {rows} objects"
    if skill.n_groups < skill.n:
        on += f" in {skill.n_groups:,} groups"
    if skill.verdict == "better":
        return f"Skill: {on} it predicts better than the class shares alone, by {much}; {interval}."
    if skill.verdict == "worse":
        return f"No skill: {on} it predicts worse than the class shares alone, by {much}; {interval}."
    return (
        f"No skill shown: {on} it predicts no better than the class shares alone, within the uncertainty: "
        f"gain {_signed(gain)} nats an object; {interval}."
    )


def _signed(value: float) -> str:
    return f"{value:z.4f}".replace("-", "−")


DESCRIPTION_FILE = "description.json"


@dataclass(frozen=True, kw_only=True)
class DescriptionFile:
    """What `description.json` holds of a model.  The log loss is on rows that the judging fits have not seen."""

    format: Literal["blr-description"]
    model: str  # NAME@VERSION
    size: int  # bytes of the model file
    trained: str  # ISO 8601, UTC
    code_version: str
    log_loss: float  # nats an object
    log_loss_low: float | None  # its 95 % interval; None where it is not known
    log_loss_high: float | None
    judged_on: int  # rows
    judged_by: Literal["held-out", "left-out"]
    has_skill: bool
    skill: SkillSummary
    trust: str


@dataclass(frozen=True, kw_only=True)
class ListedModel:
    """A line in the list of a store; what is None is not known, as where the model file is damaged."""

    name: str
    version: str
    model: str  # NAME@VERSION
    champion: bool  # whether it is the champion of its name
    path: str  # of the model file
    has_skill: bool | None  # whether it is known to predict better than the class shares alone
    skill: SkillSummary | None
    trust: str | None  # verdict on the probabilities: "green", "amber" or "red"
    trained: str | None = None  # ISO 8601, UTC
    log_loss: float | None = None  # nats an object, on rows that the judging fits have not seen
    log_loss_low: float | None = None  # its 95 % interval
    log_loss_high: float | None = None
    judged_on: int | None = None  # rows
    # who rejected it, when and why; None where nobody has, or it was promoted since
    rejected: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelListing:
    """The models of a store, by name and then from the oldest to the newest."""

    store: str  # path of its folder
    models: tuple[ListedModel, ...]


def write_description(folder: Path, description: DescriptionFile) -> None:
    """Write the description into a model's folder, whole or not at all."""
    write_document(folder / DESCRIPTION_FILE, description)


def read_description(folder: Path, label: str, *, size: int) -> DescriptionFile | None:
    """Return the description of the model NAME@VERSION; None where its folder has none, or that of another file.

    `size` is that of the model file, in bytes: one that was cut is another.
    """
    try:
        description = read_document(DescriptionFile, folder / DESCRIPTION_FILE)
    except (OSError, DocumentError):
        return None
    return description if (description.model, description.size) == (label, size) else None
