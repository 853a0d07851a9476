"""The public drawing functions: axes in, axes out, with the values that they were given."""

from __future__ import annotations

import base64
import io
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from astropy import units
from astropy_healpix import HEALPix
from matplotlib.figure import Figure
from matplotlib.image import imread

from flows.plots.axes import new_axes, percent_ticks, plain_ticks, readable_feature, rescaled_ticks, svg
from flows.plots.pictures import (
    _projected,
    plot_binned_share,
    plot_boundaries,
    plot_class_fractions,
    plot_confusion,
    plot_contours,
    plot_errors_caught,
    plot_feature,
    plot_flagged,
    plot_objects,
    plot_reliability,
    plot_shares,
    plot_sky,
    plot_threshold_curves,
)

SVG = "{http://www.w3.org/2000/svg}"
X, Y = np.linspace(0, 5, 21), np.linspace(0, 1, 16)
P = np.stack(np.broadcast_arrays(1 - X[None, :] / 5, X[None, :] / 5 + 0 * Y[:, None]), axis=-1)
DRAWN = {
    "reliability": lambda a: plot_reliability(a, [0.2, 0.8], [0.1, 0.9], [0.0, 0.8], [0.2, 1.0]),
    "confusion": lambda a: plot_confusion(a, [[3, 1], [0, 0]], ["a", "_b"]),
    "errors": lambda a: plot_errors_caught(a, [0, 0.5, 1], [0, 0.8, 1]),
    "threshold": lambda a: plot_threshold_curves(a, [0, 1], [[1, np.nan], [1, 0]], "ab", what="purity"),
    "binned": lambda a: plot_binned_share(
        a, [1, 2], np.full((3, 2, 2), 9), "ab", what="completeness", label="r (mag)"
    ),
    "contours": lambda a: plot_contours(a, X, Y, P, P, of=1, classes="ab"),
    "halves": lambda a: plot_contours(a, X, Y, P, classes="ab"),
    "many": lambda a: plot_confusion(a, np.eye(30), [f"class {k}" for k in range(30)]),
    "flags": lambda a: plot_shares(a, ["LOW_CONFIDENCE", "FLIPPED"], [0.3, 0.0], label="share"),
    "boundaries": lambda a: plot_boundaries(a, [[[0, 0], [1, 1]], np.empty((0, 2))]),
    "objects": lambda a: plot_objects(a, [1, 2], [0, 1], [0, 1], "ab", names=("x", "y")),
    "sky": lambda a: plot_sky(a, [0, 5], [3, 1], order=0, title="objects"),
    "fractions": lambda a: plot_class_fractions(a, "ab", [0.6, 0.4], [0.5, 0.5], [0.01, 0.01]),
    "census": lambda a: plot_class_fractions(
        a, "ab", [0.6, 0.4], [0.5, 0.5], None, interval=[[0.4, 0.45], [0.55, 0.6]], labelled=[0.3, 0.7]
    ),
    "feature": lambda a: plot_feature(
        a, [1, 2], [5, 5, 5], [1, 2, 9], ends=(0, 4), name="B − J (mag)", inverse=np.sinh
    ),
    "huge values": lambda a: plot_feature(a, [3e38], [5, 5], [1, 9], ends=(1e-38, 3e38), name="x"),
    "flagged": lambda a: plot_flagged(
        a, [14.5, 16, 17.25, 18.5], [2, 0, 30, 20, 4, 3], [2, 0, 3, 4, 4, 0], name="r (mag)"
    ),
    "one value": lambda a: plot_feature(a, [], [5], [9], ends=(7e20, 7e20), name="x"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_axes_in_axes_out_and_the_same_svg_every_time(name: str) -> None:
    plain = Figure().add_subplot()
    assert DRAWN[name](plain) is plain  # any axes of matplotlib's
    first, second = (svg(DRAWN[name](new_axes())) for _ in range(2))
    assert first == second
    root = ET.fromstring(first)  # noqa: S314  our own
    assert root.tag == f"{SVG}svg"
    assert "prefers-color-scheme:dark" in first
    assert "http" not in first.replace("http://www.w3.org", "")


def texts(picture: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(picture).iter(f"{SVG}text")]  # noqa: S314  our own


def test_the_confusion_matrix_shows_shares() -> None:
    picture = svg(plot_confusion(new_axes(), [[30, 10], [5, 15]], ["early", "late"]))
    assert texts(picture).count("75%") == texts(picture).count("25%") == 2


def test_ticks_lie_at_round_numbers_with_the_decimals_that_they_need() -> None:
    for top, first in ((0.04, ["0%", "1%"]), (0.004, ["0.0%", "0.1%"]), (0.025, ["0.0%", "0.5%"])):
        assert percent_ticks(0, top)[1][:2] == first
    assert percent_ticks(0, 1) == ([0, 0.2, 0.4, 0.6, 0.8, 1.0], ["0%", "20%", "40%", "60%", "80%", "100%"])
    assert plain_ticks(-0.31, 0.32) == ([-0.2, 0, 0.2], ["−0.2", "0", "0.2"])
    assert plain_ticks(5, 5) == ([5], ["5"])


def test_names_that_would_touch_lean() -> None:
    def leaning(names: list[str]) -> bool:
        return "rotate(-30" in svg(plot_confusion(new_axes(), np.eye(len(names)), names))

    assert not leaning(["early", "late"])
    assert leaning(["a long name of a class"] * 9)


def test_a_point_lies_where_its_values_are() -> None:
    axes = new_axes()
    axes.plot([0, 10, np.nan, 5], [0, 10, 1, 5], "o")
    axes.set(xlim=(0, 10), ylim=(0, 10))
    (dots,) = re.findall(r'd="((?:M[\d. ]+h0)+)"', svg(axes))
    points = np.array([[float(v) for v in point.split()] for point in re.findall(r"M([\d. ]+)h0", dots)])
    np.testing.assert_allclose(points[2], points[:2].mean(axis=0), atol=0.1)
    assert points[0][0] < points[1][0], "to the right"
    assert points[0][1] > points[1][1], "upwards"


def test_a_pixel_is_drawn_where_it_lies() -> None:
    pixel, order = 20, 1
    axes = plot_sky(Figure().add_subplot(), [pixel], [1.0], order=order, title="one")
    (image,) = axes.images
    opaque = np.asarray(image.get_array())[..., 3] > 0
    drawn = svg(plot_sky(new_axes(), [pixel], [1.0], order=order, title="one"))
    (data,) = re.findall('data:image/png;base64,([^"]+)', drawn)
    written = imread(io.BytesIO(base64.b64decode(data)), format="png")
    np.testing.assert_array_equal(written[..., 3] > 0, opaque)  # the PNG says the same
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
        ("b_j", "bmag - jmag", None, "bmag − jmag (mag)"),
        ("b_j", "arcsinh((bmag - jmag - 2.9) / 0.5)", None, "bmag − jmag (mag)"),
        ("axis_ratio", "minax / majax", None, "axis ratio"),
        ("size", "majax", "arcmin", "size (arcmin)"),
        ("log_p", "log10(koi_period)", None, "koi period"),
        ("odd", "log(a) + b", None, "odd"),
    ],
)
def test_features_have_names_that_a_talk_can_show(name: str, expression: str, unit: str, label: str) -> None:
    assert readable_feature(name, expression, unit)[0] == label


def test_ticks_of_a_rescaled_axis_are_in_the_units_of_the_column() -> None:
    inverse = readable_feature("b_j", "arcsinh((bmag - jmag - 2.9) / 0.5)")[2]
    assert inverse is not None
    places, shown = rescaled_ticks(-3, 3, inverse)
    values = np.array([float(text.replace("−", "-")) for text in shown])
    np.testing.assert_allclose(np.arcsinh((values - 2.9) / 0.5), places, atol=0.02)
    assert np.diff(places).min() > 0.5, "their texts do not touch"
