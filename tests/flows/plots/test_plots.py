"""The public drawing functions: axes in, axes out, with the values that they were given."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pytest
from astropy import units
from astropy_healpix import HEALPix
from matplotlib.figure import Figure

from flows.plots.boundary import plot_boundaries, plot_contours, plot_objects
from flows.plots.catalogue import plot_class_fractions, plot_feature
from flows.plots.completeness import plot_binned_share, plot_threshold_curves
from flows.plots.evidence import plot_evidence
from flows.plots.names import readable_feature
from flows.plots.performance import plot_confusion, plot_errors_caught, plot_reliability, plot_risk_coverage
from flows.plots.sky import _projected, plot_sky
from flows.plots.style import CLASSES, DARK, new_axes, percent_axis, rescaled_ticks, svg
from flows.plots.weights import plot_newton, plot_posterior_pair

X, Y = np.linspace(0, 5, 21), np.linspace(0, 1, 16)
P = np.stack(np.broadcast_arrays(1 - X[None, :] / 5, X[None, :] / 5 + 0 * Y[:, None]), axis=-1)
GAUSSIAN = (np.zeros(2), np.eye(2))
DRAWN = {
    "reliability": lambda a: plot_reliability(a, [0.2, 0.8], [0.1, 0.9], [0.0, 0.8], [0.2, 1.0]),
    "confusion": lambda a: plot_confusion(a, [[3, 1], [0, 0]], ["a", "_b"]),
    "errors": lambda a: plot_errors_caught(a, [0, 0.5, 1], [0, 0.8, 1], plugin=[0, 0.7, 1]),
    "risk": lambda a: plot_risk_coverage(a, [1, 0.5], [0.2, 0.1]),
    "threshold": lambda a: plot_threshold_curves(a, [0, 1], [[1, np.nan], [1, 0]], "ab", what="purity"),
    "binned": lambda a: plot_binned_share(
        a, [1, 2], np.full((3, 2, 2), 9), "ab", what="completeness", label="r (mag)"
    ),
    "contours": lambda a: plot_contours(a, X, Y, P, P, of=1, classes="ab"),
    "boundaries": lambda a: plot_boundaries(a, [[[0, 0], [1, 1]], np.empty((0, 2))]),
    "objects": lambda a: plot_objects(a, [1, 2], [0, 1], [0, 1], "ab", names=("x", "y")),
    "evidence": lambda a: plot_evidence(a, ["one", "two"], [-10, -5], [-1, -3]),
    "newton": lambda a: plot_newton(a, [[0, 0], [1, 2]], ["w", "v"]),
    "pair": lambda a: plot_posterior_pair(
        a,
        np.random.default_rng(0).normal(size=(200, 2)),
        np.full(200, 1 / 200),
        laplace=GAUSSIAN,
        refined=GAUSSIAN,
        names=("u", "v"),
    ),
    "sky": lambda a: plot_sky(a, [0, 5], [3, 1], order=0, title="objects"),
    "fractions": lambda a: plot_class_fractions(a, "ab", [0.6, 0.4], [0.5, 0.5], [0.01, 0.01]),
    "census": lambda a: plot_class_fractions(
        a, "ab", [0.6, 0.4], [0.5, 0.5], None, interval=[[0.4, 0.45], [0.55, 0.6]]
    ),
    "feature": lambda a: plot_feature(
        a, [1, 2], [5, 5, 5], [1, 2, 9], ends=(0, 4), name="B − J (mag)", inverse=np.sinh
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_axes_in_axes_out_and_the_same_svg_every_time(name: str) -> None:
    plain = Figure().add_subplot()
    assert DRAWN[name](plain) is plain  # any axes of matplotlib's
    first, second = (svg(DRAWN[name](new_axes())) for _ in range(2))
    assert first == second
    root = ET.fromstring(first)  # noqa: S314  our own
    assert root.tag.endswith("svg")
    assert "prefers-color-scheme:dark" in first
    assert "http" not in first.replace("http://www.w3.org", "")


def test_the_confusion_matrix_shows_shares_and_counts() -> None:
    axes = plot_confusion(new_axes(), [[30, 10], [5, 15]], ["early", "late"])
    assert {"75%", "25%", "30", "10", "5", "15"} <= {text.get_text() for text in axes.texts}


def test_percentages_have_the_decimals_that_they_need() -> None:
    for top, texts in ((0.04, ["0%", "1%"]), (0.004, ["0.0%", "0.1%"]), (0.025, ["0.0%", "0.5%"])):
        axes = new_axes()
        percent_axis(axes.yaxis)
        step = 0.01 if top == 0.04 else 0.001 if top == 0.004 else 0.005
        axes.set_yticks(np.arange(0, top, step))
        axes.figure.draw_without_rendering()
        assert [t.get_text() for t in axes.get_yticklabels()][:2] == texts


def test_the_evidence_is_the_sum_of_fit_and_cost() -> None:
    axes = plot_evidence(new_axes(), ["a", "b", "c"], [-100.0, -60.0, -50.0], [-2.0, -5.0, -40.0])
    (sums,) = [line for line in axes.lines if line.get_marker() == "D"]
    evidence = np.array([-102.0, -65.0, -90.0])
    drawn = np.asarray(sums.get_xdata())
    np.testing.assert_allclose(drawn - drawn[0], evidence - evidence[0])


def test_posterior_contours_of_a_gaussian_are_those_of_its_moments() -> None:
    draws = np.random.default_rng(1).normal(size=(4000, 2))
    axes = plot_posterior_pair(
        new_axes(), draws, np.ones(4000), laplace=GAUSSIAN, refined=GAUSSIAN, names=("a", "b")
    )
    inner = next(iter(axes.lines))
    np.testing.assert_allclose(np.hypot(*inner.get_data()), np.sqrt(-2 * np.log(1 - 0.393)), rtol=1e-9)


def test_a_pixel_is_drawn_where_it_lies() -> None:
    pixel, order = 20, 1
    axes = plot_sky(new_axes(), [pixel], [1.0], order=order, title="one")
    (image,) = axes.images
    opaque = np.asarray(image.get_array())[..., 3] > 0
    rows, columns = np.nonzero(opaque)
    x, y = -2 + 4 * columns.mean() / (opaque.shape[1] - 1), 1 - 2 * rows.mean() / (opaque.shape[0] - 1)
    lon, lat = HEALPix(nside=2**order, order="nested").healpix_to_lonlat([pixel])
    ra = (lon.to_value(units.deg) + 180) % 360 - 180
    u, v = _projected(ra, lat.to_value(units.deg))
    assert (x, y) == pytest.approx((u[0], v[0]), abs=0.12)


def test_mollweide_keeps_areas() -> None:
    """The area between latitudes is that on the sphere: the map of the sky shows densities as they are."""
    _, y = _projected(np.zeros(2), np.array([0.0, 30.0]))
    theta = np.arcsin(y)
    share = (2 * theta + np.sin(2 * theta)) / np.pi
    np.testing.assert_allclose(share, [0.0, 0.5], atol=1e-9)


@pytest.mark.parametrize(
    ("name", "expression", "unit", "label"),
    [
        ("b_j", "bmag - jmag", None, "B − J (mag)"),
        ("b_j", "arcsinh((bmag - jmag - 2.9) / 0.5)", None, "B − J (mag)"),
        ("u_g", "psfMag_u - psfMag_g", None, "u − g (mag)"),
        ("bright", "petroMag_r", "mag", "r magnitude (mag)"),
        ("axis_ratio", "minax / majax", None, "axis ratio"),
        ("size", "majax", "arcmin", "size (arcmin)"),
        ("log_p", "log10(koi_period)", None, "koi period"),
        ("x", "a - b", None, "x"),
        ("g_i", "gi", None, "g − i"),
        ("j_k", "JK", "mag", "J − K (mag)"),
        ("odd", "log(a) + b", None, "odd"),
        ("mag", "mag", "mag", "mag"),
    ],
)
def test_features_have_names_that_a_talk_can_show(
    name: str, expression: str, unit: str | None, label: str
) -> None:
    readable = readable_feature(name, expression, unit)
    assert readable.label == label
    assert "arcsinh" not in readable.label


def test_ticks_of_a_rescaled_axis_are_in_the_units_of_the_column() -> None:
    inverse = readable_feature("b_j", "arcsinh((bmag - jmag - 2.9) / 0.5)").inverse
    assert inverse is not None
    axes = new_axes()
    axes.set_xlim(-3, 3)
    rescaled_ticks(axes.xaxis, inverse)
    texts = [float(label.get_text().replace("−", "-")) for label in axes.get_xticklabels()]
    np.testing.assert_allclose(np.arcsinh((np.array(texts) - 2.9) / 0.5), axes.get_xticks(), atol=0.02)
    assert np.diff(axes.get_xticks()).min() > 0.5, "their texts do not touch"


def test_every_colour_has_a_dark_one_and_classes_stay_apart() -> None:
    assert set(CLASSES) <= set(DARK)
    assert len(set(DARK.values())) == len(DARK)
