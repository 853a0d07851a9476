"""The pictures of reports: how good a model is, its decision boundary, and what was found in a catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import numpy as np
from contourpy import LineType, contour_generator
from numpy.typing import ArrayLike

from blr.calibration import share_interval
from catalogs.profile.split import healpix_pixels
from flows.plots.axes import (
    CLASSES,
    INK,
    MUTED,
    SvgAxes,
    class_colour,
    label_axes,
    legend,
    percent_ticks,
    rescaled_ticks,
)

MOST_NUMBERS = 12  # classes up to which each cell of a confusion matrix has its share
MOST_NAMES = 40  # classes up to which the rows of a confusion matrix have their names
FEWEST = 5  # fewest objects of a class in a bin whose share is drawn
MOST_TICKS = 5  # steps between the ticks of bins that are drawn equally wide


def plot_reliability(
    axes: SvgAxes,
    predicted: ArrayLike,
    observed: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    label: str = "probability",
) -> SvgAxes:
    """Draw the share seen against the probability said, (B,) each, with the interval `low` to `high` of each bin."""
    least = np.floor(10 * np.min([predicted, low], initial=1.0)) / 10
    axes.plot([0, 1], [0, 1], "--", color=MUTED, linewidth=1)
    axes.vlines(predicted, low, high, colors=CLASSES[0])
    axes.plot(predicted, observed, "o", color=CLASSES[0])
    return _named(axes, label, "share seen", shares="xy", low=min(least, 0.5))


def plot_confusion(axes: SvgAxes, counts: ArrayLike, classes: Sequence[str]) -> SvgAxes:
    """Draw the confusion matrix of counts (K, K), rows by true class, as the share of each class that goes where."""
    n = np.asarray(counts, float)
    K = len(classes)
    share = n / np.maximum(n.sum(axis=1, keepdims=True), 1)
    axes.grid(visible=False)
    for j, k in np.argwhere(n > 0) if K > MOST_NUMBERS else np.ndindex(K, K):
        cell = _bar(k - 0.48, k + 0.48, j + 0.48, j - 0.48)
        axes.fill(*cell, color=CLASSES[0], alpha=0.04 + 0.7 * share[j, k])
        if K <= MOST_NUMBERS:
            axes.text(k, j, f"{share[j, k]:.0%}", ha="center", va="center", fontsize=10)
    axes.set(xlim=(-0.5, K - 0.5), ylim=(K - 0.5, -0.5))
    names = [name[:16] for name in classes] if K <= MOST_NAMES else []
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    return _named(axes, "assigned class", "true class")


def plot_threshold_curves(
    axes: SvgAxes, threshold: ArrayLike, share: ArrayLike, classes: Sequence[str], *, what: str
) -> SvgAxes:
    """Draw completeness or purity (K, T) of the objects whose probability of a class is a threshold (T,) or more."""
    for k, values in enumerate(np.asarray(share, float)):
        axes.plot(threshold, values, color=class_colour(k), linewidth=1.8, label=_name(classes[k]))
    return _named(axes, "probability of the class, at least", what, marks=True, shares="xy")


def plot_binned_share(
    axes: SvgAxes,
    centres: ArrayLike,
    counts: ArrayLike,
    classes: Sequence[str],
    *,
    what: Literal["completeness", "purity"],
    label: str,
) -> SvgAxes:
    """Draw completeness or purity in bins of a quantity, with 95 % intervals.

    `centres` (B,) of the bins; `counts` (3, B, K): objects of the class, assigned to it, and both.  Bins with fewer
    than five objects of a class are left out.
    """
    middle, n = np.asarray(centres, float), np.asarray(counts)
    of = n[0 if what == "completeness" else 1]
    span = float(np.ptp(middle)) or 1.0
    for k, name in enumerate(classes):
        some = of[:, k] >= FEWEST
        if some.any():
            aside = middle[some] + 0.006 * span * (k - (len(classes) - 1) / 2)
            low, high = share_interval(n[2][some, k], of[some, k])
            axes.vlines(aside, low, high, colors=class_colour(k), linewidth=1)
            share = n[2][some, k] / of[some, k]
            axes.plot(aside, share, "o-", color=class_colour(k), markersize=4, label=_name(name))
    axes.set(xlim=(middle[0] - 0.05 * span, middle[-1] + 0.05 * span))
    return _named(axes, label, what, marks=True, shares="y")


def plot_errors_caught(axes: SvgAxes, reviewed: ArrayLike, caught: ArrayLike) -> SvgAxes:
    """Draw the share of errors caught (n,) against the share reviewed (n,)."""
    axes.plot([0, 1], [0, 1], ":", color=MUTED, linewidth=1, label="in random order")
    axes.plot(reviewed, caught, color=CLASSES[0], linewidth=2, label="least certain first")
    return _named(axes, "share reviewed", "share of the errors caught", marks=True, shares="xy")


def _named(
    axes: SvgAxes, x: str, y: str, *, marks: bool = False, shares: str = "", low: float = 0
) -> SvgAxes:
    """Name the axes, and the `marks` in a legend; axes of `shares` go from `low` to 100 %, with room at the ends."""
    label_axes(axes, x, y)
    if marks:
        legend(axes)
    for axis in shares:
        axes.set(**{f"{axis}lim": (low - 0.015, 1.015)})
        (axes.set_xticks if axis == "x" else axes.set_yticks)(*percent_ticks(low, 1))
    return axes


def _name(name: str) -> str:
    """Return a class's name for a legend; matplotlib would hide one that begins with an underscore."""
    return f" {name[:32]}"


