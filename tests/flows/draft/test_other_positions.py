"""Positions in other columns than a right ascension and a declination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.profile.quality import find_other_position, parts_of_positions
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
    assert (found[1].partition(":")[0], found[0]) == (kind, tuple(columns))
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


def field(n: int = 500) -> tuple[np.random.Generator, np.ndarray, dict[str, Any]]:
    """Return positions, a measurement and classes."""
    rng = np.random.default_rng(6)
    late = rng.random(n) < 0.5
    columns = {
        "ra": rng.uniform(280, 301, n),
        "dec": rng.uniform(36, 52, n),
        "size": late + rng.normal(size=n),
        "kind": np.where(late, "A", "B"),
    }
    return rng, late, columns


@pytest.mark.parametrize("sexagesimal", [False, True])
def test_a_column_that_follows_a_coordinate_is_a_place_whatever_it_is_called(
    tmp_path: Path, *, sexagesimal: bool
) -> None:
    """As Kepler's flux-weighted centroids: right ascension in hours, declination in degrees, both with an error."""
    rng, _, columns = field()
    columns["koi_fwm_sra"] = columns["ra"] / 15 + rng.normal(0, 1e-4, 500)
    columns["mean_width"] = columns["dec"] + rng.normal(0, 1e-3, 500)  # a name decides nothing
    columns["koi_fwm_srao"] = rng.normal(0, 1, 500)  # an offset is a measurement
    if sexagesimal:
        columns["ra"] = [f"{int(h)}:{int(h * 60 % 60):02d}:{h * 3600 % 60:05.2f}" for h in columns["ra"] / 15]
        columns["dec"] = [f"+{int(d)}:{int(d * 60 % 60):02d}:{d * 3600 % 60:04.1f}" for d in columns["dec"]]
    start = starting_specification(opened(tmp_path, columns), "kind", folder=tmp_path)
    assert start.left_out["koi_fwm_sra"] == "a place or a direction on the sky: it orders the rows as ra does"
    assert start.left_out["mean_width"] == "a place or a direction on the sky: it orders the rows as dec does"
    assert {"size", "koi_fwm_srao"} <= set(start.features)


def test_without_other_coordinates_two_columns_are_a_place_by_names_and_values(tmp_path: Path) -> None:
    _, late, columns = field()
    columns["cen_sra"], columns["cen_sdec"] = columns.pop("ra") / 15, columns.pop("dec")
    columns["off_sra"], columns["off_sdec"] = late + columns["size"], late - columns["size"]  # around zero
    columns["extra"] = columns["size"] ** 2  # no declination beside it
    start = starting_specification(opened(tmp_path, columns), "kind", folder=tmp_path)
    assert start.left_out["cen_sra"] == "a place or a direction on the sky, together with cen_sdec"
    assert start.left_out["cen_sdec"] == "a place or a direction on the sky, together with cen_sra"
    assert not {"off_sra", "off_sdec", "extra", "size"} & set(start.left_out)
