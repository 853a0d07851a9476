"""The numbers of the demonstration, for programs: of each task in its `summary.json`, and of all as `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from blr.candidates.candidate import CandidatePart, CandidateRow, PosteriorCheck
from flows.models.description import Review
from flows.models.skill import SkillSummary
from flows.runs.summary import AnnotatedFile

__all__ = ["DemoCandidate", "DemoResult", "DemoTask", "HeldOutPerformance"]


@dataclass(frozen=True, kw_only=True)
class DemoCandidate:
    """What the summary holds of a row of the evidence table; the fields are those of `CandidateRow`."""

    features: tuple[str, ...]
    basis: str
    n_functions: int
    log_evidence: float
    bic: float
    effective_parameters: float | None
    log_loss: float
    verdict: str
    weight: float
    share: float | None
    parts: tuple[CandidatePart, ...]
    checks: tuple[PosteriorCheck | None, ...]
    second_order: float | None
    loo: float | None

    @classmethod
    def of(cls, row: CandidateRow) -> DemoCandidate:
        """Return what is kept of a row."""
        return cls(**{name: getattr(row, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True)
class HeldOutPerformance:
    """How good the model is on the rows that judge it; losses and gains in nats an object."""

    n: int
    judged_by: str
    log_loss: float
    log_loss_plugin: float
    log_loss_baseline: float
    gain_over_baseline: float
    skill: SkillSummary | None
    accuracy: float
    calibration_error: float
    reviews: tuple[Review, ...]


@dataclass(frozen=True, kw_only=True)
class DemoTask:
    """One task: the model, its evidence table, its performance, and the catalogues that it classified."""

    model: str
    classes: tuple[str, ...]
    selected: DemoCandidate
    candidates: tuple[DemoCandidate, ...]
    held_out: HeldOutPerformance
    classified: Mapping[str, AnnotatedFile]
    remarks: tuple[str, ...]
    attribution: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The demonstration: the catalogues that were written, whose they are, and the two tasks."""

    catalogues: tuple[str, ...]
    attribution: str
    binary: DemoTask
    five_class: Annotated[DemoTask, Field(alias="five-class")]
