"""Measurement errors from specification to probabilities: only what exceeds the training rows' own counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from blr.missing.patterns import excess, training_noise
from flows.features.reader import training_reader
from flows.models.store import Store
from flows.specification.toml_file import parse_specification
from tests.flows.conftest import write_parquet
from tests.flows.verbs import classify, train

SPECIFICATION = """
name = "noisy"

[catalog]
paths = ["train.parquet"]
id = "name"

[label]
column = "type"
classes = { early = ["early"], late = ["late"] }

[features]
colour = "colour"

[errors]
colour = "sigma"
"""
HERE, THERE = 0.5, 2.0
"""Errors of the training rows, and of a noisier survey."""


def write(path: Path, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """Write galaxies whose true colours, with that error, are the same in all surveys; return which are late."""
    n = 1200
    true = rng.normal(0, 1, n)
    late = rng.random(n) < 1 / (1 + np.exp(-4 * true))
    columns = {
        "name": [f"G{i:05d}" for i in range(n)],
        "type": np.where(late, "late", "early"),
        "colour": true + rng.normal(0, sigma, n),
        "sigma": np.full(n, sigma),
    }
    pq.write_table(pa.table(columns), path)
    return late


@pytest.fixture(scope="module")
def surveys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """Return a folder with a trained model and two more surveys, and which of their galaxies are late."""
    folder, rng = tmp_path_factory.mktemp("noise"), np.random.default_rng(0)
    late = {
        n: write(folder / f"{n}.parquet", s, rng)
        for n, s in (("train", HERE), ("same", HERE), ("far", THERE))
    }
    (folder / "spec.toml").write_text(SPECIFICATION)
    (folder / "without.toml").write_text(SPECIFICATION.partition("[errors]")[0])
    train(folder / "spec.toml", folder / "models")
    train(folder / "without.toml", folder / "without")
    return folder, late


def scored(folder: Path, name: str, store: str, out: Path) -> tuple[np.ndarray, np.ndarray]:
    classify([folder / f"{name}.parquet"], model="noisy", store=folder / store, out=out / store)
    table = pq.read_table(out / store / f"{name}.parquet")
    return table["blr_p_late"].to_numpy().astype(float), table["blr_flags"].to_numpy()


def test_rows_as_noisy_as_the_training_get_the_same_as_without_errors(
    surveys: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    folder, _ = surveys
    assert Store(folder / "models").load("noisy").training.noise == {"colour": pytest.approx(HERE)}
    p, flags = scored(folder, "same", "models", tmp_path)
    np.testing.assert_array_equal(p, scored(folder, "same", "without", tmp_path)[0])
    assert not (flags & 128).any()


def test_noisier_rows_get_less_certain_and_better_probabilities(
    surveys: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    folder, late = surveys
    p, flags = scored(folder, "far", "models", tmp_path)
    plain, _ = scored(folder, "far", "without", tmp_path)
    assert np.abs(p - 0.5).mean() < np.abs(plain - 0.5).mean() - 0.05
    assert (flags & 128).any()

    def loss(q: np.ndarray) -> float:
        return float(-np.mean(np.log(np.where(late["far"], q, 1 - q))))

    assert loss(p) < loss(plain) - 0.05


def test_noise_is_of_the_rows_that_have_the_feature() -> None:
    errors, missing = np.array([[3.0, 1.0], [4.0, 0.0]]), np.array([[False, False], [False, True]])
    found = training_noise(errors, missing, ("a", "b"))
    assert found == pytest.approx({"a": np.sqrt(12.5), "b": 1.0})
    assert training_noise(errors, missing | True, ("a", "b")) == {}


def test_excess_is_of_variances_and_never_negative() -> None:
    found = excess(np.array([[5.0, 1.0], [3.0, 0.0]]), {"a": 4.0}, ("a", "b"))
    np.testing.assert_allclose(found, [[3, 1], [0, 0]])


STATED = {
    "flux": '[photometry.q]\nflux = "flux"\ninverse_variance = "ivar"\nsoftening = 1e-10\n',
    "magnitude": '[photometry.q]\nmagnitude = "mag"\ninverse_variance = "ivar"\n',
    "error": '[photometry.q]\nmagnitude = "mag"\nerror = "sigma"\n',
    "plain": "",
}


@pytest.mark.parametrize("errors", ["[errors]\nq = {}\n", ""])
@pytest.mark.parametrize("kind", STATED)
def test_a_value_without_any_weight_is_missing(tmp_path: Path, kind: str, errors: str) -> None:
    """Surveys write an inverse variance of 0, or an infinite error, beside values that they did not measure."""
    error = '"q_err"' if STATED[kind] else '"sigma"'
    head, feature = SPECIFICATION.partition("[features]")[0], "q" if STATED[kind] else "mag"
    text = f'{head}{STATED[kind]}[features]\nq = "{feature}"\n{errors.format(error)}'
    ivar, sigma = np.array([0.0, 4.0, np.nan]), np.array([np.inf, 0.5, np.nan])
    columns = {
        "name": list("abc"),
        "type": ["late"] * 3,
        "flux": np.full(3, 20.0),
        "mag": np.full(3, 19.0),
        "ivar": ivar,
        "sigma": sigma,
    }
    catalog = catalogs.open(write_parquet(tmp_path / "train.parquet", columns, flux="nanomaggy"))
    reader = training_reader(parse_specification(text, source="x")).of(catalog)
    found = reader.evaluate(next(catalog.batches(reader.read)))
    told = bool(STATED[kind] or errors)
    assert found.missing[:, 0].tolist() == [told, False, False], (
        "of an error that is not there nothing is said"
    )
    if errors:
        assert found.errors is not None
        assert (found.errors[:, 0] > 0).tolist() == [False, True, False]
