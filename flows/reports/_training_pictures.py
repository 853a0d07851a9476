"""The pictures of a model, the most useful ones first; matplotlib is imported with this module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from flows.plots.boundary import plot_boundaries, plot_contours, plot_objects
from flows.plots.completeness import plot_binned_share, plot_threshold_curves
from flows.plots.evidence import plot_evidence
from flows.plots.names import ReadableFeature, readable_feature
from flows.plots.performance import plot_confusion, plot_errors_caught, plot_reliability, plot_risk_coverage
from flows.plots.style import label_axes, new_axes, new_panels, rescaled_ticks, svg
from flows.plots.weights import plot_newton, plot_posterior_pair
from flows.reports._picture import Picture, image_uri
from flows.reports.data import BoundaryPicture, TrainReport
from flows.reports.picture_data import StoredPictures

__all__ = ["draw"]

MOST_CANDIDATES: Final = 12
TWO: Final = 2


def draw(report: TrainReport) -> Iterator[Picture]:
    """Yield the pictures of a model."""
    yield _reliability(report)
    if report.confusion:
        yield _confusion(report)
    if report.pictures is not None:
        yield _thresholds(report, report.pictures)
        yield from _by_quantity(report, report.pictures)
    yield from _reviews(report)
    if report.boundary is not None:
        yield from _boundary(report, report.boundary)
    yield from _evidence(report)
    if report.pictures is not None:
        yield from _weights(report, report.pictures)


def _picture(axes: Any, title: str, caption: str, alt: str, *, wide: bool = False) -> Picture:
    return Picture(title=title, image=image_uri(svg(axes)), alt=alt, caption=caption, wide=wide)


def _reliability(report: TrainReport) -> Picture:
    bins = report.reliability
    axes = plot_reliability(
        new_axes(),
        [b.predicted for b in bins],
        [b.observed for b in bins],
        [b.low for b in bins],
        [b.high for b in bins],
        label=report.reliability_of,
        rows=report.judged_by,
    )
    said = "; ".join(f"given {b.predicted:.2f}, observed {b.observed:.2f}" for b in bins)
    caption = (
        f"For {report.judged_by} objects that were given a probability: the share of them that have the "
        "class, with 90 % intervals. On the dashed line the two are equal."
    )
    return _picture(axes, "Reliability", caption, f"Reliability diagram: {said}")


def _confusion(report: TrainReport) -> Picture:
    axes = plot_confusion(new_axes(), report.confusion, report.classes)
    counts = np.asarray(report.confusion)
    off = counts - np.diag(np.diag(counts))
    j, k = np.unravel_index(int(off.argmax()), off.shape)
    most = (
        f"Most often {report.classes[j]} is taken for {report.classes[k]} ({off[j, k]:,} objects)."
        if off[j, k]
        else "No object is taken for one of another class."
    )
    caption = f"Each row is a true class and shows to which classes its objects are assigned. {most}"
    alt = "Confusion matrix: " + "; ".join(
        f"{name}: " + ", ".join(f"{n:,} {other}" for other, n in zip(report.classes, row, strict=True))
        for name, row in zip(report.classes, report.confusion, strict=True)
    )
    return _picture(axes, "Confusion matrix", caption, alt)


def _thresholds(report: TrainReport, stored: StoredPictures) -> Picture:
    left, right = new_panels(2, columns=2, width=10.4, height=4.0)
    plot_threshold_curves(left, stored.threshold, stored.completeness, report.classes, what="completeness")
    plot_threshold_curves(right, stored.threshold, stored.purity, report.classes, what="purity")
    caption = (
        "Taking only objects whose probability of the class is at least this: the share of the class that is "
        "found (left), and the share of those taken that is right (right). Choose the threshold that your sample needs."
    )
    at = [int(np.argmin(np.abs(np.asarray(stored.threshold) - t))) for t in (0.5, 0.9)]
    alt = "Completeness and purity against threshold: " + "; ".join(
        f"{name} at {stored.threshold[i]:.1f}: completeness {stored.completeness[k, i]:.2f}, "
        f"purity {stored.purity[k, i]:.2f}"
        for k, name in enumerate(report.classes)
        for i in at
    )
    return _picture(left, "Completeness and purity against threshold", caption, alt, wide=True)


def _by_quantity(report: TrainReport, stored: StoredPictures) -> Iterator[Picture]:
    kinds = (
        (
            "magnitude",
            stored.magnitude_centres,
            stored.magnitude_counts,
            readable_feature(stored.magnitude_name, stored.magnitude_name, "mag").label,
        ),
        (
            "galactic latitude",
            stored.latitude_centres,
            stored.latitude_counts,
            "distance from the Galactic plane |b| (deg)",
        ),
    )
    for name, centres, counts, label in kinds:
        if centres is None or counts is None:
            continue
        left, right = new_panels(2, columns=2, width=10.4, height=4.0)
        plot_binned_share(left, centres, counts, report.classes, what="completeness", label=label)
        plot_binned_share(right, centres, counts, report.classes, what="purity", label=label)
        where = "faint objects" if name == "magnitude" else "objects near the plane"
        caption = (
            f"Completeness (left) and purity (right) in bins of {label}, with 95 % intervals. "
            f"Where a curve falls, the classes of {where} deserve less trust than the average."
        )
        alt = f"Completeness and purity by {name}, in {len(centres)} bins from {centres[0]:.3g} to {centres[-1]:.3g}"
        yield _picture(left, f"Completeness and purity by {name}", caption, alt, wide=True)


def _reviews(report: TrainReport) -> Iterator[Picture]:
    reviewed, caught = np.asarray(report.risk.reviewed), np.asarray(report.risk.moderated)
    plugin = None if report.judged_by != "held-out" else np.asarray(report.risk.plugin)
    kept = reviewed <= 0.97  # with fewer objects, the share is mostly noise
    coverage, error = 1 - reviewed[kept], 1 - report.accuracy

    def risk(of: Any) -> Any:
        return error * (1 - np.asarray(of)[kept]) / coverage

    axes = plot_risk_coverage(
        new_axes(), coverage, risk(caught), plugin=None if plugin is None else risk(plugin)
    )
    half = float(np.interp(0.5, coverage[::-1], risk(caught)[::-1])) if kept.any() else float("nan")
    yield _picture(
        axes,
        "Risk and coverage",
        f"Keeping only the most certain objects, this share of them is wrong: of the most certain half {half:.1%}, of "
        f"all {error:.1%}. The faster the curve falls to the left, the better the model recognises its own errors.",
        f"Risk-coverage curve: {half:.1%} of the most certain half are wrong, {error:.1%} of all",
    )
    if report.accuracy == 1:  # there are no errors to catch
        return
    axes = plot_errors_caught(new_axes(), reviewed, caught, plugin=plugin)
    yield _picture(
        axes,
        "Errors caught by review",
        f"Share of the {report.judged_by} errors that a review of the least certain objects would catch: the "
        "further above the dotted line, the more errors a reviewer finds in the same time.",
        "Errors caught against share reviewed: "
        + "; ".join(f"{r.share:.0%} reviewed, {r.moderated:.0%} caught" for r in report.reviews),
    )


def _boundary(report: TrainReport, picture: BoundaryPicture) -> Iterator[Picture]:
    x, y = _readable(report, picture.x_name), _readable(report, picture.y_name)
    names, words = (x.label, y.label), f"{x.short} and {y.short}"
    if picture.drawn is not None and picture.drawn_ends is not None:
        axes = new_axes(width=8.2, height=5.2)
        plot_objects(axes, picture.point_x, picture.point_y, picture.point_class, report.classes, names=names)
        plot_boundaries(axes, np.split(picture.drawn, picture.drawn_ends[:-1]))
        _rescale(axes, picture, x, y)
        yield _picture(
            axes,
            "Twenty decision boundaries drawn from the posterior",
            f"Each line is where one draw of the weights changes its class, over {words}. Where the lines keep "
            "together the boundary is known; where they spread, the labels leave it open.",
            f"Decision boundaries of twenty draws of the weights over {words}",
            wide=True,
        )
    shown = [1] if len(report.classes) == TWO else [*range(len(report.classes))]
    panels = new_panels(1, width=8.2, height=5.2) if len(shown) == 1 else new_panels(len(shown))
    for axes, k in zip(panels, shown, strict=True):
        plot_contours(
            axes,
            picture.x,
            picture.y,
            picture.moderated,
            picture.plugin,
            of=k,
            classes=report.classes,
            explained=len(shown) == 1,
        )
        label_axes(axes, *names, f"probability of {report.classes[k]}")
        _rescale(axes, picture, x, y)
    yield _picture(
        panels[0],
        "The soft decision boundary",
        f"Probability over {words}, the other features at their mean given these two. Solid: moderated; dashed: "
        "plug-in, at 0.3, 0.5 and 0.7. Where the weights are little known, the solid lines draw away from the dashed.",
        f"Class probability over {words} with contours at 0.3, 0.5 and 0.7",
        wide=True,
    )


def _readable(report: TrainReport, name: str) -> ReadableFeature:
    """Return the name of a feature in readable form."""
    feature = next((f for f in report.features if f.name == name), None)
    return (
        readable_feature(name)
        if feature is None
        else readable_feature(name, feature.expression, feature.unit)
    )


def _rescale(axes: Any, picture: BoundaryPicture, x: ReadableFeature, y: ReadableFeature) -> None:
    """Set the limits of axes over two features, and ticks in what these are computed from."""
    axes.set(xlim=(picture.x[0], picture.x[-1]), ylim=(picture.y[0], picture.y[-1]))
    for axis, feature in ((axes.xaxis, x), (axes.yaxis, y)):
        if feature.inverse is not None:
            rescaled_ticks(axis, feature.inverse)


def _evidence(report: TrainReport) -> Iterator[Picture]:
    order = sorted(range(len(report.candidates)), key=lambda i: -report.candidates[i].log_evidence)
    rows = [
        i
        for i in order
        if report.candidates[i].log_likelihood is not None
        and report.candidates[i].log_occam_factor is not None
    ][:MOST_CANDIDATES]
    if not rows:
        return
    names = [f"{report.candidates[i].basis}; {_feature_words(report, i)}" for i in rows]
    fit = [report.candidates[i].log_likelihood or 0.0 for i in rows]
    cost = [report.candidates[i].log_occam_factor or 0.0 for i in rows]
    axes = new_axes(width=9.0, height=1.3 + 0.42 * len(rows))
    figure = axes.figure
    figure.subplots_adjust(left=0.4, right=0.97, bottom=0.62 / (1.3 + 0.42 * len(rows)))
    plot_evidence(axes, names, fit, cost)
    best = report.candidates[rows[0]]
    yield _picture(
        axes,
        "Evidence, split into fit and Occam factor",
        "Blue: how much better a candidate fits the labels; orange: what its freedom costs. The candidate whose sum "
        f"(diamond) is furthest right has the highest evidence: {names[0]}. Candidates without a mode of their own "
        "are left out.",
        "Evidence of candidates: "
        + "; ".join(
            f"{n}: fit {f:,.0f}, Occam factor {c:,.0f} nats" for n, f, c in zip(names, fit, cost, strict=True)
        )
        + f". Best: {best.log_evidence:,.1f} nats",
        wide=True,
    )


def _feature_words(report: TrainReport, i: int) -> str:
    """Return the features of a candidate in readable names, in the shorter of two ways."""
    chosen = report.candidates[i].features
    left_out = [_readable(report, f.name).short for f in report.features if f.name not in chosen]
    if not left_out:
        return f"all {len(chosen)}"
    if len(left_out) < len(chosen) / 2:
        return f"all but {', '.join(left_out)}"
    return ", ".join(_readable(report, name).short for name in chosen)


def _weights(report: TrainReport, stored: StoredPictures) -> Iterator[Picture]:
    shown = {f.name.replace("_", " "): _readable(report, f.name) for f in report.features}

    def readable(name: object) -> str:
        """Return the name of a basis function; a feature has its name of the other pictures, a logarithm its own."""
        feature = shown.get(str(name))
        rescaled = feature is None or (feature.inverse is not None and not feature.label.endswith("(mag)"))
        return str(name) if feature is None or rescaled else feature.short

    if stored.pair_draws is not None and stored.pair_names is not None:
        names = (readable(stored.pair_names[0]), readable(stored.pair_names[1]))
        axes = plot_posterior_pair(
            new_axes(),
            stored.pair_draws,
            stored.pair_weight if stored.pair_weight is not None else np.ones(len(stored.pair_draws)),
            laplace=(stored.pair_laplace_mean, stored.pair_laplace_covariance),  # type: ignore[arg-type]
            refined=(stored.pair_refined_mean, stored.pair_refined_covariance),  # type: ignore[arg-type]
            names=(f"weight of {names[0]}", f"weight of {names[1]}"),
        )
        yield _picture(
            axes,
            "Posterior of two weights",
            "Green: the exact posterior of the two least Gaussian weights, sampled; dashed: Laplace's approximation; "
            "blue: the refined one. Rings hold 39 and 86 %. Where blue lies on green, trust the probabilities.",
            f"Contours of the posterior of the weights of {names[0]} and {names[1]}, exact, Laplace and refined",
        )
    if stored.newton_weights is not None and stored.newton_names is not None:
        axes = plot_newton(
            new_axes(), stored.newton_weights, [readable(name) for name in stored.newton_names]
        )
        n = len(stored.newton_weights) - 1
        yield _picture(
            axes,
            "Weights against Newton's iterations",
            f"The largest weights of the main fit, from zero to the mode in {n} iterations. Curves "
            "that are flat at the end have converged.",
            f"Weights against Newton's iterations; converged after {n}",
        )
