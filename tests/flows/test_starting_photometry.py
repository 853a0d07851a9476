"""`blr init` on the photometry of surveys: errors beside magnitudes, many kinds and bands, limits, lone magnitudes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.catalog import Column
from catalogs.subjects import about_an_error, about_the_distance, about_the_observation
from flows.inspection import inspect_catalog
from flows.starting_bands import band_and_kind, kinds
from flows.starting_specification import Start, starting_specification

N = 900
STEPS = {
    "u": (1.6, 0.5),
    "g": (0.8, 0.3),
    "r": (0.0, 0.0),
    "i": (-0.35, -0.1),
    "z": (-0.6, -0.2),
    "y": (-0.8, -0.3),
}
"""Magnitude over that in r of an early galaxy, and how much bluer a late one is."""


def survey(bands: str = "ugriz") -> dict[str, Any]:
    """Return early and late galaxies: identifiers, types, and `magnitudes` by band, (n,) each."""
    rng = np.random.default_rng(8)
    late = rng.random(N) < 0.5
    r = rng.normal(18, 1, N)
    magnitudes = {b: r + STEPS[b][0] - STEPS[b][1] * late + rng.normal(0, 0.1, N) for b in bands}
    return {"rng": rng, "late": late, "magnitudes": magnitudes, "id": np.arange(N) + 10**15}


def started(path: Path, s: dict[str, Any], columns: dict[str, Any]) -> Start:
    pq.write_table(
        pa.table({"id": s["id"], "type": np.where(s["late"], "S", "E"), **columns}), path / "x.parquet"
    )
    return starting_specification(catalogs.open(path / "x.parquet"), "type", folder=path)


def noise(s: dict[str, Any], band: str) -> Any:
    """Return errors that follow the magnitude, as those of surveys do."""
    return 10 ** (0.35 * (s["magnitudes"][band] - 21)) * np.exp(s["rng"].normal(0, 0.1, N))


def test_errors_that_follow_their_magnitudes_make_no_leaks(tmp_path):
    """With another magnitude the logarithm of an error is a colour: it was taken for a formula with the class in it."""
    s = survey()
    m = s["magnitudes"]
    columns = {f"{b}_psf": m[b] for b in m} | {f"e_{b}_psf": noise(s, b) for b in m}
    columns |= {f"{b}snr": 1.09 / noise(s, b) for b in m}
    start = started(tmp_path, s, columns)
    colours = [f"{a}_psf - {b}_psf" for a, b in zip("ugri", "griz", strict=True)]
    assert list(start.features.values()) == [*colours, start.features[next(reversed(start.features))]]
    told = inspect_catalog(catalogs.open(tmp_path / "x.parquet"), label="type")["label"]
    assert not any(leak["derived"] for leak in told["leaks"])
    assert {start.left_out[f"{b}snr"] for b in m} == {"about the observation"}


def test_kinds_of_magnitude_are_taken_whole(tmp_path):
    """The second of two kinds orders the rows as the first does in some bands only, and these alone were dropped."""
    s = survey()
    m, rng = s["magnitudes"], s["rng"]
    columns = {f"{b}_psf_mag": m[b] for b in m}
    columns |= {f"{b}_petro_mag": m[b] - 0.2 + rng.normal(0, 0.3 * (b in "uz"), N) for b in m}
    start = started(tmp_path, s, columns)
    colours = [f"{a}_psf_mag - {b}_psf_mag" for a, b in zip("ugri", "griz", strict=True)]
    assert list(start.features.values())[:4] == colours
    assert not any("psf_mag" in name and "same order" in reason for name, reason in start.left_out.items())


def test_limits_are_no_magnitudes(tmp_path):
    s = survey()
    columns = {f"MAG_LIM_{b}": s["rng"].normal(25, 0.2, N) for b in s["magnitudes"]}
    columns |= {f"MAG_GAAP_{b}": m for b, m in s["magnitudes"].items()}
    start = started(tmp_path, s, columns)
    assert not any("LIM" in text for text in start.features.values())
    assert start.left_out["MAG_LIM_u"] == "about the observation"


@pytest.mark.parametrize("unit", ["uJy", None])
def test_one_magnitude_does_not_keep_fluxes_of_many_bands_from_making_colours(tmp_path, unit):
    s = survey()
    m = s["magnitudes"]
    columns = {f"{b.upper()}_FLUX": 10 ** (0.4 * (23.9 - m[b])) for b in m}
    columns |= {f"{b.upper()}_PSFFLUX": 10 ** (0.4 * (23.5 - m[b] + s["rng"].normal(0, 0.2, N))) for b in m}
    columns["GAIA_PHOT_G_MEAN_MAG"] = np.where(s["rng"].random(N) < 0.8, 0.0, m["g"])
    table = pa.table({"id": s["id"], "type": np.where(s["late"], "S", "E"), **columns})
    fields = [f.with_metadata({"unit": unit}) if unit and "FLUX" in f.name else f for f in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), tmp_path / "x.parquet")
    start = starting_specification(catalogs.open(tmp_path / "x.parquet"), "type", folder=tmp_path)
    first = "mag_u - mag_g" if unit else "log10(U_FLUX / G_FLUX)"
    extended = "mag_r - mag_r_psfflux" if unit else "log10(R_FLUX / R_PSFFLUX)"
    assert {first, extended} <= set(start.features.values())
    assert '"GAIA_PHOT_G_MEAN_MAG" = [0.0]' in start.text


def test_magnitudes_leave_the_fluxes_of_their_bands_out(tmp_path):
    s = survey()
    m = s["magnitudes"]
    columns = {f"{b}_FLUX": 10 ** (0.4 * (23.9 - m[b])) for b in m} | {f"{b}_MAG": m[b] for b in m}
    start = started(tmp_path, s, columns)
    assert not any("FLUX" in text for text in start.features.values())
    assert start.features["u_mag_g_mag"] == "u_MAG - g_MAG"


def test_many_bands_leave_a_place_to_shapes(tmp_path):
    s = survey("ugrizy")
    columns = {f"mag_{b}{i}": m for i in ("", "_psf", "_petro") for b, m in s["magnitudes"].items()}
    columns = {n: m + s["rng"].normal(0, 0.1, N) for n, m in columns.items()}
    columns["sersic_index"] = np.where(s["late"], 1.2, 3.5) + s["rng"].normal(0, 1.2, N)
    start = started(tmp_path, s, columns)
    assert "sersic_index" in start.features
    assert {"mag_u", "mag_y"} <= set(" ".join(start.features.values()).split())


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["YAPERMAG3", "JAPERMAG3", "HAPERMAG3", "KSAPERMAG3"], "apermag3"),
        (["flux_ut", "flux_gt", "flux_rt", "flux_Kt"], "t"),
        (["u_auto", "F378_auto", "J0395_auto", "g_auto", "F660_auto", "z_auto"], "auto"),
        (["f_F435W", "f_F850LP", "f_F125W", "f_F356W", "f_F410M", "f_F444W"], "f"),
        (["mag_F275W", "mag_F090W", "mag_F115W", "mag_F277W", "mag_F770W", "mag_F1000W"], ""),
    ],
)
def test_bands_as_surveys_write_them_are_in_order_of_wavelength(names, kind):
    assert kinds(names[::-1]) == [names]
    assert {band_and_kind(name)[1] for name in names} == {kind}


@pytest.mark.parametrize(
    "name",
    ["DNF_Z", "lp_zBEST", "phz_median", "Z_TONRY", "ez_z_phot", "Z_B_MIN", "photoz_best", "redshift_ugc"],
)
def test_redshifts_by_whichever_code_are_distances(name):
    assert about_the_distance(Column(name, pa.float64()))


@pytest.mark.parametrize(
    "name", ["FLUX_Z", "z_psf", "mag_auto_z", "smoothness", "SHAPE_R", "bulge_fraction", "size"]
)
def test_other_names_are_of_the_object(name):
    column = Column(name, pa.float64())
    assert not any(about(column) for about in (about_the_distance, about_the_observation, about_an_error))


def test_places_in_each_band_are_places(tmp_path):
    s = survey("gri")
    ra = s["rng"].uniform(10, 12, N)
    columns = {"ra": ra, "dec": ra - 30} | {f"{b}_ra": ra + s["rng"].normal(0, 1e-3, N) for b in "gri"}
    start = started(tmp_path, s, columns | {f"mag_{b}": m for b, m in s["magnitudes"].items()})
    assert {start.left_out[f"{b}_ra"] for b in "gri"} == {"a place or a direction on the sky"}


def test_codes_are_no_marks(tmp_path):
    """VISTA's classes are -1 of stars and 1 of galaxies, beside -9999 where there is none."""
    s = survey()
    code = np.where(s["rng"].random(N) < 0.1, -9999, np.where(s["late"], 1, -1)).astype(np.int16)
    text = started(tmp_path, s, {"JCLASS": code} | {f"mag_{b}": m for b, m in s["magnitudes"].items()}).text
    assert '"JCLASS" = [-9999.0]' in text
