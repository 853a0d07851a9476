"""Drafts of releases: an adopted run, catalogues classified where no reader sees them, a patch of listed rows."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import catalogs
from blr.arrays import Array
from blr.threads import single_threaded_blas
from catalogs.arrays import differing, hashed_identifiers
from catalogs.errors import CatalogError
from catalogs.files import atomic_path, atomic_write_text
from catalogs.formats import open_annotated
from flows.classification.scoring import Scorer
from flows.classification.steps import reprocess
from flows.documents import write_document
from flows.errors import UsageError
from flows.models.row_files import ROWS_FILE
from flows.models.store import Store
from flows.release._contract import CONTRACT, DATA, LISTS, MODEL, SETTINGS, Findings, Opened, derived_contract
from flows.release._differences import transitions_of
from flows.release.record import COMPANIONS, RECORD, ReleaseRefusedError, Series, forget_checks, write_checks
from flows.release.replay import mismatches, settings_of
from flows.request import DraftRequest, PatchRequest, ReprocessRequest
from flows.runs.manifest import Manifest, file_sha256
from flows.runs.references import check_inside
from flows.runs.release_store import RETIRED
from flows.runs.results import Checked, Profile, ReleaseState
from flows.specification.specification import Specification
from flows.specification.toml_file import load_specification, specification_toml

PATCH = "patch.parquet"


def draft(request: DraftRequest) -> ReleaseState:
    """Draft a release in a hidden folder, with its model, its settings and its contract.

    A draft of the same version is replaced.  A killed run leaves a draft without its record, which is begun again.
    """
    series, version = Series(request.releases, request.name), request.version
    if request.run is None and request.specification is None:
        raise UsageError("--run: got neither a run nor --spec, expected a finished run to adopt, or --spec")
    stated = None if request.specification is None else load_specification(request.specification)
    with series.alone():
        log, folder = series.unpublished(version), series.draft(version)
        forget_checks(folder)
        (folder / RECORD).unlink(missing_ok=True)
        if request.run is not None:
            manifest = _adopted(check_inside(request.run, key="--run"), folder / DATA)
        else:
            wanted = request.specification or Path()  # one of the two is there
            reprocess(ReprocessRequest(wanted, request.store, request.model, out=folder / DATA))
            manifest = finished_run(folder / DATA)
        opened = _with_model(folder, manifest, request.store, stated, version)
        last = series.base(log, log.latest)
        companions = tuple(_companions(request, folder))
        contract = derived_contract(opened, last, companions=companions, id_column=request.id_column)
        write_document(folder / CONTRACT, contract)
        run = str(request.run or request.specification)
        series.record(version, log, run=run, last=contract.last, companions=companions)
    compared = f"compared with: {contract.last or 'no release before'}"
    remarks = (f"contract: {folder / CONTRACT}", compared)
    return series.state(version, "drafted", folder, latest=log.latest, remarks=remarks)


def finished_run(folder: Path) -> Manifest:
    """Return the manifest of a finished run; UsageError where the folder has none."""
    manifest = Manifest.read(folder)
    if manifest is None or not manifest.outputs:
        raise UsageError(f"--run: got '{folder}' without annotated files, expected a finished run's folder")
    return manifest


def _adopted(run: Path, data: Path) -> Manifest:
    """Copy a finished run into a draft, without lists and maps for people; the check compares bytes and hashes."""
    manifest = finished_run(run)
    listed = {output.name for output in manifest.outputs}
    if data.exists():
        shutil.rmtree(data)
    for path in sorted(run.rglob("*")):
        relative = path.relative_to(run)
        if path.is_symlink():
            raise UsageError(f"--run: got a symbolic link {path}, expected a file; replace it by the file")
        hidden = relative.parts[0] == RETIRED or any(part.startswith(".") for part in relative.parts)
        hidden |= relative.as_posix() not in listed and LISTS.fullmatch(relative.as_posix()) is not None
        if path.is_file() and not hidden:
            copy_file(path, data / relative)
    outputs = []
    for output in manifest.outputs:
        source = output.input_path  # relative to the draft's data; the published folder is as deep
        if "://" not in source:
            source = os.path.relpath((run / source).resolve(), data.resolve())
        outputs.append(replace(output, input_path=source))
    adopted = replace(manifest, outputs=tuple(outputs))
    adopted.write(data)
    return adopted


def _with_model(
    folder: Path, manifest: Manifest, models: Path, stated: Specification | None, version: str
) -> Opened:
    """Copy the model of a run into a draft, and write down the settings; return the draft, opened."""
    store = Store.named(models)
    stored = store.find(manifest.model)
    model = stored.read()
    copy_file(stored.path, folder / MODEL)
    given = dict(manifest.totals.shift.class_priors)
    settings = settings_of(model, stated, given, manifest.specification_hash)
    if settings is None:
        got = "no specification" if stated is None else "one that does not give the run's settings"
        raise UsageError(f"--spec: got {got}, expected the specification that the run used")
    if settings.output.selected or settings.output.sets:  # whose thresholds are learnt from these rows
        copy_file(stored.folder / ROWS_FILE, folder / ROWS_FILE)
    atomic_write_text(folder / SETTINGS, specification_toml(settings))
    return Opened(folder, version, manifest)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def _companions(request: DraftRequest, folder: Path) -> Iterator[str]:
    """Copy the tables that go with the release; yield their paths in the draft."""
    if (folder / COMPANIONS).exists():
        shutil.rmtree(folder / COMPANIONS)
    for text in request.companion or ():
        path = check_inside(Path(text), key="--companion")
        if not path.is_file():
            raise UsageError(f"--companion: got '{path}', expected a file, a table of the release's objects")
        copy_file(path, folder / COMPANIONS / path.name)
        if file_sha256(path) != file_sha256(folder / COMPANIONS / path.name):
            raise UsageError(f"--companion: {path} changed while it was copied; draft again")
        yield f"{COMPANIONS}/{path.name}"


def patch(request: PatchRequest) -> ReleaseState:
    """Draft a point release of the rows that a run changes; refuse it where rows change that are not listed.

    The new values must be those that the run's model gives.  The patch is checked as it is made.
    """
    series, version = Series(request.releases, request.name), request.version
    run = check_inside(request.run, key="--run")
    manifest = finished_run(run)
    with series.alone():
        log = series.unpublished(version)
        base = series.base(log, log.latest)
        if base is None:
            raise UsageError(f"NAME: got '{request.name}', which has no published release to be patched")
        contract = base.contract
        if contract.id is None:
            raise UsageError(f"NAME: release {base.version} has no identifiers to patch by; draft a release")
        folder = series.draft(version)
        forget_checks(folder)
        for part in (DATA, COMPANIONS):  # of a draft of the whole that the patch takes the place of
            shutil.rmtree(folder / part, ignore_errors=True)
        opened = _with_model(folder, manifest, request.store, None, version)
        copy_file(base.folder / CONTRACT, folder / CONTRACT)
        allowed = _listed(check_inside(request.rows, key="--rows"), contract.id)
        columns: dict[str, None] = {contract.id: None}  # those that differ anywhere
        moves: Counter[tuple[str, str]] = Counter()
        parts = []
        for output in base.manifest.outputs:
            for old, new in _changed(output.name, base, run, opened, allowed, columns):
                parts.append(new)
                classes = (rows.column(f"{contract.prefix}class").to_pylist() for rows in (old, new))
                moves.update((str(was), str(now)) for was, now in zip(*classes, strict=True) if was != now)
        if not parts:
            raise UsageError(f"--run: got a run that changes no row of release {base.version}")
        table = pa.Table.from_batches(parts).select([*columns, "patched_file", "patched_row"])
        n, changed, names = table.num_rows, sum(moves.values()), ", ".join([*columns][1:])
        (folder / DATA).mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / DATA / PATCH) as temporary:
            pq.write_table(table, temporary)
        why = request.why or ""
        series.record(version, log, run=str(request.run), kind="patch", last=base.version, why=why)
        findings = Findings()
        findings.ran("patch", "replay", n=n, names=names, model=opened.model.label)
        checked = Checked(
            name=series.name,
            version=version,
            checks=findings.checks(),
            n_rows=n,
            n_replayed=n,
            seed=0,
            last=base.version,
            compared=n,
            class_changed=changed,
            transitions=transitions_of(moves),
        )
        none = dict.fromkeys(opened.model.classes, 0)
        profile = Profile(n_rows=n, columns={}, files={PATCH: {"rows": n}}, classes=none)
        write_checks(opened, checked, profile, base, {})
    said = f"{n:,} rows change in {len(columns) - 1} columns: {names}"
    remarks = (said, f"{changed:,} objects have another class")
    return series.state(version, "drafted", folder, latest=log.latest, remarks=remarks)


def _listed(path: Path, column: str) -> Array:
    """Return the hashes of the identifiers in a table."""
    catalog = catalogs.open(path, columns=(column,))
    if column not in catalog.names:
        raise UsageError(f"--rows: got {path} without '{column}', expected a column with the identifiers")
    hashes = [hashed_identifiers(batch.column(column)) for batch in catalog.batches([column])]
    return np.concatenate([np.empty(0, np.uint64), *hashes])


def _changed(
    name: str, base: Opened, run: Path, opened: Opened, allowed: Array, columns: dict[str, None]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the rows of a file that a run changes, as they were and as they are; note the columns that differ.

    ReleaseRefusedError where one of them may not change, or is not as the run's model gives it.
    """
    prefix, id_ = base.contract.prefix, base.contract.id or ""
    try:
        old, new = open_annotated(base.data / name, prefix), open_annotated(run / name, prefix)
    except (CatalogError, OSError) as error:
        raise ReleaseRefusedError(f"{name}: the run has no such file ({error}); name another run") from error
    if old.names != new.names or old.n_rows != new.n_rows:
        raise ReleaseRefusedError(f"{name}: got other rows or columns than before; draft a release instead")
    scorer, start = Scorer.of(opened.model, opened.settings).on(new), 0
    for a, b in zip(old.batches(old.names), new.batches(new.names), strict=True):
        if differing(a.column(id_), b.column(id_)).any():
            raise ReleaseRefusedError(f"{name}: its rows are in another order; draft a release instead")
        different = {column: differing(b.column(column), a.column(column)) for column in old.names}
        columns |= dict.fromkeys(column for column, wrong in different.items() if wrong.any())
        rows = np.flatnonzero(np.logical_or.reduce([*different.values()]))
        if len(rows):
            outside = rows[~np.isin(hashed_identifiers(b.column(id_).take(pa.array(rows))), allowed)]
            if len(outside):
                row = f"row {start + outside[0]:,} ({b.column(id_)[int(outside[0])]})"
                said = f"{len(outside):,} rows change that are not listed, first {row}; list them with --rows"
                raise ReleaseRefusedError(f"{name}: {said}, or draft a release")
            part = b.take(pa.array(rows))
            with single_threaded_blas():
                computed = scorer(part.select(list(scorer.reader.read)))
            made = tuple(c.name for c in scorer.columns)
            known = opened.settings.flags.budget is None
            if wrong := mismatches(part, computed, made, scorer, known=known):
                said = f"{opened.model.label} gives other values of {', '.join(wrong)}; classify again"
                raise ReleaseRefusedError(f"{name}: {said}")
            part = part.append_column("patched_file", pa.array([name] * len(rows)))
            yield a.take(pa.array(rows)), part.append_column("patched_row", pa.array(start + rows))
        start += a.num_rows
