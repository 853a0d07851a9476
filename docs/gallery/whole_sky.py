"""A map of the whole sky.

Counts of objects in HEALPix pixels, as a Mollweide map with east on the left.  Here they avoid the plane of the Milky
Way, as galaxies do.
"""

import numpy as np
from astropy import units as u
from astropy.coordinates import SkyCoord

from catalogs.profile.split import healpix_pixels
from flows.plots.axes import SvgAxes, new_axes
from flows.plots.pictures import plot_sky


def draw() -> SvgAxes:
    rng = np.random.default_rng(4)
    ra, dec = rng.uniform(0, 360, 40_000), np.degrees(np.arcsin(rng.uniform(-1, 1, 40_000)))
    latitude = SkyCoord(ra * u.deg, dec * u.deg).galactic.b.deg
    seen = rng.random(40_000) < np.exp(-0.3 / np.maximum(np.abs(np.sin(np.radians(latitude))), 1e-3))
    pixels, counts = np.unique(healpix_pixels(ra[seen], dec[seen], 3), return_counts=True)
    return plot_sky(new_axes(7, 3.8), pixels, counts, order=3, title="Galaxies")
