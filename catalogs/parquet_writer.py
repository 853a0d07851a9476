"""Annotated copies of Parquet files: the old bytes, the new columns behind them, one footer of both.

Only the columns that the classification reads are decoded, and only the new ones are encoded: each chunk
by pyarrow as a file of its own in memory, of which the footer is taken off again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalogs.annotations import NewColumn, Provenance
from catalogs.atomic import atomic_path
from catalogs.catalog import Column, Progress
from catalogs.code_points import text_array
from catalogs.computing import in_order
from catalogs.parquet_footer import Footer, key_values, merge, parse_footer, read_footer, single_chunk
from catalogs.parquet_metadata import DESCRIPTIONS, annotated_key_values, new_fields
from catalogs.parquet_selection import copy_columns
from catalogs.thrift import Struct

__all__ = ["Kept", "append_columns"]

CODECS = {"SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD"}
FALLBACK_CODEC = "NONE"

SPOOL_ROWS = 1 << 21
"""Rows of a row group beyond which its new columns wait on the disk, not in memory, until it is complete."""

NewValues = Mapping[str, np.ndarray[Any, Any]]


def append_columns(
    source: Path,
    out: Path,
    columns: Sequence[NewColumn],
    computed: Iterable[tuple[pa.RecordBatch, NewValues]],
    *,
    old: Sequence[Column],
    provenance: Provenance,
    kept: Kept | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> None:
    """Write a copy of `source` with the computed columns to `out`: whole, or not at all.

    `kept` are the old columns that stay, all where it is None.  Threads encode the new ones.
    """
    footer, metadata = read_footer(source), pq.read_metadata(source)
    schema = new_fields(columns)
    kept = kept or Kept(frozenset(c.name for c in old))
    changed = kept.key_values(key_values(footer), old, columns, provenance)
    with atomic_path(out) as temporary, temporary.open("r+b") as stream:
        footer = kept.copy(source, stream, footer)
        chunks = Chunks(out, schema, codec(metadata))
        parts = exactly(tables(computed, schema, progress), footer.row_groups)
        written: list[list[Struct]] = [[] for _ in footer.row_groups]
        giant = max(footer.row_groups, default=0) > SPOOL_ROWS
        with closing(chunks.encoded(parts, 0 if giant else threads)) as encoded:
            for chunk in encoded:
                written[chunk.group].append(chunk.append(stream))
        stream.write(merge(footer, chunks.schema_metadata(), written, changed))


@dataclass(frozen=True)
class Kept:
    """The old columns that a copy keeps; a `slim` one is described anew, for the old words tell of all columns."""

    names: frozenset[str]
    slim: bool = False

    def key_values(
        self,
        pairs: Mapping[str, str],
        old: Sequence[Column],
        columns: Sequence[NewColumn],
        provenance: Provenance,
    ) -> dict[str, str | None]:
        """Return the changes to the key-value metadata."""
        known = {k: v for k, v in pairs.items() if not (self.slim and k in DESCRIPTIONS)}
        dropped = {c.name for c in old} - self.names
        staying = [c for c in old if c.name in self.names]
        return annotated_key_values(known, staying, columns, provenance, dropped=dropped)

    def copy(self, source: Path, stream: IO[bytes], footer: Footer) -> Footer:
        """Write what stays of the old file; return the footer that belongs behind it."""
        return copy_columns(source, stream, footer, self.names)


def codec(metadata: pq.FileMetaData) -> str:
    """Return the compression of the file's first column, which the new ones share."""
    if not metadata.num_row_groups or not metadata.num_columns:
        return FALLBACK_CODEC
    name = metadata.row_group(0).column(0).compression
    return name if name in CODECS else FALLBACK_CODEC


def tables(
    computed: Iterable[tuple[pa.RecordBatch, NewValues]], schema: pa.Schema, progress: Progress | None
) -> Iterator[pa.Table]:
    """Yield the new columns of every batch."""
    for batch, values in computed:
        yield pa.table([arrow(values[f.name], f.type) for f in schema], schema=schema)
        if progress is not None:
            progress(batch.num_rows)


def arrow(values: np.ndarray[Any, Any], datatype: pa.DataType) -> pa.Array:
    """Return new values as Arrow; text of any NumPy kind."""
    if values.dtype.kind == "U":
        return text_array(values)
    return pa.array(values.astype(object) if values.dtype.kind == "T" else values, datatype)


def exactly(parts: Iterable[pa.Table], sizes: Sequence[int]) -> Iterator[tuple[int, Iterator[pa.Table]]]:
    """Yield for each row group its size and the tables that make it up."""
    source = iter(parts)
    left = [next(source)] if sum(sizes) else []
    for size in sizes:
        yield size, pieces(size, left, source)
    if (left and left[0].num_rows) or next(source, None) is not None:
        raise ValueError(f"more rows were computed than the {sum(sizes)} of the file")


