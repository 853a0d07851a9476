"""What a classification would do: a job for each file, found out before any work starts and without writing anything.

All errors are found here: in inputs, columns and names, and in what the output folder has already.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Catalog
from catalogs.errors import CatalogError, ColumnNotFoundError, DamagedFileError, OutputExistsError
from catalogs.files import StorageError, check_free_space
from catalogs.remote.urls import UnreachableError
from flows.classification.release_changes import Annotation
from flows.classification.scoring import Scorer
from flows.engines.engine import Engine
from flows.errors import UsageError, of_files
from flows.features.reader import UnitRemark, unchecked
from flows.inputs.opening import OpenedFile, find_files
from flows.inputs.source import Bring, Brought, InputCatalogue, Source, copy_name_of
from flows.models.model import Model
from flows.models.store import StoredModel
from flows.runs.manifest import (
    FileState,
    Manifest,
    Output,
    Problem,
    file_sha256,
    has_summary,
)
from flows.runs.progress import tell
from flows.runs.references import OutputFolder
from flows.runs.release_store import Staging
from flows.runs.results import CensusAsked
from flows.specification.specification import Specification, specification_hash
from flows.version import code_version

# The jobs of a classification, one for each file: the state of its input, what is done already, what is left to do.
# Small files are done in groups, a task for each, since Prefect stores about 20 kB for every task run.  A large file
# is a task of its own.  A killed run continues with the next file, not the next group.

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


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all files of a classification have in common: the model, the settings, and the place where copies wait.

    `threads` is None for the machine's cores.  `asked` has the questions to the census, for which rows of each of the
    `n_files` are kept.  `batch_rows` are held at a time.  `before` is what a release's copies are compared with, in its
    folder; None where nothing is compared.
    """

    model: StoredModel
    specification: Specification
    asked: CensusAsked
    threads: int | None
    staging: Staging
    n_files: int = 1
    batch_rows: int = BATCH_ROWS
    before: Annotation | None = None


@dataclass(frozen=True)
class Job:
    """One file of a catalogue: its state, the name of its copy, and what is done already; `url` of a fetched one."""

    catalogue: InputCatalogue
    path: Path
    url: str | None
    name: str
    n_rows: int
    state: FileState
    why: str = "new"  # why it is to be done
    finished: Output | None = None  # in the manifest, and in the folder
    staged: Output | None = None  # whole, but not in the manifest yet
    # Whether the output that it replaces has the same rows in the same order; None where it replaces none.
    same_rows: bool | None = None
    in_the_way: bool = False  # a changed file has its name, and is moved away first
    found: FileState | None = None  # what has the name of its copy, before any work
    learned: bool = False  # fetched again and found unchanged; the next run need not fetch it

    @property
    def to_do(self) -> bool:
        """Whether it has to be annotated."""
        return self.finished is None and self.staged is None

    def input_path(self, out: Path) -> str:
        """Return the path of the file relative to the output folder, or its URL."""
        return self.url or os.path.relpath(self.path, out)

    def named(self, output: Output) -> Output:
        """Return an output as one of the file that was fetched."""
        return replace(output, input=self.state, input_path=self.url or output.input_path)


def find_jobs(plan: Plan, files: Sequence[OpenedFile], engine: Engine, *, verify: bool) -> Iterator[Job]:
    """Yield the jobs of files, without files that are gone since they were opened; `plan` is what is known so far."""
    before, staging = plan.before, plan.work.staging
    states: dict[Path, FileState] = {}
    # Inputs in another state than the recorded one: only the content says more.
    uncertain: dict[str, Path] = {}
    for _, seen, partition, name in files:
        outputs = (before.find(name) if before else None, staging.recorded(name))
        known = [output.input for output in outputs if output is not None]
        states[partition.path] = seen if verify else _recognised(seen, known)
        if known and not states[partition.path].sha256:
            uncertain[str(partition.path.absolute())] = partition.path
    answers = dict(engine.map(_hash, uncertain)) if uncertain else {}
    for place, path in uncertain.items():
        said = answers[place]  # by a worker, which may not reach the file
        found = said if isinstance(said, str) else ""
        if found := found or _hash(place):
            states[path] = replace(states[path], sha256=found)
        else:
            del states[path]
    # A job has what it takes to open its catalogue, and no list of its files.
    catalogues = {one: replace(one, files={}) for one in {catalogue for catalogue, *_ in files}}
    for catalogue, _, partition, name in files:
        path = partition.path
        if path in states:
            url, _ = plan.brought.origins.get(path, (None, ""))
            job = Job(catalogues[catalogue], path, url, name, partition.n_rows, states[path])
            with suppress(FileNotFoundError):
                yield _looked_up(plan, job, verify=verify)


