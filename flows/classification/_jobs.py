"""The jobs of a classification: which files are to be done, by their hashes, and the room that they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa

from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import OutputExistsError
from catalogs.files.atomic import StorageError, check_free_space
from catalogs.writing.destination import SLIM_BYTES
from flows.engines.engine import Engine
from flows.errors import UsageError
from flows.inputs.files import OpenedFile
from flows.inputs.source import Origin
from flows.runs.manifest import Manifest
from flows.runs.outputs import FileState, Output, file_sha256
from flows.runs.staging import Staging

__all__ = [
    "MOST_ORDERS",
    "MOST_TASKS",
    "Group",
    "Hashes",
    "Job",
    "Looker",
    "Policy",
    "check_room",
    "groups",
    "hashes_here",
    "hashes_on",
    "needed_bytes",
]

# Hashes of inputs whose state differs from the recorded one, since only the content says whether they changed.

Hashes = Callable[[Iterable[Path]], Mapping[Path, str]]
"""A function that returns the SHA-256 of files by path, without files that are gone."""


def hashes_here(paths: Iterable[Path]) -> Mapping[Path, str]:
    """Return the hashes of files, read one after the other."""
    found: dict[Path, str] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = file_sha256(path)
    return found


def hashes_on(engine: Engine) -> Hashes:
    """Return a function that hashes files on the workers of an engine."""

    def hashes(paths: Iterable[Path]) -> Mapping[Path, str]:
        places = {str(path.absolute()): path for path in paths}
        found = {
            places[place]: result
            for place, result in engine.map(hash_file, places)
            if isinstance(result, str) and result
        }
        missing = (
            path for path in places.values() if path not in found
        )  # Deleted, or not reachable from a worker.
        return {**found, **hashes_here(missing)}

    return hashes


def hash_file(path: str) -> str:
    """Return the SHA-256 of a file; '' where it is not there."""
    try:
        return file_sha256(Path(path))
    except FileNotFoundError:
        return ""


# The jobs of a classification, one for each file: the state of its input, what is done already, what is left to do.
#
# Small files are done in groups, a task for each, since Prefect stores about 20 kB for every task run.  A large file is
# a task of its own.  A killed run continues with the next file, not the next group.

MOST_TASKS = 200
MOST_ORDERS = 20_000
"""Most groups for the workers of an engine; Prefect does not store these."""
ROWS_A_TASK = 500_000
"""Approximate number of rows of a task, about a second's work; smaller files share a task."""

Policy = Literal["add", "overwrite", "release"]
"""What a run may do with other outputs in a folder: nothing, replace those of its names, or replace all."""


REPLACEABLE = {
    "add": {"nothing", "ours"},
    "release": {"nothing", "ours", "left", "listed"},
    "overwrite": {"nothing", "ours", "left", "listed", "foreign"},
}
"""What may already have the name of an output, and which of it each policy replaces.

It may be a file that this work, or other work, gave its name before it was killed; a file that the manifest lists, as
it was or changed since; or a file of somebody else.
"""


@dataclass(frozen=True)
class Job:
    """One file of a catalogue: its state, the name of its output, and what is done already."""

    opened: OpenedFile
    state: FileState
    why: str = "new"  # why it is to be done
    finished: Output | None = None  # in the manifest, and in the folder
    staged: Output | None = None  # whole, but not in the manifest yet
    previous: Output | None = None  # the output that it replaces
    in_the_way: bool = False  # a changed file has its name, and is moved away first
    learned: bool = False  # fetched again and found unchanged; the next run need not fetch it

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.opened.file.path

    @property
    def name(self) -> str:
        """The name of its copy."""
        return self.opened.name

    @property
    def n_rows(self) -> int:
        """The number of its rows."""
        return self.opened.partition.n_rows

    @property
    def origin(self) -> Origin | None:
        """Where it was fetched from, if it was."""
        return self.opened.file.origin

    @property
    def to_do(self) -> bool:
        """Whether it has to be annotated."""
        return self.finished is None and self.staged is None

    @property
    def input_path(self) -> str | None:
        """The URL of a file that was fetched."""
        return self.origin.url if self.origin else None

    def finished_as(self, listed: Output) -> Job:
        """Return the job of a file whose output is there; for a fetched file, the server's tag is stored."""
        learned = self.origin is not None and (listed.input_path, listed.input.tag) != (
            self.origin.url,
            self.origin.tag,
        )
        return replace(self, why="", finished=self.named(listed) if learned else listed, learned=learned)

    def named(self, output: Output) -> Output:
        """Return an output as one of the file that was fetched."""
        return replace(output, input=self.state, input_path=self.input_path or output.input_path)


