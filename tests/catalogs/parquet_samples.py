"""Parquet files of everything, for the tests."""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from catalogs.catalog.new_columns import NewColumn, Provenance, standard_columns

N = 1000
COLUMNS = standard_columns(["early", "late"])
PROVENANCE = Provenance({"model": "morphology@3f2a"}, {0: ("LOW_CONFIDENCE", "near one half")})

NAN_PAYLOAD = np.frombuffer(struct.pack("<I", 0x7FC0_1234), np.float32)[0]


NESTED = pa.struct({"a": pa.int64(), "b": pa.list_(pa.float64())})


def rich_table(n: int = N) -> pa.Table:
    """Return a table of all types that a survey might publish; `row` numbers its rows."""
    x = np.random.default_rng(1).normal(size=n)
    x32 = x.astype(np.float32)
    x32[::11] = NAN_PAYLOAD
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    field = pa.field(
        "x", pa.float32(), metadata={"unit": "mag", "ucd": "phot.mag", "description": "a magnitude"}
    )
    columns = {
        "row": pa.array(np.arange(n)),
        "id": pa.array([2**60 + i if i % 7 else None for i in range(n)], pa.int64()),
        field: pa.array(x32),
        "type": pa.array([["G", "S", None, "Q"][i % 4] for i in range(n)], pa.string()).dictionary_encode(),
        "price": pa.array([decimal.Decimal(i) / 4 for i in range(n)], pa.decimal128(12, 3)),
        "time": pa.array([start + dt.timedelta(seconds=i) for i in range(n)], pa.timestamp("us", "UTC")),
        "nested": pa.array([{"a": i, "b": [1.0] * (i % 3)} for i in range(n)], NESTED),
        "vector": pa.array(x.repeat(3).reshape(n, 3).tolist(), pa.list_(pa.float64(), 3)),
        "list": pa.array([[i] * (i % 4) if i % 5 else None for i in range(n)], pa.list_(pa.int16())),
        "good": pa.array([bool(i % 2) for i in range(n)], pa.bool_()),
        "u8": pa.array(np.arange(n, dtype=np.uint64) + 2**63),
    }
    fields = [k if isinstance(k, pa.Field) else pa.field(k, v.type) for k, v in columns.items()]
    schema = pa.schema(fields, metadata={"survey": "tests", "unicode": "é"})
    return pa.Table.from_arrays(list(columns.values()), schema=schema)


def write_rich(path: Path, n: int = N, **options: Any) -> Path:
    """Write it, with page index, checksums and small row groups, unless told otherwise."""
    standard = {
        "row_group_size": 300,
        "compression": "zstd",
        "write_page_index": True,
        "write_page_checksum": True,
    }
    pq.write_table(rich_table(n), path, **(standard | options))
    return path


def values_of(column: NewColumn, n: int) -> np.ndarray[Any, Any]:
    """Return values of a new column, NaN among them."""
    if pa.types.is_string(column.datatype):
        return np.array(["early", "late", ""])[np.arange(n) % 3]
    values = np.linspace(-5, 5, n)
    if pa.types.is_floating(column.datatype):
        values[::13] = np.nan
    return values.astype(column.datatype.to_pandas_dtype())


def computing(
    n: int = N, columns: tuple[NewColumn, ...] = COLUMNS
) -> Callable[[pa.RecordBatch], Mapping[str, Any]]:
    """Compute from a column `row` of row numbers, so that a value in the wrong row shows."""
    whole = {c.name: values_of(c, n) for c in columns}
    return lambda batch: {name: v[batch.column("row").to_numpy()] for name, v in whole.items()}
