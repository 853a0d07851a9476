"""Opening catalogues: by content before name, folders, patterns, tables in memory, and what is no catalogue."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units as u
from astropy.table import MaskedColumn, QTable, Table

import catalogs
from catalogs.catalog.catalog import Compute
from catalogs.errors import CatalogError, ColumnNotFoundError, FormatError
from tests.catalogs.parquet_samples import COLUMNS, computing

TABLE = {"row": np.arange(4), "mag": [20.5, 21.5, np.nan, 19.0], "type": ["G", "S", "G", ""]}

WRITERS = {
    "parquet": lambda table, path: Table(table).write(path, format="parquet"),
    "fits": lambda table, path: Table(table).write(path, format="fits"),
    "votable": lambda table, path: Table(table).write(path, format="votable"),
    "ecsv": lambda table, path: Table(table).write(path, format="ascii.ecsv"),
    "csv": lambda table, path: pd.DataFrame(table).to_csv(path, index=False),
}
SUFFIXES = {"parquet": ".parquet", "fits": ".fits", "votable": ".vot", "ecsv": ".ecsv", "csv": ".csv"}


def written(kind: str, path: Path, table: Mapping[str, Any] = TABLE) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        WRITERS[kind](table, path)
    return path


def rows_of(catalog: catalogs.Catalog) -> dict[str, list[object]]:
    table = pa.Table.from_batches(catalog.batches(["row", "mag", "type"], 3)).to_pydict()
    return {k: [None if v is None or v != v or v == "" else v for v in values] for k, values in table.items()}  # noqa: PLR0124


EXPECTED = {"row": [0, 1, 2, 3], "mag": [20.5, 21.5, None, 19.0], "type": ["G", "S", "G", None]}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("suffix", ["right", ".dat", ""])
def test_content_tells_the_format(tmp_path: Path, kind: str, suffix: str) -> None:
    """Whatever the name, the same table is read from every format."""
    path = written(kind, tmp_path / ("a" + (SUFFIXES[kind] if suffix == "right" else suffix)))
    catalog = catalogs.open(path)
    assert catalog.format == kind
    assert rows_of(catalog) == EXPECTED
    assert rows_of(catalogs.open(str(path))) == EXPECTED


@pytest.mark.parametrize("kind", WRITERS)
def test_a_table_without_rows_gains_the_columns(tmp_path: Path, kind: str) -> None:
    path = written(kind, tmp_path / ("a" + SUFFIXES[kind]), {"row": np.zeros(0, int), "x": np.zeros(0)})
    catalog = catalogs.open(path)
    assert (catalog.n_rows, list(catalog.batches(["row"]))) == (0, [])
    (out,) = catalogs.annotate(catalog, tmp_path / "out", COLUMNS, computing(1), read=["row"])
    again = catalogs.open(out)
    assert (again.n_rows, again.names) == (0, ("row", "x", *(c.name for c in COLUMNS)))


@pytest.mark.parametrize("kind", WRITERS)
def test_an_unknown_column_names_the_nearest(tmp_path: Path, kind: str) -> None:
    (partition,) = catalogs.open(written(kind, tmp_path / "a")).partitions
    with pytest.raises(ColumnNotFoundError, match="'magg'; did you mean 'mag'"):
        next(partition.batches(["magg"]))


@pytest.mark.parametrize("kind", WRITERS)
def test_copies_do_not_depend_on_threads_and_a_failure_leaves_none(tmp_path: Path, kind: str) -> None:
    cat = catalogs.open(written(kind, tmp_path / "a", {"row": np.arange(500), "x": np.arange(500) / 7}))

    def annotated(compute: Compute, out: str, **options: int) -> Path:
        return catalogs.annotate(cat, tmp_path / out, COLUMNS, compute, read=["row"], **options)[0]

    def fail_later(batch: pa.RecordBatch) -> Any:
        if batch.column("row")[0].as_py() == 74:
            raise RuntimeError("no convergence")
        return computing(500)(batch)

    one, other = (annotated(computing(500), str(n), rows=rows, threads=n) for rows, n in ((1000, 1), (37, 3)))
    assert one.read_bytes() == other.read_bytes()
    with pytest.raises(RuntimeError, match="no convergence"):
        annotated(fail_later, "failed", rows=37)
    assert list((tmp_path / "failed").iterdir()) == []


@pytest.mark.parametrize("kind", WRITERS)
def test_folders_and_patterns(tmp_path: Path, kind: str) -> None:
    """Several files of a format are one catalogue; copies keep the layout below its root."""
    for name in ("a/1", "b/2"):
        (tmp_path / name).parent.mkdir()
        written(kind, tmp_path / (name + SUFFIXES[kind]))
    keys = [name + SUFFIXES[kind] for name in ("a/1", "b/2")]
    for path in (tmp_path, tmp_path / "*" / f"*{SUFFIXES[kind]}"):
        catalog = catalogs.open(path)
        assert (catalog.path, [p.key for p in catalog.partitions]) == (tmp_path, keys)
        assert catalog.n_rows == 8
        (tmp_path / "a" / "back.old").unlink(missing_ok=True)
        (tmp_path / "a" / "back.old").symlink_to(tmp_path)  # adds no row to the folder
    out = tmp_path / "out"
    files = catalogs.annotate(catalog, out, COLUMNS, computing(4), read=["row"])
    assert [f.relative_to(out).as_posix() for f in files] == keys


def test_a_file_of_another_name_only_and_what_is_of_no_known_format(tmp_path: Path) -> None:
    """A single column of text is taken for a table by its suffix alone; other programs can convert other formats."""
    (tmp_path / "a.csv").write_text("name\nNGC 1\n")
    assert catalogs.open(tmp_path / "a.csv").names == ("name",)
    (tmp_path / "a.pdf").write_text("name\nNGC 1\n")
    with pytest.raises(FormatError, match=r"is unknown; expected one of .*parquet: \.parquet"):
        catalogs.open(tmp_path / "a.pdf")
    (tmp_path / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n\0")
    with pytest.raises(FormatError, match=r"Table\.read\('x\.h5', format=\.\.\.\)\.write"):
        catalogs.open(tmp_path / "x.h5")


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "galaxies.fits").touch()
    with pytest.raises(CatalogError, match=r"did you mean 'galaxies\.fits'"):
        catalogs.open(tmp_path / "galaxis.fits")
    with pytest.raises(CatalogError, match="no file matches"):
        catalogs.open(tmp_path / "x*.fits")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match=r"holds no catalogue.*/empty is empty: is its disk mounted\?"):
        catalogs.open(tmp_path / "empty")
    (tmp_path / "empty" / "notes.md").touch()
    with pytest.raises(FormatError, match=r"holds no catalogue.*known are: notes\.md"):
        catalogs.open(tmp_path / "empty")


def test_folders_of_several_formats_or_columns_are_refused(tmp_path: Path) -> None:
    written("csv", tmp_path / "1.csv")
    written("fits", tmp_path / "2.fits")
    with pytest.raises(FormatError, match="csv and fits"):
        catalogs.open(tmp_path)
    Table({"other": [1]}).write(tmp_path / "1.csv", format="ascii.csv", overwrite=True)
    with pytest.raises(FormatError, match="only one of them has"):
        catalogs.open(tmp_path / "[12].*")


def test_options_reach_the_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("row,v\n0,-\n1,2\n")
    assert str(catalogs.open(tmp_path / "a.csv", missing=["-"]).column("v").datatype) == "int64"
    with pytest.raises(FormatError, match="leave it out"):
        catalogs.open(tmp_path / "a.csv", 1)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({"a": [1, "x", None]}),
        pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]),
        [1, 2],
    ],
)
def test_tables_in_memory_that_are_no_catalogue(table: Any) -> None:
    with pytest.raises(
        FormatError,
        match=r"the table has several columns called|got a .*; expected|got list; expected the path",
    ):
        catalogs.open(table)


def test_what_a_table_in_memory_loses_is_said(tmp_path: Path) -> None:
    """Complex numbers, alone, in vectors and in lists, and bytes that are no text; of the columns that are kept."""
    lists = np.empty(3, dtype=object)
    lists[:] = [np.array([1 + 2j]), np.array([], dtype=complex), np.array([3j, 4])]
    table = QTable(
        {
            "row": [0, 1, 2],
            "z": MaskedColumn([1 + 2j, 3, 4j], mask=[0, 0, 1]),
            "vector": np.full((3, 2), 1 - 1j, dtype=np.complex64),
            "quantity": np.array([1j, 2, 3]) * u.Jy,
            "list": lists,
            "latin": np.array([b"\xe9", b"a", b"b"]),
            "utf8": np.array(["é".encode(), b"a", b"b"]),
            "real": np.arange(6.0).reshape(3, 2),
            "texts": np.array(["a", None, "c"], dtype=object),
        }
    )
    new = {n: v[:3] for n, v in computing(3)(pa.record_batch({"row": [0, 1, 2]})).items()}
    pairs = "each complex number becomes a pair of its real and imaginary parts"
    told = {name: f"'{name}': {pairs}" for name in ("z", "vector", "quantity", "list")}
    told["latin"] = r"'latin': bytes that are not UTF-8 become the replacement character, U+FFFD"
    for form, folder in ((None, "parquet"), ("fits", "fits")):
        how: dict[str, Any] = {"read": ["row"], "form": form}
        written = catalogs.annotate(catalogs.open(table), tmp_path / folder, COLUMNS, lambda _: new, **how)
        assert [w for w in written.warnings if w in told.values()] == [*told.values()]
        if form is None:
            assert written.warnings == (*told.values(),), "nothing is said of the others"
            found = pq.read_table(written[0])
    assert found["z"].to_pylist() == [[1, 2], [3, 0], [None, None]]
    assert found["vector"].to_pylist() == [[1, -1, 1, -1]] * 3
    assert catalogs.open(table).column("vector").shape == (2, 2)
    assert found["quantity"].to_pylist() == [[0, 1], [2, 0], [3, 0]]
    assert found["list"].to_pylist() == [[[1, 2]], [], [[0, 3], [4, 0]]]
    assert (found["latin"][0].as_py(), found["utf8"][0].as_py()) == ("\ufffd", "é")
    how = {"read": ["row"], "mode": "slim", "keep": ("row", "z")}
    slim = catalogs.annotate(catalogs.open(table), tmp_path / "slim", COLUMNS, lambda _: new, **how)
    assert slim.warnings == (told["z"],)


@pytest.mark.parametrize(
    ("form", "suffix"), [("parquet", ".parquet"), ("fits", ".fits"), ("ascii.ecsv", ".ecsv")]
)
@pytest.mark.parametrize(("unit", "refused"), [("mmag", True), ("mag", False), (None, False)])
def test_files_in_different_units_are_not_one_catalogue(
    tmp_path: Path, form: str, suffix: str, unit: str | None, *, refused: bool
) -> None:
    """A number of the second file would be taken for one in the first file's unit."""
    for name, stated in (("a", "mag"), ("b", unit)):
        table = Table(TABLE)
        table["mag"].unit = stated
        table.write(tmp_path / f"{name}{suffix}", format=form)
    if not refused:
        assert catalogs.open(tmp_path).column("mag").unit == "mag"
        return
    with pytest.raises(FormatError, match=r"in 'mag' in the first and in 'mmag' .*; name the files one by"):
        catalogs.open(tmp_path)


