"""Draw an audit: a stratified random sample of annotated catalogues, written as a list that people fill in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from catalogs.expressions.expression import Expression, parse
from flows.documents import write_document
from flows.errors import UsageError
from flows.reviews._answers import read_labels
from flows.reviews._drawing import Drawing, draw_sample
from flows.reviews._files import AUDIT_NAME, Listed, audit_title, check_unanswered, write_audit_lists
from flows.reviews._objects import annotated_manifest, object_tables
from flows.reviews.audits import DESIGN, AuditDesign, AuditDraw, DrawnObject, Selection
from flows.reviews.request import AuditDrawRequest
from flows.runs.lock import exclusive
from flows.runs.manifest import Manifest
from flows.runs.release_store import output_folder

__all__ = ["draw_audit", "outputs_hash", "selections_of"]


def draw_audit(request: AuditDrawRequest, *, dry_run: bool = False) -> AuditDraw:
    """Draw objects of a folder that `classify` has written, and write the lists; return what was drawn.

    UsageError where the folder has no classes, an expression or a class is not known, or a list is there already.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        return _drawn(request, folder, dry_run=dry_run)


def _drawn(request: AuditDrawRequest, folder: Path, *, dry_run: bool) -> AuditDraw:
    """Draw from the copies in a folder of this machine."""
    manifest, prefix = annotated_manifest(folder)
    _check_free(folder, overwrite=request.overwrite)
    classes = tuple(manifest.details.classes)
    if not classes:
        raise UsageError(
            f"{folder}: got a manifest without classes, since an earlier version wrote it; run `blr "
            "classify` again with --overwrite"
        )
    selections = selections_of(request.threshold or (), classes)
    tables = object_tables(folder, manifest, prefix, request.identifier)
    if not tables:
        raise UsageError(
            f"{folder}: got a folder without annotated catalogues; classify a catalogue into it first"
        )
    by: Expression | None = parse(request.by) if request.by is not None else None
    drawing = draw_sample(
        tables,
        classes,
        request.n,
        seed=request.seed,
        by=by,
        n_bins=request.bins,
        edges=request.edges,
        selections=selections,
    )
    identifier = tables[0].identifier
    names = [row.name for row in drawing.rows]
    labels = read_labels(request.labels, identifier, classes, names) if request.labels else {}
    files: list[Path] = []
    if not dry_run:
        design = _design(request, manifest, identifier, classes, selections, drawing)
        with exclusive(folder):
            _check_free(folder, overwrite=request.overwrite)
            rows = _listed(drawing, labels)
            write_document(folder / DESIGN, design)
            files = write_audit_lists(rows, folder, identifier, classes, audit_title(manifest.model))
            files.append(folder / DESIGN)
    return AuditDraw(
        status="planned" if dry_run else "done",
        model=manifest.model,
        out=folder,
        id=identifier,
        n_rows=drawing.n_rows,
        n_drawn=len(drawing.rows),
        n_labelled=sum(name in labels for name in names),
        bins=() if by is None else drawing.bins.names,
        strata=drawing.strata,
        remarks=tuple(table.remark for table in tables if table.remark),
        files=tuple(files),
    )


def selections_of(thresholds: Sequence[tuple[str, float]], classes: Sequence[str]) -> tuple[Selection, ...]:
    """Return selections by class and threshold, each once; UsageError where a class is not known."""
    for name, _ in thresholds:
        if name not in classes:
            raise UsageError(f"--threshold: got the class '{name}', expected one of {', '.join(classes)}")
    once = dict.fromkeys((name, float(value)) for name, value in thresholds)
    return tuple(Selection(class_name=name, threshold=value) for name, value in once)


def outputs_hash(manifest: Manifest) -> str:
    """Return a hash of the names and the bytes of all annotated copies."""
    lines = sorted(f"{output.name} {output.sha256}" for output in manifest.outputs)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _design(
    request: AuditDrawRequest,
    manifest: Manifest,
    identifier: str,
    classes: tuple[str, ...],
    selections: tuple[Selection, ...],
    drawing: Drawing,
) -> AuditDesign:
    return AuditDesign(
        format="blr-audit",
        model=manifest.model,
        release=manifest.release,
        outputs=outputs_hash(manifest),
        id=identifier,
        seed=request.seed,
        by=request.by,
        bins=() if request.by is None else drawing.bins.names,
        classes=classes,
        n_rows=drawing.n_rows,
        selections=selections,
        strata=drawing.strata,
        objects=tuple(
            DrawnObject(id=row.name, stratum=row.stratum, probabilities=row.probabilities)
            for row in drawing.rows
        ),
    )


def _listed(drawing: Drawing, labels: dict[str, str]) -> list[Listed]:
    rows = []
    for row in drawing.rows:
        stratum = drawing.strata[row.stratum]
        share = stratum.n_drawn / stratum.n_rows
        rows.append(
            Listed(row.name, row.ra, row.dec, row.stratum, share, 1 / share, labels.get(row.name, ""))
        )
    return rows


def _check_free(folder: Path, *, overwrite: bool) -> None:
    """Raise UsageError where a list would be lost: an earlier one, or one with answers whatever the options."""
    there = [folder / name for name in (f"{AUDIT_NAME}.csv", DESIGN) if (folder / name).exists()]
    if there and not overwrite:
        raise UsageError(
            f"{there[0]}: an audit was drawn here already; estimate from it (`blr audit estimate`), "
            "or draw another with --overwrite, after which the answers to this one no longer count"
        )
    check_unanswered(folder, AUDIT_NAME)
