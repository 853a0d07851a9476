"""What a classification would do, found out before any work starts and without writing anything.

Everything that can be wrong is found here: inputs, columns, names, what lies in the output folder already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

import catalogs
from catalogs.annotations import NewColumn, check_names
from catalogs.atomic import check_free_space
from catalogs.catalog import Catalog, Partition
from catalogs.errors import OutputExistsError
from flows.config import Specification, specification_hash
from flows.errors import UsageError
from flows.manifest import FileState, Manifest, Output, file_sha256, file_state
from flows.model import Model
from flows.scoring import Scorer
from flows.staging import Staging

__all__ = ["Job", "Plan", "make_plan"]


@dataclass(frozen=True)
class Job:
    """One file of a catalogue: its state, the name of its output, and what of it is done already."""

    catalog: Path
    path: Path
    name: str
    n_rows: int
    state: FileState
    finished: Output | None = None  # listed in the manifest, and there
    staged: Output | None = None  # whole, but not listed yet

    @property
    def to_do(self) -> bool:
        """Whether it has to be annotated."""
        return self.finished is None and self.staged is None


@dataclass(frozen=True)
class Plan:
    """All files, and the folder they go to."""

    out: Path
    staging: Staging
    jobs: tuple[Job, ...]
    found: Manifest | None  # what was in the folder, of whatever maker
    same_maker: bool

    @property
    def nothing_to_do(self) -> bool:
        """Whether every file's output is there and listed."""
        return all(job.finished for job in self.jobs)

    @property
    def kept(self) -> tuple[Output, ...]:
        """Outputs in the folder that are not of these inputs."""
        names = {job.name for job in self.jobs}
        listed = self.found.outputs if self.found and self.same_maker else ()
        return tuple(o for o in listed if o.name not in names)


def make_plan(
    paths: Sequence[Path],
    model: Model,
    specification: Specification,
    out: Path,
    *,
    overwrite: bool,
    verify: bool,
) -> Plan:
    """Return what is to be done to classify the catalogues at `paths` into the folder `out`.

    `verify` hashes files again that look as they did.
    """
    scorer = Scorer.of(model, specification)
    found = [(catalog, part) for path in paths for catalog, part in _partitions(path, scorer)]
    _check_names_distinct([part for _, part in found])
    spec_hash = specification_hash(specification)
    before = Manifest.read(out)
    same = before is not None and before.same_maker(model.label, spec_hash)
    if before is not None and not same:
        _check_replaceable(before, {part.key for _, part in found}, model, out, overwrite=overwrite)
    looker = _Looker(
        Staging.of(out, model.label, spec_hash), before, same=same, overwrite=overwrite, verify=verify
    )
    jobs = tuple(looker.job(catalog, part) for catalog, part in found)
    sizes = {part.key: _bytes(part, scorer.columns) for _, part in found}
    check_free_space(out, sum(sizes[job.name] for job in jobs if job.to_do))
    return Plan(out, looker.staging, jobs, before, same)


def _partitions(path: Path, scorer: Scorer) -> Iterator[tuple[Catalog, Partition]]:
    """Yield the files of a catalogue that has the columns needed, and none of the new ones."""
    catalog = catalogs.open(path)
    scorer.reader.check(catalog)
    check_names(catalog.names, scorer.columns)
    for partition in catalog.partitions:
        yield catalog, partition


def _bytes(partition: Partition, columns: Sequence[NewColumn]) -> int:
    widths = (c.width or 1 if pa.types.is_string(c.datatype) else c.datatype.bit_width // 8 for c in columns)
    return partition.path.stat().st_size + partition.n_rows * sum(widths)


def _check_names_distinct(partitions: Sequence[Partition]) -> None:
    first: dict[str, Path] = {}
    for part in partitions:
        other = first.setdefault(part.key, part.path)
        if other != part.path:
            raise UsageError(
                f"got {other} and {part.path}, whose outputs would have the same name, expected different names; "
                "classify them into two folders"
            )


def _check_replaceable(
    before: Manifest, names: set[str], model: Model, out: Path, *, overwrite: bool
) -> None:
    """Raise OutputExistsError where another maker's outputs lie, unless all of them are to be replaced."""
    other = f"the model {before.model}" if before.model != model.label else "another specification"
    if not overwrite:
        raise OutputExistsError(
            f"{out}: got a folder with outputs of {other}, expected an empty one, or outputs of {model.label} "
            "with the same specification; choose another with --out, or replace them with --overwrite"
        )
    left = [o.name for o in before.outputs if o.name not in names and (out / o.name).exists()]
    if left:
        raise OutputExistsError(
            f"{out}: got {', '.join(left)} of {other} beside what is to be replaced, expected all to be, since a "
            "folder holds outputs of one model; classify those too, move them, or choose another folder"
        )


@dataclass(frozen=True)
class _Looker:
    """What is known when a file is looked at."""

    staging: Staging
    before: Manifest | None
    same: bool
    overwrite: bool
    verify: bool

    def job(self, catalog: Catalog, part: Partition) -> Job:
        """Return what is to be done to one file; OutputExistsError where something else has its place."""
        final = self.staging.out / part.key
        if final.exists() and final.samefile(part.path):
            raise UsageError(
                f"{part.path}: got an output folder in which the annotated copy would replace its own input, "
                "expected another; choose one with --out"
            )
        listed = self.before.find(part.key) if self.before else None
        state = file_state(part.path, None if self.verify or listed is None else listed.input)
        job = Job(catalog.path, part.path, part.key, part.n_rows, state)
        unchanged = self.same and listed and listed.input.sha256 == state.sha256 and self._intact(final, listed)
        if unchanged and listed and listed.summary:  # without the counts of it, it is done again
            return replace(job, finished=listed)
        staged = self.staging.find(part.key, state)
        ours = unchanged or (staged is not None and self.staging.published(staged))
        if final.exists() and not ours and not self.overwrite:
            raise OutputExistsError(
                f"{final}: got a file {_origin(listed, state)}, expected none, or the annotated copy of {part.path} "
                "as it is now; choose another folder with --out, or replace it with --overwrite"
            )
        return replace(job, staged=staged)

    def _intact(self, final: Path, listed: Output) -> bool:
        if not final.is_file() or final.stat().st_size != listed.size:
            return False
        return not self.verify or file_sha256(final) == listed.sha256


def _origin(listed: Output | None, state: FileState) -> str:
    if listed is None:
        return "that `blr classify` did not make here"
    return "made of other input" if listed.input.sha256 != state.sha256 else "changed since it was made"