LEVELS = (0.3, 0.5, 0.7)
FEW = 300  # objects below which each has a larger mark
DEEPEST = 0.35  # opacity of the shade where a class is certain


def contour_lines(x: ArrayLike, y: ArrayLike, values: ArrayLike, level: float) -> Iterator[np.ndarray]:
    """Yield the lines (n, 2) on which values (ny, nx) at the nodes `x` (nx,) and `y` (ny,) have a level."""
    grid = contour_generator(x, y, np.asarray(values, float), name="serial", line_type=LineType.Separate)
    yield from (np.asarray(line) for line in grid.lines(level))


def plot_contours(
    axes: SvgAxes,
    x: ArrayLike,
    y: ArrayLike,
    moderated: ArrayLike,
    plugin: ArrayLike | None = None,
    *,
    of: int | None = None,
    classes: Sequence[str],
) -> SvgAxes:
    """Draw the probabilities of classes: shades in the colour of the most probable one, and contours.

    `x` (nx,) and `y` (ny,) are evenly spaced nodes, `moderated` and `plugin` (ny, nx, K) the probabilities there.
    Contours are those of the class with the index `of`, at 0.3, 0.5 and 0.7: solid of the moderated probabilities,
    dashed of the plug-in ones.  Without `of`, they are where each class has one half.
    """
    p = np.asarray(moderated, float)
    K = len(classes)
    excess = np.clip((p.max(axis=2) - 1 / K) / (1 - 1 / K), 0, 1) if K > 1 else np.zeros(p.shape[:2])
    colours = np.array([[int(class_colour(k)[i : i + 2], 16) for i in (1, 3, 5)] for k in range(K)])
    image = np.concatenate([colours[p.argmax(axis=2)], (255 * DEEPEST * excess)[..., None]], axis=2)
    px, py = np.asarray(x, float), np.asarray(y, float)
    axes.grid(visible=False)
    axes.imshow(image.astype(np.uint8)[::-1], extent=(px[0], px[-1], py[0], py[-1]), aspect="auto")
    pairs = [(k, 0.5) for k in range(K)] if of is None else [(of, level) for level in LEVELS]
    drawn = [(p, "-", 1.6), *([] if plugin is None else [(np.asarray(plugin, float), "--", 1.1)])]
    for values, form, width in drawn:
        for k, level in pairs:
            for line in contour_lines(px, py, values[:, :, k], level):
                u, v = line.T
                axes.plot(u, v, form, color=INK, linewidth=width)
    axes.set(xlim=(px[0], px[-1]), ylim=(py[0], py[-1]))
    return axes


