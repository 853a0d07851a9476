"""The report of a trained model: one HTML file that loads nothing from anywhere.

Every text is escaped: class names, expressions and catalogue names come from outside.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from catalogs.atomic import atomic_write_text
from flows import tables
from flows.figures import DARK, LIGHT, boundary_figure, reliability_figure, review_figure
from flows.report_data import BoundaryPicture, TrainReport

__all__ = ["render_report", "write_report"]

_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("flows", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True, kw_only=True)
class _Picture:
    """A figure in both themes as data URIs, with the words for those who do not see it."""

    title: str
    light: str
    dark: str
    alt: str
    caption: str
    wide: bool = False


def render_report(report: TrainReport) -> str:
    """Return the report as HTML."""
    return _ENVIRONMENT.get_template("report.html.j2").render(
        report=report,
        facts=_facts(report),
        evaluation=(tables.performance_table(report), tables.review_table(report)),
        candidates=tables.candidate_table(report),
        data=(tables.label_table(report), tables.feature_table(report)),
        found=[(tables.class_count_table(c), tables.flag_table(c)) for c in report.classifications],
        pictures=_pictures(report),
    )


def write_report(report: TrainReport, path: Path) -> None:
    """Write the report as HTML, whole or not at all."""
    atomic_write_text(path, render_report(report))


def _facts(report: TrainReport) -> tuple[tuple[str, str], ...]:
    """Return the few numbers that the page opens with: value and meaning."""
    gain = 1 - report.log_loss / report.log_loss_baseline
    largest = max(report.reviews, key=lambda r: r.share, default=None)
    return (
        (f"{report.log_loss:.4f}", "held-out log loss, nats an object"),
        (f"{gain:.0%}", f"below the {report.log_loss_baseline:.4f} of class shares alone"),
        (f"{report.accuracy:.1%}", "held-out objects classified right"),
        *(
            ((f"{largest.moderated:.0%}", f"of the errors among the least certain {largest.share:.0%}"),)
            if largest
            else ()
        ),
    )


def _pictures(report: TrainReport) -> tuple[_Picture, ...]:
    pictures = [
        _Picture(
            title="Reliability",
            light=_uri(reliability_figure(report.reliability, LIGHT, label=report.reliability_of)),
            dark=_uri(reliability_figure(report.reliability, DARK, label=report.reliability_of)),
            alt="Reliability diagram: "
            + "; ".join(f"said {b.predicted:.2f}, seen {b.observed:.2f}" for b in report.reliability),
            caption="Of held-out objects given a probability, the share that it came true for, with 90 % intervals. "
            "On the dashed line what is said is what happens.",
        ),
        _Picture(
            title="Errors caught by review",
            light=_uri(review_figure(report.risk, report.reviews, LIGHT)),
            dark=_uri(review_figure(report.risk, report.reviews, DARK)),
            alt="Errors caught against share reviewed: "
            + "; ".join(f"{r.share:.0%} reviewed, {r.moderated:.0%} caught" for r in report.reviews),
            caption="Share of the held-out errors that a review of the least certain objects would catch.",
        ),
    ]
    if report.boundary is not None:
        names = f"{report.boundary.x_name} and {report.boundary.y_name}"
        picture = _labelled(report.boundary, {f.name: f.expression for f in report.features})
        pictures.append(
            _Picture(
                title="The soft decision boundary",
                light=_uri(boundary_figure(picture, report.classes, LIGHT)),
                dark=_uri(boundary_figure(picture, report.classes, DARK)),
                alt=f"Class probability over {names} with contours at 0.3, 0.5 and 0.7",
                caption=f"Probability over {names}, the other features at their mean "
                "given these two. Solid: moderated; dashed: plug-in. Where the weights are little known, "
                "the solid lines draw away from the dashed ones. Points are labelled training objects.",
                wide=True,
            )
        )
    return tuple(pictures)


def _labelled(picture: BoundaryPicture, expressions: Mapping[str, str]) -> BoundaryPicture:
    """Return the picture with its axes named in full: the feature and what it is computed from."""

    def full(name: str) -> str:
        return f"{name} = {expressions[name]}" if expressions.get(name, name) != name else name

    return replace(picture, x_name=full(picture.x_name), y_name=full(picture.y_name))


def _uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
