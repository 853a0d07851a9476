"""The model store: `<store>/<name>/<version>/` holds a model, `<store>/<name>/champion` names the one in use.

Text files and renames only: a store can be copied, archived and put under version control as it is.  To list
models no model file is opened, since that and the imports it needs take seconds.
"""

# ruff: noqa: PLC0415 -- a list of models imports no models

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from catalogs.errors import nearest
from catalogs.files import atomic_write_text, check_links, own_folder
from flows.documents import from_document, to_document, utc_now
from flows.errors import DocumentError, ModelError
from flows.runs.references import NAME_PATTERN, check_output, name_and_version

if TYPE_CHECKING:
    from blr.calibration import Skill
    from flows.models.description import ModelDescription
    from flows.models.model import Model

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


# The list of a store: a line a model, from the small `description.json` that lies beside each model file.


@dataclass(frozen=True, kw_only=True)
class SkillSummary:
    """A model's skill in a form for JSON, with its verdict; `blr.calibration.Skill` explains the fields.

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
    return f"{skill.low:z.4f} to {skill.high:z.4f}".replace("-", "−")


def skill_words(skill: SkillSummary, rows: str = "held-out") -> str:
    """Return the sentence on the skill; `rows` says how objects were kept from the fit, "held-out" or "left-out"."""
    gain, baseline = skill.gain, skill.baseline
    much = f"{abs(gain):.4f} nats an object ({abs(gain) / baseline:.1%} of {baseline:.4f})"
    interval = f"{skill.level:.0%} interval of the gain {gain_interval(skill)}"
    groups = f" in {skill.n_groups:,} groups" if skill.n_groups < skill.n else ""
    on = f"on {skill.n:,} {rows} objects{groups}"
    if skill.verdict == "none shown":
        signed = f"{gain:z.4f}".replace("-", "−")
        return (
            f"No skill shown: {on} it predicts no better than the class shares alone, within the uncertainty: "
            f"gain {signed} nats an object; {interval}."
        )
    begin = "Skill" if skill.verdict == "better" else "No skill"
    return f"{begin}: {on} it predicts {skill.verdict} than the class shares alone, by {much}; {interval}."


DESCRIPTION_FILE, DESCRIPTION_FORMAT = "description.json", "blr-description"


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


def with_description(line: ListedModel, folder: Path, *, size: int) -> ListedModel:
    """Return a line with what the model's folder says of it; unchanged without that, or where it is of another file.

    `size` is that of the model file, in bytes: one that was cut is another.
    """
    path = folder / DESCRIPTION_FILE
    own = {name: value for name, value in vars(line).items() if value is not None}
    try:
        found = json.loads(path.read_bytes())
        if (found["format"], found["model"], found["size"]) != (DESCRIPTION_FORMAT, line.model, size):
            return line
        return from_document(ListedModel, found | own, source=str(path))
    except (OSError, ValueError, TypeError, KeyError, RecursionError, DocumentError):
        return line


def _trained(path: Path) -> str:
    """Return when a model was trained (ISO 8601, UTC), else the time of its file, which copies of a store may lose."""
    described = path.with_name(DESCRIPTION_FILE)
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        if not described.is_symlink() and not described.parent.is_symlink():
            return str(json.loads(described.read_bytes())["trained"])
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


# What lies in a store: names, versions, champions.

VERSION_LENGTH = 12
VERSION_PATTERN = r"^[0-9a-f]{12}$"
MODEL_FILE, REPORT_FILE = "model.asdf", "report.html"
BEGIN = b"#ASDF"
"""First bytes of a model file."""
SHORTEST_PREFIX = 4


def is_model_file(path: Path) -> bool:
    """Say whether a file begins as ASDF files do."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(BEGIN)) == BEGIN


