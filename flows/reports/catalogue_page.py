"""The report of a classification: one HTML file beside the annotated catalogues that loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flows.reports import tables
from flows.reports._drawings import catalogue_pictures
from flows.reports.catalogue_answers import ClassifyingModel, ReleaseTroubles, classification_answers
from flows.reports.census import bin_tables, census_table, selection_table
from flows.reports.data import Classification
from flows.reports.explanation import ClassExample, example_table
from flows.reports.html import AnswerPart, Page, TableGroup, linked, made_words, render_page
from flows.reports.picture_data import Made, NotableObject
from flows.reports.report_table import ReportTable

__all__ = ["render_classification"]

Units = Mapping[str, tuple[str, str | None]]


def render_classification(
    found: Classification,
    model: ClassifyingModel,
    *,
    objects: Sequence[NotableObject],
    examples: Sequence[ClassExample],
    troubles: ReleaseTroubles,
    release: int,
    made: Made,
    units: Units,
    provenance: Mapping[str, str],
) -> str:
    """Return the report as HTML; `units` has the expression and the unit of each feature."""
    trust, quality, odd, look = classification_answers(found, model, objects, troubles)
    return render_page(
        Page(
            title=f"{found.catalogue}, release {release}",
            version=model.label,
            kind="classification report",
            lead=f"{found.n_rows:,} objects, classified by {model.label}.",
            made=made_words(made, provenance.get("blr")),
            parts=(
                AnswerPart(answer=trust),
                AnswerPart(answer=quality, tables=(tables.class_count_table(found), *_census(found))),
                AnswerPart(answer=odd),
                AnswerPart(answer=look, objects=linked(objects)),
            ),
            pictures=catalogue_pictures(found, units),
            lacking=""
            if found.sky is not None
            else "No map of the sky: positions are not known here, or the files were "
            "annotated by an earlier version.",
            groups=(
                *_explained(examples),
                TableGroup(title="Flags", tables=(tables.flag_table(found),)),
                *_sets(found),
            ),
            remarks=(),
            last=(),
            provenance=provenance,
        )
    )


def _census(found: Classification) -> tuple[ReportTable, ...]:
    if found.census is None:
        return ()
    note = " Counts of a later `blr census` or `blr audit estimate` are in summary.json."
    counts, selections = census_table(found.census), selection_table(found.census)
    return (
        replace(counts, note=f"{counts.note}{note}"),
        *([selections] if selections.rows else []),
        *bin_tables(found.census),
    )


def _sets(found: Classification) -> tuple[TableGroup, ...]:
    shown = tables.set_tables(found)
    return (TableGroup(title="Prediction sets", tables=shown),) if shown else ()


def _explained(examples: Sequence[ClassExample]) -> tuple[TableGroup, ...]:
    """Return the group of examples; none without any."""
    if not examples:
        return ()
    return (TableGroup(title="Why this class?", tables=tuple(example_table(e) for e in examples)),)
