"""What a classification would do, found out before any work starts and without writing anything.

All errors are found here: in inputs, columns and names, and in what the output folder has already.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError, ColumnNotFoundError, DamagedFileError, OutputExistsError
from catalogs.remote.urls import UnreachableError
from flows.classification._jobs import Hashes, Job, Looker, Policy, check_room, hashes_here
from flows.classification._output_columns import check_copies
from flows.classification.scoring import Scorer
from flows.errors import UsageError
from flows.features.units import unchecked
from flows.inputs.files import OpenedFile, copy_name_of, find_files
from flows.inputs.source import Brought, InputCatalogue, InputFile, Known, Origin
from flows.models.model import Model
from flows.runs.allowed_roots import OutputFolder
from flows.runs.manifest import Manifest
from flows.runs.outputs import FileState, Output, Quarantined
from flows.runs.progress import tell
from flows.runs.staging import Staging
from flows.specification.specification import Specification, specification_hash

__all__ = ["Job", "Plan", "known_outputs", "make_plan"]

TOLERATED: Mapping[Policy, tuple[type[Exception], ...]] = {
    "add": (DamagedFileError, UnreachableError, OSError),
    "overwrite": (DamagedFileError, UnreachableError, OSError),
    "release": (CatalogError, OSError),
}
"""Errors of one file, after which the others continue; any other error ends the run."""
SHOWN = 4
"""Most columns that the line on units names."""


@dataclass(frozen=True)
class Plan:
    """All files, and the folder they go to."""

    out: OutputFolder
    staging: Staging
    jobs: tuple[Job, ...]
    before: Manifest | None  # All outputs in the folder, of any model and specification.
    same_maker: bool
    policy: Policy = "add"
    quarantined: tuple[Quarantined, ...] = ()
    # Files that are being written, and why we think so.
    deferred: Mapping[str, str] = field(default_factory=dict)
    adopted: tuple[Output, ...] = ()  # files with final names of a killed run, not listed yet
    brought: Brought = field(default_factory=Brought)  # records of inputs at URLs
    advice: str = ""  # on the size of the copies

    @property
    def nothing_to_do(self) -> bool:
        """Whether the folder has the output of every file, listed in the manifest, and no other outputs."""
        known = self.before.quarantined if self.before and self.same_maker else ()
        done = all(job.finished and not job.learned for job in self.jobs) and set(self.quarantined) == set(
            known
        )
        return done and not self.retired and not self.adopted and self.same_maker

    @property
    def kept(self) -> tuple[Output, ...]:
        """Outputs that stay: those of other inputs, or of files that were not fetched again."""
        if self.policy == "release":
            return tuple(self.brought.unchanged)
        listed = self.before.outputs if self.before and self.same_maker else ()
        others, names = {o.name: o for o in (*listed, *self.adopted)}, self.names
        return (*self.brought.unchanged, *(o for name, o in others.items() if name not in names))

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
        listed = self.before.find(name) if self.before and self.same_maker else None
        return listed if listed is not None and listed.summary and listed.is_in(self.out / name) else None


def make_plan(
    brought: Brought,
    model: Model,
    specification: Specification,
    out: OutputFolder,
    *,
    policy: Policy = "add",
    verify: bool = False,
    deferred: Mapping[Path, str] | None = None,
    hashes: Hashes = hashes_here,
) -> Plan:
    """Return what is to be done to classify the catalogues that were brought into the folder `out`.

    No data are read, except from files whose state differs from the recorded one: `hashes` reads these.  `verify` asks
    for the hashes of all other files too.  Files that are `deferred` are left alone.
    """
    scorer = Scorer.of(model, specification)
    catalogues = [
        InputCatalogue.of(source, scorer.choice, form=specification.output.form, origins=brought.origins)
        for source in brought.sources
    ]
    for _, error in brought.failed:
        if not isinstance(error, TOLERATED[policy]):
            raise error
    spec_hash = specification_hash(specification)
    before = Manifest.read(out)
    same = before is not None and before.same_maker(model.label, spec_hash)
    deferred = deferred or {}
    known = _still_quarantined(catalogues, out, before) if before and same and not verify else {}
    units: dict[str, None] = {}

    def check(catalog: Catalog) -> None:
        units.update(dict.fromkeys(_check(catalog, scorer, specification)))

    files, failed = find_files(
        [c.leaving_out({**deferred, **{path: q.reason for path, q in known.items()}}) for c in catalogues],
        check,
        tolerated=TOLERATED[policy],
    )
    if units:
        tell().note(_said_of(units))
    errors = [*failed.values(), *(error for _, error in brought.failed)]
    if errors and not (
        files or known or deferred or brought.unchanged or brought.quarantined or brought.deferred
    ):
        raise errors[0]
    _check_names_distinct(files, brought)
    names = {f.name for f in files}
    if before is not None and not same and policy != "release":
        _check_replaceable(before, names, model, out, overwrite=policy == "overwrite")
    staging = Staging.of(out, model.label, spec_hash)
    looker = Looker(staging, before, same, policy, verify)
    jobs = tuple(looker.jobs(files, hashes))
    advice = check_room(out, jobs, scorer.columns, specification.output.mode)
    fresh = [
        _quarantined(path, copy_name_of(path, catalogues), out, error, before, brought)
        for path, error in failed.items()
    ]
    fresh += [Quarantined(origin.name, origin.url, reason(error), None) for origin, error in brought.failed]
    plan = Plan(
        out,
        staging,
        jobs,
        before,
        same,
        policy,
        quarantined=tuple(sorted([*known.values(), *brought.quarantined, *fresh], key=lambda q: q.name)),
        deferred={copy_name_of(path, catalogues): why for path, why in deferred.items()} | brought.deferred,
        brought=brought,
        advice=advice,
    )
    return _with_adopted(plan)


def known_outputs(out: Path, model: Model, specification: Specification, *, verify: bool = False) -> Known:
    """Return the last run's records of files at URLs; none from another model or specification, or to `verify`."""
    before = Manifest.read(out)
    same = before is not None and before.same_maker(model.label, specification_hash(specification))
    return Known(out, before if same and not verify else None, specification.output.form)


