"""Parquet as others write it: types, encodings and oddities are annotated with all old columns equal, or refused."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

import catalogs
from catalogs.errors import FormatError
from catalogs.parquet import dataset as parquet
from tests.catalogs.parquet_samples import COLUMNS, computing

N = 30
ROW = pa.array(np.arange(N))
X = pa.array(np.linspace(0, 1, N, dtype=np.float32))


def required(datatype: pa.DataType) -> pa.Field:
    """Return a field that is never null."""
    return pa.field("z", datatype, nullable=False)


TYPES = {
    "half": pa.array(np.linspace(-1, 1, N, dtype=np.float16)),
    "unsigned": pa.array([2**64 - 1 - i for i in range(N)], pa.uint64()),
    "map": pa.array([[("a", 1)], []] * 15, pa.map_(pa.string(), pa.int32())),
    "list of structures": pa.array([[{"a": 1, "b": "x"}], None] * 15),
    "deep": pa.array([{"a": {"b": {"c": [{"d": i}]}}} for i in range(N)]),
    "views": pa.array(["é"] * N, pa.string_view()),
    "bytes": pa.array([b"\xff\0"] * N, pa.binary_view()),
    "large": pa.array([[i] for i in range(N)], pa.large_list(pa.int8())),
    "list view": pa.array([[i] for i in range(N)], pa.list_view(pa.int8())),
    "dictionary of integers": pa.array([1, 2, None] * 10).dictionary_encode(),
    "dictionary in a list": pa.array([["a"]] * N, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "fixed bytes": pa.array([b"abcd"] * N, pa.binary(4)),
    "uuid": pa.array([bytes(16)] * N, pa.uuid()),
    "decimal of 60 digits": pa.array([1] * N, pa.decimal256(60, 2)),
    "decimal of 5 digits": pa.array([1] * N, pa.decimal32(5, 2)),
    "time": pa.array([1] * N, pa.time64("ns")),
    "seconds": pa.array([1] * N, pa.timestamp("s")),
    "zone": pa.array([1] * N, pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array([1] * N, pa.duration("ns")),
    "nothing": pa.nulls(N),
    "all NaN": pa.array(np.full(N, np.nan)),
    "required": pa.array([{"z": i} for i in range(N)], pa.struct([required(pa.int64())])),
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
    """Annotate a file by its row numbers."""
    (made,) = catalogs.annotate(parquet.open(path), out, COLUMNS, computing(N), read=["row"])
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
    table = pa.table(
        {"row": ROW, "x": X, "s": ["ab", None, ""] * 10, "t": pa.array([1] * N, pa.timestamp("us"))}
    )
    pq.write_table(table, tmp_path / "a.parquet", **OPTIONS[how])
    check_round(tmp_path / "a.parquet", tmp_path)


ODD_NAMES = ["mag", "mag.g", "mag.g.err", "", 'a`b"c\n', " lead", "é ü", "MAG"]


def test_odd_names(tmp_path: Path) -> None:
    """Dots, no name at all, quotation marks: each column is its own, also beside a structure of such a name."""
    columns = {name: pa.array([i] * N) for i, name in enumerate(ODD_NAMES)}
    columns["nested"] = pa.array([{"g": 1.0}] * N)
    columns["nested.g"] = pa.array([2.0] * N)
    pq.write_table(pa.table({"row": ROW, **columns}), tmp_path / "a.parquet")
    catalog = parquet.open(tmp_path / "a.parquet")
    for name, values in columns.items():
        (batch,) = catalog.batches([name])
        assert batch.column(0).equals(values), name
    (batch,) = catalog.batches(list(columns)[::-1])
    assert [c.equals(v) for c, v in zip(batch.columns[::-1], columns.values(), strict=True)] == [True] * len(
        columns
    )
    check_round(tmp_path / "a.parquet", tmp_path)


def test_metadata_that_is_no_text(tmp_path: Path) -> None:
    pairs = {b"k\xff": b"\xfe\0z", b"": b"empty", b"long": b"y" * 5_000_000}
    pq.write_table(pa.table({"row": ROW}).replace_schema_metadata(pairs), tmp_path / "a.parquet")
    check_round(tmp_path / "a.parquet", tmp_path)


def test_a_very_wide_table(tmp_path: Path) -> None:
    wide = {f"c{i}": X for i in range(500)}
    pq.write_table(pa.table({"row": ROW, **wide}), tmp_path / "a.parquet", row_group_size=10)
    check_round(tmp_path / "a.parquet", tmp_path)


def test_no_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({}), tmp_path / "a.parquet")
    catalog = parquet.open(tmp_path / "a.parquet")
    assert (catalog.n_rows, catalog.names) == (0, ())


class Keys(encryption.KmsClient):  # type: ignore[misc]
    """Wraps keys in nothing."""

    def __init__(self, _: object) -> None:
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key: bytes, name: str) -> bytes:
        """Return a key as it is stored."""
        return base64.b64encode(name.encode() + key)

    def unwrap_key(self, wrapped: bytes, name: str) -> bytes:
        """Return a stored key."""
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
            "row": np.arange(N),
            "s": ["a", None, "é"] * 10,
            "category": polars.Series(["u", "v"] * 15, dtype=polars.Categorical),
            "vector": polars.Series([[1.0, 2.0]] * N, dtype=polars.Array(polars.Float32, 2)),
            "list": [[1], [], None] * 10,
            "unsigned": polars.Series([2**63 + 5] * N, dtype=polars.UInt64),
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
