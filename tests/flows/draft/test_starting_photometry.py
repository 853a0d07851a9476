"""`blr init` on the photometry of surveys: errors beside magnitudes, many kinds and bands, limits, lone magnitudes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catalogs
from catalogs.catalog.catalog import Column
from catalogs.profile.quality import about_an_error, about_the_distance, about_the_observation, is_magnitude
from flows.draft._bands import band_and_kind, kinds
from flows.draft.inspection import StartedSpecification, inspect_catalog
from flows.errors import TrainingError
from tests.flows import starting

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


def started(
    folder: Path, s: dict[str, Any], columns: dict[str, Any], **units: str | None
) -> StartedSpecification:
    labelled = {"id": s["id"], "type": np.where(s["late"], "S", "E"), **columns}
    return starting.started(folder, labelled, "type", **units)


def noise(s: dict[str, Any], band: str) -> Any:
    """Return errors that follow the magnitude, as those of surveys do."""
    return 10 ** (0.35 * (s["magnitudes"][band] - 21)) * np.exp(s["rng"].normal(0, 0.1, N))


def test_errors_that_follow_their_magnitudes_make_no_leaks(tmp_path: Path) -> None:
    """With another magnitude the logarithm of an error is a colour: it was taken for a formula with the class in it."""
    s = survey()
    m = s["magnitudes"]
    columns = {f"{b}_psf": m[b] for b in m} | {f"e_{b}_psf": noise(s, b) for b in m}
    columns |= {f"{b}snr": 1.09 / noise(s, b) for b in m}
    start = started(tmp_path, s, columns)
    colours = [f"{a}_psf - {b}_psf" for a, b in zip("ugri", "griz", strict=True)]
    assert list(start.features.values()) == [*colours, start.features[next(reversed(start.features))]]
    told = inspect_catalog(catalogs.open(tmp_path / "x.parquet"), label="type").label
    assert not any(leak.derived for leak in told.leaks)
    assert {start.left_out[f"{b}snr"] for b in m} == {"about the observation"}


def test_kinds_of_magnitude_are_taken_whole(tmp_path: Path) -> None:
    """The second of two kinds orders the rows as the first does in some bands only, and these alone were dropped."""
    s = survey()
    m, rng = s["magnitudes"], s["rng"]
    columns = {f"{b}_psf_mag": m[b] for b in m}
    columns |= {f"{b}_petro_mag": m[b] - 0.2 + rng.normal(0, 0.3 * (b in "uz"), N) for b in m}
    start = started(tmp_path, s, columns)
    colours = [f"{a}_psf_mag - {b}_psf_mag" for a, b in zip("ugri", "griz", strict=True)]
    assert list(start.features.values())[:4] == colours
    assert not any("psf_mag" in name and "same order" in reason for name, reason in start.left_out.items())


@pytest.mark.parametrize("unit", ["uJy", None])
def test_one_magnitude_does_not_keep_fluxes_of_many_bands_from_making_colours(
    tmp_path: Path, unit: str | None
) -> None:
    s = survey()
    m = s["magnitudes"]
    columns = {f"{b.upper()}_FLUX": 10 ** (0.4 * (23.9 - m[b])) for b in m}
    columns |= {f"{b.upper()}_PSFFLUX": 10 ** (0.4 * (23.5 - m[b] + s["rng"].normal(0, 0.2, N))) for b in m}
    columns["GAIA_PHOT_G_MEAN_MAG"] = np.where(s["rng"].random(N) < 0.8, 0.0, m["g"])
    start = started(tmp_path, s, columns, **{name: unit for name in columns if "FLUX" in name})
    first = "mag_u - mag_g" if unit else "log10(U_FLUX / G_FLUX)"
    extended = "mag_r - mag_r_psfflux" if unit else "log10(R_FLUX / R_PSFFLUX)"
    assert {first, extended} <= set(start.features.values())
    assert '"GAIA_PHOT_G_MEAN_MAG" = [0.0]' in start.text


def test_magnitudes_leave_the_fluxes_of_their_bands_out(tmp_path: Path) -> None:
    s = survey()
    m = s["magnitudes"]
    columns = {f"{b}_FLUX": 10 ** (0.4 * (23.9 - m[b])) for b in m} | {f"{b}_MAG": m[b] for b in m}
    start = started(tmp_path, s, columns)
    assert not any("FLUX" in text for text in start.features.values())
    assert not any(why.startswith("leak") for why in start.left_out.values())
    assert start.features["u_mag_g_mag"] == "u_MAG - g_MAG"


def test_fluxes_below_zero_have_magnitudes_and_their_errors_are_no_features(tmp_path: Path) -> None:
    """The drafted scale is asinh, on which no flux is missing: features said that 2 % were, and held zeros only."""
    s = survey("grz")
    columns: dict[str, Any] = {}
    for b in "grz":
        flux = 10 ** (0.4 * (22.5 - s["magnitudes"][b]))
        flux = np.where(s["late"] & (s["rng"].random(N) < 0.2), -0.01, flux)
        columns[f"FLUX_{b.upper()}"] = flux
        columns[f"IVAR_{b.upper()}"] = s["rng"].uniform(1e3, 1e4, N)  # as no error that its flux gives away
    units = {n: "nanomaggy" if n.startswith("F") else "1/nanomaggy^2" for n in columns}
    start = started(tmp_path, s, columns, **units)
    assert set(start.features) == {"mag_g_mag_r", "mag_r_mag_z", "mag_r"}
    assert start.left_out["IVAR_R"] == "the error of FLUX_R, under [photometry]"
    assert 'inverse_variance = "IVAR_R"' in start.text


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
def test_bands_as_surveys_write_them_are_in_order_of_wavelength(names: list[str], kind: str) -> None:
    assert kinds(names[::-1]) == [names]
    assert {band_and_kind(name)[1] for name in names} == {kind}


def test_redshifts_by_whichever_code_are_distances_and_other_names_are_of_the_object() -> None:
    distances = "DNF_Z lp_zBEST phz_median Z_TONRY ez_z_phot Z_B_MIN photoz_best redshift_ugc"
    for name in distances.split():
        assert about_the_distance(Column(name, pa.float64())), name
    for name in ["FLUX_Z", "z_psf", "mag_auto_z", "smoothness", "SHAPE_R", "bulge_fraction", "size"]:
        column = Column(name, pa.float64())
        others = (about_the_distance, about_the_observation, about_an_error)
        assert not any(about(column) for about in others), name
    for name, middle, is_one in (("g/AB", 18, True), ("M_HI/L_B", 1, False), ("M_B", -20, True)):
        assert is_magnitude(Column(name, pa.float64()), np.full(9, float(middle))) is is_one


def test_magnitudes_that_are_not_called_so_make_colours(tmp_path: Path) -> None:
    """Simulations write absolute magnitudes as `u_nodust`, HyperLEDA total ones as `bt`; fluxes of 5 to 35 are none."""
    s = survey()
    m = s["magnitudes"]
    absolute = started(tmp_path, s, {f"{b}_nodust": m[b] - 39 for b in m}).features
    assert list(absolute.values())[:2] == ["u_nodust - g_nodust", "g_nodust - r_nodust"]
    named = dict(zip(("ut", "bt", "vt", "it"), (m["u"], m["g"], m["r"], m["i"]), strict=True))
    assert list(started(tmp_path, s, named).features.values())[:3] == ["ut - bt", "bt - vt", "vt - it"]
    fluxes = {f"flux_{b}_ext_decam": 10 + 0.5 * m[b] for b in m}
    assert "log10(flux_u_ext_decam / flux_g_ext_decam)" in started(tmp_path, s, fluxes).features.values()
    sizes = {f"{b}_size": 10 ** (1.2 + 0.4 * (m["r"] - 18) + s["rng"].normal(0, 0.02, N)) for b in m}
    features = started(tmp_path, s, sizes | {"g_r": m["g"] - m["r"]}).features
    assert not any(" - " in text for text in features.values())


def test_answers_of_others_and_limits_are_no_features(tmp_path: Path) -> None:
    """Probabilities and fractions of votes sum to one; T types and the ends of intervals are no measurements either."""
    s = survey()
    rng, late = s["rng"], s["late"]
    smooth = np.clip(np.where(late, 0.45, 0.6) + rng.normal(0, 0.2, N), 0, 0.95)
    artifact = rng.uniform(0, 1, N) * (1 - smooth)
    columns = {
        "smooth_or_featured_smooth": 100 * smooth,
        "smooth_or_featured_featured_or_disk": 100 * (1 - smooth - artifact),
        "smooth_or_featured_artifact": 100 * artifact,
        "leda_t": np.where(late, 3.0, 1.0) + rng.normal(0, 2, N),
        "arm_strength": late + rng.normal(0, 0.8, N),
        "star_prob": np.clip(0.4 + 0.2 * late + rng.normal(0, 0.2, N), 0, 1),
        "bulge_fraction": rng.random(N),
    }
    columns["arm_strength_sup"] = columns["arm_strength"] + rng.exponential(1, N)
    columns |= {f"MAG_LIM_{b}": rng.normal(25, 0.2, N) for b in s["magnitudes"]}
    start = started(tmp_path, s, columns | {f"mag_{b}": m for b, m in s["magnitudes"].items()})
    assert start.left_out["star_prob"] == "a score or a probability: the answer of another classifier"
    for name in [name for name in columns if name.startswith("smooth")]:
        assert "fractions that sum to one with" in start.left_out[name]
    assert start.left_out["leda_t"].startswith("a morphological type")
    assert not any("LIM" in text for text in start.features.values())
    assert start.left_out["MAG_LIM_u"] == "about the observation"
    assert start.left_out["arm_strength_sup"] == "a limit of arm_strength, not a measurement"
    assert "arm_strength" in start.features


def test_units_in_names_are_units(tmp_path: Path) -> None:
    s = survey()
    w50 = np.round(np.where(s["late"], 250, 180) + s["rng"].normal(0, 60, N))
    velocity = np.round(s["rng"].normal(5000, 900, N))
    columns = {"W50 [km/s]": w50, "Vhelio (km/s)": velocity, "Dist (Mpc)": w50 / 7.3}
    start = started(tmp_path, s, columns)
    assert list(start.features.values()) == ["`Vhelio (km/s)`", "`W50 [km/s]`"]
    assert start.left_out["Dist (Mpc)"].startswith("in the same order as W50")
    assert start.suspects["Vhelio (km/s)"].startswith("a distance")


def test_few_rows_have_their_logarithms_too(tmp_path: Path) -> None:
    s = survey()
    s = {"id": s["id"][:90], "late": s["late"][:90], "rng": s["rng"]}
    sfr = 10 ** (np.where(s["late"], 0.5, -0.5) + s["rng"].normal(0, 0.5, 90))
    assert list(started(tmp_path, s, {"sfr": sfr}).features.values()) == ["log10(sfr)"]


def test_a_catalogue_whose_numbers_cannot_be_read_begins_with_nothing_else(tmp_path: Path) -> None:
    """A quality code was the only feature of a table with a second line of units."""
    s = survey("gr")
    quality = s["rng"].integers(0, 3, N)
    rows = [
        f"{i},{'S' if late else 'E'},{code},{g},{r}"
        for i, late, code, g, r in zip(s["id"], s["late"], quality, *s["magnitudes"].values(), strict=True)
    ]
    names, units, dashes = "id,type,qual,g,r", ",,,mag,mag", "-,-,-,------,------"
    (tmp_path / "x.csv").write_text("\n".join([names, units, *rows]) + "\n")
    with pytest.raises(TrainingError, match="convert texts to numbers"):
        starting.start_of(tmp_path / "x.csv", "type")
    (tmp_path / "x.csv").write_text("\n".join([names, units, dashes, *rows]) + "\n")  # as VizieR has it
    assert [*starting.start_of(tmp_path / "x.csv", "type").features] == ["g_r", "g"]


def test_apparent_photometry_goes_before_absolute(tmp_path: Path) -> None:
    s = survey()
    m = s["magnitudes"]
    modulus = s["rng"].normal(38, 1, N)
    absolute = {f"absmag_{b}": m[b] - modulus for b in m}
    fluxes = {f"flux_{b}": 10 ** (0.4 * (22.5 - m[b])) for b in m}
    assert {"log10(flux_u / flux_g)", "absmag_r"} <= {
        *started(tmp_path, s, absolute | fluxes).features.values()
    }
    assert "absmag_u - absmag_g" in started(tmp_path, s, absolute).features.values()


@pytest.mark.parametrize(("mark", "text"), [(99.0, "98.."), (-99.0, "..-98"), (9999.0, "9998..")])
def test_marks_from_which_the_extinction_was_taken_are_ranges(tmp_path: Path, mark: float, text: str) -> None:
    """As 99 - A: alike, and in one row each.  What is taken for a magnitude spoils the fit of all others."""
    s = survey()
    m = {f"mag_{b}": x.copy() for b, x in s["magnitudes"].items()}
    extinction = s["rng"].uniform(0.05, 0.9, N)
    m["mag_g"][:40] = mark - extinction[:40]
    start = started(tmp_path, s, m)
    written = tomllib.loads(start.text)["catalog"]["sentinels"]
    assert written == {"mag_g": [text]}
    told = {c.name: c for c in inspect_catalog(catalogs.open(tmp_path / "x.parquet")).columns}
    assert [(f.value, f.count) for f in told["mag_g"].sentinels] == [(text, 40)]
    rows = starting.gathered(start.text, tmp_path / "x.parquet")
    assert np.count_nonzero(rows.missing.any(axis=1)) == 40


def test_one_mark_in_a_band_is_found_where_other_bands_have_many(tmp_path: Path) -> None:
    s = survey()
    m = {f"mag_{b}": x.copy() for b, x in s["magnitudes"].items()}
    m["mag_g"][:40] = m["mag_z"][:30] = m["mag_r"][7] = -9999
    # Alone in the file it may be an odd value: nobody knows.
    odd = s["rng"].normal(0, 1, N)
    odd[3] = -99.0
    start = started(tmp_path, s, m | {"odd": odd})
    written = tomllib.loads(start.text)["catalog"]["sentinels"]
    assert written == {f"mag_{b}": [-9999.0] for b in "grz"}
    assert "-9999.0: 1 row, far from all others, and it marks missing values in other columns" in start.text


def test_codes_and_bounds_of_a_quantity_are_no_marks(tmp_path: Path) -> None:
    """VISTA's stars are -1, transits seen edge-on have an inclination of 90 degrees; -9999 beside them is a mark."""
    s = survey("gr")
    x = s["rng"].normal(0, 0.8, N)
    code = np.where(s["rng"].random(N) < 0.1, -9999, np.where(s["late"], 1, -1)).astype(np.int16)
    made = {"incl": np.minimum(90 - 8 * x**2, 90), "correlation": np.clip(x[::-1], -1, 1)}
    made |= {"latitude": np.clip(60 * np.roll(x, 9), -90, 90)}
    columns = {name: np.round(values, 2) for name, values in made.items()}
    for name, bound in (("incl", 90), ("correlation", -1), ("latitude", 90)):
        assert np.count_nonzero(columns[name] == bound) > 5
    columns |= {f"mag_{b}": magnitude for b, magnitude in s["magnitudes"].items()}
    written = tomllib.loads(started(tmp_path, s, columns | {"JCLASS": code}).text)
    assert written["catalog"]["sentinels"] == {"JCLASS": [-9999.0]}