@dataclass(frozen=True)
class Looker:
    """Finds out the job of each file, from what is known of the folder."""

    staging: Staging
    before: Manifest | None
    same: bool
    policy: Policy
    verify: bool

    def jobs(self, files: Sequence[OpenedFile], hashes: Hashes) -> Iterator[Job]:
        """Yield the jobs of files, without files that are gone since they were opened.

        `hashes` reads files whose content alone says whether they have changed.
        """
        states: dict[Path, FileState] = {}
        uncertain: list[Path] = []
        for file in files:
            known, path = self._known(file), file.file.path
            states[path] = file.file.state(() if self.verify else known)
            if known and not states[path].sha256:
                uncertain.append(path)
        found = hashes(uncertain) if uncertain else {}
        gone = set(uncertain) - found.keys()
        for file in files:
            path = file.file.path
            if path in gone:
                continue
            state = states[path] if path not in found else replace(states[path], sha256=found[path])
            try:
                job = self._job(file, state)
            except FileNotFoundError:
                continue
            yield job

    def _known(self, opened: OpenedFile) -> list[FileState]:
        """Return the recorded states of the input of an output with that name."""
        listed = self.before.find(opened.name) if self.before else None
        staged = self.staging.recorded(opened.name)
        return [output.input for output in (listed, staged) if output is not None]

    def _job(self, opened: OpenedFile, state: FileState) -> Job:
        """Return the job of one file; OutputExistsError where another file has the name of its output."""
        path = opened.file.path
        final = self.staging.out / opened.name
        if final.exists() and final.samefile(path):
            raise UsageError(
                f"{path}: got an output folder in which the annotated copy would replace its own input, "
                "expected another folder; choose it with --out"
            )
        listed = self.before.find(opened.name) if self.before else None
        intact = listed is not None and listed.is_in(final, verify=self.verify)
        job = Job(opened, state, previous=listed if intact else None)
        if self.same and intact and listed and listed.summary and listed.input.sha256 == state.sha256:
            return job.finished_as(listed)
        staged = self.staging.find(opened.name, state)
        there = self._occupant(final, opened.name, listed, staged)
        if there == "listed" and intact and listed and listed.input.sha256 == state.sha256:
            there = "ours"
        if there not in REPLACEABLE[self.policy]:
            raise OutputExistsError(
                f"{final}: got a file {_origin(listed, state)}, expected none, or the annotated copy of {path} "
                "as it is now; choose another folder with --out, or replace it with --overwrite"
            )
        moved = self.policy == "release" and there == "listed" and not intact
        return replace(job, why=self._why(listed, state, intact=intact), staged=staged, in_the_way=moved)

    def _occupant(self, final: Path, name: str, listed: Output | None, staged: Output | None) -> str:
        """Return what has the name of an output already."""
        if not final.exists():
            return "nothing"
        if staged is not None and self.staging.published(staged):
            return "ours"
        if self.staging.left_by_others(name):
            return "left"
        return "foreign" if listed is None else "listed"

    def _why(self, listed: Output | None, state: FileState, *, intact: bool) -> str:
        if listed is None or self.before is None:
            return "new"
        if listed.input.sha256 != state.sha256:
            return "changed"
        if not self.same:
            return "other model or specification"
        return "output incomplete" if intact else "output changed or deleted"


def _origin(listed: Output | None, state: FileState) -> str:
    if listed is None:
        return "that `blr classify` did not write here"
    return (
        "that was written from other input"
        if listed.input.sha256 != state.sha256
        else "that was changed after it was written"
    )


@dataclass(frozen=True)
class Group:
    """The files of one task, in their order."""

    jobs: tuple[Job, ...]

    @property
    def label(self) -> str:
        """The name of the task."""
        more = len(self.jobs) - 1
        return self.jobs[0].name + (f" and {more} more" if more else "")


def groups(jobs: Sequence[Job], most: int = MOST_TASKS) -> list[Group]:
    """Return the jobs in groups of similar numbers of rows, at most `most` groups."""
    total = sum(job.n_rows for job in jobs)
    wanted = max(ROWS_A_TASK, math.ceil(total / most))
    most_files = math.ceil(len(jobs) / most)  # files of no rows cost time too
    grouped: list[list[Job]] = []
    rows = 0
    for job in jobs:
        full = rows + job.n_rows > wanted and len(grouped[-1]) >= most_files if grouped else True
        if full:
            grouped.append([])
            rows = 0
        grouped[-1].append(job)
        rows += job.n_rows
    return [Group(tuple(group)) for group in grouped]


# Room for the copies of a classification: whether there is enough, and when slim ones are the better choice.

LARGE = 20_000_000_000
"""Size of copies, in bytes, from which slim ones are advised if these take less than a quarter of it."""
SMALL_SHARE = 0.25

Mode = Literal["annotated", "slim"]


def check_room(out: Path, jobs: Sequence[Job], columns: Sequence[NewColumn], mode: Mode) -> str:
    """Return advice, or ''; raise `StorageError` where the disk has no space for the copies that are to be written.

    Both name the slim mode where it would help.
    """
    needed, slim = (needed_bytes(jobs, columns, which) for which in (mode, "slim"))
    share = f"about {slim / max(needed, 1):.1%} of that size"
    advice = f'mode = "slim" under [output] writes identifier, position and the new columns only, {share}'
    try:
        check_free_space(out, needed)
    except StorageError as error:
        if slim >= needed:
            raise
        raise StorageError(f"{error}; or ask for slim copies: {advice}") from error
    if needed < LARGE or slim > SMALL_SHARE * needed:
        return ""
    return f"The copies take about {needed / 1e9:.0f} GB; slim copies are enough to join the new columns: {advice}"


def needed_bytes(jobs: Sequence[Job], columns: Sequence[NewColumn], mode: Mode) -> int:
    """Return the approximate size, in bytes, of the copies that are still to be made."""
    new = sum(c.width or 1 if pa.types.is_string(c.datatype) else c.datatype.bit_width // 8 for c in columns)
    to_do = [job for job in jobs if job.to_do]
    if mode == "slim":
        return sum(job.n_rows * (new + SLIM_BYTES) for job in to_do)
    return sum(job.state.size + job.n_rows * new for job in to_do)