def check_name(name: str) -> str:
    """Return the name of a model, which becomes a folder; ModelError where it would lead elsewhere."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ModelError(
            f"got '{name}' as a model's name, expected up to 64 letters, digits, '.', '_' and '-', beginning "
            "with a letter or digit; choose such a name"
        )
    return name


def check_version(version: str) -> str:
    """Return the version of a model, which becomes a folder; ModelError where it cannot be a folder."""
    if not re.fullmatch(VERSION_PATTERN, version):
        raise ModelError(
            f"got '{version}' as a model's version, expected {VERSION_LENGTH} hexadecimal digits; "
            "`blr models list` shows them"
        )
    return version


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
        return f"{self.name}@{self.version}"

    @property
    def path(self) -> Path:
        """The model file."""
        return self.folder / MODEL_FILE

    def read(self) -> Model:
        """Return the model; ModelError where its file is damaged, or another's."""
        from flows.models.model import read_model

        model = read_model(self.path)
        if (model.name, model.version) != (self.name, self.version):
            raise ModelError(
                f"{self.path}: got the model {model.label}, expected {self.label}; move the folder back to its place"
            )
        return model


@dataclass(frozen=True)
class Store:
    """A folder of models.  `named` checks one that a user names; no link inside a store is followed.

    Examples
    --------
    >>> store = flows.Store.named("models")
    >>> [m.label for m in store.models()]
    []
    """

    root: Path

    @classmethod
    def named(cls, folder: str | Path) -> Self:
        """Return the store in a folder that a user named; UsageError where it may not be written to."""
        return cls(check_output(folder, key="store"))

    def folder(self, name: str, version: str) -> Path:
        """Return where a model lies, or would."""
        return self.root / check_name(name) / check_version(version)

    def staging(self, name: str, version: str) -> Path:
        """Return the hidden folder in which a model is trained; it is removed last, when the model is in place."""
        return self.folder(name, version).with_name(f".training-{version}")

    def contains(self, name: str, version: str) -> bool:
        """Say whether a model is there, and its training has ended."""
        file = self.folder(name, version) / MODEL_FILE
        return file.is_file() and not self.staging(name, version).exists()

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
        for path in sorted(paths, key=lambda p: (_trained(p), p.stat().st_mtime_ns, p.parent.name)):
            version = path.parent.name
            yield StoredModel(name, version, path.parent, version == champion)

    def champion(self, name: str) -> str | None:
        """Return the version in use, which may be gone; None where none was chosen."""
        pointer = self.root / name / "champion"
        check_links(pointer, self.root)
        return pointer.read_text(errors="replace").strip()[:VERSION_LENGTH] if pointer.is_file() else None

    def in_use(self, name: str) -> StoredModel | None:
        """Return the champion of a name; None where none was chosen, or it is gone."""
        champion = next((stored for stored in self.versions(name) if stored.champion), None)
        return champion and self.find(champion.label)

    def history(self, name: str) -> list[Promotion]:
        """Return the decisions about a name, oldest first, without a line that a full disk has cut."""
        log = self.root / name / LOG
        decisions = []
        for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else []:
            with suppress(ValueError, TypeError):
                decisions.append(Promotion(**json.loads(line)))
        return decisions

    def find(self, reference: str, *, newest: bool = False) -> StoredModel:
        """Return the model that `NAME@VERSION` (or the start of one) means, or `NAME`: its champion, or its newest."""
        name, version = name_and_version(reference)
        versions = {m.version: m for m in self.versions(self.known(name))}
        if newest and not version:
            return [*versions.values()][-1]
        matches = [v for v in versions if v.startswith(version)]
        if not version:
            champion = self.champion(name)
            matches = [v for v in versions if v == champion]
            if not matches:
                raise ModelError(
                    f"{self.root}: got '{name}' without a version, but its champion is "
                    f"{champion or 'not chosen'}, expected one of its versions: {', '.join(versions)}; "
                    f"choose with `blr models promote {name}@VERSION`"
                )
        elif len(matches) != 1 or len(version) < SHORTEST_PREFIX:
            raise ModelError(
                f"{self.root}: got version '{version}' of '{name}', expected one of its versions or the "
                f"first digits of one ({SHORTEST_PREFIX} or more); {nearest(version, versions)}"
            )
        stored = versions[matches[0]]
        check_links(stored.folder, self.root, inside=True)
        return stored

    def load(self, reference: str) -> Model:
        """Return the model that a reference means, read and checked."""
        return self.find(reference).read()

    def save(self, model: Model, *, card: str, interval: tuple[float, float] | None = None) -> StoredModel:
        """Write a model with its card, then the model file, and last its description, which a list can do without.

        `interval` is that of its log loss, 95 %; None where it is not known.
        """
        from flows.models.model import write_tree

        folder = self.make_folder(model.name, model.version)
        atomic_write_text(folder / "card.md", card)
        write_tree(model.to_tree(), folder / MODEL_FILE)
        metrics, (low, high) = model.metrics, interval or (None, None)
        described = {
            "format": DESCRIPTION_FORMAT,
            "model": model.label,
            "size": (folder / MODEL_FILE).stat().st_size,
            "trained": utc_now(),
            "code_version": model.code_version,
            "log_loss": metrics.log_loss,  # on rows that the judging fits have not seen
            "log_loss_low": low,
            "log_loss_high": high,
            "judged_on": metrics.n,
            "judged_by": metrics.judged_by,
            "has_skill": metrics.skill.is_shown,
            "skill": to_document(metrics.skill),
            "trust": model.trust.verdict,
        }
        atomic_write_text(folder / DESCRIPTION_FILE, json.dumps(described, indent=1, allow_nan=False) + "\n")
        return StoredModel(model.name, model.version, folder, self.champion(model.name) == model.version)

    def make_folder(self, name: str, version: str, *, staging: bool = False) -> Path:
        """Make and return a model's folder, or the hidden one in which it is trained."""
        folder = self.staging(name, version) if staging else self.folder(name, version)
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
        path, champion = str(self.folder(model.name, model.version)), self.champion(model.name)
        return model.described(status, path=path, champion=champion)

    def promote(
        self, stored: StoredModel, *, why: str, who: str, kind: Literal["promoted", "undone"] = "promoted"
    ) -> Promotion:
        """Put a model in the champion's place, and write down when, who and why; `kind` says whether it was there."""
        previous = self.champion(stored.name)
        made = [d for d in self.history(stored.name) if d.kind != "rejected"]
        done = Promotion(utc_now(), stored.version, previous, who, why, kind)
        last = made[-1] if made else None
        if last is None or (last.version, last.previous, last.kind) != (done.version, previous, kind):
            self._write_decision(stored.name, done)  # or a promotion that was killed had
        atomic_write_text(self.root / stored.name / "champion", stored.version + "\n")
        return done

    def reject(self, stored: StoredModel, *, why: str, who: str) -> None:
        """Write down that a model is not to be the champion, who said so and why."""
        previous = self.champion(stored.name)
        veto = Promotion(utc_now(), stored.version, previous, who, why, "rejected")
        self._write_decision(stored.name, veto)

    def _write_decision(self, name: str, decision: Promotion) -> None:
        """Add a line to the log at once, so that two decisions at the same time leave two whole lines."""
        line = {key: value for key, value in vars(decision).items() if (key, value) != ("kind", "promoted")}
        log = self.root / name / LOG
        cut = log.is_file() and not log.read_bytes().endswith(b"\n")
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            os.write(descriptor, ("\n" * cut + json.dumps(line) + "\n").encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def known(self, name: str) -> str:
        """Return a name; ModelError where the store has no model of it."""
        names = self.names()
        if check_name(name) not in names:
            raise ModelError(
                f"{self.root}: got no model '{name}', expected one of the store's; {nearest(name, names)}; correct the "
                f"path, or train one with `blr train SPEC --store {self.root}`"
            )
        return name
