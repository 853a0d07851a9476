"""Positions of any unit through split, labels and review lists."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import astropy.units as u
import numpy as np
import pytest
from astropy.coordinates import SkyCoord
from astropy.table import Table

import catalogs
from flows.errors import SpecificationError
from flows.specification.toml_file import parse_specification
from flows.training._gather import gather
from tests.flows.conftest import SKY, write_parquet
from tests.flows.verbs import classify, review, train

TEXT = SKY.format(name="places", feature="x")


def survey(n: int = 240) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    late = rng.random(n) < 0.5
    return {
        "id": np.array([f"G{i}" for i in range(n)]),
        "ra": rng.uniform(0, 360, n),
        "dec": rng.uniform(-60, 60, n),
        "x": rng.normal(1.5 * late, 1.0),
        "kind": np.where(late, "late", "early"),
    }


def in_unit(columns: dict[str, np.ndarray], unit: str) -> dict[str, np.ndarray]:
    sky = SkyCoord(columns["ra"], columns["dec"], unit="deg")
    if unit == "sexagesimal":
        return columns | {
            "ra": np.array(sky.ra.to_string("hour", sep=":", precision=5)),
            "dec": np.array(sky.dec.to_string("deg", sep=":", precision=4, alwayssign=True)),
        }
    if unit == "hours":
        return columns | {"ra": columns["ra"] / 15}
    return columns | {"ra": sky.ra.rad, "dec": sky.dec.rad} if unit == "rad" else columns


def write(path: Path, columns: dict[str, np.ndarray], unit: str | tuple[str, str] | None) -> None:
    said = (unit, unit) if isinstance(unit, str) else unit or ()
    write_parquet(path, columns, **dict(zip(("ra", "dec"), said, strict=False)))


def gathered(folder: Path, join: str = "", more: str = "") -> Any:
    text = TEXT.replace('dec = "dec"\n', f'dec = "dec"\n{more}') + join + '[split]\nby = "healpix"\n'
    specification = parse_specification(text, source="here", base_folder=str(folder))
    return gather(specification, [catalogs.open(folder / "survey.parquet")])


@pytest.mark.parametrize("unit", ["rad", "sexagesimal", "hours"])
def test_a_split_by_pixels_is_the_same_in_every_unit(tmp_path: Path, unit: str) -> None:
    columns = survey()
    write(tmp_path / "survey.parquet", columns, "deg")
    expected = gathered(tmp_path).rows.held_out
    assert 0 < expected.sum() < 240
    said = {"rad": "rad", "sexagesimal": None, "hours": ("h", "deg")}
    write(tmp_path / "survey.parquet", in_unit(columns, unit), said[unit])
    assert np.array_equal(gathered(tmp_path).rows.held_out, expected)
    write(tmp_path / "survey.parquet", in_unit(columns, unit), None if unit == "sexagesimal" else "furlong")
    if unit != "sexagesimal":
        with pytest.raises(SpecificationError, match=r"unit 'furlong', expected degrees.* position_unit = "):
            gathered(tmp_path)
    assert np.array_equal(gathered(tmp_path, more=f'position_unit = "{unit}"\n').rows.held_out, expected)


@pytest.mark.parametrize("unit", ["deg", "rad", "sexagesimal"])
def test_labels_by_position_whose_conflicts_cross_every_edge(tmp_path: Path, unit: str) -> None:
    """Two labels within the radius that differ are none, wherever they lie: at 0h, at half cells, near the poles."""
    columns = survey()
    columns["ra"][:3], columns["dec"][:3] = [0.00001, 120.5 / 3600, 77.0], [0.0, 20.5 / 3600, 89.9999]
    kinds = columns["kind"].copy()
    sky = SkyCoord(columns["ra"][:3], columns["dec"][:3], unit="deg")
    beside = sky.directional_offset_by([270, 45, 90] * u.deg, 0.6 * u.arcsec)
    others = np.where(kinds[:3] == "late", "early", "late")
    table = {
        "ra": np.concatenate([columns["ra"], beside.ra.deg]),
        "dec": np.concatenate([columns["dec"], beside.dec.deg]),
        "kind": np.concatenate([kinds, others]),
    }
    write(tmp_path / "labels.parquet", in_unit(table, unit), "rad" if unit == "rad" else None)
    write(tmp_path / "survey.parquet", columns, "deg")
    joined = 'table = { path = "labels.parquet", ra = "ra", dec = "dec", radius = 1.0 }\n'
    found = gathered(tmp_path, joined)
    assert found.sample.labels.conflicts == 6
    assert all(set(texts) == {"early", "late"} for texts in found.sample.labels.conflicting.values())
    assert len(found.rows.target) == 237


def check_places(table: Table, n: int) -> None:
    """Check that a list has n objects of the survey, in degrees."""
    rows, columns = [int(name.removeprefix("G")) for name in table["id"]], survey()
    assert len(rows) == n
    for name in ("ra", "dec"):
        np.testing.assert_allclose(table[name], columns[name][rows], atol=1e-6)


def test_review_lists_point_at_the_same_places(tmp_path: Path) -> None:
    columns = survey()
    write(tmp_path / "survey.parquet", columns, "deg")
    (tmp_path / "spec.toml").write_text(TEXT)
    told = train(tmp_path / "spec.toml", tmp_path / "models")
    found = {}
    for unit in ("deg", "rad", "sexagesimal", "furlong"):
        write(tmp_path / "t.parquet", in_unit(columns, unit), None if unit == "sexagesimal" else unit)
        out = tmp_path / unit
        classify([tmp_path / "t.parquet"], model=told.model, out=out, store=tmp_path / "models")
        shutil.rmtree(out / "_labelled")  # all of them have a label
        found[unit] = review(out, top=12)
        table = Table.read(out / "review.vot")
        page = (out / "review.html").read_text()
        if unit == "furlong":
            assert "legacysurvey" not in page
            assert np.ma.getmaskarray(table["ra"]).all()
            continue
        check_places(table, 12)
        assert "legacysurvey" in page
    (labelled,) = found["deg"].remarks
    assert "the list may contain objects that have a label" in labelled
    (remark,) = (r for r in found["furlong"].remarks if r != labelled)
    assert "column 'ra': got a position in the unit 'furlong', expected degrees" in remark


def test_review_lists_go_by_the_specification(tmp_path: Path) -> None:
    """Columns of no known name, in the unit stated there, unless the classified file states another."""
    columns = survey()
    ours = TEXT.replace('"ra"', '"one"').replace('"dec"', '"two"\nposition_unit = "rad"')
    (tmp_path / "spec.toml").write_text(ours)

    def write_as(name: str, unit: str, said: str | None) -> Path:
        made = in_unit(columns, unit)
        table = {"one": made["ra"], "two": made["dec"], **{k: made[k] for k in ("id", "x", "kind")}}
        return write_parquet(tmp_path / f"{name}.parquet", table, one=said, two=said)

    write_as("survey", "rad", None)
    told = train(tmp_path / "spec.toml", tmp_path / "models")
    targets = {"plain": ("rad", None), "odd": ("rad", "furlong"), "other": ("deg", "deg")}
    paths = [write_as(name, *units) for name, units in targets.items()]
    paths.append(write_as("text", "sexagesimal", None))
    for path in paths:
        out = tmp_path / f"out-{path.stem}"
        classify([path], model=told.model, out=out, store=tmp_path / "models")
        shutil.rmtree(out / "_labelled")
        (remark,) = review(out, top=5).remarks
        assert "the list may contain objects that have a label" in remark
        check_places(Table.read(out / "review.vot"), 5)
