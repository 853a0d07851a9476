"""Parquet files are written: annotated copies by copying bytes and appending columns, others anew."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import lru_cache, partial
from itertools import groupby
from os import SEEK_END
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalogs.arrays import text_array
from catalogs.catalog.catalog import Column, NewValues, in_order
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import DamagedFileError
from catalogs.files import Stamp, atomic_path, check_unchanged, open_bytes
from catalogs.parquet._footer import (
    BLOOM,
    CHILDREN,
    CHUNK_OFFSET,
    CODEC,
    COLUMN_INDEX,
    COLUMN_ORDERS,
    COLUMNS,
    COMPRESSED,
    DATA_PAGE,
    ENCODING_STATS,
    GROUP_OFFSET,
    I32,
    I64,
    LIST,
    LOCATIONS,
    MAGIC,
    METADATA,
    NAME,
    OFFSET_INDEX,
    PAGE_COMPRESSED,
    PAGE_CRC,
    PAGES,
    PLACE,
    ROW_GROUPS,
    ROWS,
    SCHEMA,
    SIZE_STATISTICS,
    SORTED_BY,
    SORTING,
    STRUCT,
    TOTAL_BYTES,
    TOTAL_COMPRESSED,
    UNCOMPRESSED,
    VALUES,
    Footer,
    MalformedError,
    Struct,
    checked_chunks,
    decode,
    encode,
    key_values,
    merge,
    parse_footer,
    parse_whole,
    read_footer,
    shifted,
)
from catalogs.parquet.metadata import DESCRIPTIONS, annotated_key_values, new_fields

# https://parquet.apache.org/docs/file-format/data-pages/checksumming/

HEADERS = (1 << 10, 1 << 16, 1 << 20)
"""Bytes within which the header of a page is expected: statistics in it may be long."""
SUMMED_AT_ONCE = 1 << 22
CRC = 2**32 - 1


@lru_cache(maxsize=64)
def wrong_page(path: Path, expected: Stamp) -> str | None:
    """Return which page of a file has another checksum than its header states, None where none has."""
    check_unchanged(path, expected)
    with open_bytes(path) as stream:
        for chunk in checked_chunks(path, parse_whole(stream, path)):
            for start, size, stated in pages(stream, *pages_extent(chunk.get(METADATA))):
                if stated is None:
                    break  # writers state it of all pages of a column or of none
                stream.seek(start)
                found, left = 0, size
                while left and (piece := stream.read(min(left, SUMMED_AT_ONCE))):
                    found, left = zlib.crc32(piece, found), left - len(piece)
                if found != stated:
                    found_there = f"the page at byte {start:,} has the CRC {found:08x}"
                    return f"{path}: {found_there}, expected {stated:08x} by its header"
    return None


def pages(stream: IO[bytes], at: int, end: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield where the pages of a column chunk begin, their sizes, and their checksums, None where none is stated.

    They end before the first page whose header cannot be read.
    """
    while at < end:
        for size in HEADERS:
            stream.seek(at)
            try:
                header, n_bytes = decode(stream.read(size))
                break
            except MalformedError:
                continue
        else:
            return
        size = header.get(PAGE_COMPRESSED)
        if not isinstance(size, int) or size < 0 or at + n_bytes + size > end:
            return
        stated = header.get(PAGE_CRC) & CRC if PAGE_CRC in header.fields else None
        yield at + n_bytes, size, stated
        at += n_bytes + size


# Columns that stay are copied without decoding, with their indexes and Bloom filters.  New columns are encoded in
# memory by pyarrow.

# Column chunks of new columns, encoded in memory by pyarrow: each as a file of its own, less its footer.
#
# The chunks of a row group that is too large to be held are made of pieces: pages that say all about themselves,
# without a dictionary, which wait on the disk until the row group is complete.


Encoded = tuple[int, bool, int, memoryview, Struct]
"""A row group, whether it is all of it, the number of a column, its pages, and its chunk as if it began a file."""


def encoded(
    column: tuple[int, bool, int, pa.ChunkedArray], path: Path, schema: pa.Schema, codec: str
) -> Encoded:
    """Return one column of a row group, or of a part of it, as it is stored."""
    group, whole, number, values = column
    own = pa.schema([schema.field(number)])
    buffer, (end, metadata) = file_of(path, own, pa.table([values], schema=own), codec, whole=whole)
    ((packed,),) = (group.list(COLUMNS) for group in metadata.list(ROW_GROUPS))
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


