"""`blr init` on emission lines, fluxes in vectors, and values whose presence tells the class."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

from catalogs.expressions.expression import parse
from flows.draft._columns import _gain, telling
from flows.features.columns import error_scale
from tests.flows.starting import start_of, started

N_ROWS, BANDS = 300, 5


@pytest.mark.parametrize("unit", ["1/nanomaggy^2", "nanomaggy^-2", "nanomaggy-2", None])
def test_inverse_variances_of_a_vector_of_fluxes(tmp_path: Path, unit: str | None) -> None:
    """Magnitudes of negative fluxes were missing, and all bands had the dust of the first one."""
    rng = np.random.default_rng(4)
    flux, sigma = rng.lognormal(1, 1, (N_ROWS, BANDS)), 0.5
    measured = flux + rng.normal(0, sigma, (N_ROWS, BANDS))
    columns = [
        fits.Column("FLUX", f"{BANDS}E", unit="nanomaggy", array=measured),
        fits.Column("FLUX_IVAR", f"{BANDS}E", unit=unit, array=np.full((N_ROWS, BANDS), sigma**-2)),
        fits.Column("EXTINCTION", f"{BANDS}E", unit="mag", array=rng.uniform(0.1, 0.4, (N_ROWS, BANDS))),
        fits.Column("EBV", "E", unit="mag", array=rng.uniform(0.01, 0.1, N_ROWS)),
        fits.Column("KIND", "2A", array=np.where(flux[:, 0] > np.median(flux[:, 0]), "A", "B")),
    ]
    fits.BinTableHDU.from_columns(columns).writeto(tmp_path / "x.fits")
    start = start_of(tmp_path / "x.fits", "KIND")
    bands = tomllib.loads(start.text)["photometry"]
    assert bands == {
        f"mag_{k}": {"flux": f"FLUX[{k}]", "inverse_variance": f"FLUX_IVAR[{k}]"} for k in range(BANDS)
    }
    units = {"FLUX": "nanomaggy", "FLUX_IVAR": unit}
    error = parse("FLUX_IVAR[0]")
    scale = error_scale("mag_0", "inverse_variance", error, units, "nanomaggy", {"FLUX": "nanomaggy"})
    assert scale == 1


N_OBJECTS = 400


def survey(seed: int, *, tells: bool) -> dict[str, Any]:
    """Return galaxies and stars of which the class alone, or nothing, decides who has infrared magnitudes."""
    rng = np.random.default_rng(seed)
    galaxy = rng.random(N_OBJECTS) < 0.5
    r = rng.normal(18, 1, N_OBJECTS)
    seen = rng.random(N_OBJECTS) < np.where(galaxy if tells else rng.random(N_OBJECTS) < 0.5, 0.9, 0.6)
    columns = {f"mag_{band}": r + rng.normal(0.3 * galaxy, 0.5, N_OBJECTS) for band in "jhk"}
    columns = {name: np.where(seen, values, np.nan) for name, values in columns.items()}
    return (
        {"mag_r": r, "fwhm": rng.normal(3 + 0.3 * galaxy, 1, N_OBJECTS)}
        | columns
        | {"kind": np.where(galaxy, "galaxy", "star")}
    )


def test_values_missing_together_get_one_feature(tmp_path: Path) -> None:
    start = started(tmp_path, survey(1, tells=True))
    added = {name: text for name, text in start.features.items() if text.startswith("isfinite")}
    assert len(added) == 1
    ((name, text),) = added.items()
    assert (name, text) == (f"has_{text[9:-1]}", text)
    assert text[9:-1] in {"mag_j", "mag_h", "mag_k"}
    assert f'"{name}" = "{text}"  # 1 where there is a value; ' in start.text


@pytest.mark.parametrize(("columns", "most"), [(1, 8), (30, 12)])
def test_values_missing_at_random_get_few(columns: int, most: int) -> None:
    """Of one column Akaike's criterion takes one in some six by chance, of 30 columns the penalty one in ten sets."""
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        missing = {f"x{j}": rng.random(N_OBJECTS) < 0.3 for j in range(columns)}
        found += len(telling(missing, np.where(rng.random(N_OBJECTS) < 0.5, "a", "b").astype(object)))
    assert found <= most


def test_the_gain_is_the_log_likelihood_ratio_less_its_parameters() -> None:
    rng = np.random.default_rng(3)
    classes = rng.choice(["a", "b", "c"], N_OBJECTS).astype(object)
    missing = rng.random(N_OBJECTS) < np.where(classes == "a", 0.6, 0.1)
    ratio = sum(
        np.log(np.mean(missing[classes == c] == m) / np.mean(missing == m))
        * np.sum((classes == c) & (missing == m))
        for c in "abc"
        for m in (True, False)
    )
    assert _gain(missing, classes) == pytest.approx(ratio - 2)
    assert telling({"x": missing}, classes) == ["x"]
    assert telling({"x": missing & (np.cumsum(missing) <= 4)}, classes) == []
