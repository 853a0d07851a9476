"""Drafts of releases: a finished run that is adopted, or catalogues that are classified where no reader sees them."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from catalogs.files.atomic import atomic_path, atomic_write_text, flush_to_disk
from flows.classification.request import ReprocessRequest
from flows.classification.steps import reprocess
from flows.documents import write_document
from flows.errors import UsageError
from flows.models.store import Store
from flows.release._contract import CONTRACT, DATA, MODEL, SETTINGS, Opened, derived_contract
from flows.release.record import (
    COMPANIONS,
    RECORD,
    ReleaseRecord,
    ReleaseState,
    Series,
    base_release,
    utc_now,
)
from flows.release.replay import settings_of
from flows.release.request import DraftRequest
from flows.runs.allowed_roots import check_inside
from flows.runs.manifest import Manifest
from flows.runs.outputs import file_sha256
from flows.specification.specification import specification_hash
from flows.specification.toml_file import load_specification, specification_toml

__all__ = ["copy_file", "draft", "finished_run"]


def draft(request: DraftRequest) -> ReleaseState:
    """Draft a release in a hidden folder, with its model, its settings and its contract.

    A draft of the same version is replaced.  A killed run leaves a draft without its record, which is begun again.
    """
    series = Series.of(request.releases, request.name)
    if (request.run is None) == (
        request.specification is None and request.model is None
    ) and request.run is None:
        raise UsageError(
            "--run: got neither a run nor a specification, expected a finished run to adopt, or --spec"
        )
    stated = None if request.specification is None else load_specification(request.specification)
    with series.alone():
        log, _ = series.read_log()
        if log.published(request.version) is not None:
            raise UsageError(
                f"VERSION: got '{request.version}', which is published and never changes; draft another version"
            )
        folder = series.draft(request.version)
        (folder / RECORD).unlink(missing_ok=True)
        if request.run is None:
            manifest = _classified(request, folder)
        else:
            manifest = _adopted(check_inside(request.run, key="--run"), folder)
        store = Store.named(request.store)
        stored = store.find(manifest.model)
        model = store.read(stored)
        copy_file(stored.path, folder / MODEL)
        settings = settings_of(model, manifest, stated)
        atomic_write_text(folder / SETTINGS, specification_toml(settings))
        if specification_hash(load_specification(folder / SETTINGS)) != manifest.specification_hash:
            raise UsageError("--spec: got settings that do not survive being written down; report this")
        companions = tuple(_companions(request, folder))
        last_folder, last = base_release(series, log, log.latest)
        record = ReleaseRecord(
            name=series.name,
            version=request.version,
            model=manifest.model,
            specification_hash=manifest.specification_hash,
            drafted=utc_now(),
            run=str(request.run or request.specification),
            n_rows=sum(o.n_rows for o in manifest.outputs),
            files=tuple(o.name for o in manifest.outputs),
            last=last,
            companions=companions,
        )
        opened = Opened(folder, manifest, model, settings)
        contract = derived_contract(
            opened, last_folder, last, companions=companions, id_column=request.id_column
        )
        write_document(folder / CONTRACT, contract)
        write_document(folder / RECORD, record)
    return series.state(
        request.version,
        "drafted",
        folder,
        latest=log.latest,
        remarks=(f"contract: {folder / CONTRACT}", f"compared with: {last or 'no release before'}"),
    )


def _classified(request: DraftRequest, folder: Path) -> Manifest:
    """Classify the catalogues of a specification into a draft; the same command goes on where it was killed."""
    assert request.specification is not None  # noqa: S101  the caller asked
    reprocess(ReprocessRequest(request.specification, request.store, request.model, out=folder / DATA))
    return finished_run(folder / DATA)


def finished_run(folder: Path) -> Manifest:
    """Return the manifest of a finished run; UsageError where the folder has none."""
    manifest = Manifest.read(folder)
    if manifest is None or not manifest.outputs:
        raise UsageError(
            f"--run: got '{folder}' without annotated files, expected the folder of a finished run"
        )
    return manifest


def _adopted(run: Path, folder: Path) -> Manifest:
    """Copy a finished run into a draft; its bytes are compared with the manifest's hashes in the check."""
    manifest = finished_run(run)
    data = folder / DATA
    if data.exists():
        shutil.rmtree(data)
    for path in sorted(run.rglob("*")):
        relative = path.relative_to(run)
        if path.is_symlink():
            raise UsageError(
                f"--run: got a symbolic link {path}, expected files of the run's own; replace it by the file"
            )
        if path.is_file() and not any(part.startswith(".") for part in relative.parts):
            copy_file(path, data / relative)
    outputs = tuple(replace(o, input_path=_relative(run, o.input_path, data)) for o in manifest.outputs)
    adopted = replace(manifest, outputs=outputs)
    adopted.write(data)
    return adopted


def _relative(run: Path, path: str, data: Path) -> str:
    """Return the path of an input relative to the draft's data; the published folder is as deep."""
    return path if "://" in path else os.path.relpath((run / path).resolve(), data.resolve())


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
    flush_to_disk(target.parent)


def _companions(request: DraftRequest, folder: Path) -> list[str]:
    """Copy the tables that go with the release."""
    if (folder / COMPANIONS).exists():
        shutil.rmtree(folder / COMPANIONS)
    names = []
    for text in request.companion or ():
        path = check_inside(Path(text), key="--companion")
        if not path.is_file():
            raise UsageError(
                f"--companion: got '{path}', which is not a file, expected a table with the objects of the release"
            )
        copy_file(path, folder / COMPANIONS / path.name)
        if file_sha256(path) != file_sha256(folder / COMPANIONS / path.name):
            raise UsageError(f"--companion: {path} changed while it was copied; draft again")
        names.append(f"{COMPANIONS}/{path.name}")
    return names
