"""Folders whose files are unlike: what is unambiguous is read as a slow twin of ours does; the rest is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs import hats
from catalogs.errors import FormatError
from catalogs.parquet import dataset as parquet
from catalogs.profile.quality import quality
from tests.catalogs.hats_samples import write_collection

NEW = (catalogs.NewColumn("blr_p", pa.float32(), "stat.probability"),)


def half(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    """Return one half for every row."""
    return {"blr_p": np.full(batch.num_rows, 0.5, np.float32)}


def drifted() -> list[pa.Table]:
    """Return one table as a survey's releases had it: other order, types, columns."""
    base = {
        "id": pa.array([1, 2, 3]),
        "mag": pa.array([20.5, None, 21.0], pa.float32()),
        "type": ["G", "S", None],
    }
    return [
        pa.table(base),
        pa.table({"type": ["Q"], "mag": pa.array([19.0]), "id": pa.array([4], pa.int32())}),
        pa.table(
            {"id": pa.array([5, 6]), "type": pa.array(["G", "G"]).dictionary_encode(), "seeing": [0.7, 0.8]}
        ),
        pa.table({"id": pa.array([7]), "mag": pa.nulls(1), "type": pa.array(["é"], pa.large_string())}),
    ]


def write_all(folder: Path, tables: list[pa.Table]) -> Path:
    """Write tables as the files 0.parquet, 1.parquet, ... of a folder."""
    folder.mkdir()
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"{i}.parquet")
    return folder


def test_the_rows_are_those_of_a_slow_twin(tmp_path: Path) -> None:
    """Row by row as dictionaries: what a file does not have is None."""
    catalog = parquet.open(write_all(tmp_path / "in", drifted()))
    assert catalog.names == ("id", "mag", "type", "seeing")
    assert [str(c.datatype) for c in catalog.columns] == ["int64", "double", "large_string", "double"]
    assert [c.absent for c in catalog.columns] == [0, 1, 0, 3]
    twin = [
        {name: row.get(name) for name in catalog.names} for table in drifted() for row in table.to_pylist()
    ]
    for rows in (1, 2, 100):
        batches = list(catalog.batches(catalog.names, rows))
        assert {str(b.schema.types) for b in batches} == {str([c.datatype for c in catalog.columns])}
        assert pa.Table.from_batches(batches).to_pylist() == twin
    only_absent = [b.to_pydict() for b in catalog.batches(["seeing"])]
    assert only_absent == [{"seeing": v} for v in ([None] * 3, [None], [0.7, 0.8], [None])]


def test_a_copy_in_another_format_has_all_columns(tmp_path: Path) -> None:
    catalog = catalogs.open(write_all(tmp_path / "in", drifted()))
    for form in ("parquet", "fits"):
        catalogs.annotate(catalog, tmp_path / form, NEW, half, read=["id"], form=form)
        copy = catalogs.open(tmp_path / form / f"*.{form}")
        assert pa.Table.from_batches(copy.batches(["id"]))["id"].to_pylist() == [1, 2, 3, 4, 5, 6, 7]
    seeing = pa.Table.from_batches(copy.batches(["seeing"]))["seeing"]
    np.testing.assert_array_equal(seeing, [np.nan] * 4 + [0.7, 0.8, np.nan])


def test_the_report_counts_the_files(tmp_path: Path) -> None:
    found, _ = quality(parquet.open(write_all(tmp_path / "in", drifted())))
    assert (found.n_files, found.absent) == (4, {"mag": 1, "seeing": 3})
    assert found.missing["mag"] == pytest.approx(4 / 7)


