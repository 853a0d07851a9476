"""Galaxy Zoo's votes from file to scores, extinction's switches, and fluxes in several units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units
from sklearn.metrics import log_loss

import catalogs
from catalogs.catalog.catalog import ColumnMetadata
from catalogs.errors import CatalogError
from catalogs.sky.photometry import ZERO_POINT, unit_factor
from flows.features.columns import ColumnMapping, flux_unit
from flows.features.reader import conversions, training_reader
from flows.specification.toml_file import parse_specification
from flows.training._gather import gather, with_learned_photometry
from flows.training.steps import evaluate
from tests.flows.conftest import write_parquet as write
from tests.flows.verbs import classify, train

QUESTION = "t01_smooth_or_features"
SMOOTH, FEATURES, STAR = (
    f"{QUESTION}_{answer}" for answer in ("a01_smooth", "a02_features_or_disk", "a03_star_or_artifact")
)


def zoo(n: int = 1200, *, seed: int = 4) -> dict[str, np.ndarray]:
    """Return votes with the names of Galaxy Zoo 2, which scatter three times as much as independent ones."""
    rng = np.random.default_rng(seed)
    colour = rng.normal(size=n)
    p = 1 / (1 + np.exp(-1.5 * colour))
    total = rng.integers(30, 50, n)
    rho = 2 / (total - 1)  # 1 + (total - 1) rho = 3
    smooth = rng.binomial(total, rng.beta(p * (1 / rho - 1) + 1e-9, (1 - p) * (1 / rho - 1) + 1e-9))
    return {
        "dr7objid": np.arange(n) + 587722981736120347,
        "colour": colour,
        f"{QUESTION}_total_count": total,
        f"{SMOOTH}_count": smooth,
        f"{FEATURES}_count": total - smooth,
        f"{SMOOTH}_fraction": smooth / total,
        f"{FEATURES}_fraction": 1 - smooth / total,
    }


VOTES = """
name = "zoo"
[catalog]
paths = ["zoo.parquet"]
id = "dr7objid"
[features]
colour = "colour"
[select]
posterior = "laplace"
[label]
"""
COUNTS = f'votes = {{ smooth = "{SMOOTH}_count", features = "{FEATURES}_count" }}\n'
FRACTIONS = f"""total = "{QUESTION}_total_count"
votes = {{ smooth = "{SMOOTH}_fraction", features = "{FEATURES}_fraction" }}
"""


def test_votes_of_galaxy_zoo_from_file_to_scores(tmp_path: Path) -> None:
    columns = zoo()
    write(tmp_path / "zoo.parquet", columns)
    told = {}
    for name, label in (("counts", COUNTS), ("fractions", FRACTIONS)):
        (tmp_path / f"{name}.toml").write_text(VOTES.replace('"zoo"', f'"{name}"') + label)
        told[name] = train(tmp_path / f"{name}.toml", tmp_path / "models")
    metrics = told["counts"].metrics
    assert metrics.log_loss == pytest.approx(told["fractions"].metrics.log_loss, abs=1e-6)
    assert told["counts"].training.overdispersion == pytest.approx(3, rel=0.15)
    assert metrics.log_loss < metrics.log_loss_baseline
    classify(
        [tmp_path / "zoo.parquet"],
        model=told["counts"].model,
        out=tmp_path / "out",
        store=tmp_path / "models",
    )
    table = pq.read_table(tmp_path / "out" / "zoo.parquet").to_pandas()
    share = table[f"{SMOOTH}_fraction"]
    p = table.blr_p_smooth.astype(float)
    # Held-out losses are against the shares of the votes, as those of all rows by hand are, but for chance.
    loss = -(share * np.log(p) + (1 - share) * np.log(1 - p))
    assert metrics.log_loss == pytest.approx(loss.mean(), abs=0.05)
    assert np.corrcoef(p, share)[0, 1] > 0.8


def test_scores_against_votes_are_those_of_weighted_rows() -> None:
    rng = np.random.default_rng(0)
    p, votes = rng.dirichlet(np.ones(3), 50), rng.integers(1, 9, (50, 3)).astype(float)
    found = evaluate(
        p, p, votes.argmax(axis=1), class_shares=np.full(3, 1 / 3), classes=("a", "b", "c"), votes=votes
    )
    rows, truth = np.repeat(np.arange(50), 3), np.tile(np.arange(3), 50)
    weight = (votes / votes.sum(axis=1, keepdims=True)).ravel()
    assert found.log_loss == pytest.approx(log_loss(truth, p[rows], sample_weight=weight))


HEAD = """
name = "made"
[catalog]
paths = ["survey.parquet"]
id = "id"
[label]
column = "kind"
[select]
posterior = "laplace"
[features]
m = "m"
[errors]
m = "m_err"
[photometry.m]
"""


def survey(n: int = 240, *, seed: int = 6) -> dict[str, np.ndarray]:
    """Return fluxes without dust, and the dust as three columns that say the same."""
    rng = np.random.default_rng(seed)
    late = rng.random(n) < 0.5
    flux = 10 ** rng.normal(1.2 + 0.4 * late, 0.3)
    ebv = rng.uniform(0, 0.5, n)
    return {
        "id": np.array([f"G{i}" for i in range(n)]),
        "kind": np.where(late, "late", "early"),
        "flux": flux,
        "sigma": np.full(n, 0.2),
        "mag": 22.5 - 2.5 * np.log10(flux),
        "mag_err": np.full(n, 0.05),
        "ebv": ebv,
        "a_r": 2.285 * ebv,
        "through": 10 ** (-0.4 * 2.285 * ebv),
    }


def reddened(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    through = columns["through"]
    return columns | {
        "flux": columns["flux"] * through,
        "sigma": columns["sigma"] * through,
        "mag": columns["mag"] - 2.5 * np.log10(through),
    }


DUST = {
    "coefficient": '{ e_bv = "ebv", coefficient = 2.285 }',
    "system": '{ e_bv = "ebv", system = "sdss", band = "r" }',
    "transmission": '{ transmission = "through" }',
    "magnitudes": '{ magnitudes = "a_r" }',
}
BANDS = {
    "asinh": 'flux = "flux"\nerror = "sigma"\nsoftening = 1e-10\n',
    "pogson": 'flux = "flux"\nerror = "sigma"\nscale = "pogson"\n',
    "magnitude": 'magnitude = "mag"\nerror = "mag_err"\n',
}


def evaluated(folder: Path, band: str) -> Any:
    specification = parse_specification(HEAD + band, source="here", base_folder=str(folder))
    catalog = catalogs.open(folder / "survey.parquet")
    found = training_reader(specification).of(catalog).evaluate(next(catalog.batches(catalog.names)))
    assert not found.missing.any()
    return found.X, found.errors


@pytest.mark.parametrize("dust", DUST)
@pytest.mark.parametrize("kind", BANDS)
def test_each_way_to_state_extinction_takes_it_off(tmp_path: Path, kind: str, dust: str) -> None:
    write(tmp_path / "survey.parquet", survey(), flux="nanomaggy")
    clean = evaluated(tmp_path, BANDS[kind])
    already = evaluated(tmp_path, f"{BANDS[kind]}extinction = {DUST[dust]}\ndereddened = true\n")
    write(tmp_path / "survey.parquet", reddened(survey()), flux="nanomaggy")
    freed = evaluated(tmp_path, f"{BANDS[kind]}extinction = {DUST[dust]}\n")
    left = evaluated(tmp_path, BANDS[kind])
    for ours, same, other in zip(clean, already, freed, strict=True):
        assert np.array_equal(ours, same)
        np.testing.assert_allclose(other, ours, rtol=1e-9)
    assert np.abs(left[0] - clean[0]).max() > 0.5


def test_a_trained_model_takes_the_dust_off(tmp_path: Path) -> None:
    """The same galaxies behind dust, and without any, have the same probabilities."""
    write(tmp_path / "survey.parquet", survey(), flux="nanomaggy")
    band = f"{BANDS['pogson']}extinction = {DUST['transmission']}\n"
    write(tmp_path / "survey.parquet", reddened(survey()), flux="nanomaggy")
    (tmp_path / "spec.toml").write_text(HEAD + band)
    told = train(tmp_path / "spec.toml", tmp_path / "models")
    nothing = np.zeros(240)
    clean = survey() | {"ebv": nothing, "a_r": nothing, "through": nothing + 1}
    paths = [tmp_path / "survey.parquet", write(tmp_path / "clean.parquet", clean, flux="nanomaggy")]
    classify(paths, model=told.model, out=tmp_path / "out", store=tmp_path / "models")
    one, two = (pq.read_table(tmp_path / "out" / p.name)["blr_p_late"].to_numpy() for p in paths)
    assert np.isfinite(one).all()
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_one_softening_of_catalogues_in_two_units(tmp_path: Path) -> None:
    """Half of the survey in nJy: the softening and the magnitudes are those of all of it in nanomaggies."""
    columns = survey()
    columns["sigma"] = np.where(np.arange(240) < 120, 0.1, 0.4)
    band = 'flux = "flux"\nerror = "sigma"\n'
    write(tmp_path / "survey.parquet", columns, flux="nanomaggy")
    text = HEAD + band
    whole = with_learned_photometry(
        parse_specification(text, source="here", base_folder=str(tmp_path)),
        [all_of_it := catalogs.open(tmp_path / "survey.parquet")],
    )
    parts = []
    for name, rows, unit in (("one", slice(120), "nanomaggy"), ("two", slice(120, 240), "nJy")):
        part = {key: values[rows] for key, values in columns.items()}
        factor = unit_factor("nanomaggy", unit)
        part |= {"flux": part["flux"] * factor, "sigma": part["sigma"] * factor}
        parts.append(catalogs.open(write(tmp_path / f"{name}.parquet", part, flux=unit, sigma=unit)))
    mixed = with_learned_photometry(
        parse_specification(text, source="here", base_folder=str(tmp_path)), parts
    )
    softening = whole.photometry["m"].softening
    assert softening == pytest.approx(0.25e-9)  # between the halves
    assert mixed.photometry["m"].softening == pytest.approx(softening, rel=1e-9)
    np.testing.assert_allclose(gather(mixed, parts).rows.X, gather(whole, [all_of_it]).rows.X, rtol=1e-9)


@pytest.mark.parametrize(
    ("unit", "other"), [("nJy", "Jy"), ("Jy", "nJy"), ("nanomaggy", "nJy"), ("Jy", "nanomaggy")]
)
def test_units_of_flux_by_their_zero_points(unit: str, other: str) -> None:
    assert unit_factor(unit, other) * unit_factor(other, unit) == pytest.approx(1)
    flux = 3.0
    mag = ZERO_POINT[unit] - 2.5 * np.log10(flux)
    assert ZERO_POINT[other] - 2.5 * np.log10(flux * unit_factor(unit, other)) == pytest.approx(mag)


def test_zero_points_are_those_of_astropy() -> None:
    for unit, zero in ZERO_POINT.items():
        one = 1 * (units.nmgy if unit == "nanomaggy" else units.Unit(unit))
        by_astropy = one.to(units.ABmag, units.zero_point_flux(1 * units.AB))
        assert zero == pytest.approx(by_astropy.value, abs=1e-9), unit


def test_mega_is_not_milli() -> None:
    assert flux_unit("MJy") is None
    there = catalogs.Catalog("made", Path("made"), (catalogs.Column("flux", pa.float64(), unit="MJy"),), ())
    for trained in ("mJy", "Jy"):
        column = ColumnMetadata(unit=trained, ucd=None, description=None, datatype="double")
        found = conversions({"flux": column}, there, mapping=ColumnMapping(), stated={})
        assert found["flux"] == pytest.approx(units.Unit("MJy").to(trained))


def test_a_plain_flux_is_converted_and_a_magnitude_is_not(tmp_path: Path) -> None:
    text = HEAD.split("[features]", maxsplit=1)[0] + '[features]\nf = "log10(flux)"\n'
    columns = survey()
    write(tmp_path / "survey.parquet", columns, flux="nanomaggy")
    (tmp_path / "spec.toml").write_text(text)
    told = train(tmp_path / "spec.toml", tmp_path / "models")
    for unit in ("nJy", "Jy"):
        there = columns | {"flux": columns["flux"] * unit_factor("nanomaggy", unit)}
        write(tmp_path / f"{unit}.parquet", there, flux=unit)
    paths = [tmp_path / f"{name}.parquet" for name in ("survey", "nJy", "Jy")]
    classify(paths, model=told.model, out=tmp_path / "out", store=tmp_path / "models")
    same, *others = (pq.read_table(tmp_path / "out" / p.name)["blr_p_late"].to_numpy() for p in paths)
    for p in others:
        np.testing.assert_allclose(p, same, atol=1e-6)
    write(tmp_path / "mag.parquet", columns, flux="mag")
    with pytest.raises(CatalogError, match="got column 'flux' in 'mag', expected 'nanomaggy'"):
        classify([tmp_path / "mag.parquet"], model=told.model, out=tmp_path / "o", store=tmp_path / "models")
