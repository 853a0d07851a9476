"""Curves, counts and notable objects that the report shows of the rows that judge a model.

Shapes: N rows that judge, K classes, T thresholds, B bins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from catalogs.sky.positions import galactic_latitude
from flows.reports.class_words import class_words
from flows.reports.picture_data import NotableObject, StoredPictures
from flows.training._rows import TrainingRows

__all__ = ["judged_pictures", "notable_objects"]

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

THRESHOLDS: Final = np.linspace(0.0, 1.0, 101)
BINS: Final = 8
"""Bins of magnitude or latitude, with about as many objects in each."""
FEWEST: Final = 100
"""Fewest objects with a magnitude, or with a position, that are binned."""
FEWEST_TAKEN: Final = 10
"""Fewest objects above a threshold whose purity is shown: that of fewer would be mostly noise."""
MOST_OBJECTS: Final = 20
"""Most notable objects that the report lists."""


@dataclass(frozen=True, eq=False)
class ObjectRows:
    """Rows that judge: identifiers in UTF-8, positions in degrees, magnitudes, (N,) each; NaN or b"" where missing."""

    identifier: NDArray[np.bytes_]
    ra: Floats
    dec: Floats
    magnitude: Floats
    magnitude_name: str = ""

    @classmethod
    def of(cls, rows: TrainingRows, chosen: NDArray[np.bool_]) -> ObjectRows:
        """Return the labelled rows in the mask `chosen`."""
        n = int(chosen.sum())
        nowhere = np.full((n, 2), np.nan)
        place = nowhere if rows.position is None else rows.position[chosen]
        return cls(
            np.zeros(n, dtype="S1") if rows.identifier is None else rows.identifier[chosen],
            place[:, 0],
            place[:, 1],
            nowhere[:, 0] if rows.magnitude is None else rows.magnitude[chosen],
            "" if rows.magnitude_name is None else str(rows.magnitude_name),
        )


def judged_pictures(probability: Floats, truth: Indices, objects: ObjectRows) -> StoredPictures:
    """Return the arrays of the pictures, from the probabilities (N, K) and true class indices (N,) of the rows."""
    completeness, purity = threshold_curves(probability, truth)
    curves = StoredPictures(threshold=THRESHOLDS, completeness=completeness, purity=purity)
    assigned, K = probability.argmax(axis=1), probability.shape[1]
    latitude = np.abs(galactic_latitude(objects.ra, objects.dec))
    magnitude_centres, magnitude_counts = _binned(objects.magnitude, truth, assigned, K)
    latitude_centres, latitude_counts = _binned(latitude, truth, assigned, K)
    return replace(
        curves,
        magnitude_name=objects.magnitude_name,
        magnitude_centres=magnitude_centres,
        magnitude_counts=magnitude_counts,
        latitude_centres=latitude_centres,
        latitude_counts=latitude_counts,
    )


def threshold_curves(probability: Floats, truth: Indices) -> tuple[Floats, Floats]:
    """Return completeness and purity (K, T) of the objects whose probability of a class reaches a threshold."""
    K = probability.shape[1]
    completeness, purity = np.full((2, K, len(THRESHOLDS)), np.nan)
    for k in range(K):
        own = truth == k
        below = np.searchsorted(np.sort(probability[:, k]), THRESHOLDS, side="left")
        own_below = np.searchsorted(np.sort(probability[own, k]), THRESHOLDS, side="left")
        taken, found = len(truth) - below, own.sum() - own_below
        np.divide(found, own.sum(), out=completeness[k], where=own.sum() > 0)
        np.divide(found, taken, out=purity[k], where=taken >= FEWEST_TAKEN)
    return completeness, purity


def _binned(
    x: Floats, truth: Indices, assigned: Indices, n_classes: int
) -> tuple[Floats, NDArray[np.int64]] | tuple[None, None]:
    """Return the means (B,) of bins of about equal counts, and counts (3, B, K); None for few known values.

    The counts are of objects by true class, by assigned class, and by both where they agree.
    """
    known = np.isfinite(x)
    if known.sum() < FEWEST:
        return None, None
    edges = np.unique(np.quantile(x[known], np.linspace(0, 1, BINS + 1)))
    if len(edges) < 3:
        return None, None
    place = np.clip(np.searchsorted(edges, x[known], side="right") - 1, 0, len(edges) - 2)
    t, a = truth[known], assigned[known]
    shape = (len(edges) - 1, n_classes)

    def counts(rows: Any, classes: Indices) -> NDArray[np.int64]:
        cells = np.bincount(place[rows] * n_classes + classes[rows], minlength=shape[0] * n_classes)
        return cells.reshape(shape)

    every = np.ones(len(t), dtype=bool)
    means = np.bincount(place, weights=x[known]) / np.maximum(np.bincount(place), 1)
    return means, np.stack([counts(every, t), counts(every, a), counts(t == a, t)])


def notable_objects(
    probability: Floats, truth: Indices, objects: ObjectRows, classes: tuple[str, ...]
) -> tuple[NotableObject, ...]:
    """Return the objects to whose label the model gives least: the label may be wrong, or the features not enough."""
    if not (objects.identifier != b"").any():
        return ()
    rows = np.arange(len(truth))
    own = np.where(np.isfinite(probability[rows, truth]), probability[rows, truth], np.inf)
    assigned = np.nan_to_num(probability, nan=-1.0).argmax(axis=1)
    wrong = np.flatnonzero(assigned != truth)
    order = wrong[np.argsort(own[wrong], kind="stable")]
    chosen: dict[str, NotableObject] = {}
    for i in order:
        if len(chosen) == MOST_OBJECTS:
            break
        name = objects.identifier[i].decode(errors="replace")
        label, given = (class_words(classes[at[i]]) for at in (truth, assigned))
        why = (
            f"labelled {label}, to which the model gives {_percent(probability[i, truth[i]])}; "
            f"it gives {given} {_percent(probability[i, assigned[i]])}"
        )
        ra, dec = (float(x) if np.isfinite(x) else None for x in (objects.ra[i], objects.dec[i]))
        chosen.setdefault(name, NotableObject(name=name, ra=ra, dec=dec, why=why))
    return tuple(chosen.values())


def _percent(share: float) -> str:
    """Return a probability as a percentage; a small one is never shown as zero."""
    return "less than 0.1%" if share < 0.001 else f"{share:.1%}"
