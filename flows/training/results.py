"""What a training passes from step to step, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flows.models.description import LabelledSample, ModelDescription

__all__ = ["Ingested", "ModelDescription", "TrainingPlan", "TrainingResult"]


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """The labelled rows: which version of the model they make, and where they wait."""

    version: str
    exists: bool  # whether the store has that version
    sample: LabelledSample
    classes: tuple[str, ...]
    folder: str | None  # of the staged rows; None where nothing is to be trained


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What a training would do."""

    status: Literal["planned"]
    model: str  # NAME@VERSION
    store: str
    version: str
    exists: bool  # whether the store has it already, so that nothing would be done
    training: LabelledSample
    classes: tuple[str, ...]


TrainingResult = TrainingPlan | ModelDescription
"""A plan of a dry run, else the model: trained, there already, or of a trial."""
