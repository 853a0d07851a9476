"""What the steps of a training pass on, and the results of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flows.models.description import LabelledSample, ModelDescription

__all__ = ["Ingested", "ModelDescription", "TrainingPlan", "TrainingResult"]


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """The result of the ingest: the version of the model that the labelled rows give, and the folder of the rows."""

    version: str
    exists: bool  # whether the store has this version already
    sample: LabelledSample
    classes: tuple[str, ...]
    folder: str | None  # folder of the staged rows; None where nothing is to be trained


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
"""The plan of a dry run, or the model: newly trained, already in the store, or from a trial."""
