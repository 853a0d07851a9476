"""The reports of releases, such as `_releases/0007.json`: one small file for each release, kept for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from blr.census.results import count_changes
from catalogs.files.atomic import own_folder, sweep
from flows.classification._difference import total_difference
from flows.classification._narrowed import narrowed
from flows.documents import write_document
from flows.runs.difference import Difference, FileDifference, ReleaseDifference, ReleasedObject
from flows.runs.manifest import Manifest
from flows.runs.outputs import Output
from flows.runs.release import (
    EarlierRelease,
    NotCompared,
    ReleasedFile,
    ReleaseFiles,
    ReleaseReference,
    ReleaseReport,
)
from flows.runs.summary import Totals

__all__ = ["RELEASES", "release_report", "write_report"]

RELEASES = "_releases"
SCHEMA_VERSION = 1
MOST_EXAMPLES = 100
"""Most objects that a report names, those whose probabilities changed most."""


def release_report(
    manifest: Manifest,
    totals: Totals,
    *,
    why: Mapping[str, str],
    before: EarlierRelease | None,
    retired: tuple[str, ...],
    deferred: Mapping[str, str],
) -> ReleaseReport:
    """Return what a release has changed since the one `before`; `why` says by name which files were annotated."""
    annotated = [o for o in manifest.outputs if o.name in why]
    compared = {o.name: o.difference for o in annotated if o.difference is not None}
    return ReleaseReport(
        format="blr-release",
        schema_version=SCHEMA_VERSION,
        release=manifest.release,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=manifest.model,
        specification_hash=manifest.specification_hash,
        before=before and narrowed(ReleaseReference, before),
        files=_files(manifest, annotated, why),
        annotated={
            o.name: ReleasedFile(
                why=why[o.name], rows=o.n_rows, difference=o.difference and narrowed(Difference, o.difference)
            )
            for o in annotated
        },
        retired=retired,
        quarantined=manifest.quarantined,
        deferred=deferred,
        difference=_difference(compared),
        totals=totals,
        counts=count_changes(
            None if before is None or before.totals is None else before.totals.census, totals.census
        ),
    )


def write_report(folder: Path, report: ReleaseReport) -> Path:
    """Write the report of a release; return where it is.

    A report of the same number may be there already.  That of a killed run is replaced.  That of the same release,
    whose lost files were made again, is kept.
    """
    path = folder / RELEASES / f"{report.release:04d}.json"
    if report.before and report.before.release == report.release and path.is_file():
        return path
    own_folder(path.parent, folder)
    sweep(path.parent)  # removes a half-written file of a killed run
    write_document(path, report)
    return path


def _files(manifest: Manifest, annotated: list[Output], why: Mapping[str, str]) -> ReleaseFiles:
    new = [o for o in annotated if o.difference is None]
    return ReleaseFiles(
        unchanged=len(manifest.outputs) - len(annotated),
        annotated=dict(Counter(why[o.name] for o in annotated)),
        not_compared=NotCompared(len(new), sum(o.n_rows for o in new)),
    )


def _difference(compared: Mapping[str, FileDifference]) -> ReleaseDifference:
    """Return the differences of all files together, with the objects whose probabilities changed most."""
    objects = [ReleasedObject(file=name, **vars(e)) for name, d in compared.items() for e in d.examples]
    furthest = sorted(objects, key=lambda e: (-e.moved, e.file, e.id))[:MOST_EXAMPLES]
    return ReleaseDifference(**vars(total_difference(list(compared.values()))), examples=tuple(furthest))