def write_chunks(
    columns: Iterable[Encoded], stream: IO[bytes], n_groups: int, folder: Path
) -> list[list[Struct]]:
    """Write chunks to the end of a stream; return their metadata there for each row group."""
    written: list[list[Struct]] = [[] for _ in range(n_groups)]
    for (group, whole), of_group in groupby(columns, lambda column: column[:2]):
        if whole:
            for *_, pages, chunk in of_group:
                start = stream.seek(0, SEEK_END)
                stream.write(pages)
                column = shifted(chunk.get(METADATA), start)
                written[group].append(chunk.replace(METADATA, STRUCT, column))
            continue
        with ExitStack() as stack:
            joined: dict[int, tuple[IO[bytes], list[Struct]]] = {}  # of each column its pages, and its chunks
            for *_, number, pages, chunk in of_group:
                if number not in joined:
                    joined[number] = stack.enter_context(tempfile.TemporaryFile(dir=folder)), []
                file, chunks = joined[number]
                chunks.append(chunk)
                start, size = (chunk.get(METADATA).get(place) for place in (DATA_PAGE, COMPRESSED))
                file.write(pages[start : start + size])
            written[group] = [_append_pages(*joined[number], stream) for number in sorted(joined)]
    return written


def _append_pages(file: IO[bytes], chunks: Sequence[Struct], stream: IO[bytes]) -> Struct:
    """Write the pages of pieces, which are in a file, to the end of a stream as one chunk; return its metadata."""
    file.flush()
    stream.seek(0, SEEK_END)
    columns = [chunk.get(METADATA) for chunk in chunks]
    places = {n: sum(column.get(n) for column in columns) for n in (VALUES, UNCOMPRESSED, COMPRESSED)}
    places[DATA_PAGE] = copy(file, stream, 0, file.tell())
    # Counts of pages and of bytes of text are those of the first piece, and wrong for all; they are optional.
    column = without(columns[0], ENCODING_STATS, SIZE_STATISTICS)
    for number, value in places.items():
        column = column.replace(number, I64, value)
    return chunks[0].replace(METADATA, STRUCT, column)


# Some columns of a Parquet file, copied without decoding them: pages, indexes and Bloom filters as they are.
#
# Where the columns that go lie behind all that stay, as those of an earlier annotation do, the copy ends before
# them; else the chunks that stay are put together, and every place that the metadata name is moved with them.

PIECE = 1 << 24
NOWHERE = 1 << 62


def copy_columns(source: Path, stream: IO[bytes], footer: Footer, names: Collection[str]) -> Struct:
    """Write the columns of those names to an empty stream; return the metadata that belong behind them."""
    footer_at, metadata = footer
    elements, groups = metadata.list(SCHEMA), metadata.list(ROW_GROUPS)
    kept: list[Struct] = []
    leaves: list[int] = []  # the numbers of the chunks that stay
    n_columns = n_kept = n_leaves = 0
    for name, parts, n in selected_columns(elements):
        if name in names:
            kept += parts
            leaves += range(n_leaves, n_leaves + n)
            n_kept += 1
        n_columns, n_leaves = n_columns + 1, n_leaves + n
    with open_bytes(source) as old:
        if n_kept == n_columns:
            copy(old, stream, 0, footer_at)
            return metadata
        cut = end_of_kept(groups, leaves)
        if cut is None or cut > footer_at:
            copy(old, stream, 0, len(MAGIC))
            groups = [copied_group(old, stream, group, leaves) for group in groups]
        else:
            copy(old, stream, 0, cut)
            groups = [
                with_chunks(group, [group.list(COLUMNS)[i] for i in leaves], leaves) for group in groups
            ]
    root = elements[0].replace(CHILDREN, I32, n_kept)
    metadata = metadata.replace(SCHEMA, LIST, (STRUCT, [root, *kept]))
    metadata = metadata.replace(ROW_GROUPS, LIST, (STRUCT, groups))
    if COLUMN_ORDERS in metadata.fields:
        orders = [metadata.list(COLUMN_ORDERS)[i] for i in leaves]
        metadata = metadata.replace(COLUMN_ORDERS, LIST, (STRUCT, orders))
    return metadata


