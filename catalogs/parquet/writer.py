"""Parquet files are written: annotated copies by copying bytes and appending columns, others anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalogs.arrays import text_array
from catalogs.catalog.catalog import Annotation, Column, NewValues, in_order
from catalogs.catalog.new_columns import NewColumn
from catalogs.files import atomic_path
from catalogs.parquet._footer import (
    CODEC,
    COLUMNS,
    METADATA,
    ROW_GROUPS,
    ROWS,
    Encoded,
    Footer,
    copy_columns,
    decode,
    field,
    items,
    key_values,
    merge,
    parse_footer,
    read_footer,
    write_chunks,
)
from catalogs.parquet.metadata import DESCRIPTIONS, annotated_key_values, new_fields

# Column chunks of new columns, encoded in memory by pyarrow: each as a file of its own, less its footer.  The chunks
# of a row group that is too large to be held are made of pieces: pages that say all about themselves, without a
# dictionary, which wait on the disk until the row group is complete.


def encoded(
    column: tuple[int, bool, int, pa.ChunkedArray], path: Path, schema: pa.Schema, codec: str
) -> Encoded:
    """Return one column of a row group, or of a part of it, as it is stored."""
    group, whole, number, values = column
    own = pa.schema([schema.field(number)])
    buffer, (end, metadata) = file_of(path, own, pa.table([values], schema=own), codec, whole=whole)
    ((packed,),) = (items(group, COLUMNS) for group in items(metadata, ROW_GROUPS))
    return group, whole, number, memoryview(buffer)[:end], decode(packed)[0]


def file_of(
    path: Path, schema: pa.Schema, table: pa.Table | None, codec: str, *, whole: bool = True
) -> tuple[pa.Buffer, Footer]:
    """Return a Parquet file of one row group, or of none, and its footer."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression=codec,
        # Probabilities rarely repeat: a dictionary would triple the time and save no space.
        use_dictionary=[f.name for f in schema if not pt.is_floating(f.type)] if whole else False,
        write_statistics=whole,
        store_schema=False,
    ) as writer:
        if table is not None:
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
    buffer = sink.getvalue()
    return buffer, parse_footer(pa.BufferReader(buffer), path)


# Annotated copies of Parquet files: the old bytes, the new columns behind them, one footer of both.  Only the columns
# that the classification reads are decoded, and only the new ones are encoded.

CODECS = {1: "SNAPPY", 2: "GZIP", 4: "BROTLI", 5: "LZ4", 6: "ZSTD", 7: "LZ4"}
FALLBACK_CODEC = "NONE"

LARGE_GROUP = 1 << 20
"""Rows of the largest row group that is held in memory until it is complete; it is what Arrow writes by default."""
PIECE_ROWS = 1 << 17
"""Rows of which pages of larger ones are made."""


def append_columns(
    source: Path, out: Path, annotation: Annotation, computed: Iterable[pa.Table], *, old: Sequence[Column]
) -> None:
    """Write a copy of `source` with the computed columns, of all rows in order, to `out`: whole, or not at all.

    A slim copy is described anew, for the old words tell of all columns.  Threads encode the new ones.
    """
    footer = read_footer(source)
    schema = new_fields(annotation.columns)
    staying = [c for c in old if annotation.stays(c.name)]
    names = frozenset(c.name for c in staying)
    pairs = {k: v for k, v in key_values(footer[1]).items() if not (annotation.slim and k in DESCRIPTIONS)}
    dropped = {c.name for c in old} - names
    changed = annotated_key_values(pairs, staying, annotation.columns, annotation.provenance, dropped=dropped)
    with atomic_path(out) as temporary, temporary.open("r+b") as stream:
        # The new columns are compressed as the file's first one is.
        old_chunks = (c for group in items(footer[1], ROW_GROUPS) for c in items(group, COLUMNS))
        first = next((field(field(decode(c)[0], METADATA), CODEC, 0) for c in old_chunks), 0)
        codec = CODECS.get(first, FALLBACK_CODEC)
        metadata = copy_columns(source, stream, footer, names)
        groups = [field(group, ROWS, 0) for group in items(metadata, ROW_GROUPS)]
        encode = partial(encoded, path=out, schema=schema, codec=codec)
        parts = columns_of(groups, computed, schema)
        with closing(in_order(parts, encode, annotation.threads)) as columns_in_order:
            written = write_chunks(columns_in_order, stream, len(groups), out.parent)
        stream.write(merge(metadata, file_of(out, schema, None, codec)[1][1], written, changed))


def new_table(values: NewValues, columns: Sequence[NewColumn]) -> pa.Table:
    """Return new columns of some rows as Arrow."""
    schema = new_fields(columns)
    arrays = []
    for f in schema:
        new = values[f.name]
        plain = new.astype(object) if new.dtype.kind == "T" else new
        arrays.append(text_array(new) if new.dtype.kind == "U" else pa.array(plain, f.type))
    return pa.table(arrays, schema=schema)


def columns_of(
    groups: Sequence[int], computed: Iterable[pa.Table], schema: pa.Schema
) -> Iterator[tuple[int, bool, int, pa.ChunkedArray]]:
    """Yield the numbered columns of each row group of so many rows, of those that are too large in parts."""
    if not schema.names:
        for _ in computed:  # `progress` hears of the rows
            pass
        return
    source, left = iter(computed), schema.empty_table()
    for group, size in enumerate(groups):
        whole = size <= LARGE_GROUP
        for start in range(0, 1 if whole else size, PIECE_ROWS):
            n = size if whole else min(PIECE_ROWS, size - start)
            parts = [left]
            while sum(part.num_rows for part in parts) < n:
                parts.append(next(source))
            left = pa.concat_tables(parts)
            table, left = left.slice(0, n), left.slice(n)
            yield from ((group, whole, number, values) for number, values in enumerate(table.columns))
            del table, parts
            # Threads free memory that others allocated; without this call the allocator keeps 50 MB of it.
            pa.default_memory_pool().release_unused()
    if left.num_rows or next(source, None) is not None:
        raise ValueError(f"compute returned more rows than the {sum(groups)} of the file")
