"""Reports of trainings and classifications: one HTML file each that loads nothing from anywhere.

Every text is escaped: class names, expressions and catalogue names come from outside.  The only script sorts tables,
and the page's policy allows no other.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from catalogs.sky.positions import survey_links
from flows.documents import script, template, word_table
from flows.models.description import ModelDescription
from flows.plots import pictures
from flows.plots.axes import CLASSES, SvgAxes, new_axes, new_panels, readable_feature, rescaled_ticks, svg
from flows.reports.data import BoundaryPicture, Made, NotableObject, TrainingPictures

# The pictures of a report: first the two that matter most, then those that help to choose thresholds and reviews.

MOST_ROWS: Final = 6
"""Rows of a confusion matrix on the first screen; a larger one gives way to a picture of so many pairs of classes."""
MOST_GROWN: Final = 30  # rows of a confusion matrix from which it grows no more
TOP: Final = {"width": 4.2, "height": 1.75}  # size of a picture on the first screen, in inches
WIDE: Final = {"width": 10.4, "height": 3.8}  # size of a picture across the page, in inches


SIDES: Final[tuple[Literal["completeness", "purity"], ...]] = ("completeness", "purity")


class Picture(TypedDict):
    """A picture as a data URI, with a caption."""

    title: str
    image: str
    caption: str
    wide: bool


def drawn(axes: SvgAxes, kind: str, **told: object) -> Picture:
    """Return the drawing on some axes as a picture of a kind, whose title and caption have these words."""
    image = f"data:image/svg+xml;base64,{base64.b64encode(svg(axes).encode()).decode('ascii')}"
    of_kind = word_table("pictures.toml")[kind]
    title, caption = (of_kind[key].format_map(told) for key in ("title", "caption"))
    return Picture(title=title, image=image, caption=caption, wide=of_kind.get("wide", False))


def training_pictures(
    model: ModelDescription, boundary: BoundaryPicture | None, stored: TrainingPictures | None
) -> Iterator[Picture]:
    """Yield the pictures of a model; some are of arrays that only its training has."""
    metrics = model.metrics
    bins, counts, judged_by = metrics.reliability, np.asarray(metrics.confusion), metrics.judged_by
    seen = ([b[key] for b in bins] for key in ("predicted", "observed", "low", "high"))
    axes = pictures.plot_reliability(new_axes(**TOP), *seen, label=metrics.reliability_of)
    yield drawn(axes, "reliability", judged_by=judged_by)
    if len(model.classes) > MOST_ROWS:
        off = counts - np.diag(np.diag(counts))
        order = np.argsort(-off, axis=None, kind="stable")[:MOST_ROWS]
        pairs = [(j, k) for j, k in zip(*np.unravel_index(order, off.shape), strict=True) if off[j, k]]
        names = [f"{model.classes[j][:16]} → {model.classes[k][:16]}" for j, k in pairs]
        share = [float(off[j, k] / counts[j].sum()) for j, k in pairs]
        axes = pictures.plot_shares(new_axes(**TOP), names, share, label="share taken for the other")
        yield drawn(axes, "overlap", judged_by=judged_by, n_classes=len(model.classes))
    height = max(TOP["height"], 0.9 + 0.17 * min(len(counts), MOST_GROWN))
    axes = pictures.plot_confusion(new_axes(TOP["width"], height), counts, model.classes)
    yield drawn(axes, "confusion", judged_by=judged_by)
    if stored is not None:
        yield from _by_class(model, stored, counts)
    if boundary is not None:
        yield _boundary(model, boundary)
    if metrics.accuracy < 1:  # else there are no errors to catch
        axes = pictures.plot_errors_caught(
            new_axes(**WIDE), metrics.risk["reviewed"], metrics.risk["moderated"]
        )
        yield drawn(axes, "errors", judged_by=judged_by)


def _by_class(
    model: ModelDescription, stored: TrainingPictures, confusion: NDArray[np.int64]
) -> Iterator[Picture]:
    """Yield completeness and purity by threshold and by quantity, of as many classes as there are colours."""
    shown = sorted(np.argsort(-confusion.sum(axis=1), kind="stable")[: len(CLASSES)].tolist())
    names = [model.classes[k] for k in shown]
    which = f" The {len(shown)} most frequent classes." if len(shown) < len(model.classes) else ""
    sides = new_panels(2, columns=2, **WIDE)
    for axes, what, share in zip(sides, SIDES, (stored["completeness"], stored["purity"]), strict=True):
        pictures.plot_threshold_curves(axes, stored["threshold"], share[shown], names, what=what)
    yield drawn(sides[0], "thresholds", which=which)
    labels = {
        "magnitude": readable_feature(stored["magnitude_name"], stored["magnitude_name"], "mag")[0],
        "latitude": "distance from the Galactic plane |b| (deg)",
    }
    for key, (centres, counts) in stored["binned"].items():
        sides = new_panels(2, columns=2, **WIDE)
        for axes, what in zip(sides, SIDES, strict=True):
            pictures.plot_binned_share(
                axes, centres, counts[:, :, shown], names, what=what, label=labels[key]
            )
        yield drawn(sides[0], key, label=labels[key], which=which)


def _boundary(model: ModelDescription, picture: BoundaryPicture) -> Picture:
    units = {f["name"]: (f["expression"], f["unit"]) for f in model.training.features}
    axes, names = new_axes(width=8.2, height=4.8), (picture["x_name"], picture["y_name"])
    (x, short_x, inverse_x), (y, short_y, inverse_y) = (
        readable_feature(name, *units.get(name, ("", None))) for name in names
    )
    points = (picture["point_x"], picture["point_y"], picture["point_class"])
    pictures.plot_contours(axes, picture["x"], picture["y"], picture["moderated"], classes=model.classes)
    pictures.plot_objects(axes, *points, model.classes, names=(x, y))
    if inverse_x is not None:
        axes.set_xticks(*rescaled_ticks(picture["x"][0], picture["x"][-1], inverse_x))
    if inverse_y is not None:
        axes.set_yticks(*rescaled_ticks(picture["y"][0], picture["y"][-1], inverse_y))
    return drawn(axes, "boundary", x=short_x, y=short_y)


def render_page(**content: Any) -> str:
    """Return a report as HTML.

    `title`, `version`, `kind` of report, `lead` and `made` are texts.  `use` is the answer on whether to use it, `four`
    are those behind that, and `parts` further ones.  The first two of the `pictures` are on top, unless they are wide.
    `groups` are titles with tables, and `last` is such a group for statisticians, whose first table may be `sortable`.
    `remarks` and `provenance` end the page.
    """
    drawings = content.pop("pictures")
    on_top = next((i for i, picture in enumerate(drawings[:2]) if picture["wide"]), 2)
    return template("report.html.j2").render(
        {"remarks": (), "last": None, "sortable": False} | content | script("report-sort.js"),
        first=drawings[:on_top],
        more=drawings[on_top:],
    )


def linked(objects: Sequence[NotableObject]) -> tuple[tuple[NotableObject, Mapping[str, str]], ...]:
    """Return each object with the pages of sky surveys that show it."""
    links = ({} if o["ra"] is None or o["dec"] is None else survey_links(o["ra"], o["dec"]) for o in objects)
    return tuple(zip(objects, links, strict=True))


def made_words(made: Made | None, version: str | None) -> str:
    """Return when a report was made, by whom, and with which version."""
    said = "" if version is None else f" with blr {version}"
    if made is not None:
        when = made["when"].replace("T", " ").replace("+00:00", " UTC")
        said = f" on {when} by {made['who']}{said}"
    return f"Made{said}." if said else ""