def pieces(size: int, left: list[pa.Table], source: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield `size` rows: first of what is left, which it replaces by what then is left."""
    while size:
        piece = left[0].slice(0, size)
        left[0] = left[0].slice(piece.num_rows)
        size -= piece.num_rows
        yield piece
        if size:
            left[0] = next(source)


@dataclass(frozen=True)
class Encoded:
    """A column chunk of a row group: its pages, and a footer's words on them as if they began a file."""

    group: int
    pages: memoryview
    metadata: Struct

    def append(self, stream: IO[bytes]) -> Struct:
        """Write the pages to the end of a stream; return the metadata of the chunk there."""
        start = stream.seek(0, 2)
        stream.write(self.pages)
        return single_chunk(self.metadata, start)


@dataclass(frozen=True)
class Chunks:
    """Encodes column chunks."""

    path: Path
    schema: pa.Schema
    compression: str

    def schema_metadata(self) -> Struct:
        """Return the metadata of a file that has the new columns and no rows."""
        return self.file(self.schema, None)[1].metadata

    def encoded(self, groups: Iterable[tuple[int, Iterable[pa.Table]]], threads: int) -> Generator[Encoded]:
        """Yield the new chunks in the file's order; without threads one at a time, the memory of one column."""
        columns = self.columns(groups)
        yield from in_order(columns, self.encode, threads) if threads else map(self.encode, columns)

    def columns(
        self, groups: Iterable[tuple[int, Iterable[pa.Table]]]
    ) -> Iterator[tuple[int, pa.Field, pa.ChunkedArray]]:
        """Yield the new columns of each row group, with its number."""
        for number, (size, parts) in enumerate(groups):
            with ExitStack() as stack:
                if size > SPOOL_ROWS:
                    columns = Spool(self.path.parent, self.schema, stack).columns(parts)
                else:
                    table = pa.concat_tables([self.schema.empty_table(), *parts])
                    columns = zip(self.schema, table.columns, strict=True)
                for field, values in columns:
                    yield number, field, values
            # Threads free what others have allocated: without this the allocator keeps another 50 MB of it.
            pa.default_memory_pool().release_unused()

    def encode(self, column: tuple[int, pa.Field, pa.ChunkedArray]) -> Encoded:
        """Return one chunk as it is stored."""
        group, field, values = column
        schema = pa.schema([field])
        buffer, footer = self.file(schema, pa.table([values], schema=schema))
        return Encoded(group, memoryview(buffer)[: footer.start], footer.metadata)

    def file(self, schema: pa.Schema, table: pa.Table | None) -> tuple[pa.Buffer, Footer]:
        """Return a Parquet file of one row group, or of none, and its footer."""
        sink = pa.BufferOutputStream()
        self.write(sink, schema, table)
        buffer = sink.getvalue()
        return buffer, parse_footer(pa.BufferReader(buffer), self.path)

    def write(self, sink: pa.NativeFile, schema: pa.Schema, table: pa.Table | None) -> None:
        """Write a Parquet file of one row group, or of none."""
        with pq.ParquetWriter(
            sink,
            schema,
            compression=self.compression,
            # Probabilities hardly repeat: a dictionary of them triples the time and saves nothing.
            use_dictionary=[f.name for f in schema if not pt.is_floating(f.type)],
            store_schema=False,
        ) as writer:
            if table is not None:
                writer.write_table(table, row_group_size=max(table.num_rows, 1))


class Spool:
    """New columns on the disk: one unnamed file each, so that one at a time is read back."""

    def __init__(self, folder: Path, schema: pa.Schema, stack: ExitStack) -> None:
        self.schema = schema
        self.files = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in schema]  # noqa: SIM115

    def columns(self, parts: Iterable[pa.Table]) -> Iterator[tuple[pa.Field, pa.ChunkedArray]]:
        """Store the parts, then yield the columns one by one."""
        fields = [pa.schema([field]) for field in self.schema]
        with ExitStack() as stack:
            writers = [
                stack.enter_context(pa.ipc.new_stream(pa.PythonFile(file, mode="w"), schema))
                for file, schema in zip(self.files, fields, strict=True)
            ]
            for part in parts:
                for writer, schema, column in zip(writers, fields, part.columns, strict=True):
                    writer.write_table(pa.table([column], schema=schema))
        for file, field in zip(self.files, self.schema, strict=True):
            file.seek(0)
            yield field, pa.ipc.open_stream(pa.PythonFile(file, mode="r")).read_all().column(0)
            file.truncate(0)
