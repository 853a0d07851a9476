"""Positions in other columns than a right ascension and a declination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.profile.other_positions import find_other_position, parts_of_positions
from flows.cli.app import run
from flows.draft.inspection import inspect_catalog
from flows.draft.specification import starting_specification

CDS = ("RAh", "RAm", "RAs", "DE-", "DEd", "DEm", "DEs")


def opened(path: Path, columns: dict[str, Any]) -> catalogs.Catalog:
    pq.write_table(pa.table(columns), path / "x.parquet")
    return catalogs.open(path / "x.parquet")


@pytest.mark.parametrize(
    "names",
    [
        CDS,
        ("ra_h", "ra_m", "ra_s", "dec_sign", "dec_d", "dec_m", "dec_s"),
        ("RAh", "RAm", "DE-", "DEd", "DEm"),
        ("rahour", "ramin", "rasec", "decdeg", "decmin", "decsec"),
        ("GLON", "GLAT"),
        ("l", "b"),
        ("gal_lon", "gal_lat"),
    ],
)
def test_all_columns_of_a_position_are_its_parts(names: tuple[str, ...]) -> None:
    assert parts_of_positions([*names, "RAm_mag", "flux"]) == {*names}


@pytest.mark.parametrize(
    "names", [("ram", "flux"), ("dem", "des"), ("l", "r"), ("DEd", "DEm"), ("RAs", "RAm")]
)
def test_names_alone_or_halves_are_none(names: tuple[str, ...]) -> None:
    assert not parts_of_positions(names)


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({name: [1, 2] for name in CDS}, "parts of sexagesimal angles"),
        ({"GLON": [10.0, 200.0], "GLAT": [-3.0, 5.0]}, "galactic coordinates"),
        ({"pos": pa.array([[10.0, 3.0], [200.0, 4.0]], pa.list_(pa.float64(), 2))}, "a vector"),
        ({"coord": pa.array([[1.0, 0.0, 0.0]] * 2, pa.list_(pa.float64(), 3))}, "a vector"),
    ],
)
def test_the_kind_is_told_with_how_two_columns_come_of_it(
    tmp_path: Path, columns: dict[str, Any], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = opened(tmp_path, columns | {"flux": [1.0, 2.0]})
    found = find_other_position(catalog)
    assert found is not None
    assert (found.kind, found.columns) == (kind, tuple(columns))
    told = inspect_catalog(catalog).position
    assert (told.ra, told.columns) == (None, (*columns,))
    assert run(["inspect", str(tmp_path / "x.parquet")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Position: {', '.join(columns)} {kind}: to split or match by position" in shown


def test_parts_and_vectors_of_positions_are_no_features(tmp_path: Path) -> None:
    """`RAm`, the minutes of right ascension, was one."""
    rng = np.random.default_rng(0)
    n = 300
    columns: dict[str, Any] = {name: rng.integers(0, 24, n) for name in CDS if name != "DE-"}
    columns |= {"DE-": rng.choice(["+", "-"], n), "l": rng.uniform(0, 360, n), "b": rng.uniform(-90, 90, n)}
    columns["pos"] = pa.array(rng.normal(size=(n, 3)).tolist(), pa.list_(pa.float64(), 3))
    kind = np.repeat(["a", "b"], n // 2)
    catalog = opened(tmp_path, columns | {"x": rng.normal(size=n), "kind": kind})
    start = starting_specification(catalog, "kind", folder=tmp_path)
    assert list(start.features.values()) == ["x"]
    assert "# The position is in RAh, RAm, RAs, DE-, DEd, DEm, DEs" in start.text


def test_magnitudes_called_l_and_b_are_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"b": rng.normal(15, 1, 200), "l": rng.normal(9, 1, 200), "kind": ["a", "b"] * 100}
    catalog = opened(tmp_path, columns)
    assert len(starting_specification(catalog, "kind", folder=tmp_path).features) == 2
    assert inspect_catalog(catalog).position is None