def _recognised(seen: FileState, known: Iterable[FileState | None]) -> FileState:
    """Return a file's state, without reading it: its hash is that of a `known` state that it looks like, or ''."""
    alike = (state.sha256 for state in known if state is not None and seen.is_like(state))
    return replace(seen, sha256=next(alike, ""))


def _hash(path: str) -> str:
    """Return the SHA-256 of a file; '' where it is not there."""
    with suppress(FileNotFoundError):
        return file_sha256(Path(path))
    return ""


def _looked_up(plan: Plan, job: Job, *, verify: bool) -> Job:
    """Return the job with what is done already; OutputExistsError where another file has the name of its output."""
    staging, same = plan.work.staging, plan.same_maker
    final = staging.out / job.name
    if final.exists() and final.samefile(job.path):
        raise UsageError(
            f"{job.path}: got an output folder in which the annotated copy would replace its own input, "
            "expected another folder; choose it with --out"
        )
    listed = plan.before.find(job.name) if plan.before else None
    unchanged = listed is not None and listed.input.sha256 == job.state.sha256
    intact = listed is not None and listed.is_in(final, verify=verify)
    if listed is not None and same and intact and unchanged:
        # Of a fetched file, the server's new tag is stored.
        learned = job.url is not None and (listed.input_path, listed.input.tag) != (job.url, job.state.tag)
        return replace(job, why="", finished=job.named(listed) if learned else listed, learned=learned)
    staged = staging.find(job.name, job.state)
    if not final.exists():
        there = "nothing"
    elif staged is not None and staging.published(staged):
        there = "ours"
    elif staging.left_by_others(job.name):
        there = "left"
    elif listed is None:
        there = "foreign"
    else:
        there = "ours" if intact and unchanged else "listed"
    if there not in REPLACEABLE[plan.policy]:
        raise _not_ours(final, job)
    return replace(
        job,
        why=_why(listed, same=same, unchanged=unchanged),
        staged=staged,
        same_rows=unchanged if intact else None,
        in_the_way=plan.policy == "release" and there == "listed" and not intact,
        found=FileState.of(final) if final.exists() else None,
    )


def check_names_free(plan: Plan) -> None:
    """Raise OutputExistsError where a copy's name has another file than when the plan was made: not one of ours."""
    for job in plan.jobs:
        final = plan.out / job.name
        same = job.found.looks_like(final) if job.found else not final.exists()
        if not (same or job.finished or plan.policy == "overwrite"):
            raise _not_ours(final, job)


def _not_ours(final: Path, job: Job) -> OutputExistsError:
    return OutputExistsError(
        f"{final}: got another file than the annotated copy of {job.path} as it is now, expected that, or none; "
        "choose another folder with --out, or replace it with --overwrite"
    )


def _why(listed: Output | None, *, same: bool, unchanged: bool) -> str:
    if listed is None:
        return "new"
    if not unchanged:
        return "changed"
    return "output changed or deleted" if same else "other model or specification"


Group = tuple[Job, ...]
"""The files of one task, in their order."""


def groups(jobs: Sequence[Job], most: int = MOST_TASKS) -> list[Group]:
    """Return the jobs in groups of similar numbers of rows, at most `most` groups."""
    total = sum(job.n_rows for job in jobs)
    wanted = max(ROWS_A_TASK, math.ceil(total / most))
    most_files = math.ceil(len(jobs) / most)  # files of no rows cost time too
    grouped: list[list[Job]] = []
    rows = 0
    for job in jobs:
        if not grouped or (rows + job.n_rows > wanted and len(grouped[-1]) >= most_files):
            grouped.append([])
            rows = 0
        grouped[-1].append(job)
        rows += job.n_rows
    return [tuple(group) for group in grouped]


SLIM_BYTES = 24
"""Bytes of an id and a position."""


