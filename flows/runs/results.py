"""What `classify` and `reprocess` return: what was done, would be done, or was tried on some rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.runs.difference import ReleaseDifference
from flows.runs.release import EarlierRelease
from flows.runs.summary import Counts, ShownSummary

__all__ = [
    "ClassificationResult",
    "ClassificationTrial",
    "FileWork",
    "FinishedClassification",
    "FolderResult",
    "PlannedClassification",
    "ReleaseResult",
    "UnchangedClassification",
    "Value",
    "WaitingClassification",
]

Value = str | int | float | None
"""A value of a new column; None where it is missing."""


@dataclass(frozen=True, kw_only=True)
class FileWork:
    """One input: its path or URL, its rows, whether it has to be annotated, and why ('' where its copy is there)."""

    input: str
    n_rows: int
    to_do: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class _Status:
    """What became of the work."""

    status: str


@dataclass(frozen=True, kw_only=True)
class FolderResult:
    """What all results of work on an output folder say.

    `release` is the number of the release in the folder, None before the first.  `files` are by the names of their
    copies.  `retired` copies were moved away, or would be.  `quarantined` and `deferred` say why a file was not
    annotated, by its name.  `advice` is on the size of the copies, '' where it is not needed.  `summary` is None where
    no file is annotated yet, `before` where there was no release.
    """

    model: str
    out: Path
    manifest: Path
    release: int | None
    files: Mapping[str, FileWork]
    retired: tuple[str, ...]
    quarantined: Mapping[str, str]
    deferred: Mapping[str, str]
    advice: str
    summary: ShownSummary | None
    before: EarlierRelease | None


@dataclass(frozen=True, kw_only=True)
class PlannedClassification(FolderResult, _Status):
    """What would be done; `up_to_date` where that is nothing."""

    status: Literal["planned"]
    up_to_date: bool


@dataclass(frozen=True, kw_only=True)
class UnchangedClassification(FolderResult, _Status):
    """Nothing had to be done."""

    status: Literal["nothing to do"]


@dataclass(frozen=True, kw_only=True)
class WaitingClassification(FolderResult, _Status):
    """Nothing could be done yet: all inputs are still being written."""

    status: Literal["waiting"]


@dataclass(frozen=True, kw_only=True)
class FinishedClassification(FolderResult, _Status):
    """What was done.

    `drifted` names the features that are far from the training's.  `report` and `difference` are of a release, None
    where a folder is annotated without releases.  `newly_quarantined` were not in trouble before, or for another
    reason.
    """

    status: Literal["done"]
    release: int
    summary: ShownSummary
    drifted: tuple[str, ...]
    report: Path | None = None
    difference: ReleaseDifference | None = None
    newly_quarantined: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ClassificationTrial:
    """A trial: the counts of the rows that were scored, and the new columns of the first few, by name."""

    status: Literal["trial"]
    model: str
    summary: Counts
    rows: tuple[Mapping[str, Value], ...]


ReleaseResult = (
    PlannedClassification | UnchangedClassification | WaitingClassification | FinishedClassification
)
"""What `reprocess` returns."""

ClassificationResult = ReleaseResult | ClassificationTrial
"""What `classify` returns."""
