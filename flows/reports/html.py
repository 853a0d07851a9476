"""Reports of trainings and classifications: one HTML file each that loads nothing from anywhere.

Every text is escaped: class names, expressions and catalogue names come from outside.  The only script sorts tables,
and the page's policy allows no other.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from catalogs.files.atomic import atomic_write_text
from catalogs.sky.survey_links import survey_links
from flows.reports import tables
from flows.reports._pictures import Picture, catalogue_pictures, drawn, training_pictures
from flows.reports._templates import template
from flows.reports.answers import Answer, training_answers
from flows.reports.data import Made, NotableObject, TrainReport
from flows.reports.report_table import ReportTable

__all__ = [
    "AnswerPart",
    "Page",
    "Picture",
    "TableGroup",
    "drawn",
    "provenance",
    "render_page",
    "render_report",
    "write_report",
]


@dataclass(frozen=True, kw_only=True)
class AnswerPart:
    """An answer with the tables and the objects that belong to it."""

    answer: Answer
    tables: tuple[ReportTable, ...] = ()
    objects: Sequence[tuple[NotableObject, Mapping[str, str]]] = ()


@dataclass(frozen=True, kw_only=True)
class TableGroup:
    """Tables under a heading; the first may be sorted by its columns where the group is `sortable`."""

    title: str
    tables: tuple[ReportTable, ...]
    sortable: bool = False


@dataclass(frozen=True, kw_only=True)
class Page:
    """The content of a report: whether to use it, two pictures, four answers, the rest, and what statisticians want."""

    title: str
    version: str
    kind: str  # of report, for the browser's title
    lead: str
    made: str
    use: Answer
    four: Sequence[Answer]
    parts: Sequence[AnswerPart]
    pictures: Sequence[Picture]  # the first two are shown on top
    lacking: str  # why pictures are missing; "" where none is
    groups: Sequence[TableGroup]
    remarks: Sequence[str]
    last: TableGroup | None
    provenance: Mapping[str, str]


def render_page(page: Page) -> str:
    """Return a report as HTML."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template("report.html.j2").render(
        **vars(page),
        script=Markup(script),  # noqa: S704  our own file
        script_hash=f"sha256-{digest}",
    )


@cache
def _script() -> str:
    return resources.files("flows").joinpath("templates", "report-sort.js").read_text(encoding="utf-8")


def render_report(report: TrainReport) -> str:
    """Return the report of a model as HTML."""
    model, parts = report.model, report.parts
    use, *four, odd, look = training_answers(report)
    found = [(tables.class_count_table(c), tables.flag_table(c)) for c in report.classifications]
    return render_page(
        Page(
            title=model.name,
            version=model.version,
            kind="model report",
            lead=_lead(report),
            made=made_words(parts.notes.made, model.code_version),
            use=use,
            four=four,
            parts=(AnswerPart(answer=odd), _looked_at(look, parts.notes.objects)),
            pictures=_pictures(report),
            lacking=""
            if parts.pictures is not None and model.metrics.confusion
            else "This model is of a version that did not keep what some pictures need: train it again to see them.",
            groups=(
                TableGroup(
                    title="How good it is", tables=(*tables.class_tables(report), tables.review_table(report))
                ),
                *(TableGroup(title="What was found in the catalogue", tables=pair) for pair in found),
                TableGroup(
                    title="What it was trained on",
                    tables=(tables.label_table(report), tables.feature_table(report)),
                ),
            ),
            remarks=(*report.remarks, *report.attribution),
            last=TableGroup(
                title="For statisticians",
                tables=(
                    tables.candidate_table(report),
                    *tables.check_tables(report),
                    tables.performance_table(report),
                    tables.term_table(model.trust.reasons),
                ),
                sortable=True,
            ),
            provenance=provenance(report),
        )
    )


def provenance(report: TrainReport) -> dict[str, str]:
    """Return what went into a model, by name."""
    model = report.model
    return {
        "model": model.model,
        "specification": f"sha256 {model.specification_hash}",
        "training rows": f"sha256 {model.training.content_hash}",
        "blr": model.code_version,
        "seed": str(model.seed),
        **{f"input {file.name}": f"sha256 {file.sha256}" for file in model.training.inputs},
    }


def _pictures(report: TrainReport) -> tuple[Picture, ...]:
    """Return the pictures of a model, then those of the catalogues in the report."""
    units = {f.name: (f.expression, f.unit) for f in report.model.training.features}
    found = [p for one in report.classifications for p in catalogue_pictures(one, units)]
    return (*training_pictures(report), *found)


def write_report(report: TrainReport, path: Path) -> None:
    """Write the report of a model as HTML, whole or not at all."""
    atomic_write_text(path, render_report(report))


def _looked_at(look: Answer, objects: Sequence[NotableObject]) -> AnswerPart:
    """Return the answer on what to look at, with all objects in the place of the first."""
    return AnswerPart(answer=replace(look, findings=()), objects=linked(objects))


def linked(objects: Sequence[NotableObject]) -> list[tuple[NotableObject, Mapping[str, str]]]:
    """Return each object with the pages of sky surveys that show it."""
    return [(o, {} if o.ra is None or o.dec is None else survey_links(o.ra, o.dec)) for o in objects]


def made_words(made: Made | None, version: str | None) -> str:
    """Return when a report was made, by whom, and with which version."""
    if made is None:
        return "" if version is None else f"Made with blr {version}."
    with_version = "" if version is None else f" with blr {version}"
    return f"Made on {made.when.replace('T', ' ').replace('+00:00', ' UTC')} by {made.who}{with_version}."


def _lead(report: TrainReport) -> str:
    training = report.model.training
    names = ", ".join(file.name for file in training.inputs)
    held = f"{report.n_held_out:,} held out" if report.n_held_out else "none held out"
    return (
        f"A model that sorts objects into {', '.join(report.model.classes)}, trained on {report.n_training:,} objects "
        f"of {names} ({held}, of {training.n_read:,})."
    )
