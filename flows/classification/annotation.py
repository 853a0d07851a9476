"""Annotation of one file into the staging folder, or of several, where a faulty file does not stop the others."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from blr.threads import single_threaded_blas
from catalogs.catalog.catalog import Catalog, verified
from catalogs.files.atomic import StorageError
from catalogs.text.table import commented_out
from catalogs.writing.annotate import annotate
from catalogs.writing.conversion import copied
from flows.classification._class_shares import shift_record
from flows.classification._difference import Annotation, compare
from flows.classification._object_survey import ObjectSurvey
from flows.classification._output_columns import kept_columns
from flows.classification._plan import reason
from flows.classification._repeats import keep_sketch
from flows.classification._tasks import Annotated, Deferred, Failed, FileJob, FileResult, JobGroup
from flows.classification.scoring import KnownRows, Scorer, budget_threshold, provenance
from flows.errors import FlowError
from flows.inputs.files import open_source
from flows.models.model import Model, read_model
from flows.models.row_files import read_labelled_identifiers
from flows.models.store_folder import StoredModel
from flows.runs.counts import FileCounts
from flows.runs.difference import FileDifference
from flows.runs.interrupt import begin_piece, check_terminated, stop_asked
from flows.runs.labelled import LabelledNames
from flows.runs.lock import check_held
from flows.runs.outputs import FileState, Output, file_sha256
from flows.runs.progress import tell
from flows.specification.specification import Specification

__all__ = ["annotate_each", "annotate_file", "model_at", "scorer_for"]

_THE_MACHINES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


def annotate_file(job: FileJob) -> Output:
    """Annotate one file, whose hash is known, into the staging folder; return its record."""
    model, specification = model_at(job.request.model), job.request.specification
    catalog, _ = verified(_one_file(job), specification.catalog.checksums)
    if remark := commented_out(catalog):
        tell().note(f"{job.name}: {remark}")
    step = math.ceil(catalog.n_rows / job.census_rows)
    known = KnownRows.of(catalog, specification, job.request.model.folder, classes=len(model.classes))
    scorer = scorer_for(model, specification, catalog).kept_for_census(max(1, step), known)
    labelled = _labelled_names(job.request.model.folder)
    survey = ObjectSurvey.of(catalog, specification, model.classes, labelled)
    scorer = replace(scorer, survey=survey)
    with single_threaded_blas():
        written = annotate(
            catalog,
            job.staging.folder,
            scorer.columns,
            scorer,
            read=tuple(dict.fromkeys((*scorer.reader.read, *survey.read))),
            provenance=provenance(model, specification, job.input.sha256, scorer.reader.read),
            rows=job.batch_rows,
            threads=job.request.threads,
            progress=tell().advance,
            overwrite=True,
            mode=specification.output.mode,
            keep=kept_columns(specification),
            form=specification.output.form,
            checksums=specification.catalog.checksums,
        )
    for what in written.warnings:
        tell().note(f"{job.name}: {what}")
    counted = all(partition.counted for partition in catalog.partitions)
    output = _output(job, scorer, counted=counted, left_behind=tuple(written.warnings))
    if counted and specification.catalog.id is not None:
        keep_sketch(job.staging.file(job.name), output, specification, job.staging.out)
    job.staging.record(output)
    return output


@lru_cache(maxsize=2)
def _labelled_names(folder: Path) -> LabelledNames | None:
    """Return the names of a model's labelled objects; None of a model of an earlier version."""
    names = read_labelled_identifiers(folder)
    return None if names is None else LabelledNames.of(names)


def annotate_each(annotate_one: Callable[[FileJob], Output], group: JobGroup) -> list[FileResult]:
    """Annotate the files of a group; return for each its record, or why it failed or has to wait.

    An error in one file's content does not stop the others.  Any other error (no room, no permission) ends the run.
    """
    results: list[FileResult] = []
    for job in group.jobs:
        if stop_asked():
            break
        begin_piece(job.name)
        results.append(_attempt(annotate_one, job))
    return results


