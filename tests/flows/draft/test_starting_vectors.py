"""`blr init` finds the errors and the dust of fluxes that are elements of a vector."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from catalogs.expressions.expression import parse
from flows.features.columns import error_scale
from tests.flows.starting import start_of

N, BANDS = 300, 5


@pytest.mark.parametrize("unit", ["1/nanomaggy^2", "nanomaggy^-2", "nanomaggy-2", None])
def test_inverse_variances_of_a_vector_of_fluxes(tmp_path: Path, unit: str | None) -> None:
    """Magnitudes of negative fluxes were missing, and all bands had the dust of the first one."""
    rng = np.random.default_rng(4)
    flux, sigma = rng.lognormal(1, 1, (N, BANDS)), 0.5
    measured = flux + rng.normal(0, sigma, (N, BANDS))
    columns = [
        fits.Column("FLUX", f"{BANDS}E", unit="nanomaggy", array=measured),
        fits.Column("FLUX_IVAR", f"{BANDS}E", unit=unit, array=np.full((N, BANDS), sigma**-2)),
        fits.Column("EXTINCTION", f"{BANDS}E", unit="mag", array=rng.uniform(0.1, 0.4, (N, BANDS))),
        fits.Column("EBV", "E", unit="mag", array=rng.uniform(0.01, 0.1, N)),
        fits.Column("KIND", "2A", array=np.where(flux[:, 0] > np.median(flux[:, 0]), "A", "B")),
    ]
    fits.BinTableHDU.from_columns(columns).writeto(tmp_path / "x.fits")
    start = start_of(tmp_path / "x.fits", "KIND")
    bands = tomllib.loads(start.text)["photometry"]
    assert bands == {
        f"mag_{k}": {"flux": f"FLUX[{k}]", "inverse_variance": f"FLUX_IVAR[{k}]"} for k in range(BANDS)
    }
    for k in range(BANDS):
        assert f'# extinction = {{ e_bv = "EXTINCTION[{k}]", coefficient = 1 }}' in start.text
    units = {"FLUX": "nanomaggy", "FLUX_IVAR": unit}
    error = parse("FLUX_IVAR[0]")
    scale = error_scale("mag_0", "inverse_variance", error, units, "nanomaggy", {"FLUX": "nanomaggy"})
    assert scale == 1
