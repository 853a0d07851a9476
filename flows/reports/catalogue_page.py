"""The report of a classification: one HTML file beside the annotated catalogues that loads nothing from anywhere.

The content of the report is stored beside it.  So a later census can be added without the model and the catalogues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from blr.census.results import Census
from catalogs.files.atomic import atomic_write_text, check_links, own_folder
from flows.documents import read_document, write_document
from flows.errors import DocumentError
from flows.reports import tables
from flows.reports._pictures import catalogue_pictures
from flows.reports.catalogue_answers import ClassifyingModel, ReleaseTroubles, classification_answers
from flows.reports.census import bin_tables, census_table, selection_table
from flows.reports.data import Classification, Made, NotableObject
from flows.reports.explanation import ClassExample, example_table
from flows.reports.html import AnswerPart, Page, TableGroup, linked, made_words, render_page
from flows.reports.report_table import ReportTable

__all__ = [
    "REPORT",
    "ClassificationReport",
    "render_classification",
    "rewrite_census",
    "write_classification",
]

REPORT: Final = "report.html"
SHOWN: Final = "_report/shown.json"


@dataclass(frozen=True, kw_only=True)
class ClassificationReport:
    """What the report of a classification shows; `units` has the expression and the unit of each feature."""

    found: Classification
    model: ClassifyingModel
    objects: tuple[NotableObject, ...]
    examples: tuple[ClassExample, ...]
    troubles: ReleaseTroubles
    release: int
    made: Made
    units: Mapping[str, tuple[str, str | None]]
    provenance: Mapping[str, str]
    files: ReportTable | None = None  # their states; reports of earlier versions have none


def write_classification(report: ClassificationReport, folder: Path) -> None:
    """Write the report into the folder of the copies, and what it shows, for `rewrite_census`."""
    shown = folder / SHOWN
    own_folder(shown.parent, folder)
    try:
        write_document(shown, report)
    except ValueError:  # infinity or NaN, which JSON cannot hold
        shown.unlink(missing_ok=True)
    atomic_write_text(folder / REPORT, render_classification(report))


REPORT_KEPT = (
    "report.html shows the previous census: the version that wrote it kept no data to write it again"
)


def rewrite_census(folder: Path, census: Census, of_sets: str | None = None) -> Path | None:
    """Write the report of a folder again, with another census; return where it is.

    `of_sets` is the reason of prediction sets after that census; None for the reason in the report.  The result is
    None for a report of an earlier version that did not store its content: such a report is not changed.
    """
    check_links(folder / SHOWN, folder)
    try:
        report = read_document(ClassificationReport, folder / SHOWN)
    except (OSError, DocumentError):
        return None
    sets = report.found.sets
    if sets is not None and of_sets is not None:
        sets = replace(sets, reason=of_sets)
    found = replace(report.found, census=census, sets=sets)
    write_classification(replace(report, found=found, made=Made.now()), folder)
    return folder / REPORT


def render_classification(report: ClassificationReport) -> str:
    """Return the report as HTML."""
    found, provenance = report.found, report.provenance
    use, *four, counts, odd, look = classification_answers(
        found, report.model, report.objects, report.troubles
    )
    return render_page(
        Page(
            title=f"{found.catalogue}, release {report.release}",
            version=report.model.label,
            kind="classification report",
            lead=f"{found.n_rows:,} objects, sorted into {', '.join(found.classes)} by {report.model.label}.",
            made=made_words(report.made, provenance.get("blr")),
            use=use,
            four=four,
            parts=(
                AnswerPart(answer=counts, tables=(*_census(found), tables.class_count_table(found))),
                AnswerPart(answer=odd),
                AnswerPart(answer=look, objects=linked(report.objects)),
            ),
            pictures=tuple(catalogue_pictures(found, report.units)),
            lacking="",
            groups=(
                TableGroup(title="Flags", tables=(tables.flag_table(found),)),
                *_sets(found),
                *_files(report.files),
            ),
            remarks=(),
            last=_explained(report.examples),
            provenance=provenance,
        )
    )


def _census(found: Classification) -> tuple[ReportTable, ...]:
    if found.census is None:
        return ()
    selections = selection_table(found.census)
    return (
        replace(census_table(found.census), note=""),  # the answer above it says what it rests on
        *([selections] if selections.rows else []),
        *bin_tables(found.census),
    )


def _sets(found: Classification) -> tuple[TableGroup, ...]:
    shown = tables.set_tables(found)
    return (TableGroup(title="Prediction sets", tables=shown),) if shown else ()


def _files(table: ReportTable | None) -> tuple[TableGroup, ...]:
    return () if table is None else (TableGroup(title="Files", tables=(table,)),)


def _explained(examples: Sequence[ClassExample]) -> TableGroup | None:
    """Return the group of examples, their note once; None without any."""
    if not examples:
        return None
    *first, last = (example_table(e) for e in examples)
    return TableGroup(title="Why this class?", tables=(*(replace(t, note="") for t in first), last))