def _quarantined(
    path: Path, name: str, out: Path, error: Exception, before: Manifest | None, brought: Brought
) -> Quarantined:
    """Return the manifest's entry for a file that could not be annotated."""
    known, origin = before.find_quarantined(name) if before else None, brought.origins.get(path)
    state = _state(path, origin, known)
    if origin is None:
        return Quarantined(name, os.path.relpath(path, out), reason(error), state)
    return Quarantined(name, origin.url, brought.spoken(reason(error)), state)


def reason(error: Exception) -> str:
    """Return an error as one line, with its type if the message was not written for users."""
    text = " ".join(str(error).split())
    return text if isinstance(error, CatalogError) else f"{type(error).__name__}: {text}"


def _state(path: Path, origin: Origin | None, known: Quarantined | None) -> FileState | None:
    """Return the state of a file that failed, None where it cannot be read at all."""
    try:
        return InputFile.at(path, origin).state([known.input] if known else [])
    except OSError:
        return None


def _check(catalog: Catalog, scorer: Scorer, specification: Specification) -> tuple[str, ...]:
    """Raise a `CatalogError` where a catalogue cannot be annotated; return which units could not be compared."""
    here = scorer.on(catalog)  # refuses a catalogue without the columns, or in other units
    for name in scorer.reader.read:
        if n := catalog.column(name).absent:
            raise ColumnNotFoundError(
                f"{n:,} of {len(catalog.partitions):,} files of {catalog.path} have no column '{name}', "
                "expected it in every file, since the model reads it; classify the other files separately, "
                "or add the column to these, null where the value is unknown"
            )
    check_copies(catalog, scorer.columns, specification)
    return unchecked(here.reader, catalog, scorer.model.columns)


def _said_of(units: Collection[str]) -> str:
    """Return the line on units that could not be compared."""
    more = f"; and {len(units) - SHOWN:,} more" if len(units) > SHOWN else ""
    return (
        f"{'; '.join(list(units)[:SHOWN])}{more}: the values are used unchanged; if that is right, state the "
        "unit under [target.units]; if not, compute the column under [target.expressions]"
    )


def _still_quarantined(
    catalogues: Sequence[InputCatalogue], out: Path, before: Manifest
) -> dict[Path, Quarantined]:
    """Return the files that could not be annotated the last time, and have not changed since."""
    known = {q.input_path: q for q in before.quarantined if q.input is not None}
    if not known:
        return {}
    files = ((file, known.get(os.path.relpath(file.path, out))) for c in catalogues for file in c.files)
    return {file.path: q for file, q in files if q and file.looks_like(q.input)}


def _with_adopted(plan: Plan) -> Plan:
    """Return the plan with the outputs to which killed runs gave final names without listing them."""
    listed = plan.before.outputs if plan.before else ()
    known = plan.names.union(o.name for o in listed)
    records = plan.staging.published_records(others=plan.policy == "release")
    adopted = tuple(o for o in records if o.name not in known)
    return plan if not adopted else Plan(**{**vars(plan), "adopted": adopted})


def _check_names_distinct(files: Sequence[OpenedFile], brought: Brought) -> None:
    first = {name: Path("a file at a URL") for name in brought.left_out()}
    for one in files:
        path = one.partition.path
        other = first.setdefault(one.name, path)
        if other != path:
            raise UsageError(
                f"got {other} and {path}, whose outputs would have the same name, expected different names; "
                "classify them into two folders"
            )


def _check_replaceable(
    before: Manifest, names: set[str], model: Model, out: Path, *, overwrite: bool
) -> None:
    """Raise OutputExistsError where outputs of another model or specification would not all be replaced."""
    other = f"the model {before.model}" if before.model != model.label else "another specification"
    if not overwrite:
        raise OutputExistsError(
            f"{out}: got a folder with outputs of {other}, expected an empty folder, or outputs of {model.label} with "
            "the same specification; choose another with --out, or replace them with --overwrite"
        )
    left = [o.name for o in before.outputs if o.name not in names and (out / o.name).exists()]
    if left:
        raise OutputExistsError(
            f"{out}: got {', '.join(left)}, written by {other}, which this run would not replace, but all outputs in "
            "a folder have to be of one model; classify those inputs too, move the files, or choose another folder"
        )