def plot_boundaries(axes: SvgAxes, boundaries: Sequence[ArrayLike]) -> SvgAxes:
    """Draw decision boundaries, (n, 2) each, such as those of single draws of the weights from the posterior."""
    for points in boundaries:
        x, y = np.asarray(points, float).T
        axes.plot(x, y, color=INK, linewidth=0.7, alpha=0.55)
    return axes


def plot_objects(
    axes: SvgAxes,
    x: ArrayLike,
    y: ArrayLike,
    labels: ArrayLike,
    classes: Sequence[str],
    *,
    names: tuple[str, str],
) -> SvgAxes:
    """Draw labelled objects over two features, (n,) each, in the colour of their class, and name the axes."""
    px, py, k = np.asarray(x, float), np.asarray(y, float), np.asarray(labels)
    size = 4 if len(px) < FEW else 2.4
    for j, name in enumerate(classes):
        own = k == j
        colour, label = class_colour(j), _name(name)
        axes.plot(px[own], py[own], "o", color=colour, markersize=size, alpha=0.55, label=label)
    return _named(axes, *names, marks=True)


def plot_class_fractions(
    axes: SvgAxes,
    classes: Sequence[str],
    assigned: ArrayLike,
    expected: ArrayLike,
    error: ArrayLike | None,
    *,
    interval: ArrayLike | None = None,
    labelled: ArrayLike | None = None,
) -> SvgAxes:
    """Draw the fraction of each class (K,): expected with two standard errors, and by assigned objects (open).

    With `interval` (2, K), the ends of 95 % intervals, the expected fractions are a census's, and have these.  Beside
    them stand the shares of the classes among the labels, where they are given as `labelled` (K,).
    """
    place, means = np.arange(len(classes)), np.asarray(expected, float)
    known = np.zeros((0, len(classes))) if labelled is None else np.asarray(labelled, float)[None]
    right = 0.12 if len(known) else 0.36
    for k, mean in enumerate(means):
        axes.fill(*_bar(k - 0.36, k + right, mean), color=class_colour(k), alpha=0.45)
        for share in known[:, k]:
            axes.fill(*_bar(k + right + 0.02, k + 0.36, share), color=MUTED, alpha=0.3)
    reach = 0 if error is None else 2 * np.asarray(error, float)
    ends = np.clip([means - reach, means + reach] if interval is None else interval, 0, 1)
    middle = place + (right - 0.36) / 2
    if interval is not None or error is not None:
        bars = "share, 95 %" if interval is not None else "sum of probabilities, ± 2 σ"
        axes.vlines(middle, *ends, colors=INK, linewidth=2)
        axes.plot([], [], color=INK, linewidth=2, label=bars)
    by = "by the most probable class"
    beside = middle - (right + 0.36) / 4  # so that the interval is seen
    axes.plot(beside, assigned, "o", color=INK, markerfacecolor="none", markersize=7, label=by)
    if len(known):
        axes.fill([], [], color=MUTED, alpha=0.3, label="labels")
    top = 1.06 * max(0.01, *(float(np.max(v, initial=0)) for v in (ends, np.asarray(assigned, float), known)))
    axes.set(xlim=(-0.6, len(classes) - 0.4), ylim=(0, top))
    axes.set_xticks(place, [name[:16] for name in classes])
    axes.set_yticks(*percent_ticks(0, top))
    return _named(axes, "", "share of the objects", marks=True)


def plot_shares(axes: SvgAxes, names: Sequence[str], share: ArrayLike, *, label: str) -> SvgAxes:
    """Draw shares (F,), such as those of flags, as bars with their names beside them."""
    values = np.asarray(share, float)
    for j, value in enumerate(values):
        axes.fill(*_bar(0, value, j + 0.3, j - 0.3), color=CLASSES[3], alpha=0.6)
        axes.text(value, j, f" {value:.1%}", va="center", fontsize=11)
    top = 1.2 * max(0.01, values.max(initial=0))
    axes.set(xlim=(0, top), ylim=(len(names) - 0.4, -0.6))
    axes.set_xticks(*percent_ticks(0, min(1.0, top)))
    axes.set_yticks(range(len(names)), names)
    return _named(axes, label, "")


