"""Column chunks of new columns, encoded in memory by pyarrow: each as a file of its own, less its footer.

The chunks of a row group that is too large to be held are made of pieces: pages that say all about themselves, without
a dictionary, which wait on the disk until the row group is complete.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from os import SEEK_END
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalogs.parquet._fields import (
    COMPRESSED,
    DATA_PAGE,
    ENCODING_STATS,
    METADATA,
    SIZE_STATISTICS,
    UNCOMPRESSED,
    VALUES,
)
from catalogs.parquet._footer import Footer, moved, parse_footer, single_chunk
from catalogs.parquet._selection import Mover, without
from catalogs.parquet._thrift import I64, STRUCT, Struct

__all__ = ["Chunks", "Encoded", "Piece", "write_chunks"]


@dataclass(frozen=True)
class Piece:
    """Some rows of a row group, all of it or, where it is too large to be held, a part."""

    group: int
    n_rows: int
    whole: bool


@dataclass(frozen=True)
class Encoded:
    """One column of a piece: its pages, and a footer's words on them as if they began a file."""

    piece: Piece
    number: int
    pages: memoryview
    chunk: Struct

    def append(self, stream: IO[bytes]) -> Struct:
        """Write the pages to the end of a stream; return the metadata of the chunk there."""
        start = stream.seek(0, SEEK_END)
        stream.write(self.pages)
        return moved(self.chunk, start)


@dataclass(frozen=True)
class Chunks:
    """Encodes column chunks."""

    path: Path
    schema: pa.Schema
    compression: str

    def schema_metadata(self) -> Struct:
        """Return the metadata of a file that has the new columns and no rows."""
        return self.file(self.schema, None, whole=True)[1].metadata

    def encode(self, column: tuple[Piece, int, pa.ChunkedArray]) -> Encoded:
        """Return one column of a piece as it is stored."""
        piece, number, values = column
        schema = pa.schema([self.schema.field(number)])
        table = pa.table([values], schema=schema)
        buffer, footer = self.file(schema, table, whole=piece.whole)
        return Encoded(piece, number, memoryview(buffer)[: footer.start], single_chunk(footer.metadata))

    def file(self, schema: pa.Schema, table: pa.Table | None, *, whole: bool) -> tuple[pa.Buffer, Footer]:
        """Return a Parquet file of one row group, or of none, and its footer."""
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink,
            schema,
            compression=self.compression,
            # Probabilities rarely repeat: a dictionary would triple the time and save no space.
            use_dictionary=[f.name for f in schema if not pt.is_floating(f.type)] if whole else False,
            write_statistics=whole,
            store_schema=False,
        ) as writer:
            if table is not None:
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
        buffer = sink.getvalue()
        return buffer, parse_footer(pa.BufferReader(buffer), self.path)


def write_chunks(
    encoded: Iterable[Encoded], stream: IO[bytes], n_groups: int, folder: Path
) -> list[list[Struct]]:
    """Write chunks to the end of a stream; return their metadata there for each row group."""
    written: list[list[Struct]] = [[] for _ in range(n_groups)]
    for (group, whole), columns in groupby(encoded, lambda e: (e.piece.group, e.piece.whole)):
        if whole:
            written[group] = [column.append(stream) for column in columns]
            continue
        with ExitStack() as stack:
            joined: dict[int, JoinedPages] = {}
            for column in columns:
                if column.number not in joined:
                    file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
                    joined[column.number] = JoinedPages(file, column.chunk)
                joined[column.number].add(column)
            written[group] = [joined[number].append(stream) for number in sorted(joined)]
    return written


@dataclass
class JoinedPages:
    """The pages of a column of one row group, piece behind piece in an unnamed file, and the first one's chunk."""

    file: IO[bytes]
    first: Struct
    sizes: dict[int, int] = field(
        default_factory=lambda: dict.fromkeys((VALUES, UNCOMPRESSED, COMPRESSED), 0)
    )

    def add(self, encoded: Encoded) -> None:
        """Store the pages of a piece."""
        column = encoded.chunk.get(METADATA)
        start = column.get(DATA_PAGE)
        self.file.write(encoded.pages[start : start + column.get(COMPRESSED)])
        self.sizes = {number: size + column.get(number) for number, size in self.sizes.items()}

    def append(self, stream: IO[bytes]) -> Struct:
        """Write them to the end of a stream as one chunk; return its metadata there."""
        self.file.flush()
        stream.seek(0, SEEK_END)
        places = self.sizes | {DATA_PAGE: Mover(self.file, stream).copy(0, self.file.tell())}
        # Counts of pages and of bytes of text are those of the first piece, and wrong for all; they are optional.
        column = without(self.first.get(METADATA), ENCODING_STATS, SIZE_STATISTICS)
        for number, value in places.items():
            column = column.replace(number, I64, value)
        return self.first.replace(METADATA, STRUCT, column)
