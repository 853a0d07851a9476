"""A new census of an output folder, and the census of a table in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import catalogs
from blr.census.results import Census, StatedAssumption
from blr.threads import single_threaded_blas
from flows.classification._census import binned, census_asked, census_of, folder_census, rows_a_file
from flows.classification.request import CensusRequest
from flows.classification.scoring import annotation_settings, scorer_for
from flows.documents import read_document, write_document
from flows.errors import OutputFolderError, UsageError
from flows.models.model import Model
from flows.models.store import Store
from flows.reports.catalogue_page import rewrite_census
from flows.runs.counts import CensusAsked, CensusResult, Summary
from flows.runs.lock import exclusive
from flows.runs.manifest import SUMMARY, Manifest, annotated_manifest
from flows.runs.release_store import output_folder
from flows.specification.toml_file import read_specification

__all__ = ["table_census", "take_census"]


def take_census(request: CensusRequest, *, dry_run: bool = False) -> CensusResult:
    """Return the census of an output folder; write it into summary, report and manifest unless `dry_run`.

    Raises
    ------
    UsageError
        If nothing was classified into the folder.
    OutputFolderError
        If another run works in the folder, or its census is from an audit.
    ModelError
        If the store has not the model that the folder was made by.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as out:
        return _taken(request, out, dry_run=dry_run)


def _taken(request: CensusRequest, out: Path, *, dry_run: bool) -> CensusResult:
    """Return the census of a folder of this machine."""
    manifest = annotated_manifest(out)
    stored = Store.named(request.store).find(manifest.model)
    model = Store.named(request.store).read(stored)
    asked = _asked(manifest, model, request)
    census = folder_census(
        model, stored.path.parent, out, manifest.outputs, asked=asked, selected=manifest.selected
    )
    report = None
    if not dry_run:
        _check_no_audit(out)
        with exclusive(out):
            if annotated_manifest(out) != manifest:
                raise OutputFolderError(
                    f"{out}: another run changed this folder during the census; run the same command again"
                )
            report = _write(out, manifest, census, asked)
    return CensusResult(
        out=out,
        model=manifest.model,
        release=manifest.release,
        census=census,
        written=None if dry_run else out / SUMMARY,
        report=report,
    )


def table_census(
    table: object,
    *,
    model: str,
    store: str | Path = "models",
    assumes: StatedAssumption | None = None,
    by: str | None = None,
    bins: int = 4,
    edges: Sequence[float] | None = None,
) -> Census:
    """Return the census of an astropy, pandas or Arrow table, or of a catalogue's path, by a model of the store.

    `by` is an expression over features whose `bins`, or those between `edges`, are counted one by one.
    """
    place = Store.named(store)
    stored = place.find(model)
    loaded = place.read(stored)
    asked = census_asked(loaded, loaded.specification)
    asked = asked if assumes is None else replace(asked, assumes=assumes)
    if by is not None:
        asked = binned(asked, loaded, by, bins=bins, edges=edges, key="by")
    catalog = catalogs.open(table)
    settings = annotation_settings(loaded, loaded.specification)
    step = max(1, catalog.n_rows // rows_a_file(1))
    scorer = scorer_for(loaded, settings, catalog)
    scorer = scorer.kept_for_census(step, catalog, settings, stored.path.parent)
    with single_threaded_blas():
        for batch in catalog.batches(scorer.read):
            scorer(batch)
    return census_of(
        loaded,
        stored.path.parent,
        [scorer.census_rows()],
        n_objects=scorer.tally().n_classified,
        asked=asked,
        selected={},
    )


def _check_no_audit(out: Path) -> None:
    """Raise OutputFolderError where the folder has counts from an audit, which the model's must not replace unasked."""
    known = read_document(Summary, out / SUMMARY).census
    if known is not None and any(c.source == "audit" for c in known.classes.values()):
        raise OutputFolderError(
            f"{out / SUMMARY}: got a census from an audit, which the model's census would replace; print the "
            "model's census with --dry-run, or read it in audit.json"
        )


def _asked(manifest: Manifest, model: Model, request: CensusRequest) -> CensusAsked:
    """Return the questions of a request; those that it leaves out are taken from the earlier census."""
    before = manifest.census_asked
    if request.specification is not None:
        asked = census_asked(model, read_specification(request.specification))
    elif before is not None:
        asked = before
    else:
        asked = census_asked(model, model.specification)
    if request.assumes is not None:
        asked = replace(asked, assumes=request.assumes)
    if request.by is not None:
        return binned(asked, model, request.by, bins=request.bins, edges=request.edges, key="--by")
    if request.edges is not None:
        raise UsageError(
            "--edges: got edges without --by, expected the expression whose bins they limit; add --by"
        )
    return asked


def _write(out: Path, manifest: Manifest, census: Census, asked: CensusAsked) -> Path | None:
    """Write the census into summary, report and manifest, the manifest last as ever; return where the report is."""
    summary = read_document(Summary, out / SUMMARY).with_census(census)
    write_document(out / SUMMARY, summary)
    report = rewrite_census(out, census, None if summary.sets is None else summary.sets.reason)
    if manifest.totals is not None:
        totals = manifest.totals.with_census(census)
        replace(manifest, totals=totals, census_asked=asked).write(out)
    return report
