"""`blr init` takes yes and no for a feature, and offers what it leaves out and tells the class."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.draft.inspection import StartedSpecification
from tests.flows import starting

N = 400
RNG = np.random.default_rng(5)
KIND = np.where(RNG.random(N) < 0.5, "spiral", "elliptical")
DUST = RNG.random(N) < np.where(KIND == "spiral", 0.6, 0.1)


def started(path: Path, columns: dict[str, Any]) -> StartedSpecification:
    table = {"name": [f"NGC {i}" for i in range(N)], "x": RNG.normal(size=N), "kind": KIND}
    return starting.started(path, table | columns)


@pytest.mark.parametrize("values", [DUST, DUST.astype(int), np.where(DUST, 1, 2)])
def test_yes_and_no_is_a_feature(tmp_path: Path, values: np.ndarray) -> None:
    """`has_dust` was left out as 'a flag, not a measurement': 0.61 nats where 0.50 were to be had."""
    start = started(tmp_path, {"has_dust": values})
    assert start.features["has_dust"] == "has_dust"
    assert spread(start.text, tmp_path, "has_dust") > 0.4


def spread(text: str, folder: Path, feature: str) -> float:
    rows = starting.gathered(text, folder / "x.parquet")
    return float(rows.X[:, [*tomllib.loads(text)["features"]].index(feature)].std())


def test_what_is_called_a_selection_is_left_out_and_told_of_where_it_tells(tmp_path: Path) -> None:
    start = started(tmp_path, {"is_primary": RNG.random(N) < 0.5, "dust_flag": DUST})
    assert start.left_out["is_primary"].startswith("yes or no")
    assert start.left_out["dust_flag"].startswith("yes or no")
    (told,) = [line for line in start.summary if "tells" in line]
    assert told.startswith("Left out, but tells ")
    assert told.endswith("of the class: dust_flag (flags and codes)")


def test_a_description_may_say_that_it_is_a_flag_and_rows_that_are_there_twice_are_told(
    tmp_path: Path,
) -> None:
    field = pa.field("noisy", pa.bool_(), metadata={"description": "Quality flag of the fit"})
    columns = {"x": RNG.normal(size=N), "noisy": RNG.random(N) < 0.3, "kind": KIND}
    schema = pa.schema([("x", pa.float64()), field, ("kind", pa.string())])
    table = pa.table(columns, schema=schema)
    pq.write_table(pa.concat_tables([table, table.slice(0, 25)]), tmp_path / "x.parquet")
    start = starting.start_of(tmp_path / "x.parquet")
    assert "noisy" in start.left_out
    told = "25 of 425 rows repeat another row in every column: remove them, or they count twice"
    assert told in start.summary
    assert f"\n# {told}\n" in start.text
