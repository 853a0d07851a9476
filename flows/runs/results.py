"""The results of runs, the report of a release, and the state of an output folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from blr.census.results import CountChange
from flows.runs.allowed_roots import check_inside
from flows.runs.counts import Counts, Difference, Summary
from flows.runs.manifest import Manifest, annotated_manifest
from flows.runs.outputs import Output, Problem, file_sha256

# What a release has changed, as in the file `_releases/0007.json`, and the release that it is compared with.


@dataclass(frozen=True, kw_only=True)
class ReleaseReference:
    """A release: its number, the time when it was made (ISO 8601, UTC), its model, its specification and its totals."""

    release: int
    created: str
    model: str
    specification_hash: str
    totals: Summary | None = None

    @classmethod
    def of(cls, manifest: Manifest | None) -> ReleaseReference | None:
        """Return the release that a manifest lists; None without a manifest."""
        if manifest is None:
            return None
        return cls(
            release=manifest.release,
            created=manifest.created,
            model=manifest.model,
            specification_hash=manifest.specification_hash,
            totals=manifest.totals,
        )


@dataclass(frozen=True, kw_only=True)
class ReleaseFiles:
    """Numbers of files: unchanged ones, annotated ones by the reason, and those without an earlier copy.

    `not_compared` has the number of `files` without an earlier copy, and of their `rows`.
    """

    unchanged: int
    annotated: Mapping[str, int]
    not_compared: Mapping[Literal["files", "rows"], int]


@dataclass(frozen=True, kw_only=True)
class ReleasedFile:
    """Why a file was annotated, its number of rows, and its difference from the copy before; None for a new file."""

    why: str
    rows: int
    difference: Difference | None


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What a release has changed since the release `before`, given without its totals; None for the first one.

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
    quarantined: tuple[Problem, ...]
    deferred: Mapping[str, str]
    difference: Difference
    totals: Summary
    counts: Mapping[str, CountChange] = field(default_factory=dict)


# The results of `classify` and `reprocess`: what was done, what would be done, or a trial on some rows.

Value = str | int | float | None
"""A value in one of the new columns; None where it is missing."""


@dataclass(frozen=True, kw_only=True)
class FileWork:
    """One input file, and what there is to do for it.

    `input` is its path or URL.  `to_do` says whether the plan is to annotate it.  `why` is the reason, for example
    "new" or "changed"; '' where the finished copy is there already.
    """

    input: str
    n_rows: int
    to_do: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class ReleaseResult:
    """What `reprocess` and `classify` have done in an output folder, or would do.

    Attributes
    ----------
    status
        "planned" with `--dry-run`; "nothing to do", since every copy was there already; "waiting", since all inputs
        were left for the next run; or "done".
    model
        The model's `NAME@VERSION`.
    out, manifest
        The output folder, and the path of its `manifest.json`.
    release
        Number of the release that is in the folder when the work ends; None before the first.
    files
        The input files, by the names of their copies.
    retired
        Names of the copies that were moved to `_retired`, or would be: mostly those whose input is gone.
    quarantined
        Why a file could not be annotated, by the name of its copy.
    stale
        Names of the copies that are of an earlier state of their input, which is quarantined or deferred.
    deferred
        Why a file is left for the next run, by the name of its copy: for example, it is still being written.
    advice
        Advice on large copies, a sentence; '' where none is needed.
    summary
        Counts of the annotated files; None where no file is annotated yet.
    before
        The release before this work; None for the first release.
    published
        URL of the object store where the release is published; None for a folder of this machine.  `out` is then the
        folder here that it is published from.
    repeats
        Sentences on files that were found to have objects in common, before they were published.
    up_to_date
        Whether the plan has nothing to do; None unless the status is "planned".
    drifted
        Names of the features whose distribution is far from the training's; None unless the status is "done".
    report, difference
        Path of the release's report, and what the release changes; None for `classify`, which makes no report.
    """

    status: Literal["planned", "nothing to do", "waiting", "done"]
    model: str
    out: Path
    manifest: Path
    release: int | None
    files: Mapping[str, FileWork]
    retired: tuple[str, ...]
    quarantined: Mapping[str, str]
    stale: tuple[str, ...]
    deferred: Mapping[str, str]
    advice: str
    summary: Summary | None
    before: ReleaseReference | None
    published: str | None = None
    repeats: tuple[str, ...] = ()
    up_to_date: bool | None = None
    drifted: tuple[str, ...] | None = None
    report: Path | None = None
    difference: Difference | None = None


@dataclass(frozen=True, kw_only=True)
class ClassificationTrial:
    """A trial, with `--limit`: counts of the rows that were scored, and the new columns (by name) of the first few."""

    status: Literal["trial"]
    model: str
    summary: Counts
    rows: tuple[Mapping[str, Value], ...]


ClassificationResult = ReleaseResult | ClassificationTrial
"""What `classify` returns."""

# The results of `map`: fractions of a class over the sky, in all and by bins of what they may depend on.

What = Literal["fraction", "contamination", "completeness"]
"""Of all objects those of the class; of the selected ones those of other classes; of the class those selected."""


@dataclass(frozen=True, kw_only=True)
class MappedFraction:
    """A fraction of some objects.

    `objects` is what it is a fraction of, as the classifier expects it.  `k` of `n` are the labelled objects.
    `expected` is the classifier's own fraction, `fraction` the one that labelled objects correct, `low` and `high` its
    95 % interval; these are None without labelled objects, or where there is no object.  The fraction of a bin is that
    of the objects with a quantity from `start` to `stop`.
    """

    objects: float
    k: int
    n: int
    expected: float | None
    fraction: float | None
    low: float | None
    high: float | None
    start: float | None = None
    stop: float | None = None


@dataclass(frozen=True, kw_only=True)
class MappedQuantity:
    """A quantity that the fraction depends on: its expression, unit and bins, which hold as many objects each."""

    expression: str
    unit: str | None
    bins: tuple[MappedFraction, ...]


@dataclass(frozen=True, kw_only=True)
class MapResult:
    """What was mapped, and where the maps are.

    `n_classified` are the objects with probabilities and a position, `cells` the pixels of order `order` that have some
    of what is mapped.  Of the answers, `labelled` are in use, `unanswered` have no label, `unmatched` are of no object
    here.  `files` is empty where nothing was written.
    """

    status: Literal["planned", "done"]
    model: str
    out: Path
    class_name: str
    what: What
    order: int
    n_classified: int
    cells: int
    labelled: int
    unanswered: int
    unmatched: int
    whole: MappedFraction
    over: tuple[MappedQuantity, ...]
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


# The state of an output folder: which of its files are current, stale, missing or quarantined, since when and why.

State = Literal["quarantined", "stale", "missing", "current"]


@dataclass(frozen=True)
class FileStatus:
    """One file of a release: its state, since when (ISO 8601, UTC; '' where that is not known), and why.

    A current copy is of its input as it is now.  A stale copy is of an earlier state of its input, or of an input that
    is gone.  A missing copy was deleted, or has another size.  A quarantined file has no copy.
    """

    name: str
    state: State
    since: str
    why: str


@dataclass(frozen=True, kw_only=True)
class FolderStatus:
    """The release in an output folder, the number of its files by state, and each file, troubled ones first.

    `quarantined` counts the files that cannot be annotated, also those of which a stale copy stays.
    """

    out: Path
    model: str
    release: int
    created: str
    counts: Mapping[State, int]
    quarantined: int
    files: tuple[FileStatus, ...]


def read_status(out: Path) -> FolderStatus:
    """Return the state of an output folder; UsageError where it has no manifest."""
    return folder_status(out, annotated_manifest(out))


def folder_status(out: Path, manifest: Manifest) -> FolderStatus:
    """Return the state of the files in a folder with this manifest; an input is read only where its state differs."""
    bad = {q.name: q for q in manifest.quarantined}
    files = [
        FileStatus(q.name, "quarantined", q.since, q.reason)
        for q in manifest.quarantined
        if manifest.find(q.name) is None
    ]
    files += [_status(output, bad.get(output.name), out) for output in manifest.outputs]
    counts = Counter(file.state for file in files)
    order = get_args(State)
    return FolderStatus(
        out=out,
        model=manifest.model,
        release=manifest.release,
        created=manifest.created,
        counts={state: counts[state] for state in order},
        quarantined=len(bad),
        files=tuple(sorted(files, key=lambda file: (order.index(file.state), file.name))),
    )


def _status(output: Output, problem: Problem | None, out: Path) -> FileStatus:
    """Return the state of a copy: a URL counts as unchanged until a run asks its server."""
    copy, path = out / output.name, out / output.input_path
    if not copy.is_file() or copy.stat().st_size != output.size:
        return FileStatus(output.name, "missing", "", "the copy was deleted, or has another size")
    if problem is not None:
        return FileStatus(output.name, "stale", problem.since, problem.reason)
    current = FileStatus(output.name, "current", "", "")
    if "://" in output.input_path:
        return current
    if not path.is_file():
        return FileStatus(output.name, "stale", "", "its input is gone")
    if output.input.looks_like(path) or file_sha256(check_inside(path, key="status")) == output.input.sha256:
        return current
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return FileStatus(output.name, "stale", changed, "its input has changed")
