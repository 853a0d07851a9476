"""Reading Parquet: batches of exact size, folders, patterns, metadata of every convention, damage."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units as u
from astropy.table import MaskedColumn, QTable
from astropy.table.serialize import represent_mixins_as_columns
from astropy.utils.masked import Masked
from pyarrow.parquet import encryption

import catalogs
from catalogs.catalog.catalog import Column
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.metadata.votable_fields import field_xml, new_votable
from catalogs.parquet import dataset as parquet
from tests.catalogs.parquet_samples import COLUMNS, N, computing, write_rich


def test_only_the_columns_asked_for_in_the_order_asked_and_no_number_of_a_table(tmp_path: Path) -> None:
    partition = parquet.open(write_rich(tmp_path / "a.parquet")).partitions[0]
    batch = next(partition.batches(["vector", "row"]))
    assert batch.schema.names == ["vector", "row"]
    assert next(partition.batches([])).num_rows == N
    with pytest.raises(FormatError, match="leave it out"):
        parquet.open(tmp_path / "a.parquet", 1)


OTHERS = {
    "part-00000.snappy.PARQUET": None,
    "000000_0": None,
    "frame.parquet.gzip": None,
    "_SUCCESS": b"",
    "_metadata": None,
    "_common_metadata": None,
    "_temporary/0/part-00001.parquet": None,
    ".part-00000.parquet.crc": b"crc\0",
    "part-00000.parquet.crc": b"crc\0",
    "part-00000.parquet.part": None,
    "README": b"PARADE",
    "empty": b"",
}
"""Names and what else may lie in a folder that Hadoop or pandas wrote; None is a whole file of Parquet."""
DATA_FILES = ["000000_0", "frame.parquet.gzip", "part-00000.snappy.PARQUET"]


def test_what_of_a_folder_is_data(tmp_path: Path) -> None:
    """Suffixes in any case, Hive's files without one; no flags, checksums, summaries or half-done copies."""
    for name, content in OTHERS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            write_rich(path, 5)
        else:
            path.write_bytes(content)
    assert [p.key for p in catalogs.open(tmp_path).partitions] == DATA_FILES
    assert [p.key for p in catalogs.open(tmp_path / "0*").partitions] == ["000000_0"]
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(DamagedFileError, match=r"empty\.parquet \(0 bytes\) is damaged"):
        catalogs.open(tmp_path)


@pytest.mark.parametrize(
    "log", ["_delta_log/0.json", "metadata/v1.metadata.json", ".hoodie/x", "_spark_metadata/0"]
)
def test_tables_whose_log_says_which_files_count_are_refused(tmp_path: Path, log: str) -> None:
    """Some of their files are rows that were deleted or replaced."""
    (tmp_path / "data").mkdir()
    write_rich(tmp_path / "data" / "a.parquet", 5)
    (tmp_path / log).parent.mkdir()
    (tmp_path / log).write_text("{}")
    for path in (tmp_path, tmp_path / "*" / "*.parquet"):
        with pytest.raises(FormatError, match=r"is a table of .* says which files hold the present rows"):
            catalogs.open(path)


def test_a_file_compressed_as_a_whole_is_not_left_out_in_silence(tmp_path: Path) -> None:
    write_rich(tmp_path / "a.parquet", 5)
    (tmp_path / "b.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    with pytest.raises(FormatError, match=r"b\.parquet\.gz is compressed as a whole.*decompress the file"):
        parquet.open(tmp_path)


def test_hive_folders_are_columns(tmp_path: Path) -> None:
    """Values in folders' names become columns, as pandas wrote them."""
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "field": [7, 8, 7], "band": ["g", "r é", None]})
    frame.to_parquet(tmp_path / "h", partition_cols=["field", "band"])
    catalog = parquet.open(tmp_path / "h")
    assert catalog.column("field").datatype == pa.int64()
    rows = pa.Table.from_batches(catalog.batches(["x", "field", "band"])).to_pylist()
    assert sorted(rows, key=lambda r: r["x"]) == [
        {"x": 1.0, "field": 7, "band": "g"},
        {"x": 2.0, "field": 8, "band": "r é"},
        {"x": 3.0, "field": 7, "band": None},
    ]


def test_columns_called_the_same_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=r"several columns called \['a'\]"):
        parquet.open(tmp_path / "a.parquet")


