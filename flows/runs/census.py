"""What was asked of a census, and where it was taken; `blr.census.results` is the census itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from blr.census.results import Assumption, Census

__all__ = ["CensusAsked", "CensusResult"]


@dataclass(frozen=True, kw_only=True)
class CensusAsked:
    """What was asked of a census: the assumption, purity and completeness by class, and bins of an expression."""

    assumes: Assumption | None = None
    purity: Mapping[str, float] = field(default_factory=dict)
    completeness: Mapping[str, float] = field(default_factory=dict)
    by: str | None = None
    bins: int = 4
    edges: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class CensusResult:
    """The census of an output folder: by which model, of which release; `written` is where, None if nowhere.

    `report` is the report that has it now; None where nothing was written, or an earlier version wrote that report.
    """

    out: Path
    model: str
    release: int
    census: Census
    written: Path | None
    report: Path | None = None
