"""The inputs and results of the tasks of a classification: files to annotate, their records, the publication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from catalogs.catalog.catalog import BATCH_ROWS
from flows.classification._census_wish import CensusWish
from flows.classification._difference import Annotation
from flows.inputs.source import InputCatalogue
from flows.models.store_folder import StoredModel
from flows.runs.difference import ReleaseDifference
from flows.runs.outputs import FileState, Output, Quarantined
from flows.runs.results import EarlierRelease
from flows.runs.staging import Staging
from flows.runs.summary import Totals
from flows.specification.specification import Specification

__all__ = [
    "Annotated",
    "ClassificationRequest",
    "Deferred",
    "Failed",
    "FileJob",
    "FileOrder",
    "FileResult",
    "JobGroup",
    "PreviousAnnotation",
    "Publication",
    "Published",
]


@dataclass(frozen=True, kw_only=True)
class ClassificationRequest:
    """What every task needs: the model, the settings, and the number of threads (None for the machine's cores).

    `wish` has the questions to the census.
    """

    model: StoredModel
    specification: Specification
    threads: int | None
    wish: CensusWish


@dataclass(frozen=True, kw_only=True)
class PreviousAnnotation:
    """The output that a new one replaces, for comparison.

    `by_row` where both are of the same input, so that rows agree one by one; `id_column` names the objects, None
    where the specification does not say.
    """

    annotation: Annotation
    by_row: bool
    id_column: str | None


@dataclass(frozen=True, kw_only=True)
class FileOrder:
    """One file that is to be annotated, without what all files of a run have in common.

    `input_path` is the file's place as the manifest names it, `name` that of its copy, `input` its state when it was
    looked at, without a hash where nobody has read it.  `previous` is None where there is nothing to compare the copy
    with.  `census_rows` is how many rows are kept for the census, `batch_rows` how many are held at a time.
    """

    catalogue: InputCatalogue
    path: Path
    input_path: str
    name: str
    input: FileState
    previous: PreviousAnnotation | None
    census_rows: int
    batch_rows: int = BATCH_ROWS


@dataclass(frozen=True, kw_only=True)
class FileJob(FileOrder):
    """One file that is to be annotated, how, and where its copy waits."""

    request: ClassificationRequest
    staging: Staging


@dataclass(frozen=True)
class JobGroup:
    """The files that one task annotates, in their order; `label` is the name of the task."""

    label: str
    jobs: tuple[FileJob, ...]


@dataclass(frozen=True)
class Annotated:
    """A file that was annotated, and its copy."""

    name: str
    output: Output


@dataclass(frozen=True)
class Failed:
    """A file that could not be annotated because of its content.

    `input` is its state, None where it is to be tried again although it stays as it is.
    """

    name: str
    reason: str
    input: FileState | None


@dataclass(frozen=True)
class Deferred:
    """A file that is left for the next run, and why."""

    name: str
    why: str


FileResult = Annotated | Failed | Deferred


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What is published at the end besides the outputs, and how.

    `retire` names the copies that are moved away.  `why` says by name which files were annotated for this release.
    `repeats` says which files have objects in common.
    `report` asks for a release report.  `catalogues` are the inputs that are folders.
    """

    request: ClassificationRequest
    staging: Staging
    release: int
    retire: tuple[str, ...]
    quarantined: tuple[Quarantined, ...]
    deferred: Mapping[str, str]
    repeats: tuple[str, ...]
    why: Mapping[str, str]
    before: EarlierRelease | None
    report: bool
    catalogues: tuple[InputCatalogue, ...]


@dataclass(frozen=True, kw_only=True)
class Published:
    """What was published: the release, what was moved away for it, the features that have drifted.

    `totals` are those of all outputs.  `report` and `difference` are None where no release report was asked for.
    """

    release: int
    retired: tuple[str, ...]
    drifted: tuple[str, ...]
    report: Path | None
    difference: ReleaseDifference | None
    totals: Totals
