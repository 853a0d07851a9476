"""What a release has changed, as in the file `_releases/0007.json`, and the release that it is compared with."""

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
    """A release: its number, the time when it was made (ISO 8601, UTC), its model and its specification."""

    release: int
    created: str
    model: str
    specification_hash: str


@dataclass(frozen=True, kw_only=True)
class EarlierRelease(ReleaseReference):
    """The release before, with its totals; these are None where this version cannot read them."""

    totals: Totals | None


@dataclass(frozen=True)
class NotCompared:
    """Numbers of files that were annotated for the first time, and of their rows."""

    files: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class ReleaseFiles:
    """Numbers of files: unchanged ones, annotated ones by the reason, and those without an earlier copy."""

    unchanged: int
    annotated: Mapping[str, int]
    not_compared: NotCompared


@dataclass(frozen=True, kw_only=True)
class ReleasedFile:
    """Why a file was annotated, its number of rows, and its difference from the copy before; None for a new file."""

    why: str
    rows: int
    difference: Difference | None


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What a release has changed since the release `before`, which is None for the first one.

    `annotated` are the files that were annotated for it, and `retired` those that were moved away.  `deferred` says why
    a file is left for the next run.  `counts` says how many more objects of each class there are, with intervals.
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