def _not_the_files(error: OSError, path: str) -> bool:
    """Say whether the machine or another file caused an error: then the run ends, and nothing is quarantined."""
    return error.errno in _THE_MACHINES or error.filename not in (None, path)


def _attempt(annotate_one: Callable[[FileJob], Output], job: FileJob) -> FileResult:
    try:
        job = replace(job, input=job.input.hashed(job.path))
        output = annotate_one(job)
    except (FlowError, StorageError, MemoryError):
        raise
    except Exception as error:
        check_terminated()
        if isinstance(error, OSError) and _not_the_files(error, str(job.path)):
            raise
        check_held(
            job.staging.out
        )  # Otherwise the file would count as faulty because another run removed something.
        change = _changed(job.path, job.input)
        return Deferred(job.name, change) if change else Failed(job.name, reason(error), job.input)
    if change := _changed(job.path, job.input):
        check_held(job.staging.out)  # otherwise, a worker of an ended run could discard another run's file
        job.staging.discard(job.name)
        return Deferred(job.name, change)
    return Annotated(job.name, output)


def _changed(path: Path, state: FileState) -> str | None:
    """Return how the input changed while it was read, since its output is invalid then."""
    if state.looks_like(path):
        return None
    return "it changed while it was read" if path.exists() else "it was deleted while it was read"


def scorer_for(model: Model, specification: Specification, catalog: Catalog) -> Scorer:
    """Return the scorer of a catalogue; a review budget needs a pass over its rows first."""
    scorer = Scorer.of(model, specification).on(catalog)
    if specification.flags.budget is None:
        return scorer
    with single_threaded_blas():
        return scorer.with_low_confidence(budget_threshold(scorer, catalog, specification.flags.budget))


def _output(job: FileJob, scorer: Scorer, *, counted: bool, left_behind: tuple[str, ...]) -> Output:
    """Return the record of a file that has been annotated.

    A margin repeats rows, which are not to be `counted`; `left_behind` names what the copy's format cannot hold.
    """
    annotated = job.staging.file(job.name)
    counts = FileCounts(
        counted=counted,
        tally=scorer.tally(),
        drift=scorer.drift(),
        low_confidence=scorer.classifier.low_confidence,
        shift=shift_record(scorer.model, job.request.specification),
        set_rule=None if scorer.sets is None else scorer.sets.record,
        left_behind=left_behind,
        sky=None if scorer.survey is None else scorer.survey.sky(),
        doubtful=() if scorer.survey is None else scorer.survey.doubtful(),
    )
    seen = annotated.stat()
    return Output(
        name=job.name,
        sha256=file_sha256(annotated),
        size=seen.st_size,
        n_rows=counts.tally.n_rows,
        input_path=job.input_path,
        input=job.input,
        mtime_ns=seen.st_mtime_ns,
        inode=seen.st_ino,
        summary=counts,
        difference=_difference(job, annotated, scorer),
        census_rows=scorer.census_rows().text() if counted else "",
    )


def _difference(job: FileJob, annotated: Path, scorer: Scorer) -> FileDifference | None:
    """Return how the rows differ from those of the output that is replaced."""
    before = job.previous
    if before is None:
        return None
    new = Annotation(annotated, scorer.prefix, scorer.model.classes)
    return compare(before.annotation, new, id_column=before.id_column, by_row=before.by_row)


@lru_cache(maxsize=2)
def model_at(stored: StoredModel) -> Model:
    """Return a model of the store, which is read once: a version never changes."""
    return read_model(stored.path)


def _one_file(job: FileJob) -> Catalog:
    """Return the catalogue with one of its files only."""
    catalog = open_source(job.catalogue)
    return replace(catalog, partitions=(copied(catalog, job.catalogue.form)[job.name],))