def test_astropys_masks_are_nulls(tmp_path: Path) -> None:
    """Astropy writes what is masked as values, with a column of masks beside them; the copy is the same table to it."""
    columns = {
        "row": [0, 1, 2],
        "mag": MaskedColumn([20.5, -999.0, 21.0], mask=[0, 1, 0]),
        "id": MaskedColumn([2**60 + 1, 5, 6], mask=[0, 0, 1]),
        "name": MaskedColumn(["a", "b", "c"], mask=[1, 0, 0]),
        "v": MaskedColumn(np.arange(6.0).reshape(3, 2), mask=[[0, 1], [0, 0], [1, 1]]),
        "flux": Masked([1.0, 2.0, 3.0] * u.Jy, mask=[False, True, False]),
    }
    table = QTable(columns)
    table.write(tmp_path / "a.parquet")
    catalog = parquet.open(tmp_path / "a.parquet")
    for names in (["row", "mag", "id", "name", "v", "flux"], ["flux", "v"], ["mag", "mag.mask"]):
        for rows in (2, 100):
            found = pa.Table.from_batches(catalog.batches(names, rows)).to_pydict()
            plain = represent_mixins_as_columns(table)  # whose masks are arrays'
            twin = {name: plain[name].tolist() for name in names if name in plain.colnames}
            assert {name: found[name] for name in twin} == twin
    assert found["mag.mask"] == [False, True, False]
    new = NewColumn("mark", pa.float64())

    def mark(batch: Any) -> Any:
        return {"mark": batch.column("mag").to_numpy(zero_copy_only=False)}

    (out,) = catalogs.annotate(catalog, tmp_path / "out", [new], mark, read=["mag"])
    copy = QTable.read(out)
    assert np.isnan(copy["mark"][1])
    for name in columns:
        assert repr(copy[name]) == repr(table[name])
    (out,) = catalogs.annotate(catalog, tmp_path / "fits", [new], mark, read=["mag"], form="fits")
    assert QTable.read(out)["id"].tolist() == [2**60 + 1, 5, None]


def test_voparquet_is_trusted_over_the_others(tmp_path: Path) -> None:
    """VOTable first, then astropy's YAML, then the field's own."""
    field = pa.field("x", pa.int64(), metadata={"unit": "arrow", "description": "arrow", "doc": "no"})
    yaml = "datatype:\n- {name: x, unit: astropy, datatype: int64, meta: {ucd: meta.id}}"
    vo = new_votable([field_xml(Column("x", pa.int64(), "votable", null=-9999), "")])
    pairs = {"table_meta_yaml": yaml, "IVOA.VOTable-Parquet.content": vo}
    pq.write_table(pa.table([[1]], schema=pa.schema([field], metadata=pairs)), tmp_path / "a.parquet")
    x = parquet.open(tmp_path / "a.parquet").column("x")
    assert (x.unit, x.ucd, x.description, x.null) == ("votable", "meta.id", "arrow", -9999)


@pytest.mark.parametrize(
    "text", ["", "<VOTABLE", "<!DOCTYPE a [<!ENTITY b 'c'>]><VOTABLE/>", "[", "datatype: 3", "- a"]
)
def test_metadata_that_cannot_be_read_is_passed_over(tmp_path: Path, text: str) -> None:
    pairs = {"table_meta_yaml": text, "IVOA.VOTable-Parquet.content": text}
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata(pairs), tmp_path / "a.parquet")
    assert parquet.open(tmp_path / "a.parquet").column("x").unit is None


def test_names_and_texts_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    """Arrow decodes names, and says nothing of the file; it reads texts without a word, and fails later."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"column": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"column", b"col\xe5mn"))
    with pytest.raises(DamagedFileError, match=r"is damaged: b'col\\xe5mn', a name in it, is not UTF-8 text"):
        parquet.open(path)
    pq.write_table(pa.table({"name": ["galaxy"]}), path, use_dictionary=False, compression="none")
    path.write_bytes(path.read_bytes().replace(b"galaxy", b"gal\xffxy"))
    with pytest.raises(DamagedFileError, match="is damaged: the column 'name' holds Invalid UTF8 sequence"):
        list(parquet.open(path).batches(["name"]))


def test_a_number_of_rows_that_is_not_that_of_the_row_groups_is_refused(tmp_path: Path) -> None:
    """One bit of the footer makes -61 rows of 60: planned by it, reads went beyond memory, and the process crashed."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(60)}), path)
    whole = path.read_bytes()
    for place in (i for i in range(len(whole) - 8, 0, -1) if whole[i] == 2 * 60):  # as Thrift writes 60
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        if pq.read_metadata(path).num_rows == -61:
            break
    with pytest.raises(DamagedFileError, match="footer counts -61 rows, and 60 in its row groups"):
        parquet.open(path)


