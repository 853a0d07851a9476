"""The questions put to a census, and its result with its place; `blr.census.results` has the census itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from blr.census.results import Census, StatedAssumption

__all__ = ["CensusAsked", "CensusResult"]


@dataclass(frozen=True, kw_only=True)
class CensusAsked:
    """The questions of a census: its assumption, purity and completeness by class, and bins of an expression."""

    assumes: StatedAssumption | None = None
    purity: Mapping[str, float] = field(default_factory=dict)
    completeness: Mapping[str, float] = field(default_factory=dict)
    by: str | None = None
    bins: int = 4
    edges: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class CensusResult:
    """The census of an output folder, with the model and the release that it is of.

    `written` is the path of the file with the census; None where it was not written.  `report` is the path of the
    report that shows it; None where nothing was written, or where an earlier version wrote the report.
    """

    out: Path
    model: str
    release: int
    census: Census
    written: Path | None
    report: Path | None = None
