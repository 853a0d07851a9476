"""Files with several tables: the one that has the columns is meant, or the one that is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table

from catalogs.errors import CatalogError
from flows.cli.app import run
from tests.flows.verbs import classify, review, train

SPEC = """
name = "made"
[catalog]
paths = ["{path}"]
id = "id"
{table}
[label]
column = "kind"
[features]
x = "x"
"""


def galaxies(n: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    late = rng.random(n) < 0.5
    ids = [f"G{i}" for i in range(n)]
    return Table({"id": ids, "x": rng.normal(2.0 * late - 1), "kind": np.where(late, "late", "early")})


def stars(n: int) -> Table:
    return Table({"id": [f"S{i}" for i in range(n)], "parallax": np.ones(n)})


@pytest.fixture
def as_fits(tmp_path: Path) -> Path:
    hdus = [fits.PrimaryHDU(), *(fits.table_to_hdu(t) for t in (stars(5), galaxies(200, 1), galaxies(40, 2)))]
    for hdu, name in zip(hdus[1:], ("STARS", "DEEP", "WIDE"), strict=True):
        hdu.name = name
    fits.HDUList(hdus[:3]).writeto(tmp_path / "two.fits")
    fits.HDUList(hdus).writeto(tmp_path / "three.fits")
    return tmp_path


def specification(folder: Path, path: str, table: str = "") -> Path:
    (folder / "spec.toml").write_text(SPEC.format(path=path, table=table))
    return folder / "spec.toml"


def test_the_table_that_has_the_columns_is_meant(as_fits: Path) -> None:
    told = train(specification(as_fits, "two.fits"), as_fits / "models")
    classify([as_fits / "two.fits"], model=told.model, out=as_fits / "out", store=as_fits / "models")
    with fits.open(as_fits / "out" / "two.fits") as hdus:
        assert [h.name for h in hdus[1:]] == ["STARS", "DEEP"]
        assert "blr_flags" not in hdus["STARS"].columns.names
        assert np.isfinite(hdus["DEEP"].data["blr_p_early"]).all()
    shutil.rmtree(as_fits / "out" / "_labelled")  # all of them have a label
    chosen = review(as_fits / "out", top=3)
    assert (chosen.n_classified, chosen.top) == (200, 3)


def test_of_two_that_have_them_one_is_named(as_fits: Path) -> None:
    with pytest.raises(CatalogError, match=r"DEEP.*WIDE.*name one, or give its number"):
        train(specification(as_fits, "three.fits"), as_fits / "models")
    told = train(specification(as_fits, "three.fits", 'table = "deep"'), as_fits / "models")
    places = {"out": as_fits / "out", "store": as_fits / "models"}
    like = classify([as_fits / "three.fits"], model=told.model, **{**places, "out": as_fits / "deep"})
    assert like.summary.n_rows == 200  # the table that is called as the labelled one
    with fits.open(as_fits / "three.fits") as hdus:
        hdus["DEEP"].name = "ULTRADEEP"
        hdus.writeto(as_fits / "renamed.fits")
    with pytest.raises(CatalogError, match="name one, or give its number"):
        classify([as_fits / "renamed.fits"], model=told.model, **places)
    named = specification(as_fits, "three.fits", 'table = "deep"')
    named.write_text(named.read_text() + "[target]\ntable = 3\n")
    done = classify([as_fits / "three.fits"], model=told.model, specification=named, **places)
    assert done.summary.n_rows == 40
    with fits.open(as_fits / "out" / "three.fits") as hdus:
        assert ["blr_flags" in h.columns.names for h in hdus[1:]] == [False, False, True]


def test_inspect_and_init_take_the_name(as_fits: Path, says: Any) -> None:
    file = str(as_fits / "three.fits")
    assert json.loads(says(0, "inspect", file, "--table", "WIDE", "--json").out)["n_rows"] == 40
    assert "--table WIDE --label COLUMN" in says(0, "inspect", file, "--table", "WIDE").out
    assert run(["init", file, "--label", "kind"]) != 0
    out = as_fits / "deep.toml"
    assert run(["init", file, "--label", "kind", "--table", "DEEP", "--out", str(out)]) == 0
    assert 'table = "DEEP"' in out.read_text()
    assert train(out, as_fits / "models", dry_run=True).training.n_read == 200


def test_shares_are_estimated_from_the_table_that_is_classified(as_fits: Path) -> None:
    told = train(specification(as_fits, "three.fits", 'table = "deep"'), as_fits / "models")
    galaxies(40, 2).write(as_fits / "wide.fits")
    wide = specification(as_fits, "three.fits", 'table = "deep"')
    wide.write_text(wide.read_text() + "[target]\ntable = 3\n")
    options = {"model": told.model, "store": as_fits / "models", "class_prior": "em"}
    alone = classify([as_fits / "wide.fits"], out=as_fits / "a", **options)
    named = classify([as_fits / "three.fits"], out=as_fits / "b", specification=wide, **options)
    shares = [done.summary.shift.class_priors for done in (alone, named)]
    assert shares[0] == pytest.approx(shares[1])
