"""Maps of the whole sky, of counts in HEALPix pixels (Gorski et al. 2005, doi:10.1086/427976)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from catalogs.profile.split import healpix_pixels
from flows.plots.axes import SvgAxes
from flows.plots.style import CLASSES, MUTED

__all__ = ["plot_sky"]

WIDTH, HEIGHT = 360, 180
"""Points of the map: about one for each of the page's."""
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
    for dec0 in (-60, -30, 0, 30, 60):
        axes.plot(
            *_projected(np.linspace(-180, 180, 61), np.full(61, float(dec0))), color=MUTED, linewidth=0.3
        )
    for ra0 in (-180, -120, -60, 0, 60, 120, 180):
        width = 0.8 if abs(ra0) == 180 else 0.3  # the edge of the map
        axes.plot(
            *_projected(np.full(61, float(ra0)), np.linspace(-90, 90, 61)), color=MUTED, linewidth=width
        )
    for ra0, name in ((120, "8h"), (60, "4h"), (0, "0h"), (-60, "20h"), (-120, "16h")):
        u, v = _projected(np.array([float(ra0)]), np.zeros(1))
        axes.text(float(u[0]), float(v[0]) - 0.1, name, ha="center", va="center", fontsize=9, color=MUTED)
    axes.set(xlim=(-2.05, 2.05), ylim=(-1.08, 1.08))
    axes.axis("off")
    most = f"{top:.0%}" if percent else f"{top:,.0f} a pixel"
    axes.set(title=f"{title}; darkest: {most}")
    return axes


def _projected(ra: np.ndarray, dec: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Mollweide's x and y, -2 to 2 and -1 to 1, of angles in degrees, by Newton's method for theta."""
    lat, theta = np.radians(dec), np.radians(dec)
    for _ in range(STEPS):
        slope = 2 + 2 * np.cos(2 * theta)
        theta = theta - (2 * theta + np.sin(2 * theta) - np.pi * np.sin(lat)) / np.maximum(slope, 1e-6)
        theta = np.clip(theta, -np.pi / 2, np.pi / 2)
    return -2 / np.pi * np.radians(ra) * np.cos(theta), np.sin(theta)