def selected_columns(elements: Sequence[Struct]) -> Iterator[tuple[str, list[Struct], int]]:
    """Yield the columns of a schema: name, its elements depth first, and how many of them hold values."""
    at = 1
    while at < len(elements):
        start, open_elements, leaves = at, 1, 0
        while open_elements:
            children = elements[at].get(CHILDREN, 0)
            open_elements += children - 1
            leaves += not children
            at += 1
        yield elements[start].get(NAME).decode("utf-8", "replace"), list(elements[start:at]), leaves


def end_of_kept(groups: Sequence[Struct], leaves: Sequence[int]) -> int | None:
    """Return where all that stays has ended, if nothing that goes begins before; else None."""
    staying = set(leaves)
    kept, gone = [(0, len(MAGIC))], [(NOWHERE, NOWHERE)]
    for group in groups:
        for i, packed in enumerate(group.list(COLUMNS)):
            (kept if i in staying else gone).extend(extents(decode(packed)[0]))
    first_gone = min(start for start, _ in gone)
    last_kept = max(start for start, _ in kept)
    return max(end for _, end in kept) if last_kept < first_gone else None


def extents(chunk: Struct) -> list[tuple[int, int]]:
    """Return from and to where in the file a chunk, its indexes and its Bloom filter lie."""
    column = chunk.get(METADATA)
    blocks = [
        (place, place + (fields.get(length) or NOWHERE))
        for fields, (start, length) in ((chunk, OFFSET_INDEX), (chunk, COLUMN_INDEX), (column, BLOOM))
        if (place := fields.get(start))
    ]
    pages = pages_extent(column)
    return [pages, *blocks] if pages[1] > pages[0] else blocks


def pages_extent(column: Struct) -> tuple[int, int]:
    """Return the bytes from and to which the pages of a chunk lie; of one without values they may be nowhere."""
    start = min((place for number in PAGES if (place := column.get(number))), default=0)
    return start, start + (column.get(COMPRESSED, 0) if start else 0)


def with_chunks(group: Struct, chunks: Sequence[bytes], leaves: Sequence[int]) -> Struct:
    """Return a row group of only those chunks, which had the numbers `leaves`."""
    group = group.replace(COLUMNS, LIST, (STRUCT, list(chunks)))
    columns = [decode(packed)[0].get(METADATA) for packed in chunks]
    for number, part in ((TOTAL_BYTES, UNCOMPRESSED), (TOTAL_COMPRESSED, COMPRESSED)):
        if number in group.fields:
            group = group.replace(number, I64, sum(column.get(part, 0) for column in columns))
    if SORTING not in group.fields:
        return group
    # Rows stay in order by the columns up to the first that goes.
    order: list[Struct] = []
    for column in group.list(SORTING):
        if column.get(SORTED_BY) not in leaves:
            break
        order.append(column.replace(SORTED_BY, I32, leaves.index(column.get(SORTED_BY))))
    return group.replace(SORTING, LIST, (STRUCT, order)) if order else without(group, SORTING)


def without(struct: Struct, *numbers: int) -> Struct:
    """Return the structure without some fields."""
    return Struct({number: field for number, field in struct.fields.items() if number not in numbers})


def copy(old: IO[bytes], new: IO[bytes], start: int, end: int) -> int:
    """Copy bytes to the end of another file: in the kernel, which shares them where the file system can.

    Return where they begin there.
    """
    new.flush()
    at = place = new.tell()
    while start < end:
        n = min(end - start, PIECE)
        try:
            n_copied = os.copy_file_range(old.fileno(), new.fileno(), n, start, place)
        except (AttributeError, OSError):  # not on this system, or not between these files
            n_copied = 0
        if not n_copied:
            n_copied = os.pwrite(new.fileno(), os.pread(old.fileno(), n, start), place)
        if not n_copied:
            raise DamagedFileError(f"{old.name} became shorter while it was read; copy it again")
        start, place = start + n_copied, place + n_copied
    new.seek(place)
    return at


