"""One file annotated into the staging folder; and several, one's own faults not in the others' way."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from blr.threads import single_threaded_blas
from catalogs.catalog.catalog import Catalog
from catalogs.files.atomic import StorageError
from catalogs.text.table import commented_out
from catalogs.writing.annotate import annotate
from catalogs.writing.conversion import copied
from flows.classification._class_shares import shift_record
from flows.classification._difference import Annotation, compare
from flows.classification._output_columns import kept_columns
from flows.classification._plan import reason
from flows.classification.scoring import Scorer, budget_threshold, provenance
from flows.errors import FlowError
from flows.inputs.catalogue import InputCatalogue
from flows.inputs.files import open_source
from flows.models.asdf_file import read_model
from flows.models.model import Model
from flows.models.store import StoredModel
from flows.runs.interrupt import stop_asked
from flows.runs.lock import check_held
from flows.runs.manifest import FileState, Output, file_sha256
from flows.runs.progress import tell
from flows.runs.staging import Staging
from flows.specification.specification import Specification

__all__ = ["annotate_each", "annotate_file", "model_at", "scorer_for"]

_THE_MACHINES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)

Json = dict[str, Any]
Job = Mapping[str, Any]


def annotate_file(job: Job) -> Json:
    """Annotate one file into the staging folder; return its record."""
    model = model_at(job["model"])
    specification: Specification = job["specification"]
    catalog = _one_file(job)
    if said := commented_out(catalog):
        tell().note(f"{job['name']}: {said}")
    scorer = scorer_for(model, specification, catalog)
    staging: Staging = job["staging"]
    with single_threaded_blas():
        written = annotate(
            catalog,
            staging.folder,
            scorer.columns,
            scorer,
            read=scorer.reader.read,
            provenance=provenance(model, specification, job["input"]["sha256"], scorer.reader.read),
            threads=job["threads"],
            progress=tell().advance,
            overwrite=True,
            mode=specification.output.mode,
            keep=kept_columns(specification),
            form=specification.output.form,
        )
    for what in written.warnings:
        tell().note(f"{job['name']}: {what}")
    counted = all(partition.counted for partition in catalog.partitions)
    output = _output(job, staging.file(job["name"]), scorer, counted=counted, left_behind=written.warnings)
    staging.record(output)
    return output.to_dict()


def annotate_each(annotate_one: Callable[[Job], Json], group: Mapping[str, Any]) -> list[Json]:
    """Annotate the files of a group; return for each its record, or why it failed.

    What is a file's own fault leaves the others alone; what is not (no room, no permission) ends the run.
    """
    done: list[Json] = []
    for job in group["jobs"]:
        if stop_asked():
            break
        done.append({"name": job["name"], **_attempt(annotate_one, job)})
    return done


def _not_the_files(error: OSError, path: str) -> bool:
    """Say whether the machine is at fault, or another file: that ends the run and quarantines nothing."""
    return error.errno in _THE_MACHINES or error.filename not in (None, path)


def _attempt(annotate_one: Callable[[Job], Json], job: Job) -> Json:
    path, state = Path(job["path"]), FileState(**job["input"])
    staging: Staging = job["staging"]
    try:
        output = annotate_one(job)
    except (FlowError, StorageError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and _not_the_files(error, job["path"]):
            raise
        check_held(staging.out)  # or the file would be blamed for what another run has removed
        return _changed(path, state) or {"failed": reason(error)}
    changed = _changed(path, state)
    if changed:
        staging.discard(job["name"])
    return changed or {"output": output}


def _changed(path: Path, state: FileState) -> Json | None:
    """Say what has become of the input while it was read; what came of it is of no use then."""
    if state.looks_like(path):
        return None
    return {"deferred": "it changed while it was read" if path.exists() else "it went away while it was read"}


def scorer_for(model: Model, specification: Specification, catalog: Catalog) -> Scorer:
    """Return the scorer of a catalogue; a review budget needs a pass over its rows first."""
    scorer = Scorer.of(model, specification).on(catalog)
    if specification.flags.budget is None:
        return scorer
    with single_threaded_blas():
        return scorer.with_low_confidence(budget_threshold(scorer, catalog, specification.flags.budget))


def _output(
    job: Job, annotated: Path, scorer: Scorer, *, counted: bool, left_behind: tuple[str, ...]
) -> Output:
    """Return the record of a file that has been annotated.

    A margin repeats rows, which are not to be `counted`; `left_behind` is what another format has no place for.
    """
    summary = {
        "counted": counted,
        "tally": scorer.tally().to_dict(),
        "drift": scorer.drift().to_dict(),
        "low_confidence": scorer.classifier.low_confidence,
        "shift": shift_record(scorer.model, job["specification"]),
    }
    if left_behind:
        summary["left_behind"] = list(left_behind)
    seen = annotated.stat()
    return Output(
        name=job["name"],
        sha256=file_sha256(annotated),
        size=seen.st_size,
        n_rows=scorer.tally().n_rows,
        input_path=job["input_path"],
        input=FileState(**job["input"]),
        mtime_ns=seen.st_mtime_ns,
        inode=seen.st_ino,
        summary=summary,
        difference=_difference(job, annotated, scorer),
    )


def _difference(job: Job, annotated: Path, scorer: Scorer) -> Json | None:
    """Return how the rows differ from those of the output that is replaced."""
    before = job.get("previous")
    if before is None:
        return None
    old = Annotation(Path(before["path"]), before["prefix"], tuple(before["classes"]))
    new = Annotation(annotated, scorer.prefix, scorer.model.classes)
    return compare(old, new, id_column=before["id"], by_row=before["by_row"])


@lru_cache(maxsize=2)
def model_at(stored: StoredModel) -> Model:
    """Return a model of the store, which is read once: a version never changes."""
    return read_model(stored.path)


def _one_file(job: Job) -> Catalog:
    """Return the catalogue with one of its files only."""
    named = InputCatalogue.from_dict(job["catalogue"])
    catalog = open_source(named)
    return replace(catalog, partitions=(copied(catalog, named.form)[job["name"]],))
