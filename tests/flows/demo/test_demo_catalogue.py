"""The demo's catalogue says what OpenNGC says, in both formats, and the same bytes each time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from astropy.io.votable.ucd import check_ucd
from astropy.table import Table
from astropy.units import Unit

from catalogs.catalog.catalog import Column
from flows.demo.steps import ATTRIBUTION, COLUMNS, DemoDataError, read_openngc, write_catalogues

pyongc = pytest.importorskip(
    "pyongc", reason="the galaxies of the demonstration come from pyongc: pip install 'galaxyblr[demo]'"
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_catalogues(tmp_path_factory.mktemp("catalogues"))


@pytest.fixture(scope="module")
def database() -> pd.DataFrame:
    connection = sqlite3.connect(f"file:{pyongc.DBPATH}?mode=ro", uri=True)
    try:
        return pd.read_sql_query("SELECT * FROM objects WHERE type = 'G' ORDER BY id", connection)
    finally:
        connection.close()


def test_fits_holds_all_galaxies_with_checksums(written: tuple[Path, Path], database: pd.DataFrame) -> None:
    with fits.open(written[0], checksum=True) as hdus:  # a wrong checksum warns, and warnings are errors
        data = hdus["OPENNGC"].data
        assert len(data) == 10_521
        np.testing.assert_array_equal(data["ra"], np.degrees(database["ra"]))
        np.testing.assert_array_equal(data["vmag"], database["vmag"])
        assert list(data["hubble"]) == list(database["hubble"])
        assert list(data["name"]) == list(database["name"])


def test_absent_values_are_absent_not_zero(written: tuple[Path, Path], database: pd.DataFrame) -> None:
    with fits.open(written[0]) as hdus:
        data, header = hdus[1].data, hdus[1].header
        number = next(i for i in range(1, 29) if header[f"TTYPE{i}"] == "radvel")
        assert np.sum(data["radvel"] == header[f"TNULL{number}"]) == database["radvel"].isna().sum()
        assert np.sum(np.isnan(data["vmag"])) == 7191
        assert np.sum(data["hubble"] == "") == 344
    frame = pd.read_parquet(written[1])
    assert frame["vmag"].isna().sum() == 7191
    assert (frame["hubble"] == "").sum() == 344
    assert frame["radvel"].isna().sum() == database["radvel"].isna().sum()


def test_formats_hold_the_same_numbers(written: tuple[Path, Path]) -> None:
    frame = pd.read_parquet(written[1])
    with fits.open(written[0]) as hdus:
        for name in ("ra", "dec", "majax", "minax", "bmag", "jmag", "sbrightn", "redshift"):
            np.testing.assert_array_equal(frame[name], hdus[1].data[name])


def test_units_and_ucds_reach_every_reader(written: tuple[Path, Path]) -> None:
    with fits.open(written[0]) as hdus:
        header = hdus[1].header
        for i, column in enumerate(COLUMNS, start=1):
            assert header[f"TTYPE{i}"] == column.name
            assert header[f"TUCD{i}"] == column.ucd
            assert header[f"TCOMM{i}"] == column.description
            assert Unit(header.get(f"TUNIT{i}", "")) == Unit(column.unit or "")
    plain = Table.read(written[1], format="parquet")
    votable = Table.read(written[1], format="parquet.votable")
    arrow = pq.read_schema(written[1])
    for column in COLUMNS:
        assert (plain[column.name].unit or "") == Unit(column.unit or "")
        assert (votable[column.name].unit or "") == Unit(column.unit or "")
        assert plain[column.name].meta["ucd"] == column.ucd
        assert arrow.field(column.name).metadata[b"ucd"].decode() == column.ucd


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: c.name)
def test_ucd_is_in_the_controlled_vocabulary(column: Column) -> None:
    assert check_ucd(column.ucd, check_controlled_vocabulary=True)


def test_attribution_goes_with_both(written: tuple[Path, Path]) -> None:
    for number in (0, 1):
        history = " ".join(fits.getheader(written[0], number)["HISTORY"])
        assert ATTRIBUTION in history
    metadata = pq.read_schema(written[1]).metadata
    assert metadata[b"attribution"].decode() == ATTRIBUTION
    assert metadata[b"licence"] == b"CC-BY-SA-4.0"


def test_database_of_something_else(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"not a database, though it has that name" * 30)
    with pytest.raises(DemoDataError, match=r"other\.db is not a database of OpenNGC.*reinstall"):
        read_openngc(other)


def test_database_without_galaxies(tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    with sqlite3.connect(empty) as connection:
        connection.execute(f"CREATE TABLE objects (id, {', '.join(c.name for c in COLUMNS)})")
    connection.close()
    with pytest.raises(DemoDataError, match="holds no galaxies"):
        read_openngc(empty)


def test_package_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(DemoDataError, match=r"pip install 'galaxyblr\[demo\]'"):
        read_openngc()
