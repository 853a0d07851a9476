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