def plot_feature(
    axes: SvgAxes,
    edges: ArrayLike,
    training: ArrayLike,
    target: ArrayLike,
    *,
    ends: tuple[float, float],
    name: str,
    inverse: Callable[[Any], Any] | None = None,
) -> SvgAxes:
    """Draw how a feature is distributed in the training set and in the target, as densities in the same bins.

    `edges` (B - 1,) lie between the bins, about tenths of the training rows; `training` and `target` (B,) are counts;
    `ends` are the least and the largest training value, between which the outer bins are drawn.  `inverse` gives what
    the feature is computed from, for the ticks.
    """
    inner = np.asarray(edges, float)
    span = np.ptp(inner) if inner.size > 1 else max([1.0, *np.abs(inner)])
    low = max(ends[0], float(inner[0]) - span) if inner.size else ends[0]
    high = min(ends[1], float(inner[-1]) + span) if inner.size else ends[1]
    cuts = np.array([min([low, *inner[:1]]), *inner, max([high, *inner[-1:]])])
    width = np.maximum(np.diff(cuts), 1e-9 * max(1.0, float(np.ptp(cuts))))
    x = np.repeat(cuts, 2)
    for counts, colour in ((training, MUTED), (target, CLASSES[0])):
        n = np.asarray(counts, float)
        y = np.concatenate([[0], np.repeat(n / max(n.sum(), 1) / width, 2), [0]])
        if colour == MUTED:
            axes.fill(x, y, color=colour, alpha=0.2)
        axes.plot(x, y, color=colour)
    if cuts[0] < cuts[-1]:
        axes.set(xlim=(cuts[0], cuts[-1]))
    axes.set_yticks([], [])
    label_axes(axes, name, "")
    if inverse is not None:
        axes.set_xticks(*rescaled_ticks(cuts[0], cuts[-1], inverse))
    return axes