def test_spellings_of_a_unit_are_one_unit(tmp_path: Path) -> None:
    for name, stated in (("a", "erg / s"), ("b", "erg s-1")):
        schema = pa.schema([pa.field("flux", pa.float64(), metadata={"unit": stated})])
        pq.write_table(pa.table({"flux": [1.0]}, schema), tmp_path / f"{name}.parquet")
    assert catalogs.open(tmp_path).n_rows == 2


def test_notes_beside_tables_are_no_tables(tmp_path: Path) -> None:
    written("fits", tmp_path / "tile.fits")
    (tmp_path / "README.txt").write_text("made by, us\non, Monday\n")
    assert catalogs.open(tmp_path).n_rows == 4
    (tmp_path / "tile.fits").unlink()
    (tmp_path / "README.txt").unlink()
    written("csv", tmp_path / "table.dat")
    assert catalogs.open(tmp_path).n_rows == 4


def test_a_folder_of_parquet_with_another_table_is_refused(tmp_path: Path) -> None:
    written("parquet", tmp_path / "a.parquet")
    written("fits", tmp_path / "b.fits")
    with pytest.raises(FormatError, match=r"holds Parquet files and b\.fits, .* such as '.*/\*\.parquet'"):
        catalogs.open(tmp_path)
    assert catalogs.open(tmp_path / "*.parquet").n_rows == 4


@pytest.mark.parametrize("kind", WRITERS)
def test_a_catalogue_is_a_line(kind: str, tmp_path: Path) -> None:
    """Rows that are not in a header are not counted for a line."""
    path = written(kind, tmp_path / f"<a>{SUFFIXES[kind]}")
    catalog = catalogs.open(path)
    rows = "4 rows, " if kind in {"parquet", "fits"} else ""
    assert repr(catalog) == f"<Catalog {path} ({catalog.format}): {rows}3 columns>"
