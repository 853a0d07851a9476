"""The pictures of a classified catalogue; matplotlib is imported with this module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from flows.plots.catalogue import plot_class_fractions, plot_feature
from flows.plots.names import readable_feature
from flows.plots.sky import plot_sky
from flows.plots.style import CLASSES, class_colour, new_axes, new_panels, svg
from flows.reports._picture import Picture, image_uri
from flows.reports.data import Classification
from flows.reports.picture_data import SkyMap

__all__ = ["draw"]

MOST_FEATURES: Final = 9
MOST_CLASSES: Final = 7


def draw(found: Classification, units: Mapping[str, tuple[str, str | None]]) -> Iterator[Picture]:
    """Yield the pictures of a catalogue; `units` has each feature's expression and unit."""
    n = sum(c.expected for c in found.counts)
    if n > 0:
        yield _fractions(found, n)
    if found.sky is not None and len(found.sky.pixels):
        yield _sky(found, found.sky)
    if found.features:
        yield _features(found, units)


def _fractions(found: Classification, n: float) -> Picture:
    errors = [c.error for c in found.counts]
    known = None if None in errors else [(e or 0.0) / n for e in errors]
    shares, interval = [c.expected / n for c in found.counts], None
    bars = "bars sum the probabilities"
    ends = _census_shares(found)
    if ends is not None:
        shares, interval = ends[0], ends[1:]
        bars = "bars are the census, with 95 % intervals"
    names = [c.name for c in found.counts]
    assigned = [c.assigned / n for c in found.counts]
    axes = plot_class_fractions(new_axes(), names, assigned, shares, known, interval=interval)
    said = "; ".join(f"{name} {share:.1%}" for name, share in zip(names, shares, strict=True))
    return Picture(
        title="Fractions of the classes",
        image=image_uri(svg(axes)),
        alt=f"Fractions of the classes: {said}",
        caption=f"Fractions of the classes in {found.catalogue}: {bars}, "
        "circles count the most probable class. "
        "Where they differ, use the bars: counting doubtful objects as certain favours the frequent classes.",
    )


def _census_shares(found: Classification) -> list[list[float]] | None:
    """Return the share of each class (K,) by the census, and the ends of the intervals; None where one is not said."""
    census = found.census
    classes = [] if census is None else [census.classes.get(c.name) for c in found.counts]
    rows = [(c.count, c.low, c.high) for c in classes if c is not None]
    if census is None or len(rows) < len(found.counts) or any(None in row for row in rows):
        return None
    return [
        [float(value or 0) / max(1, census.n_rows) for value in column] for column in zip(*rows, strict=True)
    ]


def _sky(found: Classification, sky: SkyMap) -> Picture:
    share = np.asarray(sky.flagged) / np.maximum(sky.n, 1)
    names = [c.name for c in found.counts][:MOST_CLASSES]
    panels = new_panels(2 + len(names), width=10.8, height=2.15 * -(-(2 + len(names)) // 3))
    panels[0].figure.subplots_adjust(left=0.02, right=0.98, bottom=0.03, top=0.92, wspace=0.06, hspace=0.25)
    plot_sky(panels[0], sky.pixels, sky.n, order=sky.order, title="objects", colour=CLASSES[4])
    plot_sky(
        panels[1],
        sky.pixels,
        share,
        order=sky.order,
        title="share flagged for a look",
        colour=CLASSES[3],
        percent=True,
    )
    for k, name in enumerate(names):
        plot_sky(
            panels[2 + k], sky.pixels, sky.assigned[k], order=sky.order, title=name, colour=class_colour(k)
        )
    return Picture(
        title="The sky",
        image=image_uri(svg(panels[0])),
        alt=f"Maps of the sky in {len(sky.pixels):,} HEALPix pixels: objects, share flagged, and each class",
        caption="Objects, the share of them that carries a flag asking for a look, and the objects of each class, in "
        f"HEALPix pixels of order {sky.order}; equatorial, east left. A patch that stands out in the flags or "
        "in one class, and not in the objects, is a problem of the data more often than of the sky.",
        wide=True,
    )


def _features(found: Classification, units: Mapping[str, tuple[str, str | None]]) -> Picture:
    shown = found.features[:MOST_FEATURES]
    panels = new_panels(len(shown), height=2.5 * -(-len(shown) // 3))
    for axes, feature in zip(panels, shown, strict=True):
        readable = readable_feature(feature.name, *units.get(feature.name, ("", None)))
        plot_feature(
            axes,
            feature.edges,
            feature.training,
            feature.target,
            ends=(feature.low, feature.high),
            name=readable.label,
            inverse=readable.inverse,
        )
    more = (
        ""
        if len(shown) == len(found.features)
        else f" The first {len(shown)} of {len(found.features)} are shown."
    )
    return Picture(
        title="Features: training against target",
        image=image_uri(svg(panels[0])),
        alt="Distributions of " + ", ".join(f.name for f in shown) + " in the training set and in the target",
        caption=f"Grey: the labelled objects; blue: {found.catalogue}. Where blue rises where there is no grey, the "
        f"model extrapolates.{more}",
        wide=True,
    )