def plot_flagged(axes: SvgAxes, edges: ArrayLike, n: ArrayLike, flagged: ArrayLike, *, name: str) -> SvgAxes:
    """Draw the share of flagged objects in bins of a quantity, with 95 % intervals, and that of all as a dashed line.

    `edges` (E,) are the ends of the bins, which are equally wide in the picture.  `n` and `flagged` (E + 2,) count
    objects below the first edge, in the bins, from the last edge on, and without a value; paler bars are of the first
    and the last two.
    """
    texts = [f"{value:.4g}".replace("-", "−") for value in np.asarray(edges, float).tolist()]
    of, some, last = np.asarray(n), np.asarray(flagged), len(texts) - 1
    left = np.array([-1, *range(last + 1), last + 1.5])
    bars = np.flatnonzero(of)
    low, high = share_interval(some[bars], of[bars])
    for start, share in zip(left[bars].tolist(), (some[bars] / of[bars]).tolist(), strict=True):
        alpha = 0.6 if 0 <= start < last else 0.3
        axes.fill(*_bar(start + 0.07, start + 0.93, share), color=CLASSES[3], alpha=alpha)
    axes.vlines(left[bars] + 0.5, low, high, colors=INK, linewidth=1.2)
    step = -(-last // MOST_TICKS) or 1
    ticks = {0: texts[0]} | {i: texts[i] for i in range(step, last - step + 1, step)} | {last: texts[-1]}
    ticks |= {last + 2: "none"} if of[-1] else {}
    ends = float(left[bars].min(initial=0)), float(left[bars].max(initial=last - 1)) + 1
    whole = some.sum() / max(1, of.sum())
    axes.plot(ends, [whole, whole], "--", color=MUTED, linewidth=1)
    top = min(1.0, float(high.max(initial=0.01))) * 1.05
    axes.set(xlim=(ends[0] - 0.1, ends[1] + 0.1), ylim=(0, top))
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.set_yticks(*percent_ticks(0, top, 4))
    return _named(axes, name, "share flagged")


def _bar(left: float, right: float, top: float, bottom: float = 0) -> tuple[list[float], list[float]]:
    return [left, right, right, left], [bottom, bottom, top, top]


# Maps of the whole sky, of counts in HEALPix pixels (Gorski et al. 2005, doi:10.1086/427976).

WIDTH, HEIGHT = 360, 180  # points of the map: about one for each of the page's
STEPS: Final = 30


def plot_sky(
    axes: SvgAxes,
    pixels: ArrayLike,
    values: ArrayLike,
    *,
    order: int,
    title: str,
    colour: str = CLASSES[0],
    percent: bool = False,
) -> SvgAxes:
    """Draw values (P,) of nested HEALPix pixels (P,) of an order as a Mollweide map in right ascension and declination.

    East is on the left, and 0 h in the middle.  Pixels that are not named are left empty.
    """
    x, y = np.meshgrid(np.linspace(-2, 2, WIDTH), np.linspace(1, -1, HEIGHT))
    theta = np.arcsin(np.clip(y, -1, 1))
    inside = (x / 2) ** 2 + y**2 < 1
    ra = (-np.degrees(np.pi * x / (2 * np.maximum(np.cos(theta), 1e-9)))) % 360
    dec = np.degrees(np.arcsin(np.clip((2 * theta + np.sin(2 * theta)) / np.pi, -1, 1)))
    amount = np.asarray(values, float)
    by_pixel = np.full(12 * 4**order, np.nan)
    by_pixel[np.asarray(pixels, np.int64)] = amount
    shown = np.full(x.shape, np.nan)
    shown[inside] = by_pixel[healpix_pixels(ra[inside], dec[inside], order)]
    finite = amount[np.isfinite(amount)]
    top = float(np.quantile(finite, 0.98)) if finite.size else 1.0
    share = np.clip(shown / (top or 1.0), 0, 1)
    image = np.zeros((*x.shape, 4), np.uint8)
    image[..., :3] = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    image[..., 3] = np.where(np.isfinite(share), 255 * (0.12 + 0.88 * np.nan_to_num(share)), 0)
    axes.imshow(image, extent=(-2, 2, -1, 1), interpolation="nearest", aspect="equal")
    around, across = np.linspace(-180, 180, 61), np.linspace(-90, 90, 61)
    for dec0 in (-60.0, -30.0, 0.0, 30.0, 60.0):
        axes.plot(*_projected(around, np.full(61, dec0)), color=MUTED, linewidth=0.3)
    for ra0 in range(-180, 181, 60):
        width = 0.8 if abs(ra0) == 180 else 0.3  # the edge of the map
        axes.plot(*_projected(np.full(61, float(ra0)), across), color=MUTED, linewidth=width)
    for ra0, name in ((120, "8h"), (60, "4h"), (0, "0h"), (-60, "20h"), (-120, "16h")):
        u, v = _projected(np.array([float(ra0)]), np.zeros(1))
        axes.text(float(u[0]), float(v[0]) - 0.1, name, ha="center", va="center", fontsize=9, color=MUTED)
    axes.set(xlim=(-2.05, 2.05), ylim=(-1.08, 1.08))
    axes.axis("off")
    axes.set(title=f"{title}; darkest: {f'{top:.0%}' if percent else f'{top:,.0f} a pixel'}")
    return axes


def _projected(ra: np.ndarray, dec: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Mollweide's x and y, -2 to 2 and -1 to 1, of angles in degrees, by Newton's method for theta."""
    lat, theta = np.radians(dec), np.radians(dec)
    for _ in range(STEPS):
        slope = 2 + 2 * np.cos(2 * theta)
        theta = theta - (2 * theta + np.sin(2 * theta) - np.pi * np.sin(lat)) / np.maximum(slope, 1e-6)
        theta = np.clip(theta, -np.pi / 2, np.pi / 2)
    return -2 / np.pi * np.radians(ra) * np.cos(theta), np.sin(theta)
