"""Annotated copies of Parquet files: the old bytes, the new columns behind them, one footer of both.

Only the columns that the classification reads are decoded, and only the new ones are encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from catalogs.arrays.code_points import text_array
from catalogs.catalog.catalog import Column
from catalogs.catalog.computing import in_order
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.files.atomic import atomic_path
from catalogs.parquet._chunks import Chunks, Piece, write_chunks
from catalogs.parquet._fields import CODEC, COLUMNS, ROW_GROUPS
from catalogs.parquet._footer import Chunk, Footer, key_values, merge, read_footer
from catalogs.parquet._selection import copy_columns
from catalogs.parquet.metadata import DESCRIPTIONS, annotated_key_values, new_fields

__all__ = ["Kept", "append_columns", "new_table"]

CODECS = {1: "SNAPPY", 2: "GZIP", 4: "BROTLI", 5: "LZ4", 6: "ZSTD", 7: "LZ4"}
FALLBACK_CODEC = "NONE"

LARGE_GROUP = 1 << 20
"""Rows of the largest row group that is held in memory until it is complete; it is what Arrow writes by default."""
PIECE_ROWS = 1 << 17
"""Rows of which pages of larger ones are made."""

NewValues = Mapping[str, np.ndarray[Any, Any]]


def append_columns(
    source: Path,
    out: Path,
    columns: Sequence[NewColumn],
    computed: Iterable[pa.Table],
    *,
    old: Sequence[Column],
    provenance: Provenance,
    kept: Kept | None = None,
    threads: int = 1,
) -> None:
    """Write a copy of `source` with the computed columns, of all rows in order, to `out`: whole, or not at all.

    `kept` are the old columns that stay, all where it is None.  Threads encode the new ones.
    """
    footer = read_footer(source)
    schema = new_fields(columns)
    kept = kept or Kept(frozenset(c.name for c in old))
    changed = kept.key_values(key_values(footer), old, columns, provenance)
    with atomic_path(out) as temporary, temporary.open("r+b") as stream:
        chunks = Chunks(out, schema, codec(footer))
        footer = kept.copy(source, stream, footer)
        pieces = pieces_of(footer.row_groups)
        parts = exactly(computed, [piece.n_rows for piece in pieces])
        with closing(in_order(columns_of(pieces, parts, schema), chunks.encode, threads)) as encoded:
            written = write_chunks(encoded, stream, len(footer.row_groups), out.parent)
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


def codec(footer: Footer) -> str:
    """Return the compression of the file's first column, which the new ones share."""
    chunk = next(
        (Chunk.of(packed) for group in footer.metadata.list(ROW_GROUPS) for packed in group.list(COLUMNS)),
        None,
    )
    return FALLBACK_CODEC if chunk is None else CODECS.get(chunk.column.get(CODEC, 0), FALLBACK_CODEC)


def new_table(values: NewValues, columns: Sequence[NewColumn]) -> pa.Table:
    """Return new columns of some rows as Arrow."""
    schema = new_fields(columns)
    return pa.table([arrow(values[f.name], f.type) for f in schema], schema=schema)


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
        raise ValueError(f"compute returned more rows than the {sum(sizes)} of the file")


def pieces(size: int, left: list[pa.Table], source: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield `size` rows: first of what is left, which it replaces by what then is left."""
    while size:
        piece = left[0].slice(0, size)
        left[0] = left[0].slice(piece.num_rows)
        size -= piece.num_rows
        yield piece
        if size:
            left[0] = next(source)


def pieces_of(row_groups: Sequence[int]) -> list[Piece]:
    """Return the pieces in which new columns are encoded: row groups, of those that are too large parts."""
    return [
        Piece(group, min(PIECE_ROWS, size - start) if size > LARGE_GROUP else size, size <= LARGE_GROUP)
        for group, size in enumerate(row_groups)
        for start in range(0, size if size > LARGE_GROUP else 1, PIECE_ROWS)
    ]


def columns_of(
    pieces: Sequence[Piece], parts: Iterable[tuple[int, Iterable[pa.Table]]], schema: pa.Schema
) -> Iterator[tuple[Piece, int, pa.ChunkedArray]]:
    """Yield the columns of each piece, numbered."""
    for piece, (_, tables_of_piece) in zip(pieces, parts, strict=True):
        table = pa.concat_tables([schema.empty_table(), *tables_of_piece])
        yield from ((piece, number, values) for number, values in enumerate(table.columns))
        del table
        # Threads free memory that others allocated; without this call the allocator keeps 50 MB of it.
        pa.default_memory_pool().release_unused()
