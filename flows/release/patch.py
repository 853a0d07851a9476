"""Patches: the rows that a run changes in the latest release, as a small table that is a release of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blr.threads import single_threaded_blas
from catalogs.errors import CatalogError
from catalogs.files.atomic import atomic_path, atomic_write_text
from catalogs.formats import TableChoice, annotated_table
from flows.classification.scoring import Scorer
from flows.documents import read_document, write_document
from flows.errors import UsageError
from flows.models.model import Model
from flows.models.store import Store
from flows.release._contract import (
    CONTRACT,
    DATA,
    MODEL,
    PROFILE,
    SETTINGS,
    Check,
    Contract,
    Opened,
    Profile,
    open_release,
)
from flows.release._report import write_release_documents
from flows.release._rows import differing
from flows.release._truth import identifiers
from flows.release.check import Checked, map_identifiers
from flows.release.draft import copy_file, finished_run
from flows.release.record import (
    CHECKS,
    RECORD,
    SUMS,
    ReleaseRecord,
    ReleaseRefusedError,
    ReleaseState,
    Series,
    base_release,
    content_digest,
    sums_of,
    sums_text,
    utc_now,
)
from flows.release.replay import mismatches, settings_of
from flows.release.request import PatchRequest
from flows.runs.allowed_roots import check_inside
from flows.runs.counts import Transition
from flows.specification.toml_file import specification_toml

__all__ = ["PATCH", "patch"]

PATCH = "patch.parquet"

Array = np.ndarray[Any, Any]


@dataclass
class _Rows:
    """The changed rows so far: whole rows, their files and numbers, and the columns that differ anywhere."""

    parts: list[pa.RecordBatch] = field(default_factory=list)
    columns: dict[str, None] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)


def patch(request: PatchRequest) -> ReleaseState:
    """Draft a point release of the rows that a run changes; refuse it where rows change that are not listed.

    The new values must be those that the run's model gives.  The patch is checked as it is made.
    """
    series = Series.of(request.releases, request.name)
    run = check_inside(request.run, key="--run")
    manifest = finished_run(run)
    with series.alone():
        log, _ = series.read_log()
        base_folder, base = base_release(series, log, log.latest)
        if base_folder is None or base is None:
            raise UsageError(
                f"NAME: got '{request.name}' without a release to be patched, expected a published one"
            )
        if log.published(request.version) is not None:
            raise UsageError(f"VERSION: got '{request.version}', which is published; choose another version")
        opened, contract = open_release(base_folder), read_document(Contract, base_folder / CONTRACT)
        if contract.id is None:
            raise UsageError(
                f"NAME: got release {base} without a column of identifiers, expected one to patch by"
            )
        stored = Store.named(request.store).find(manifest.model)
        model = Store.named(request.store).read(stored)
        settings = settings_of(model, manifest, None)
        allowed = _listed(check_inside(request.rows, key="--rows"), contract.id)
        found = _Rows()
        for output in opened.manifest.outputs:
            _compare(output.name, opened, run, contract, Scorer.of(model, settings), allowed, found)
        if not found.parts:
            raise UsageError(f"--run: got a run that changes no row of release {base}, expected some")
        folder = series.draft(request.version)
        table = pa.Table.from_batches(found.parts)
        table = table.select(list(dict.fromkeys([contract.id, *found.columns])))
        for name, values in (("patched_file", found.files), ("patched_row", found.rows)):
            table = table.append_column(name, pa.array(values))
        (folder / DATA).mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / DATA / PATCH) as temporary:
            pq.write_table(table, temporary)
        copy_file(stored.path, folder / MODEL)
        atomic_write_text(folder / SETTINGS, specification_toml(settings))
        copy_file(base_folder / CONTRACT, folder / CONTRACT)
        _write(series, request, folder, base, base_folder, found, model, opened)
    changed = sum(found.moves.values())
    return series.state(
        request.version,
        "drafted",
        folder,
        latest=log.latest,
        remarks=(
            f"{table.num_rows:,} rows change in {len(found.columns)} columns: {', '.join(found.columns)}",
            f"{changed:,} objects have another class",
        ),
    )


def _write(
    series: Series,
    request: PatchRequest,
    folder: Path,
    base: str,
    base_folder: Path,
    found: _Rows,
    model: Model,
    opened: Opened,
) -> None:
    """Write the record, the checks and the documents of a patch, and the list of hashes."""
    n = len(found.rows)
    record = ReleaseRecord(
        name=series.name,
        version=request.version,
        model=model.label,
        specification_hash=opened.manifest.specification_hash,
        drafted=utc_now(),
        run=str(request.run),
        n_rows=n,
        files=(PATCH,),
        kind="patch",
        last=base,
        why=request.why or "",
    )
    write_document(folder / RECORD, record)
    names = ", ".join(found.columns)
    said = {
        "patch": ("differences", f"{n:,} listed rows change ({names}), no other does"),
        "replay": ("replay", f"{n:,} rows scored again by {model.label}, to rounding"),
    }
    checks = tuple(Check(kind=k, name=c, verdict="pass", found=w) for c, (k, w) in said.items())
    checked = Checked(
        name=series.name,
        version=request.version,
        checks=checks,
        n_rows=n,
        n_replayed=n,
        seed=0,
        last=base,
        compared=n,
        class_changed=sum(found.moves.values()),
        transitions=tuple(Transition(was, now, k) for (was, now), k in found.moves.most_common()),
        checked=utc_now(),
        digest=content_digest(folder),
    )
    classes = dict.fromkeys(model.classes, 0)
    profile = Profile(n_rows=n, columns={}, files={PATCH: {"rows": n}}, classes=classes, flags={})
    write_document(folder / PROFILE, profile)
    write_document(folder / CHECKS, checked)
    contract = read_document(Contract, folder / CONTRACT)
    write_release_documents(
        folder, series.name, request.version, contract, checked, profile, opened, base_folder
    )
    atomic_write_text(folder / SUMS, sums_text(sums_of(folder)))


def _listed(path: Path, column: str) -> Array:
    """Return the hashes of the identifiers in a table."""
    catalog = TableChoice(columns=(column,)).open(path)
    if column not in catalog.names:
        raise UsageError(
            f"--rows: got {path} without the column '{column}', expected the identifiers of rows"
        )
    return np.concatenate([np.empty(0, np.uint64), *map_identifiers(catalog, column)])


def _compare(
    name: str, opened: Opened, run: Path, contract: Contract, scorer: Scorer, allowed: Array, found: _Rows
) -> None:
    """Add the rows of a file that a run changes; ReleaseRefusedError where one of them may not change."""
    choice, id_ = annotated_table(contract.prefix), contract.id or ""
    try:
        old, new = choice.open(opened.data / name), choice.open(run / name)
    except (CatalogError, OSError) as error:
        raise ReleaseRefusedError(f"{name}: the run has no such file ({error}); name another run") from error
    if old.names != new.names or old.n_rows != new.n_rows:
        raise ReleaseRefusedError(
            f"{name}: got other rows or columns than the release's; draft a release instead"
        )
    here, start = scorer.on(new), 0
    for a, b in zip(old.batches(old.names), new.batches(new.names), strict=True):
        if len(differing(a.column(id_), b.column(id_))):
            raise ReleaseRefusedError(f"{name}: its rows are in another order; draft a release instead")
        changed = np.zeros(a.num_rows, bool)
        for column in old.names:
            rows = differing(b.column(column), a.column(column))
            changed[rows] = True
            if len(rows):
                found.columns[column] = None
        rows = np.flatnonzero(changed)
        if len(rows):
            outside = rows[~np.isin(identifiers(b.column(id_).take(pa.array(rows))), allowed)]
            if len(outside):
                raise ReleaseRefusedError(
                    f"{name}: {len(outside):,} rows change that are not listed, first row {start + outside[0]:,} "
                    f"({b.column(id_)[int(outside[0])]}); list them with --rows, or draft a release"
                )
            part = b.take(pa.array(rows))
            with single_threaded_blas():
                computed = here(part.select(list(here.reader.read)))
            wrong = ", ".join(mismatches(part, computed, tuple(c.name for c in here.columns), here.prefix))
            if wrong:
                raise ReleaseRefusedError(
                    f"{name}: {scorer.model.label} gives other values of {wrong}; classify again"
                )
            _add(found, part, a.take(pa.array(rows)), name, (start + rows).tolist(), contract.prefix)
        start += a.num_rows


def _add(
    found: _Rows, new: pa.RecordBatch, old: pa.RecordBatch, name: str, rows: Sequence[int], prefix: str
) -> None:
    found.parts.append(new)
    found.files += [name] * len(rows)
    found.rows += rows
    classes = (batch.column(f"{prefix}class").to_pylist() for batch in (old, new))
    found.moves.update((str(was), str(now)) for was, now in zip(*classes, strict=True) if was != now)
