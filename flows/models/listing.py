"""The list of a store: a line a model, from the small `description.json` that lies beside each model file.

Model files hold all of it too, and take a second to open; a list of a hundred models would take minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.documents import read_document, write_document
from flows.errors import DocumentError
from flows.models.skill import SkillSummary

__all__ = ["DescriptionFile", "ListedModel", "ModelListing", "read_description", "write_description"]

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
    skill: SkillSummary | None
    trust: str


@dataclass(frozen=True, kw_only=True)
class ListedModel:
    """A line in the list of a store; what is None is not known, as where the model file is damaged.

    Models of earlier versions have no interval, and the time of their file for that of their training.
    """

    name: str
    version: str
    model: str  # NAME@VERSION
    champion: bool  # whether it is the champion of its name
    path: str  # of the model file
    has_skill: bool | None  # whether it is known to predict better than the class shares alone
    skill: SkillSummary | None  # None for models of earlier versions too
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
