"""`blr init` leaves nothing useful out: features of all columns but for reasons of physics or bookkeeping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from catalogs.catalog.catalog import Column
from catalogs.errors import brief
from catalogs.expressions.expression import parse
from catalogs.profile.quality import about_a_colour, about_a_magnitude
from flows.cli.app import run
from flows.draft._columns import quick_loss
from flows.draft._exclusions import error_of, is_dust, is_flag, is_of_the_observation, is_score, is_type
from flows.errors import TrainingError
from flows.labels.reader import LabelReader, check_classes
from flows.specification.catalog import Label
from tests.flows.starting import started

N = 600
RNG = np.random.default_rng(12)
FLOAT = pa.float64()


def pulsars(n: int) -> dict[str, Any]:
    """Return pulsar candidates as HTRU2 has them: profiles and curves of dispersion measure against signal to noise."""
    rng = np.random.default_rng(2)
    real = rng.random(n) < 0.2
    return {
        "Mean_Integrated": np.where(real, 56, 116) + rng.normal(0, 20, n),
        "SD": np.where(real, 38, 47) + rng.normal(0, 6, n),
        "EK": np.where(real, 3.1, 0.2) + rng.normal(0, 0.6, n),
        "Skewness": np.where(real, 15, 0.4) + np.abs(rng.normal(0, 3, n)),
        "Mean_DMSNR_Curve": np.exp(np.where(real, 3.2, 1.2) + rng.normal(0, 1, n)),
        "SD_DM_SNR": np.where(real, 56, 23) + rng.normal(0, 18, n),
        "EK_DM_SNR": np.where(real, 2.7, 8.9) + rng.normal(0, 4, n),
        "Skewness_DM_SNR": np.where(real, 17, 110) + rng.normal(0, 80, n),
        "class": real.astype(int),
    }


@pytest.mark.parametrize("n", [100, 1000])
def test_strong_columns_are_suspects_and_kept(tmp_path: Path, n: int) -> None:
    """Of these eight one was kept: three were called leaks, and four 'about the observation'."""
    columns = pulsars(n)
    start = started(tmp_path, columns, "class")
    assert not start.left_out
    assert len(start.features) == 8
    assert {"EK", "Skewness"} & set(start.suspects)
    first = [*start.features.values()][: len(start.suspects)]
    assert all(name in " ".join(first) for name in start.suspects)
    assert all(
        "log loss of a quick linear fit: 0." in told and " without it" in told
        for told in start.suspects.values()
    )


def test_features_beyond_what_a_training_carries_are_left_out(tmp_path: Path) -> None:
    kind = np.array([f"class {k % 8}" for k in range(N)])
    columns = {f"x{i}": RNG.normal(size=N) for i in range(104)} | {"y": RNG.normal(size=N) + np.arange(N) % 8}
    start = started(tmp_path, columns | {"kind": kind})
    assert len(start.features) == 100
    assert "y" in start.features
    assert "Left out: 5 of 105 columns (beyond the limit 5)" in start.text


def test_gamma_ray_sources_keep_their_spectra_and_lose_error_ellipses(tmp_path: Path) -> None:
    flat = RNG.random(N) < 0.4
    index = np.where(flat, 2.45, 2.03) + RNG.normal(0, 0.2, N)
    left_out = {
        "Conf_95_SemiMajor": 10 ** RNG.normal(-1, 0.2, N),
        "Conf_95_SemiMinor": 10 ** RNG.normal(-1.1, 0.2, N),
        "Unc_PL_Index": np.abs(RNG.normal(0.1, 0.03, N)),
        "ASSOC_PROB_BAY": RNG.uniform(0.8, 1, N),
        "Flags": RNG.choice([0, 2, 512], N),
        "ROI_num": RNG.integers(1, 1700, N),
        "GLON": RNG.uniform(0, 360, N),
        "GLAT": RNG.uniform(-90, 90, N),
    }
    kept = {
        "PL_Index": index,
        "LP_beta": np.abs(RNG.normal(0.1, 0.1, N)),
        "Signif_Avg": np.exp(RNG.normal(2, 0.5, N)),
        "Variability_Index": np.exp(np.where(flat, 4.5, 3) + RNG.normal(0, 1, N)),
    }
    start = started(tmp_path, left_out | kept | {"CLASS": np.where(flat, "fsrq", "bll")}, "CLASS")
    assert set(start.left_out) == {*left_out}
    assert {n for text in start.features.values() for n in parse(text).names} == {*kept}


LOADERS = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


@pytest.mark.parametrize("rows", [100, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", LOADERS)
def test_features_are_no_worse_than_all_numeric_columns(tmp_path: Path, name: str, rows: int) -> None:
    data = LOADERS[name](as_frame=True)
    chosen = np.random.default_rng(1).permutation(len(data.target))[:rows]
    frame = data.data.iloc[chosen].rename(columns=lambda column: column.replace(" ", "_"))
    columns = {column: frame[column].to_numpy() for column in frame}
    labels = np.array([f"class {k}" for k in data.target.iloc[chosen]])
    start = started(tmp_path, columns | {"kind": labels})
    features = [np.asarray(parse(text).evaluate(columns), dtype=float) for text in start.features.values()]
    ours = quick_loss(features, labels.astype(object))
    theirs = quick_loss([x.astype(float) for x in columns.values() if np.ptp(x)], labels.astype(object))
    assert ours <= theirs + 0.02


def test_what_is_left_out_is_printed_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = np.array(["star"] * 90 + ["galaxy"] * 107 + ["odd"] + ["star?"] * 2)
    columns = {"id": np.arange(200), "ra": RNG.uniform(0, 360, 200), "dec": RNG.uniform(-9, 9, 200)}
    columns |= {"x": RNG.normal(size=200), "flag": RNG.integers(0, 2, 200), "kind": kind}
    text = started(tmp_path, columns).text.splitlines()
    kinds = "places on the sky 2, names of objects 1, flags and codes 1"
    expected = [
        "Left out: 1 label with 1 of 200 labelled rows ('odd' 1)",
        "Left out: 1 label of doubt with 2 of 200 labelled rows ('star?' 2)",
        f"Left out: 4 of 5 columns ({kinds}); each with its reason under [features]",
    ]
    assert text[:3] == [f"# {line}" for line in expected]
    out = tmp_path / "spec.toml"
    assert run(["init", str(tmp_path / "x.parquet"), "--label", "kind", "--out", str(out)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(" ".join(expected))


MAGNITUDE = RNG.normal(18, 1, N)
ROWS = {"mag_r": MAGNITUDE, "depth": np.exp(RNG.normal(7, 1, N))}


@pytest.mark.parametrize(
    ("name", "values", "is_one"),
    [
        ("psfdepth_g", RNG.normal(24, 0.2, N), True),
        ("depth", np.exp(RNG.normal(7, 1, N)), False),  # of a transit
        ("mjd", RNG.uniform(51_000, 59_000, N), True),
        ("epoch", RNG.normal(0, 1, N), False),
        ("seeing", RNG.normal(1.2, 0.1, N), True),
        ("limit", RNG.normal(-3, 1, N), False),
        ("r_snr", 10 ** (-0.4 * (MAGNITUDE - 25)), True),
        ("Mean_DM_SNR", RNG.normal(9, 1, N), False),
        ("chi2", np.exp(RNG.normal(0, 1, N)), False),
        ("nObs", RNG.integers(80, 400, N).astype(float), True),
    ],
)
def test_names_of_the_observation_are_believed_where_values_agree(
    name: str, values: np.ndarray, *, is_one: bool
) -> None:
    columns = {n: Column(n, FLOAT) for n in (name, *ROWS)}
    assert is_of_the_observation(columns[name], values, ROWS | {name: values}, columns) is is_one


@pytest.mark.parametrize(
    ("name", "beside", "of"),
    [
        ("e_Vmag", "Vmag", "Vmag"),
        ("koi_period_err1", "koi_period", "koi_period"),
        ("FLUX_IVAR_G", "FLUX_G", "FLUX_G"),
        ("modelMagErr_u", "modelMag_u", "modelMag_u"),
        ("Unc_Flux1000", "Flux1000", "Flux1000"),
        ("w1sigmpro", "w1mpro", "w1mpro"),
        ("err_ellipse_r0", "x", ""),
        ("r95", "x", ""),
        ("flux_std", "flux", None),  # of a light curve: how variable it is
        ("radius_error", "mean_radius", None),
        ("odd_even_sig", "depth", None),
        ("sersic", "e", None),
    ],
)
def test_errors_are_of_something_in_the_table(name: str, beside: str, of: str | None) -> None:
    values = np.abs(RNG.normal(0.1, 0.03, N))
    columns = {n: Column(n, FLOAT) for n in (name, beside)}
    assert error_of(columns[name], values, {name: values, beside: RNG.normal(size=N)}, columns) == of


def is_answer(name: str, values: np.ndarray) -> bool:
    return is_score(name, values, {"quasar", "galaxy"})


@pytest.mark.parametrize(
    ("says", "name", "values", "is_one"),
    [
        (is_answer, "koi_score", RNG.random(N), True),
        (is_answer, "ASSOC_PROB_BAY", RNG.random(N), True),
        (is_answer, "CLASS_STAR", RNG.random(N), True),  # whatever the classes are called
        (is_answer, "SPREAD_MODEL", RNG.normal(0, 0.01, N), False),
        (is_answer, "class_radius", RNG.random(N), False),
        (is_answer, "p_quasar", RNG.random(N), True),
        (is_answer, "score", RNG.normal(0, 3, N), False),
        (is_answer, "bulge_fraction", RNG.random(N), False),
        (is_answer, "prob", np.exp(RNG.normal(6, 1, N)), False),
        (is_flag, "zWarning", RNG.choice([0, 4, 16], N), True),
        (is_flag, "has_jet", RNG.integers(0, 2, N), False),
        (is_flag, "has_spectrum", RNG.integers(0, 2, N), True),
        (is_flag, "in_training_set", RNG.integers(0, 2, N), True),
        (is_flag, "isSaturated", RNG.integers(0, 2, N), True),
        (is_flag, "quality", RNG.choice([1, 2, 3], N), True),
        (is_flag, "quality_factor", RNG.normal(9, 1, N), False),
        (is_flag, "counts", RNG.poisson(30, N), False),
        (is_flag, "pixel_3_4", RNG.integers(0, 17, N), False),
        (is_type, "T", np.round(RNG.normal(1, 3, N)), True),
        (is_type, "t", RNG.normal(6000, 500, N), False),  # a temperature
    ],
)
def test_scores_flags_and_types_are_known_by_name_and_values(
    says: Callable[..., bool], name: str, values: np.ndarray, *, is_one: bool
) -> None:
    assert says(name, values.astype(float)) is is_one


@pytest.mark.parametrize("name", ["mwebv", "MW_EBV", "ebv", "E_B_V", "gal_ebv", "EBV_SFD98"])
def test_dust_of_the_galaxy(name: str) -> None:
    assert is_dust(Column(name, FLOAT), RNG.gamma(2, 0.03, N))


@pytest.mark.parametrize(
    ("name", "ucd", "is_one"),
    [
        ("bp_rp", None, True),
        ("U\u2013B (mag)", None, True),
        ("colour_1", "phot.color;em.opt.B", True),
        ("phot_bp_mean_mag", None, False),
        ("g_AB", None, False),
        ("k_m_k20fe", None, False),
    ],
)
def test_a_colour_is_no_magnitude(name: str, ucd: str | None, *, is_one: bool) -> None:
    """`phot_rp_mean_mag - bp_rp` was made, and `U-B (mag)` with a dash said to be an apparent brightness."""
    column = Column(name, FLOAT, unit="mag", ucd=ucd)
    assert about_a_colour(column) is is_one
    assert about_a_magnitude(column) is not is_one


def test_counts_of_few_rows_angles_and_names_as_the_label_begins_are_features(tmp_path: Path) -> None:
    columns = {"counts": RNG.permutation(5000)[:100], "TIC": RNG.integers(10**6, 10**9, 100)}
    columns |= {"teff": 4000 + RNG.permutation(3000)[:100], "x": RNG.normal(size=100)}
    columns |= {f"my_survey_{band}": RNG.normal(size=100) for band in "gr"}
    columns |= {
        "alpha": RNG.normal(-0.7, 0.3, 100),
        "incl": RNG.uniform(0, 90, 100),
        "theta_E": 1 + RNG.random(100),
    }
    columns |= {"quality_flag": RNG.poisson(4, 100)}
    columns |= {"duration": RNG.uniform(1, 9, 100), "my_survey_class": np.repeat(["a", "b"], 50)}
    start = started(tmp_path, columns, "my_survey_class", incl="deg", duration="h")
    assert set(start.left_out) == {"TIC", "quality_flag"}
    assert start.left_out["quality_flag"] == "whole numbers: a flag or a code, by its name not a measurement"


LONG = "a spectrum as text " * 500


def test_what_to_do_is_readable_beside_long_texts(tmp_path: Path) -> None:
    """Cells of twenty thousand letters stood before the advice."""
    columns = {f"spectrum_{i}": [f"{LONG}{i}{row}" for row in range(40)] for i in range(9)}
    columns |= {"kind": ["a", "b"] * 20, "note": [LONG + str(row) for row in range(40)]}
    with pytest.raises(TrainingError, match="name the table with the measurements, and this one") as failure:
        started(tmp_path, columns)
    assert len(str(failure.value)) < 900
    with pytest.raises(TrainingError, match="choose the column of the class") as failure:
        started(tmp_path, columns, "note")
    assert len(str(failure.value)) < 1200
    label = Label(column="note", classes={"a": [LONG], "b": ["x"]})
    with pytest.raises(TrainingError, match="got no training row") as failure:
        check_classes(label, LabelReader.of_lists(label.classes), Counter({LONG: 4, "y" + LONG: 3}), [0, 4])
    assert len(str(failure.value)) < 600
    assert len(brief(LONG)) == 60


@pytest.mark.filterwarnings("error")
def test_errors_with_marks_and_those_where_nothing_else_is_known_are_errors(tmp_path: Path) -> None:
    """One error in a hundred was -1 in SDSS's tables of lines; the spread of a hundred times 0.1 is their rounding."""
    error, rare = RNG.lognormal(1.2, 0.4, N), np.where(RNG.random(N) < 0.2, 0.1, np.nan)
    error[RNG.permutation(N)[:6]] = -1
    columns = {"SII_FLUX": RNG.lognormal(3, 1, N), "SII_FLUX_ERR": error, "e_spix": rare}
    columns |= {"spix": np.where(np.isnan(rare), np.nan, RNG.normal(size=N)), "mag_r": MAGNITUDE}
    columns |= {"ra": RNG.uniform(0, 360, N), "dec": RNG.uniform(-9, 9, N)}
    start = started(tmp_path, columns | {"kind": np.repeat(["a", "b"], N // 2)})
    assert "SII_FLUX" not in start.left_out
    assert start.left_out["SII_FLUX_ERR"] == "an error of SII_FLUX, not a measurement"
    assert '"SII_FLUX_ERR" = [-1.0]  # -1.0: 6 rows, repeated, and no error is negative' in start.text
    assert start.left_out["e_spix"] == "the same in every row"