def copied_group(old: IO[bytes], new: IO[bytes], group: Struct, leaves: Sequence[int]) -> Struct:
    """Copy the chunks of a row group, each with its Bloom filter and its indexes; return it with their new places."""
    at = new.tell()
    chunks = []
    for i in leaves:
        chunk, _ = decode(group.list(COLUMNS)[i])
        start, end = pages_extent(chunk.get(METADATA))
        shift = copy(old, new, start, end) - start
        column = copied_block(old, new, shifted(chunk.get(METADATA), shift), BLOOM)
        chunk = copied_block(old, new, chunk, COLUMN_INDEX)
        chunk = copied_block(old, new, chunk, OFFSET_INDEX, pages_shift=shift)
        if chunk.get(CHUNK_OFFSET):
            chunk = chunk.replace(CHUNK_OFFSET, I64, chunk.get(CHUNK_OFFSET) + shift)
        chunks.append(encode(chunk.replace(METADATA, STRUCT, column)))
    group = with_chunks(group, chunks, leaves)
    return group.replace(GROUP_OFFSET, I64, at) if GROUP_OFFSET in group.fields else group


def copied_block(
    old: IO[bytes], new: IO[bytes], struct: Struct, fields: tuple[int, int], *, pages_shift: int | None = None
) -> Struct:
    """Copy the bytes at a place of a length, if both are known; else leave both out.

    An index of pages is written with their new places, or left out where it is damaged: readers do not need it.
    """
    place, length = (struct.get(number) for number in fields)
    if not place or not length or place < 0 or length < 0:
        return without(struct, *fields)
    if pages_shift is None:
        return struct.replace(fields[0], I64, copy(old, new, place, place + length))
    old.seek(place)
    try:
        index, _ = decode(old.read(length))
        pages: list[Any] = [p.replace(PLACE, I64, p.get(PLACE) + pages_shift) for p in index.list(LOCATIONS)]
    except (MalformedError, AttributeError, TypeError):
        return without(struct, *fields)
    data = encode(index.replace(LOCATIONS, LIST, (STRUCT, pages)))
    struct = struct.replace(fields[0], I64, new.tell()).replace(fields[1], I32, len(data))
    new.write(data)
    return struct


# Annotated copies of Parquet files: the old bytes, the new columns behind them, one footer of both.
#
# Only the columns that the classification reads are decoded, and only the new ones are encoded.

CODECS = {1: "SNAPPY", 2: "GZIP", 4: "BROTLI", 5: "LZ4", 6: "ZSTD", 7: "LZ4"}
FALLBACK_CODEC = "NONE"

LARGE_GROUP = 1 << 20
"""Rows of the largest row group that is held in memory until it is complete; it is what Arrow writes by default."""
PIECE_ROWS = 1 << 17
"""Rows of which pages of larger ones are made."""


def append_columns(
    source: Path,
    out: Path,
    columns: Sequence[NewColumn],
    computed: Iterable[pa.Table],
    *,
    old: Sequence[Column],
    provenance: Provenance,
    kept: Collection[str] | None = None,
    slim: bool = False,
    threads: int = 1,
) -> None:
    """Write a copy of `source` with the computed columns, of all rows in order, to `out`: whole, or not at all.

    `kept` are the old columns that stay, all where it is None.  A `slim` copy is described anew, for the old words tell
    of all columns.  Threads encode the new ones.
    """
    footer = read_footer(source)
    schema = new_fields(columns)
    names = frozenset(c.name for c in old if kept is None or c.name in kept)
    pairs = {k: v for k, v in key_values(footer[1]).items() if not (slim and k in DESCRIPTIONS)}
    staying, dropped = [c for c in old if c.name in names], {c.name for c in old} - names
    changed = annotated_key_values(pairs, staying, columns, provenance, dropped=dropped)
    with atomic_path(out) as temporary, temporary.open("r+b") as stream:
        # The new columns are compressed as the file's first one is.
        old_chunks = (c for group in footer[1].list(ROW_GROUPS) for c in group.list(COLUMNS))
        first = next((decode(c)[0].get(METADATA).get(CODEC, 0) for c in old_chunks), 0)
        codec = CODECS.get(first, FALLBACK_CODEC)
        metadata = copy_columns(source, stream, footer, names)
        groups = [group.get(ROWS, 0) for group in metadata.list(ROW_GROUPS)]
        encode = partial(encoded, path=out, schema=schema, codec=codec)
        with closing(in_order(columns_of(groups, computed, schema), encode, threads)) as columns_in_order:
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
