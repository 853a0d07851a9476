"""The report of a trained model: one HTML file that loads nothing from anywhere.

Every text is escaped: class names, expressions and catalogue names come from outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from catalogs.files.atomic import atomic_write_text
from flows.reports import tables
from flows.reports._drawings import pictures
from flows.reports.data import TrainReport

__all__ = ["render_report", "write_report"]

_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("flows", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render_report(report: TrainReport) -> str:
    """Return the report as HTML."""
    return _ENVIRONMENT.get_template("report.html.j2").render(
        report=report,
        facts=_facts(report),
        evaluation=(tables.performance_table(report), tables.review_table(report)),
        candidates=tables.candidate_table(report),
        checks=tables.check_tables(report),
        data=(tables.label_table(report), tables.feature_table(report)),
        classified=[(tables.class_count_table(c), tables.flag_table(c)) for c in report.classifications],
        pictures=pictures(report),
    )


def write_report(report: TrainReport, path: Path) -> None:
    """Write the report as HTML, whole or not at all."""
    atomic_write_text(path, render_report(report))


def _facts(report: TrainReport) -> tuple[tuple[str, str], ...]:
    """Return the few numbers that the page opens with: value and meaning."""
    gain = 1 - report.log_loss / report.log_loss_baseline
    largest = max(report.reviews, key=lambda r: r.share, default=None)
    return (
        (f"{report.log_loss:.4f}", f"{report.judged_by} log loss, nats an object"),
        (
            f"{abs(gain):.0%}",
            f"{'below' if gain > 0 else 'above'} the {report.log_loss_baseline:.4f} of class shares alone",
        ),
        (f"{report.accuracy:.1%}", f"{report.judged_objects} classified right"),
        *(
            ((f"{largest.moderated:.0%}", f"of the errors among the least certain {largest.share:.0%}"),)
            if largest
            else ()
        ),
    )
