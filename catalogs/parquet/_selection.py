"""Some columns of a Parquet file, copied without decoding them: pages, indexes and Bloom filters as they are.

Where the columns that go lie behind all that stay, as those of an earlier annotation do, the copy ends before
them; else the chunks that stay are put together, and every place that the metadata name is moved with them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from catalogs.errors import DamagedFileError
from catalogs.parquet._fields import (
    BLOOM,
    CHILDREN,
    CHUNK_OFFSET,
    COLUMN_INDEX,
    COLUMN_ORDERS,
    COLUMNS,
    COMPRESSED,
    GROUP_OFFSET,
    LOCATIONS,
    METADATA,
    NAME,
    OFFSET_INDEX,
    PAGES,
    PLACE,
    ROW_GROUPS,
    SCHEMA,
    SORTED_BY,
    SORTING,
    TOTAL_BYTES,
    TOTAL_COMPRESSED,
    UNCOMPRESSED,
)
from catalogs.parquet._footer import MAGIC, Chunk, Footer
from catalogs.parquet._thrift import I32, I64, LIST, STRUCT, Items, MalformedError, Struct, decode, encode

__all__ = ["Mover", "copy_columns", "pages_extent", "without"]

PIECE = 1 << 24
NOWHERE = 1 << 62


def copy_columns(source: Path, stream: IO[bytes], footer: Footer, names: Collection[str]) -> Footer:
    """Write the columns of those names to an empty stream; return the footer that belongs behind them."""
    elements = footer.metadata.list(SCHEMA)
    groups = footer.metadata.list(ROW_GROUPS)
    with source.open("rb") as old:
        if all(name in names for name, _, _ in columns_of(elements)):
            Mover(old, stream).copy(0, footer.start)
            return footer
        leaves = kept_leaves(elements, names)
        cut = end_of_kept(groups, leaves)
        if cut is None or cut > footer.start:
            mover = Mover(old, stream)
            mover.copy(0, len(MAGIC))
            groups = [mover.group(group, leaves) for group in groups]
        else:
            Mover(old, stream).copy(0, cut)
            groups = [
                with_chunks(group, [group.list(COLUMNS)[i] for i in leaves], leaves) for group in groups
            ]
    metadata = footer.metadata.replace(SCHEMA, LIST, kept_schema(elements, names))
    metadata = metadata.replace(ROW_GROUPS, LIST, Items(STRUCT, groups))
    if COLUMN_ORDERS in metadata.fields:
        orders = [metadata.list(COLUMN_ORDERS)[i] for i in leaves]
        metadata = metadata.replace(COLUMN_ORDERS, LIST, Items(STRUCT, orders))
    return Footer(stream.tell(), metadata)


def columns_of(elements: Sequence[Struct]) -> Iterator[tuple[str, list[Struct], int]]:
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


def kept_leaves(elements: Sequence[Struct], names: Collection[str]) -> list[int]:
    """Return which column chunks of a row group belong to the named columns."""
    kept: list[int] = []
    at = 0
    for name, _, leaves in columns_of(elements):
        if name in names:
            kept += range(at, at + leaves)
        at += leaves
    return kept


def kept_schema(elements: Sequence[Struct], names: Collection[str]) -> Items:
    """Return the schema of the named columns."""
    columns = [parts for name, parts, _ in columns_of(elements) if name in names]
    root = elements[0].replace(CHILDREN, I32, len(columns))
    return Items(STRUCT, [root, *(element for parts in columns for element in parts)])


def end_of_kept(groups: Sequence[Struct], leaves: Sequence[int]) -> int | None:
    """Return where all that stays has ended, if nothing that goes begins before; else None."""
    staying = set(leaves)
    kept, gone = [(0, len(MAGIC))], [(NOWHERE, NOWHERE)]
    for group in groups:
        for i, packed in enumerate(group.list(COLUMNS)):
            (kept if i in staying else gone).extend(extents(Chunk.of(packed)))
    first_gone = min(start for start, _ in gone)
    last_kept = max(start for start, _ in kept)
    return max(end for _, end in kept) if last_kept < first_gone else None


def extents(chunk: Chunk) -> list[tuple[int, int]]:
    """Return from and to where in the file a chunk, its indexes and its Bloom filter lie."""
    known = ((chunk.fields, OFFSET_INDEX), (chunk.fields, COLUMN_INDEX), (chunk.column, BLOOM))
    blocks = [
        (place, place + (fields.get(length) or NOWHERE))
        for fields, (start, length) in known
        if (place := fields.get(start))
    ]
    pages = pages_extent(chunk.column)
    return [pages, *blocks] if pages[1] > pages[0] else blocks


def pages_extent(column: Mapping[int, int]) -> tuple[int, int]:
    """Return the bytes from and to which the pages of a chunk lie; of one without values they may be nowhere."""
    offsets = [place for number in PAGES if (place := column.get(number))]
    start = min(offsets, default=0)
    return start, start + (column.get(COMPRESSED, 0) if start else 0)


def with_chunks(group: Struct, chunks: Sequence[bytes], leaves: Sequence[int]) -> Struct:
    """Return a row group of only those chunks, which had the numbers `leaves`."""
    group = group.replace(COLUMNS, LIST, Items(STRUCT, list(chunks)))
    columns = [Chunk.of(packed).column for packed in chunks]
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
    return group.replace(SORTING, LIST, Items(STRUCT, order)) if order else without(group, SORTING)


def without(struct: Struct, *numbers: int) -> Struct:
    """Return the structure without some fields."""
    return Struct({number: field for number, field in struct.fields.items() if number not in numbers})


@dataclass(frozen=True)
class Mover:
    """Copies pieces of one file to the end of another, and says where they are now."""

    old: IO[bytes]
    new: IO[bytes]

    def copy(self, start: int, end: int) -> int:
        """Copy bytes; return where they begin now."""
        self.new.flush()
        at = place = self.new.tell()
        while start < end:
            n = _copied(self.old.fileno(), self.new.fileno(), start, place, min(end - start, PIECE))
            if not n:
                raise DamagedFileError(f"{self.old.name} became shorter while it was read; copy it again")
            start, place = start + n, place + n
        self.new.seek(place)
        return at

    def group(self, group: Struct, leaves: Sequence[int]) -> Struct:
        """Copy the chunks of a row group, then what belongs to them; return it with their new places."""
        at = self.new.tell()
        moved = [self.chunk(group.list(COLUMNS)[i]) for i in leaves]
        group = with_chunks(group, moved, leaves)
        return group.replace(GROUP_OFFSET, I64, at) if GROUP_OFFSET in group.fields else group

    def chunk(self, packed: bytes) -> bytes:
        """Copy one chunk, its Bloom filter and its indexes."""
        chunk = decode(packed)
        column = chunk.get(METADATA)
        start, end = pages_extent(Chunk.of(packed).column)
        shift = self.copy(start, end) - start
        for number in PAGES:
            if place := column.get(number):
                column = column.replace(number, I64, place + shift)
        column = self.block(column, BLOOM)
        chunk = self.offset_index(self.block(chunk, COLUMN_INDEX), shift)
        if chunk.get(CHUNK_OFFSET):
            chunk = chunk.replace(CHUNK_OFFSET, I64, chunk.get(CHUNK_OFFSET) + shift)
        return encode(chunk.replace(METADATA, STRUCT, column))

    def block(self, struct: Struct, fields: tuple[int, int]) -> Struct:
        """Copy the bytes at a place of a length, if both are known; else leave both out."""
        place, length = (struct.get(number) for number in fields)
        if not place or not length or place < 0 or length < 0:
            return without(struct, *fields)
        return struct.replace(fields[0], I64, self.copy(place, place + length))

    def offset_index(self, chunk: Struct, shift: int) -> Struct:
        """Write the index of pages with their new places."""
        place, length = (chunk.get(number) for number in OFFSET_INDEX)
        if not place or not length or place < 0 or length < 0:
            return without(chunk, *OFFSET_INDEX)
        self.old.seek(place)
        try:
            index = decode(self.old.read(length))
            pages: list[Any] = [p.replace(PLACE, I64, p.get(PLACE) + shift) for p in index.list(LOCATIONS)]
        except (MalformedError, AttributeError, TypeError):
            return without(chunk, *OFFSET_INDEX)  # The index is damaged, and readers do not need it.
        data = encode(index.replace(LOCATIONS, LIST, Items(STRUCT, pages)))
        chunk = chunk.replace(OFFSET_INDEX[0], I64, self.new.tell()).replace(OFFSET_INDEX[1], I32, len(data))
        self.new.write(data)
        return chunk


def _copied(old: int, new: int, start: int, place: int, n: int) -> int:
    """Copy up to n bytes and return how many: in the kernel, which shares them where the file system can."""
    try:
        if shared := os.copy_file_range(old, new, n, start, place):
            return shared
    except (AttributeError, OSError):  # not on this system, or not between these files
        pass
    return os.pwrite(new, os.pread(old, n, start), place)
