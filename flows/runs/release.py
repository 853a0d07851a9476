"""What a release has changed, as `_releases/0007.json` keeps it, and the release that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blr.census.results import CountChange
from flows.runs.difference import Difference, ReleaseDifference
from flows.runs.outputs import Quarantined
from flows.runs.summary import Totals

__all__ = [
    "EarlierRelease",
    "NotCompared",
    "ReleaseFiles",
    "ReleaseReference",
    "ReleaseReport",
    "ReleasedFile",
]


@dataclass(frozen=True, kw_only=True)
class ReleaseReference:
    """A release: its number, when it was made (ISO 8601, UTC), and by which model and specification."""

    release: int
    created: str
    model: str
    specification_hash: str


@dataclass(frozen=True, kw_only=True)
class EarlierRelease(ReleaseReference):
    """The release before, with its totals; None where its manifest has none that this version can read."""

    totals: Totals | None


@dataclass(frozen=True)
class NotCompared:
    """Files, and their rows, that were annotated for the first time."""

    files: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class ReleaseFiles:
    """How many files stayed as they were, were annotated (by the reason), and had nothing to be compared with."""

    unchanged: int
    annotated: Mapping[str, int]
    not_compared: NotCompared


@dataclass(frozen=True, kw_only=True)
class ReleasedFile:
    """Why a file was annotated, its rows, and its difference from the copy before; None for a new file."""

    why: str
    rows: int
    difference: Difference | None


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What a release has changed since the one before, which is None for the first.

    `annotated` are the files annotated for it; `retired` those moved away; `deferred` says why a file is left for the
    next run.  `counts` says how many more objects of each class there are, with intervals.
    """

    format: str
    schema_version: int
    release: int
    created: str
    model: str
    specification_hash: str
    before: ReleaseReference | None
    files: ReleaseFiles
    annotated: Mapping[str, ReleasedFile]
    retired: tuple[str, ...]
    quarantined: tuple[Quarantined, ...]
    deferred: Mapping[str, str]
    difference: ReleaseDifference
    totals: Totals
    counts: Mapping[str, CountChange] = field(default_factory=dict)