def refused(folder: Path, tables: list[pa.Table], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parquet.open(write_all(folder, tables))


def test_values_that_no_type_holds_are_refused_when_they_come(tmp_path: Path) -> None:
    """Integers beside floats are read as such where that is exact."""
    for last, fits in ((2**53, True), (2**53 + 1, False)):
        folder = write_all(tmp_path / str(last), [pa.table({"id": [None, 1.0]}), pa.table({"id": [last]})])
        catalog = parquet.open(folder)
        if fits:
            assert [v for b in catalog.batches(["id"]) for v in b["id"].to_pylist()] == [None, 1.0, 2.0**53]
        else:
            with pytest.raises(
                FormatError, match=r"1\.parquet: 'id' is int64 in this file.*double in the whole.*write it"
            ):
                list(catalog.batches(["id"]))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_types_of_files_without_rows_give_way(tmp_path: Path, place: int) -> None:
    """An empty frame's columns are of any type; identifiers above 2^53 do not become doubles for its sake."""
    tables = [pa.table({"id": [2**60], "s": ["a"]}), pa.table({"id": [2**60 + 1], "s": ["b"]})]
    empty = pa.table({"id": pa.array([], pa.float64()), "s": pa.array([], pa.float64())})
    tables.insert(place, empty)
    catalog = parquet.open(write_all(tmp_path / "in", tables))
    assert [str(c.datatype) for c in catalog.columns] == ["int64", "string"]
    assert pa.Table.from_batches(catalog.batches(["id", "s"])).to_pydict() == {
        "id": [2**60, 2**60 + 1],
        "s": ["a", "b"],
    }
    files = catalogs.annotate(catalog, tmp_path / "out", NEW, half, read=["id"])
    assert pq.read_schema(files[place]).field("s").type == pa.float64()


def stating(unit: str | None) -> pa.Table:
    """Return a table of a flux in a unit."""
    field = pa.field("flux", pa.float32(), metadata={"unit": unit} if unit else None)
    return pa.table([[1.0]], schema=pa.schema([field]))


def test_the_unit_is_any_files_and_all_agree_with_it(tmp_path: Path) -> None:
    """A file without a unit is believed, wherever it comes; two that differ are named."""
    catalog = parquet.open(write_all(tmp_path / "agree", [stating(None), stating("nJy"), stating("nJy")]))
    assert catalog.column("flux").unit == "nJy"
    tables = [stating(None), stating("nJy"), stating("mJy")]
    refused(
        tmp_path / "differ",
        tables,
        r"1\.parquet and .*2\.parquet cannot be read as one catalogue.*'flux' is in 'nJy'.*'mJy'",
    )


def test_matrices_of_another_shape_are_refused(tmp_path: Path) -> None:
    tables = [
        pa.table({"m": pa.array([[0.0] * 6], pa.list_(pa.float64(), 6))}).cast(
            pa.schema([pa.field("m", pa.list_(pa.float64(), 6), metadata={"shape": shape})])
        )
        for shape in ("2,3", "3,2")
    ]
    refused(tmp_path / "in", tables, r"of shape \(2, 3\) in the first and .*of shape \(3, 2\) in the second")


def test_another_table_among_the_files_is_refused(tmp_path: Path) -> None:
    """Fewer than half of the columns are shared: the odd file is named, not the many."""
    rows = {name: [1.0] for name in ("ra", "dec", "g", "r")}
    tables = [pa.table({"ra": [1.0], "n": [2]}), *[pa.table(rows)] * 3]
    refused(
        tmp_path / "in",
        tables,
        r"1\.parquet and .*0\.parquet.*of their 4 and 2 columns, 1 have the same name, expected half",
    )
    tables[0] = pa.table({"ra": [1.0], "dec": [2.0]})
    assert parquet.open(write_all(tmp_path / "half", tables)).n_rows == 4


def test_copies_among_their_sources_are_refused(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "in", drifted())
    (made,) = catalogs.annotate(parquet.open(folder / "0.parquet"), tmp_path / "out", NEW, half, read=["id"])
    made.rename(folder / "3.parquet")
    with pytest.raises(
        FormatError, match=r"0\.parquet and .*3\.parquet.*only one of them records that it was annotated"
    ):
        parquet.open(folder)


def test_a_folder_that_gives_a_column_that_others_store_is_refused(tmp_path: Path) -> None:
    for name, table in (("band=g", {"x": [1.0], "band": ["g"]}), ("band=r", {"x": [1.0]})):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(table), tmp_path / name / "a.parquet")
    with pytest.raises(
        FormatError, match=r"band=r/a\.parquet is in a folder 'band=r' and has no column 'band'"
    ):
        parquet.open(tmp_path)


def test_a_margin_with_other_columns(tmp_path: Path) -> None:
    """The primary's rows do not have the margin's own column; copies keep it, annotated once and again."""
    collection = write_collection(tmp_path / "in" / "collection")
    margins = list((collection / "stars_7200arcs").rglob("Npix=*.parquet"))
    for path in margins:
        table = pq.read_table(path).append_column(
            "margin_Npix", pa.array([44] * pq.read_metadata(path).num_rows)
        )
        mag = table["mag"].cast(pa.float64())
        pq.write_table(table.set_column(table.column_names.index("mag"), "mag", mag), path)
    catalog = hats.open(collection)
    assert catalog.column("margin_Npix").absent == 3
    assert catalog.column("mag").datatype == pa.float64()
    for step in ("one", "two"):
        written = catalogs.annotate(catalog, tmp_path / step, NEW, half, read=["mag"])
        assert not written.warnings
        catalog = hats.open(tmp_path / step / "collection")
        for path in margins:
            copy = pq.read_table(
                tmp_path / step / "collection" / path.relative_to(collection), partitioning=None
            )
            old = pq.read_table(path, partitioning=None)
            assert copy.column_names == [*old.column_names, "blr_p"]
            assert copy.drop_columns(["mag", "blr_p"]).equals(old.drop_columns(["mag"]))
            np.testing.assert_array_equal(copy["mag"], old["mag"])


def test_a_catalogue_of_the_sky_whose_files_drift(tmp_path: Path) -> None:
    """One pixel lacks a column: what describes all files at once is left out, which is said; the rest is as ever."""
    collection = write_collection(tmp_path / "in" / "collection")
    path = collection / "stars/dataset/Norder=1/Dir=0/Npix=45.parquet"
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["mag"]), path)
    catalog = hats.open(collection)
    assert catalog.column("mag").absent == 1
    written = catalogs.annotate(catalog, tmp_path / "out", NEW, half, read=["mag"])
    (said,) = written.warnings
    assert said.startswith(f"{collection / 'stars/dataset/_metadata'} is left out")
    assert not (tmp_path / "out/collection/stars/dataset/_metadata").exists()
    assert (tmp_path / "out/collection/stars_7200arcs/dataset/_metadata").exists()
    again = hats.open(tmp_path / "out" / "collection")
    assert again.names == (*catalog.names, "blr_p")
    assert again.n_rows == catalog.n_rows
