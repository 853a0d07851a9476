"""The specification's `output`: full columns, and slim copies."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import ColumnNotFoundError, OutputExistsError
from catalogs.files import StorageError
from flows.classification import _plan as room
from flows.cli.app import run as cli
from flows.errors import SpecificationError
from flows.specification.toml_file import load_specification
from tests.flows.verbs import classify


def run(trained: Path, folder: Path, output: str, *names: str, **options: Any) -> dict:
    """Classify the survey as a specification with that [output] says."""
    spec = folder / "other.toml"
    spec.write_text(f"{(trained / 'spec.toml').read_text()}\n[output]\n{output}\n")
    shutil.copy(trained / "survey.parquet", folder)
    return classify(
        [trained / name for name in names],
        model="morphology",
        store=trained / "models",
        out=folder / "out",
        specification=spec,
        **options,
    )


def test_full_columns_hold_what_they_say(trained: Path, tmp_path: Path) -> None:
    run(trained, tmp_path, 'columns = "full"', "survey.parquet", "survey.fits")
    table = pq.read_table(tmp_path / "out/survey.parquet").to_pandas()
    names = [c.name for c in standard_columns(["early", "late"], columns="full")]
    assert list(table.columns[-len(names) :]) == names
    known = table.blr_p_late.notna()
    p = np.stack([table.blr_p_early[known], table.blr_p_late[known]], axis=1).astype(float)
    np.testing.assert_allclose(table.blr_entropy[known], -(p * np.log(p)).sum(axis=1), atol=1e-5)
    for c in ("early", "late"):
        assert table[f"blr_low_{c}"][known].le(table[f"blr_high_{c}"][known]).all()
        assert table[f"blr_plugin_{c}"][known].between(0, 1).all()
    mean, sd = table.blr_logit_mean[known].astype(float), table.blr_logit_std[known].astype(float)
    low = 1 / (1 + np.exp(-(mean - 1.959964 * sd)))
    np.testing.assert_allclose(table.blr_low_late[known], low, atol=1e-5)
    for name in ("blr_low_late", "blr_entropy"):
        np.testing.assert_array_equal(fits.getdata(tmp_path / "out/survey.fits")[name], table[name])


def test_slim_copies_keep_the_identity_only(trained: Path, tmp_path: Path) -> None:
    run(trained, tmp_path, 'mode = "slim"', "survey.parquet", "survey.fits")
    table = pq.read_table(tmp_path / "out/survey.parquet")
    names = ["name", *(c.name for c in standard_columns(["early", "late"]))]
    assert table.column_names == names
    assert table["name"].equals(pq.read_table(trained / "survey.parquet")["name"])
    data = fits.getdata(tmp_path / "out/survey.fits")
    assert list(data.names) == names
    np.testing.assert_array_equal(data["blr_p_late"], table["blr_p_late"].to_numpy())


def test_slim_copies_need_something_to_join_by(trained: Path, tmp_path: Path) -> None:
    text = (trained / "spec.toml").read_text().replace('id = "name"\n', "")
    (tmp_path / "spec.toml").write_text(f'{text}\n[output]\nmode = "slim"\n[split]\nby = "type"\n')
    with pytest.raises(SpecificationError, match=re.escape("output.mode: got 'slim' without catalog.id")):
        load_specification(tmp_path / "spec.toml")


def test_slim_copies_of_a_catalogue_without_the_id(trained: Path, tmp_path: Path) -> None:
    bare = pq.read_table(trained / "survey.parquet").rename_columns({"name": "object"})
    pq.write_table(bare, tmp_path / "bare.parquet")
    remedy = "no column 'name', expected by catalog.id of slim copies; .* columns = { 'name' = '...' } under .target"
    with pytest.raises(ColumnNotFoundError, match=remedy):
        run(trained, tmp_path, 'mode = "slim"', str(tmp_path / "bare.parquet"))
    told = 'mode = "slim"\n[target]\ncolumns = { name = "object" }'
    run(trained, tmp_path, told, str(tmp_path / "bare.parquet"))
    assert pq.read_table(tmp_path / "out/bare.parquet").column_names[0] == "object"


def test_slim_copies_are_named_where_there_is_no_room_and_then_have_it(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that has room for a slim copy, and for no whole one."""
    new = sum(c.width or c.datatype.bit_width // 8 for c in standard_columns(["early", "late"]))
    source = trained / "survey.fits"
    slim, whole = 400 * (24 + new), source.stat().st_size + 400 * new
    assert slim < whole
    free = SimpleNamespace(free=(slim + whole) // 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(
        StorageError, match=r'needs about .*; or ask for slim copies: mode = "slim" under \[output\]'
    ):
        run(trained, tmp_path, "", source.name, dry_run=True)
    assert run(trained, tmp_path, 'mode = "slim"', source.name, dry_run=True).status == "planned"
    free.free = slim // 2
    with pytest.raises(StorageError, match=r"on another disk$"):
        run(trained, tmp_path, 'mode = "slim"', source.name, dry_run=True)


def test_copies_in_another_format(trained: Path, tmp_path: Path) -> None:
    """A folder of FITS and its like, damage too: the same rows as Parquet, once, and named so from the start."""
    there = tmp_path / "release"
    there.mkdir()
    for name in ("a.fits", "b.fits", "c.fit"):
        shutil.copy(trained / "survey.fits", there / name)
    (there / "b.fits").write_bytes((there / "a.fits").read_bytes()[:3000])
    spec = tmp_path / "other.toml"
    spec.write_text(f'{(trained / "spec.toml").read_text()}\n[output]\nformat = "parquet"\n')
    given = {"model": "morphology", "store": trained / "models", "specification": spec}
    planned = classify([there], out=tmp_path / "out", dry_run=True, **given)
    told = classify([there], out=tmp_path / "out", **given)
    assert [*planned.files] == ["a.parquet", "c.parquet"]
    assert [*told.quarantined] == ["b.parquet"]
    assert {p.name for p in (tmp_path / "out").glob("[!.]*")} == {
        "_census",
        "_files",
        "_labelled",
        "_report",
        "a.parquet",
        "c.parquet",
        "manifest.json",
        "report.html",
        "summary.json",
    }
    classify([trained / "survey.parquet"], out=tmp_path / "same", **(given | {"specification": None}))
    expected = pq.read_table(tmp_path / "same" / "survey.parquet")
    for name in ("a.parquet", "c.parquet"):
        found = pq.read_table(tmp_path / "out" / name)
        for column in (c for c in expected.column_names if c.startswith("blr_")):
            assert found[column].cast(expected[column].type).equals(expected[column]) or (
                np.array_equal(found[column].to_numpy(), expected[column].to_numpy(), equal_nan=True)
            )
    assert classify([there], out=tmp_path / "out", **given).status == "nothing to do"
    (tmp_path / "out" / "c.parquet").unlink()
    shutil.copy(trained / "survey.fits", there / "b.fits")
    again = classify([there], out=tmp_path / "out", **given)
    assert (again.status, again.quarantined) == ("done", {})
    assert {name for name, file in again.files.items() if file["why"]} == {"b.parquet", "c.parquet"}
    with pytest.raises(OutputExistsError, match="of another specification"):
        classify([there / "a.fits"], out=tmp_path / "out", **given, output_format="same")


def test_what_another_format_has_no_place_for_is_said(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pq.read_table(trained / "survey.parquet")
    notes = pa.array([None, "été", "plain"] * table.num_rows)[: table.num_rows]
    pq.write_table(table.append_column("note", notes), tmp_path / "survey.parquet")
    command = ["classify", str(tmp_path / "survey.parquet"), "--model", "morphology"]
    command += ["--store", str(trained / "models"), "--out", str(tmp_path / "out"), "--direct"]
    assert cli([*command, "--format", "fits"]) == 0
    assert "survey.fits: 'note': nulls become empty text" in capsys.readouterr().err
    assert "note" in fits.getdata(tmp_path / "out" / "survey.fits").names
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    left = summary["files"]["survey.fits"]["left_behind"]
    assert [said.split(": ")[0] for said in left] == ["'note'", "'note'"]


def test_slim_copies_are_advised_where_whole_ones_are_large(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(trained, tmp_path, "", "survey.fits", dry_run=True).advice == ""
    monkeypatch.setattr(room, "LARGE", 1000)
    monkeypatch.setattr(room, "SMALL_SHARE", 0.9)
    told = run(trained, tmp_path, "", "survey.fits", dry_run=True).advice
    assert re.search(r'copies take about .* GB; .* mode = "slim" under \[output\] writes .* of that', told)
    assert run(trained, tmp_path, 'mode = "slim"', "survey.fits", dry_run=True).advice == ""
