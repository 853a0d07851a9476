"""The pictures of a report as SVG, each drawn once: the demonstration's report shows those of the training's.

Drawing takes most of the time of a report, and a third of that of a small training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from threading import Lock
from typing import Any, Final

import numpy as np

from flows.reports._picture import Picture
from flows.reports.data import Classification, TrainReport

__all__ = ["catalogue_pictures", "lacking_pictures", "pictures"]

KEPT: Final = 4
"""Sets of pictures that are kept in memory: a few hundred kilobytes each."""


_DRAWN: Final[dict[str, tuple[Picture, ...]]] = {}
_LOCK: Final = Lock()


def pictures(report: TrainReport) -> tuple[Picture, ...]:
    """Return the pictures of a model, then those of the catalogues in the report."""
    key = _digest(
        {
            "classes": report.classes,
            "judged_by": report.judged_by,
            "reliability": [report.reliability_of, report.reliability],
            "reviews": report.reviews,
            "risk": report.risk,
            "accuracy": report.accuracy,
            "boundary": report.boundary,
            "pictures": report.pictures,
            "confusion": report.confusion,
            "candidates": report.candidates,
            "features": report.features,
        }
    )
    drawn = _once(key, lambda: _draw_training(report))
    units = {f.name: (f.expression, f.unit) for f in report.features}
    return (*drawn, *(p for found in report.classifications for p in catalogue_pictures(found, units)))


def catalogue_pictures(
    found: Classification, units: Mapping[str, tuple[str, str | None]]
) -> tuple[Picture, ...]:
    """Return the pictures of a classified catalogue; `units` has the expression and the unit of each feature."""
    return _once(_digest({"found": found, "units": units}), lambda: _draw_catalogue(found, units))


def lacking_pictures(report: TrainReport) -> str:
    """Return why pictures are missing; "" where all are there."""
    if report.pictures is None or not report.confusion:
        return (
            "This model is of a version that did not keep what some pictures need (completeness and purity, the "
            "weights): train it again to see them."
        )
    return ""


def _once(key: str, draw: Callable[[], tuple[Picture, ...]]) -> tuple[Picture, ...]:
    """Return pictures that were drawn before under the key, else those drawn now."""
    with _LOCK:
        drawn = _DRAWN.get(key)
    if drawn is None:
        drawn = draw()
        with _LOCK:
            if len(_DRAWN) >= KEPT:
                _DRAWN.pop(next(iter(_DRAWN)))
            _DRAWN[key] = drawn
    return drawn


def _digest(shown: Mapping[str, Any]) -> str:
    """Return the hash of what pictures depend on."""
    return hashlib.sha256(json.dumps(shown, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [
            value.shape,
            value.dtype.str,
            hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest(),
        ]
    if is_dataclass(value) and not isinstance(value, type):
        return vars(value) if any(isinstance(v, np.ndarray) for v in vars(value).values()) else asdict(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


# Importing matplotlib takes half a second, and most commands and runs draw nothing.


def _draw_training(report: TrainReport) -> tuple[Picture, ...]:
    from flows.reports._training_pictures import draw  # noqa: PLC0415

    return tuple(draw(report))


def _draw_catalogue(
    found: Classification, units: Mapping[str, tuple[str, str | None]]
) -> tuple[Picture, ...]:
    from flows.reports._catalogue_pictures import draw  # noqa: PLC0415

    return tuple(draw(found, units))
