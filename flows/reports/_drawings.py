"""The figures of a report, in both themes, drawn once: the demonstration's report shows those of the training's.

Drawing is most of what a report costs, and a third of a small training.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any, Final

import numpy as np

from flows.reports.data import BoundaryPicture, TrainReport

__all__ = ["Picture", "pictures"]

KEPT: Final = 2
"""Reports whose figures are remembered: some hundred kilobytes each."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure in both themes as data URIs, with the words for those who do not see it."""

    title: str
    light: str
    dark: str
    alt: str
    caption: str
    wide: bool = False


_DRAWN: Final[dict[str, tuple[Picture, ...]]] = {}
_LOCK: Final = Lock()


def pictures(report: TrainReport) -> tuple[Picture, ...]:
    """Return a report's figures; what was drawn last is not drawn again for the report with more in it."""
    key = _key(report)
    with _LOCK:
        drawn = _DRAWN.get(key)
    if drawn is None:
        drawn = _draw(report)
        with _LOCK:
            if len(_DRAWN) >= KEPT:
                _DRAWN.pop(next(iter(_DRAWN)))
            _DRAWN[key] = drawn
    return drawn


def _key(report: TrainReport) -> str:
    """Return what the figures depend on, arrays by the hash of their values."""
    shown = {
        "classes": report.classes,
        "judged_by": report.judged_by,
        "reliability": [report.reliability_of, *map(asdict, report.reliability)],
        "reviews": [asdict(review) for review in report.reviews],
        "risk": vars(report.risk),
        "boundary": report.boundary and vars(report.boundary),
        "expressions": {f.name: f.expression for f in report.features},
    }
    return json.dumps(shown, default=_digest)


def _digest(array: np.ndarray[Any, Any]) -> list[Any]:
    return [array.shape, array.dtype.str, hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()]


def _draw(report: TrainReport) -> tuple[Picture, ...]:
    # matplotlib, half a second that every command and run would pay, most of which draw nothing.
    from flows.reports._figures import DARK, LIGHT, boundary_figure, reliability_figure, review_figure  # noqa: PLC0415

    label, rows = report.reliability_of, report.judged_by
    drawn = [
        Picture(
            title="Reliability",
            light=_uri(reliability_figure(report.reliability, LIGHT, label=label, rows=rows)),
            dark=_uri(reliability_figure(report.reliability, DARK, label=label, rows=rows)),
            alt="Reliability diagram: "
            + "; ".join(f"said {b.predicted:.2f}, seen {b.observed:.2f}" for b in report.reliability),
            caption=f"Of {rows} objects given a probability, the share that it came true for, with 90 % intervals. "
            "On the dashed line what is said is what happens.",
        ),
        Picture(
            title="Errors caught by review",
            light=_uri(review_figure(report.risk, report.reviews, LIGHT)),
            dark=_uri(review_figure(report.risk, report.reviews, DARK)),
            alt="Errors caught against share reviewed: "
            + "; ".join(f"{r.share:.0%} reviewed, {r.moderated:.0%} caught" for r in report.reviews),
            caption=f"Share of the {rows} errors that a review of the least certain objects would catch.",
        ),
    ]
    if report.boundary is not None:
        names = f"{report.boundary.x_name} and {report.boundary.y_name}"
        picture = _labelled(report.boundary, {f.name: f.expression for f in report.features})
        drawn.append(
            Picture(
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
    return tuple(drawn)


def _labelled(picture: BoundaryPicture, expressions: Mapping[str, str]) -> BoundaryPicture:
    """Return the picture with its axes named in full: the feature and what it is computed from."""

    def full(name: str) -> str:
        return f"{name} = {expressions[name]}" if expressions.get(name, name) != name else name

    return replace(picture, x_name=full(picture.x_name), y_name=full(picture.y_name))


def _uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