def check_room(plan: Plan) -> None:
    """Raise `StorageError` where the disk has no space for the copies that are to be written."""
    columns, mode = plan.scorer.columns, plan.work.specification.output.mode
    new = sum(c.width or 1 if pa.types.is_string(c.datatype) else c.datatype.bit_width // 8 for c in columns)
    to_do = [job for job in plan.jobs if job.to_do]
    try:
        old = (SLIM_BYTES * job.n_rows if mode == "slim" else job.state.size for job in to_do)
        check_free_space(plan.out, sum(old) + new * sum(job.n_rows for job in to_do))
    except StorageError as error:
        if mode == "slim":
            raise
        slim = 'mode = "slim" under [output] writes identifier, position and new columns only'
        raise StorageError(f"{error}; or ask for slim copies: {slim}") from error


# The plan of all files.

TOLERATED: Mapping[Policy, tuple[type[Exception], ...]] = {
    "add": (DamagedFileError, UnreachableError, OSError),
    "overwrite": (DamagedFileError, UnreachableError, OSError),
    "release": (CatalogError, OSError),
}
"""Errors of one file, after which the others continue; any other error ends the run."""


@dataclass(frozen=True)
class Plan:
    """All files, and the folder they go to."""

    work: Work
    scorer: Scorer  # of the model, for the settings
    before: Manifest | None  # All outputs in the folder, of any model and specification.
    same_maker: bool
    policy: Policy
    brought: Brought  # records of inputs at URLs
    jobs: tuple[Job, ...] = ()
    quarantined: tuple[Problem, ...] = ()
    # Files that are being written, and why we think so.
    deferred: Mapping[str, str] = field(default_factory=dict)
    adopted: tuple[Output, ...] = ()  # files with final names of a killed run, not listed yet

    @property
    def out(self) -> OutputFolder:
        """The output folder."""
        return self.work.staging.out

    @property
    def ours(self) -> Manifest | None:
        """The manifest in the folder, where it is of this model and specification."""
        return self.before if self.same_maker else None

    @property
    def nothing_to_do(self) -> bool:
        """Whether the folder has the output of every file, listed in the manifest, no other outputs, and a summary."""
        done = all(job.finished and not job.learned for job in self.jobs)
        whole = done and not (self.retired or self.adopted or self.lost) and self.ours is not None
        known = {*self.quarantined} == {*(self.ours.quarantined if self.ours else ())}
        return whole and known and has_summary(self.out)

    @property
    def kept(self) -> tuple[Output, ...]:
        """Outputs that stay: those of other inputs, or of files that were not fetched again."""
        return (*self.brought.unchanged, *(o for o in self._others if o.is_in(self.out / o.name)))

    @property
    def lost(self) -> tuple[str, ...]:
        """Outputs of other inputs that were deleted or changed, which the manifest lists no longer."""
        return tuple(o.name for o in self._others if not o.is_in(self.out / o.name))

    @property
    def _others(self) -> list[Output]:
        """The folder's outputs of other inputs, where these are no reason to retire them."""
        if self.policy == "release":
            return []
        listed, names = self.ours.outputs if self.ours else (), self.names
        return [o for o in {o.name: o for o in (*listed, *self.adopted)}.values() if o.name not in names]

    @property
    def retired(self) -> tuple[str, ...]:
        """Outputs that are retired, since they are not of these inputs."""
        if self.policy != "release":
            return ()
        listed = self.before.outputs if self.before else ()
        return tuple(sorted({o.name for o in (*listed, *self.adopted)} - self.names))

    @property
    def names(self) -> set[str]:
        """The outputs' names of all inputs, readable or not."""
        known = {*(q.name for q in self.quarantined), *(o.name for o in self.brought.unchanged)}
        return {*(j.name for j in self.jobs), *known, *self.deferred}

    def still_good(self, name: str) -> Output | None:
        """Return the output of an earlier state of the input, which stays if a new one cannot be made."""
        listed = self.ours.find(name) if self.ours else None
        return listed if listed is not None and listed.is_in(self.out / name) else None


def make_plan(
    bring: Bring,
    sources: Sequence[Source],
    model: Model,
    work: Work,
    engine: Engine,
    *,
    policy: Policy,
    verify: bool,
    deferred: Mapping[Path, str] = MappingProxyType({}),
) -> Plan:
    """Return what is to be done to classify catalogues; files at URLs are fetched, unless they are done already.

    No data are read, except from files whose state differs from the recorded one: the workers of the engine hash these.
    `verify` asks for the hashes of all other files too.  Files that are `deferred` are left alone.
    """
    specification, out = work.specification, work.staging.out
    before = Manifest.read(out)
    same = before is not None and before.same_maker(model.label, specification_hash(specification))
    brought = bring(sources, before if same and not verify else None, specification.output.form)
    scorer = Scorer.of(model, specification)
    plan = Plan(work, scorer, before, same, policy, brought)
    catalogues = [
        InputCatalogue.of(source, scorer.choice, form=specification.output.form, origins=brought.origins)
        for source in brought.sources
    ]
    for *_, error in brought.failed:
        if not isinstance(error, TOLERATED[policy]):
            raise error
    known: dict[Path, Problem] = {}
    asked, updated = verify or policy == "overwrite", before and before.versions.get("blr") != code_version()
    if before and same and not asked and not updated:  # what could not be annotated, and has not changed
        bad = {q.input_path: q for q in before.quarantined if q.input is not None}
        listed = [one for c in catalogues for one in c.files.items()] if bad else []
        found = ((path, seen, bad.get(os.path.relpath(path, out))) for path, seen in listed)
        known = {path: q for path, seen, q in found if q and seen.is_like(q.input)}
    units: set[UnitRemark] = set()

    def check(catalog: Catalog) -> None:
        units.update(_check(catalog, scorer))

    left_out = {*deferred, *known}
    read = [catalogue.leaving_out(left_out) for catalogue in catalogues]
    files, failed = find_files(read, check, tolerated=TOLERATED[policy])
    if units:
        tell().note(
            f"{'; '.join(f'{column}: {words}' for column, words in sorted(units))}: the values are used unchanged; if "
            "that is right, state the unit under [target.units]; if not, compute the column under [target.expressions]"
        )
    errors = [*failed.values(), *(error for *_, error in brought.failed)]
    others = files or known or deferred or brought.unchanged or brought.quarantined or brought.deferred
    if errors and not others:
        raise errors[0]
    _check_names(plan, files)
    jobs = tuple(find_jobs(plan, files, engine, verify=verify))
    compared = (out, before.prefix, tuple(before.classes)) if policy == "release" and before else None
    fresh = [_quarantined(plan, path, copy_name_of(path, catalogues), e) for path, e in failed.items()]
    fresh += [Problem(name, url, reason(error), None) for name, url, error in brought.failed]
    plan = replace(
        plan,
        work=replace(work, n_files=len(jobs), before=compared),
        jobs=jobs,
        quarantined=tuple(sorted([*known.values(), *brought.quarantined, *fresh], key=lambda q: q.name)),
        deferred={copy_name_of(path, catalogues): why for path, why in deferred.items()} | brought.deferred,
    )
    check_room(plan)
    named = plan.names.union(o.name for o in (before.outputs if before else ()))
    records = work.staging.published_records(others=policy == "release")
    return replace(plan, adopted=tuple(o for o in records if o.name not in named))


def _quarantined(plan: Plan, path: Path, name: str, error: Exception) -> Problem:
    """Return the manifest's entry for a file that could not be annotated."""
    known, state = plan.before.find_quarantined(name) if plan.before else None, None
    url, tag = plan.brought.origins.get(path, (None, ""))
    with suppress(OSError):  # it cannot be read at all
        state = _recognised(FileState.of(path, tag), [known.input] if known else [])
    return Problem(name, url or os.path.relpath(path, plan.out), plan.brought.spoken(reason(error)), state)


def reason(error: Exception) -> str:
    """Return an error as one line, with its type if the message was not written for users."""
    if isinstance(error, PermissionError):
        return of_files(error)
    text = " ".join(str(error).split())
    return text if isinstance(error, CatalogError) else f"{type(error).__name__}: {text}"


def _check(catalog: Catalog, scorer: Scorer) -> tuple[UnitRemark, ...]:
    """Raise a `CatalogError` where a catalogue cannot be annotated; return which units could not be compared."""
    here = scorer.on(catalog)  # refuses a catalogue without the columns, or in other units
    for name in scorer.reader.read:
        if n := catalog.column(name).absent:
            raise ColumnNotFoundError(
                f"{n:,} of {len(catalog.partitions):,} files of {catalog.path} have no column '{name}', "
                "expected it in every file, since the model reads it; classify the other files separately, "
                "or add the column to these, null where the value is unknown"
            )
    scorer.check_copies(catalog)
    return unchecked(here.reader, catalog, scorer.model.columns)


def _check_names(plan: Plan, files: Sequence[OpenedFile]) -> None:
    """Raise an error where outputs have one name, or do not replace all those of another model or settings."""
    first = {name: Path("a file at a URL") for name in plan.brought.left_out()}
    for *_, partition, name in files:
        if (path := first.setdefault(name, partition.path)) != partition.path:
            raise UsageError(
                f"got {path} and {partition.path}, whose outputs would have the same name, expected different names; "
                "classify them into two folders"
            )
    others, policy = plan.before, plan.policy
    if others is None or plan.same_maker or policy == "release":
        return
    out, label, names = plan.out, plan.work.model.label, {name for *_, name in files}
    other = f"the model {others.model}" if others.model != label else "another specification"
    if policy != "overwrite":
        raise OutputExistsError(
            f"{out}: got a folder with outputs of {other}, expected an empty folder, or outputs of {label} with "
            "the same specification; choose another with --out, or replace them with --overwrite"
        )
    left = [o.name for o in others.outputs if o.name not in names and (out / o.name).exists()]
    if left:
        raise OutputExistsError(
            f"{out}: got {', '.join(left)}, written by {other}, which this run would not replace, but all outputs in "
            "a folder have to be of one model; classify those inputs too, move the files, or choose another folder"
        )
