"""One file's work: what its input is like now, what of it is done already, and what lies in its output's place.

Small files are done in groups, one a task, since Prefect keeps some 20 kB of each task run.  A large file is a task of
its own.  A killed run goes on file by file all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from catalogs.errors import OutputExistsError
from flows.classification._hashing import Hashes
from flows.errors import UsageError
from flows.inputs.files import OpenedFile
from flows.inputs.source import Origin
from flows.runs.manifest import Manifest
from flows.runs.outputs import FileState, Output
from flows.runs.staging import Staging

__all__ = ["MOST_ORDERS", "MOST_TASKS", "Group", "Job", "Looker", "Policy", "groups"]

MOST_TASKS = 200
MOST_ORDERS = 20_000
"""Groups that the workers of an engine are handed, of which Prefect keeps nothing."""
ROWS_A_TASK = 500_000
"""Rows that are worth a task, a second's work; smaller files share one."""

Policy = Literal["add", "overwrite", "release"]
"""What a run may do with other outputs in a folder: nothing, replace those of its names, or replace all."""


REPLACEABLE = {
    "add": {"nothing", "ours"},
    "release": {"nothing", "ours", "left", "listed"},
    "overwrite": {"nothing", "ours", "left", "listed", "foreign"},
}
"""What may have an output's place: what this work has put there before it was killed, what other work had; what the
manifest lists, as it was or changed since; or a file of somebody else's."""


@dataclass(frozen=True)
class Job:
    """One file of a catalogue: its state, the name of its output, and what of it is done already."""

    opened: OpenedFile
    state: FileState
    why: str = "new"  # why it is to be done
    finished: Output | None = None  # listed in the manifest, and there
    staged: Output | None = None  # whole, but not listed yet
    previous: Output | None = None  # the output that it replaces
    in_the_way: bool = False  # a changed file has its place, which is moved away first
    learned: bool = False  # finished, but fetched again to know that; the next run need not

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.opened.file.path

    @property
    def name(self) -> str:
        """What its copy is called."""
        return self.opened.name

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
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
    """What is known when a file is looked at."""

    staging: Staging
    before: Manifest | None
    same: bool
    policy: Policy
    verify: bool

    def jobs(self, files: Sequence[OpenedFile], hashes: Hashes) -> Iterator[Job]:
        """Yield what is to be done to files, without those that have gone since they were opened.

        `hashes` reads those whose content alone says whether they have changed.
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
        """Return the states of the input that were written down with an output of that name."""
        listed = self.before.find(opened.name) if self.before else None
        staged = self.staging.recorded(opened.name)
        return [output.input for output in (listed, staged) if output is not None]

    def _job(self, opened: OpenedFile, state: FileState) -> Job:
        """Return what is to be done to one file; OutputExistsError where something else has its place."""
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
        """Say what has the place of an output."""
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
    """Files that one task does, in their order."""

    jobs: tuple[Job, ...]

    @property
    def label(self) -> str:
        """What the task is called by."""
        more = len(self.jobs) - 1
        return self.jobs[0].name + (f" and {more} more" if more else "")


def groups(jobs: Sequence[Job], most: int = MOST_TASKS) -> list[Group]:
    """Return the jobs in groups of about as many rows, at most `most` of them."""
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
