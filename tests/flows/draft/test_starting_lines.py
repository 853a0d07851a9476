"""`blr init` on fluxes in vectors, values whose presence tells the class, and columns of yes and no."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from catalogs.expressions.expression import parse
from flows.draft._columns import _gain, telling
from flows.features.columns import error_scale
from tests.flows.starting import gathered, start_of, started

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


RNG = np.random.default_rng(5)
KIND = np.where(RNG.random(N_OBJECTS) < 0.5, "spiral", "elliptical")
DUST = RNG.random(N_OBJECTS) < np.where(KIND == "spiral", 0.6, 0.1)


OBJECTS = {"name": [f"NGC {i}" for i in range(N_OBJECTS)], "x": RNG.normal(size=N_OBJECTS), "kind": KIND}


@pytest.mark.parametrize("values", [DUST, DUST.astype(int), np.where(DUST, 1, 2)])
def test_yes_and_no_is_a_feature(tmp_path: Path, values: np.ndarray) -> None:
    """`has_dust` was left out as 'a flag, not a measurement': 0.61 nats where 0.50 were to be had."""
    start = started(tmp_path, OBJECTS | {"has_dust": values})
    assert start.features["has_dust"] == "has_dust"
    place = [*tomllib.loads(start.text)["features"]].index("has_dust")
    assert gathered(start.text, tmp_path / "x.parquet").X[:, place].std() > 0.4


def test_what_is_called_a_selection_is_left_out_and_told_of_where_it_tells(tmp_path: Path) -> None:
    start = started(tmp_path, OBJECTS | {"is_primary": RNG.random(N_OBJECTS) < 0.5, "dust_flag": DUST})
    assert all(start.left_out[name].startswith("yes or no") for name in ("is_primary", "dust_flag"))
    (told,) = [line for line in start.summary if "tells" in line]
    assert told.startswith("Left out, but tells ")
    assert told.endswith("of the class: dust_flag (flags and codes)")


def test_a_description_may_say_that_it_is_a_flag_and_rows_that_are_there_twice_are_told(
    tmp_path: Path,
) -> None:
    field = pa.field("noisy", pa.bool_(), metadata={"description": "Quality flag of the fit"})
    columns = {"x": RNG.normal(size=N_OBJECTS), "noisy": RNG.random(N_OBJECTS) < 0.3, "kind": KIND}
    schema = pa.schema([("x", pa.float64()), field, ("kind", pa.string())])
    table = pa.table(columns, schema=schema)
    pq.write_table(pa.concat_tables([table, table.slice(0, 25)]), tmp_path / "x.parquet")
    start = start_of(tmp_path / "x.parquet")
    assert "noisy" in start.left_out
    told = "25 of 425 rows repeat another row in every column: remove them, or they count twice"
    assert told in start.summary
    assert f"\n# {told}\n" in start.text