def test_a_dictionary_of_long_texts_is_not_expanded(tmp_path: Path) -> None:
    """A megabyte that stands for a gigabyte: the other columns are read, this one is refused."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), ["x" * 10**6])
    path = tmp_path / "bomb.parquet"
    table = pa.table({"text": texts, "x": np.ones(1000)})
    pq.write_table(table, path, compression="zstd", store_schema=False)
    catalog = parquet.open(path)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CatalogError, match=r"texts of .* bytes, those of 'text' the longest"):
        list(catalog.batches(["text", "x"]))
    assert pa.default_memory_pool().max_memory() < max(before, 800e6)
    assert sum(batch.num_rows for batch in catalog.batches(["x"])) == 1000
    assert sum(batch.num_rows for batch in catalog.batches(["text"], rows=100)) == 1000


N_WRITTEN = 30
ROW = pa.array(np.arange(N_WRITTEN))
X = pa.array(np.linspace(0, 1, N_WRITTEN, dtype=np.float32))


def required(datatype: pa.DataType) -> pa.Field:
    return pa.field("z", datatype, nullable=False)


TYPES = {
    "half": pa.array(np.linspace(-1, 1, N_WRITTEN, dtype=np.float16)),
    "unsigned": pa.array([2**64 - 1 - i for i in range(N_WRITTEN)], pa.uint64()),
    "map": pa.array([[("a", 1)], []] * 15, pa.map_(pa.string(), pa.int32())),
    "list of structures": pa.array([[{"a": 1, "b": "x"}], None] * 15),
    "deep": pa.array([{"a": {"b": {"c": [{"d": i}]}}} for i in range(N_WRITTEN)]),
    "views": pa.array(["é"] * N_WRITTEN, pa.string_view()),
    "bytes": pa.array([b"\xff\0"] * N_WRITTEN, pa.binary_view()),
    "large": pa.array([[i] for i in range(N_WRITTEN)], pa.large_list(pa.int8())),
    "list view": pa.array([[i] for i in range(N_WRITTEN)], pa.list_view(pa.int8())),
    "dictionary of integers": pa.array([1, 2, None] * 10).dictionary_encode(),
    "dictionary in a list": pa.array([["a"]] * N_WRITTEN, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "fixed bytes": pa.array([b"abcd"] * N_WRITTEN, pa.binary(4)),
    "uuid": pa.array([bytes(16)] * N_WRITTEN, pa.uuid()),
    "decimal of 60 digits": pa.array([1] * N_WRITTEN, pa.decimal256(60, 2)),
    "decimal of 5 digits": pa.array([1] * N_WRITTEN, pa.decimal32(5, 2)),
    "time": pa.array([1] * N_WRITTEN, pa.time64("ns")),
    "seconds": pa.array([1] * N_WRITTEN, pa.timestamp("s")),
    "zone": pa.array([1] * N_WRITTEN, pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array([1] * N_WRITTEN, pa.duration("ns")),
    "nothing": pa.nulls(N_WRITTEN),
    "all NaN": pa.array(np.full(N_WRITTEN, np.nan)),
    "required": pa.array([{"z": i} for i in range(N_WRITTEN)], pa.struct([required(pa.int64())])),
}

OPTIONS = {
    "pages 2, delta, split": {
        "use_dictionary": False,
        "column_encoding": {"row": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT", "s": "DELTA_BYTE_ARRAY"},
        "data_page_version": "2.0",
    },
    "sorted": {"sorting_columns": [pq.SortingColumn(0)]},
    "Spark's": {"use_deprecated_int96_timestamps": True, "compression": "snappy", "version": "1.0"},
    "Bloom filter, page index": {"bloom_filter_options": {"row": {"ndv": 100}}, "write_page_index": True},
    "brotli": {"compression": "brotli"},
    "lz4": {"compression": "lz4"},
    "one page a row": {"data_page_size": 1, "write_batch_size": 1},
}


def annotated(path: Path, out: Path) -> Path:
    (made,) = catalogs.annotate(parquet.open(path), out, COLUMNS, computing(N_WRITTEN), read=["row"])
    return made


def check_round(path: Path, out: Path) -> None:
    """Annotate a file twice; every old column, its metadata and its bytes stay."""
    old = pq.ParquetFile(path).read()
    for step in ("one", "two"):
        catalog = parquet.open(path)
        rows = sum(b.num_rows for b in catalog.batches(catalog.names, 7))
        assert rows == catalog.n_rows == len(old)
        path = annotated(path, out / step)
        new = pq.ParquetFile(path).read()
        assert new.column_names == [*old.column_names, *(c.name for c in COLUMNS)]
        for i, field in enumerate(old.schema):
            assert new.schema.field(i).equals(field, check_metadata=True)
            assert str(new.column(i).to_pylist()) == str(old.column(i).to_pylist())  # NaN as well
        assert (old.schema.metadata or {}).items() <= new.schema.metadata.items()


@pytest.mark.parametrize("kind", TYPES)
def test_every_type(tmp_path: Path, kind: str) -> None:
    pq.write_table(pa.table({"row": ROW, "z": TYPES[kind], "x": X}), tmp_path / "a.parquet")
    check_round(tmp_path / "a.parquet", tmp_path)


@pytest.mark.parametrize("how", OPTIONS)
def test_every_way_of_writing(tmp_path: Path, how: str) -> None:
    columns = {"row": ROW, "x": X, "s": ["ab", None, ""] * 10}
    columns["t"] = pa.array([1] * N_WRITTEN, pa.timestamp("us"))
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", **OPTIONS[how])
    check_round(tmp_path / "a.parquet", tmp_path)


ODD_NAMES = ["mag", "mag.g", "mag.g.err", "", 'a`b"c\n', " lead", "é ü", "MAG"]


def test_odd_names(tmp_path: Path) -> None:
    """Dots, no name at all, quotation marks: each column is its own, also beside a structure of such a name."""
    columns = {name: pa.array([i] * N_WRITTEN) for i, name in enumerate(ODD_NAMES)}
    columns["nested"] = pa.array([{"g": 1.0}] * N_WRITTEN)
    columns["nested.g"] = pa.array([2.0] * N_WRITTEN)
    pq.write_table(pa.table({"row": ROW, **columns}), tmp_path / "a.parquet")
    catalog = parquet.open(tmp_path / "a.parquet")
    for name, values in columns.items():
        (batch,) = catalog.batches([name])
        assert batch.column(0).equals(values), name
    (batch,) = catalog.batches(list(columns)[::-1])
    assert all(c.equals(v) for c, v in zip(batch.columns[::-1], columns.values(), strict=True))
    check_round(tmp_path / "a.parquet", tmp_path)


def test_metadata_that_is_no_text_and_no_columns(tmp_path: Path) -> None:
    pairs = {b"k\xff": b"\xfe\0z", b"": b"empty", b"long": b"y" * 5_000_000}
    pq.write_table(pa.table({"row": ROW}).replace_schema_metadata(pairs), tmp_path / "a.parquet")
    check_round(tmp_path / "a.parquet", tmp_path)
    pq.write_table(pa.table({}), tmp_path / "none.parquet")
    catalog = parquet.open(tmp_path / "none.parquet")
    assert (catalog.n_rows, catalog.names) == (0, ())


class Keys(encryption.KmsClient):  # type: ignore[misc]
    def __init__(self, _: object) -> None:
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64encode(name.encode() + key)

    def unwrap_key(self, wrapped: bytes, name: str) -> bytes:
        return base64.b64decode(wrapped)[len(name) :]


@pytest.mark.parametrize(("plain", "what"), [(False, "is encrypted"), (True, "has encrypted columns")])
def test_encrypted_columns_are_refused(tmp_path: Path, *, plain: bool, what: str) -> None:
    """With an encrypted footer, and with one that all can read."""
    settings = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"columns": ["x"]}, plaintext_footer=plain
    )
    connection = encryption.KmsConnectionConfig()
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(connection, settings)
    table = pa.table({"row": ROW, "x": X})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(FormatError, match=rf"{what}; expected plain Parquet: decrypt a copy of it first"):
        annotated(tmp_path / "a.parquet", tmp_path / "out")


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "brotli", "lz4", "uncompressed"])
def test_polars(tmp_path: Path, codec: str) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame(
        {
            "row": np.arange(N_WRITTEN),
            "s": ["a", None, "é"] * 10,
            "category": polars.Series(["u", "v"] * 15, dtype=polars.Categorical),
            "vector": polars.Series([[1.0, 2.0]] * N_WRITTEN, dtype=polars.Array(polars.Float32, 2)),
            "list": [[1], [], None] * 10,
            "unsigned": polars.Series([2**63 + 5] * N_WRITTEN, dtype=polars.UInt64),
        }
    )
    frame.write_parquet(tmp_path / "a.parquet", compression=codec, row_group_size=8)
    check_round(tmp_path / "a.parquet", tmp_path)
    assert polars.read_parquet(tmp_path / "two" / "a.parquet").select(frame.columns).equals(frame)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("codec", ["zstd", "snappy", "uncompressed", "gzip", "brotli", "lz4_raw"])
def test_duckdb(tmp_path: Path, codec: str, version: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    path, copy = tmp_path / "a.parquet", tmp_path / "two" / "a.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "create table t as select range as row, 'a' || range as s, range::hugeint as huge, uuid() as id,"
            " [range] as l, map {'k': range} as m, 1.25::decimal(18, 3) as d, timestamptz '2026-01-01 00:00+00' as t, "
            "18446744073709551610::ubigint as u, case when range % 2 = 0 then 'lo' end as kind from range(30)"
        )
        connection.execute(f"copy t to '{path}' (format parquet, codec '{codec}', parquet_version {version})")
        check_round(path, tmp_path)
        old, new = (connection.read_parquet(str(p)).fetchall() for p in (path, copy))
    assert old == [row[: len(old[0])] for row in new]
