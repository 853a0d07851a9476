"""The quality of a catalogue with known defects, in batches of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.arrays import DistinctCounter
from catalogs.profile.columns import profile
from catalogs.profile.quality import quality


@pytest.fixture
def defective(tmp_path: Path) -> Any:
    rng = np.random.default_rng(2)
    n = 1000
    ra, dec = rng.uniform(0, 360, n), rng.uniform(-60, 60, n)
    ra[500:520], dec[500:520] = ra[:20], dec[:20]
    dec[700] = 95.0
    x = rng.normal(size=n)
    x[:10], x[10:60] = 1e6, np.nan
    names = [f"G{i % 950}" for i in range(n)]
    columns = {"id": names, "ra": ra, "dec": dec, "x": x, "again": x, "one": np.ones(n)}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=170)
    return catalogs.open(tmp_path / "t.parquet")


def test_quality(defective: Any) -> None:
    found, seen = quality(defective, identifier="id", places=("ra", "dec", "deg"))
    assert found.n_rows == seen.n_rows == 1000
    assert found.missing == {"x": 0.05, "again": 0.05}
    assert found.constant == ("one",)
    assert found.duplicate_columns == (("x", "again"),)
    assert found.repeated_identifiers == 50
    assert found.repeated_positions == 40  # twenty pairs
    assert found.positions_out_of_range == found.positions_without == 1
    assert found.outliers["x"] == pytest.approx(10 / 950)


def test_distinct_values_in_bounded_memory() -> None:
    counter = DistinctCounter(capacity=1000)
    for start in range(0, 100_000, 7000):
        counter.add(np.arange(start, min(start + 7000, 100_000)))
    assert counter.repeated == 0
    assert counter.estimate == pytest.approx(100_000, rel=0.1)
    counter.add(np.arange(50_000))  # as far apart as can be
    assert counter.repeated == pytest.approx(50_000, rel=0.15)


def test_a_sample_of_chosen_rows(defective: Any) -> None:
    """Those of the chosen rows whose keys are the smallest: all, where they are few."""
    x = np.concatenate([b.column("x").to_numpy() for b in defective.batches(["x"])])
    few = profile(defective, sample_rows=100, choice=lambda values: values["x"] > 1.5)
    assert len(few.sample["x"]) == 100
    assert np.array_equal(few.chosen["x"], x[x > 1.5])
    assert np.array_equal(few.sample["id"], profile(defective, sample_rows=100).sample["id"])
    every = profile(defective, sample_rows=100, choice=lambda values: np.ones(len(values["x"]), dtype=bool))
    assert np.array_equal(every.chosen["id"], every.sample["id"])
    none = profile(defective, sample_rows=100, choice=lambda values: np.zeros(len(values["x"]), dtype=bool))
    assert len(none.chosen["x"]) == 0
    keys = np.random.default_rng(0).random(1000)
    half = profile(defective, sample_rows=100, choice=lambda values: values["x"] > 0)
    (chosen,) = np.nonzero(x > 0)
    nearest = np.sort(chosen[np.argsort(keys[chosen])[:100]])
    assert np.array_equal(half.chosen["x"], x[nearest])


@pytest.mark.parametrize("rows", [64, 100_000])
def test_rows_that_repeat_another_one_are_counted(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty of 740 rows were there twice, and nothing said so; rows that differ in one value or column are others."""
    rng = np.random.default_rng(3)
    x = np.where(rng.random(700) < 0.2, np.nan, rng.normal(size=700))
    frame = {"name": [f"NGC {i}" for i in range(700)], "x": x, "y": rng.normal(size=700).round(1)}
    frame |= {"z": frame["y"][::-1].copy(), "yes": rng.random(700) < 0.5}
    table = pa.table(frame)
    monkeypatch.setattr("catalogs.profile.columns.BATCH_ROWS", rows)
    pq.write_table(pa.concat_tables([table, table.slice(0, 40)]), tmp_path / "t.parquet")
    assert profile(catalogs.open(tmp_path / "t.parquet")).repeated_rows == 40
    pq.write_table(table, tmp_path / "u.parquet")
    assert profile(catalogs.open(tmp_path / "u.parquet")).repeated_rows == 0
