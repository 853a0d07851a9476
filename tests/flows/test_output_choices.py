"""The specification's `output`: full columns, and slim copies."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from catalogs import atomic
from catalogs.annotations import standard_columns
from catalogs.atomic import StorageError
from flows import room
from flows.classification import classify
from flows.config_file import load_specification
from flows.errors import SpecificationError


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


def test_slim_copies_are_named_where_there_is_no_room_and_then_have_it(trained, tmp_path, monkeypatch):
    """A disk that has room for a slim copy, and for no whole one."""
    new = sum(c.width or c.datatype.bit_width // 8 for c in standard_columns(["early", "late"]))
    source = trained / "survey.fits"
    slim, whole = 400 * (24 + new), source.stat().st_size + 400 * new
    assert slim < whole
    free = SimpleNamespace(free=(slim + whole) // 2)
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda _: free)
    with pytest.raises(
        StorageError, match=r'needs about .*; or ask for slim copies, mode = "slim" under \[output\]'
    ):
        run(trained, tmp_path, "", source.name, dry_run=True)
    assert run(trained, tmp_path, 'mode = "slim"', source.name, dry_run=True)["status"] == "planned"
    free.free = slim // 2
    with pytest.raises(StorageError, match=r"on another disk$"):
        run(trained, tmp_path, 'mode = "slim"', source.name, dry_run=True)


def test_slim_copies_are_advised_where_whole_ones_are_large(trained, tmp_path, monkeypatch):
    assert run(trained, tmp_path, "", "survey.fits", dry_run=True)["advice"] == ""
    monkeypatch.setattr(room, "LARGE", 1000)
    monkeypatch.setattr(room, "SMALL_SHARE", 0.9)
    told = run(trained, tmp_path, "", "survey.fits", dry_run=True)["advice"]
    assert re.search(r'copies take about .* GB; .* mode = "slim" under \[output\]: .* of that', told)
    assert run(trained, tmp_path, 'mode = "slim"', "survey.fits", dry_run=True)["advice"] == ""
