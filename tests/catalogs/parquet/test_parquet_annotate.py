"""Annotated Parquet, and folders whose files are unlike: old bytes stay; what would mean something else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units as u
from astropy.io import votable

import catalogs
from catalogs import hats
from catalogs.errors import FormatError
from catalogs.parquet import dataset as parquet
from catalogs.parquet import writer as parquet_writer
from catalogs.parquet._footer import read_footer
from catalogs.writing import annotate
from tests.catalogs.hats_samples import write_collection
from tests.catalogs.parquet_samples import (
    COLUMNS,
    PROVENANCE,
    N,
    computing,
    rich_table,
    values_of,
    write_rich,
)


def annotated(path: Path, out: Path, *, n: int = N, **options: Any) -> Any:
    standard = {"read": ["row", "x"], "provenance": PROVENANCE, "rows": 128, "threads": 2}
    (written,) = annotate(parquet.open(path), out, COLUMNS, computing(n), **(standard | options))
    return written


VARIANTS = {
    "small row groups": {},
    "one row group": {"row_group_size": N},
    "row groups smaller than batches": {"row_group_size": 13},
    "snappy": {"compression": "snappy"},
    "gzip and none": {"compression": {"row": "gzip", "x": "none"}},
    "no compression": {"compression": "none"},
    "no Arrow schema": {"store_schema": False},
    "version 1": {"version": "1.0"},
    "data pages 2": {"data_page_version": "2.0"},
    "no statistics": {"write_statistics": False},
    "bloom filters": {"bloom_filter_options": {"row": {"ndv": 1000}}},
    "int96 times": {"use_deprecated_int96_timestamps": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_old_columns_keep_their_bytes_and_new_ones_are_right(tmp_path: Path, variant: str) -> None:
    """All bytes before the footer are the old file's; columns, schema and metadata read the same.

    Every new value lies in its row, of the promised type, compressed as the old, in the same row groups.
    """
    path = write_rich(tmp_path / "a.parquet", **VARIANTS[variant])
    out = annotated(path, tmp_path / "out")
    start = read_footer(path)[0]
    assert out.name == path.name
    assert out.read_bytes()[:start] == path.read_bytes()[:start]
    old, new = pq.read_table(path), pq.read_table(out)
    flat = {f.name for f in old.schema if not pa.types.is_nested(f.type)}
    assert {*parquet.open(out).same_columns(parquet.open(path))} == flat
    assert new.column_names == old.column_names + [c.name for c in COLUMNS]
    selected = new.select(old.column_names)
    assert selected.schema.equals(old.schema, check_metadata=False)
    assert [f.metadata for f in selected.schema] == [f.metadata for f in old.schema]
    for name in set(old.column_names) - {"x"}:
        assert selected[name].equals(old[name])
    bits = [t["x"].to_numpy().view(np.uint32) for t in (old, new)]
    np.testing.assert_array_equal(*bits)
    assert (old.schema.metadata or {}).items() <= new.schema.metadata.items()
    for column in COLUMNS:
        assert new.schema.field(column.name).type == column.datatype
        np.testing.assert_array_equal(new[column.name].to_numpy(), values_of(column, N))
    footers = [pq.read_metadata(p) for p in (path, out)]
    groups = [[f.row_group(i).num_rows for i in range(f.num_row_groups)] for f in footers]
    assert groups[0] == groups[1]
    group = footers[1].row_group(0)
    chunks = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
    assert chunks["blr_p_max"].compression == chunks["row"].compression
    assert not chunks["blr_p_max"].has_dictionary_page
    assert chunks["blr_class"].has_dictionary_page


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_large_row_groups_are_of_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    """Pages that waited on the disk are chunks as any others, whatever threads and batches; nothing is left."""
    path = write_rich(tmp_path / "a.parquet", row_group_size=400, compression=codec)
    held = annotated(path, tmp_path / "held")
    monkeypatch.setattr(parquet_writer, "LARGE_GROUP", 300)  # the last group, of 200 rows, is held
    monkeypatch.setattr(parquet_writer, "PIECE_ROWS", 70)
    ways = {128: 2, 1000: 1, 33: 3}
    outs = [annotated(path, tmp_path / str(n), rows=n, threads=threads) for n, threads in ways.items()]
    assert len({out.read_bytes() for out in outs}) == 1
    assert [p.name for p in outs[0].parent.iterdir()] == ["a.parquet"]
    start = read_footer(path)[0]
    assert outs[0].read_bytes()[:start] == path.read_bytes()[:start]
    assert pq.read_schema(outs[0]).equals(pq.read_schema(held), check_metadata=True)
    pd.testing.assert_frame_equal(pd.read_parquet(outs[0]), pd.read_parquet(held))
    metadata = pq.read_metadata(outs[0])
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = [group.column(i) for i in range(group.num_columns)]
        assert {c.num_values for c in chunks[-len(COLUMNS) :]} == {group.num_rows}
        assert group.total_byte_size == sum(c.total_uncompressed_size for c in chunks)
        for chunk in chunks[-len(COLUMNS) :]:
            assert chunk.compression == chunks[0].compression
            assert (chunk.statistics is None) == (group.num_rows > 300)
    few = pq.read_table(outs[0], columns=["row"], filters=[("blr_logit_mean", ">", 4.99)])
    assert few["row"].to_pylist() == np.flatnonzero(values_of(COLUMNS[4], N) > 4.99).tolist()


def test_the_votable_is_one_that_astropy_reads(tmp_path: Path) -> None:
    """A data-less VOTable with one FIELD a column, in order, valid for astropy."""
    path = write_rich(tmp_path / "a.parquet")
    pairs = pq.read_metadata(annotated(path, tmp_path / "out")).metadata
    assert pairs[b"IVOA.VOTable-Parquet.version"] == b"1.0"
    xml = tmp_path / "a.vot"
    xml.write_bytes(pairs[b"IVOA.VOTable-Parquet.content"])
    fields = votable.parse(xml, verify="exception").get_first_table().fields
    assert [f.name for f in fields] == rich_table(0).column_names + [c.name for c in COLUMNS]
    by_name = {f.name: f for f in fields}
    assert (by_name["x"].unit, by_name["x"].datatype) == (u.mag, "float")
    assert (by_name["vector"].datatype, by_name["vector"].arraysize) == ("double", "3")
    assert by_name["blr_p_early"].ucd == "stat.probability;src.class"


def test_no_new_column(tmp_path: Path) -> None:
    """A copy with none, as of a table in memory that is written down, has the old ones."""
    path = write_rich(tmp_path / "a.parquet")
    (out,) = annotate(parquet.open(path), tmp_path / "out", (), lambda _: {}, read=["row"])
    assert pq.read_schema(out).equals(pq.read_schema(path))
    assert pd.read_parquet(out, columns=["row", "x"]).equals(pd.read_parquet(path, columns=["row", "x"]))


NEW = (catalogs.NewColumn("blr_p", pa.float32(), "stat.probability"),)


def half(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
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
    twin = [{n: row.get(n) for n in catalog.names} for table in drifted() for row in table.to_pylist()]
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
    found = pa.Table.from_batches(catalog.batches(["id", "s"])).to_pydict()
    assert found == {"id": [2**60, 2**60 + 1], "s": ["a", "b"]}
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
    refused(tmp_path / "differ", tables, r"1\.parquet and .*2\.parquet cannot .*'flux' is in 'nJy'.*'mJy'")


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
    with pytest.raises(FormatError, match=r"band=r/a\.parquet is in a folder 'band=r' and has no column"):
        parquet.open(tmp_path)


def test_a_margin_with_other_columns(tmp_path: Path) -> None:
    """The primary's rows do not have the margin's own column; copies keep it, annotated once and again."""
    collection = write_collection(tmp_path / "in" / "collection")
    margins = list((collection / "stars_7200arcs").rglob("Npix=*.parquet"))
    for path in margins:
        table = pq.read_table(path)
        table = table.append_column("margin_Npix", pa.array([44] * len(table)))
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
            place = tmp_path / step / "collection" / path.relative_to(collection)
            copy = pq.read_table(place, partitioning=None)
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
