"""The list of a store: a line a model, from the small `description.json` that lies beside each model file.

Model files hold all of it too, and take a second to open; a list of a hundred models would take minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flows.documents import read_document, write_document
from flows.errors import DocumentError

if TYPE_CHECKING:
    from blr.selection.skill import Skill


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
