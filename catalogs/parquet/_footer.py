"""Parquet footers: read, checked and merged, so that columns are added without touching the old ones; copies by them.

A footer is a structure in Thrift's compact protocol.  As much of that protocol as a footer needs is read into plain
values and written back.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from catalogs.errors import DamagedFileError, FormatError
from catalogs.files import Stamp, check_unchanged, open_bytes
from catalogs.remote.remote_file import RemoteFile

# The numbers of a Parquet footer's fields, of those that copies have to do with, by their structures.
# https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift

# FileMetaData
SCHEMA, ROW_GROUPS, KEY_VALUES, COLUMN_ORDERS, ENCRYPTION = 2, 4, 5, 7, 8
# SchemaElement
NAME, CHILDREN = 4, 5
# KeyValue
KEY, VALUE = 1, 2
# RowGroup
COLUMNS, TOTAL_BYTES, ROWS, SORTING, GROUP_OFFSET, TOTAL_COMPRESSED = 1, 2, 3, 4, 5, 6
# SortingColumn
SORTED_BY = 1
# ColumnChunk
FILE_PATH, CHUNK_OFFSET, METADATA = 1, 2, 3
# ColumnMetaData
CODEC, VALUES, UNCOMPRESSED, COMPRESSED = 4, 5, 6, 7
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE = PAGES = 9, 10, 11
ENCODING_STATS, SIZE_STATISTICS = 13, 16
# PageHeader
PAGE_COMPRESSED, PAGE_CRC = 3, 4

# Where something lies, and how long it is: of a ColumnChunk, the last of its ColumnMetaData
OFFSET_INDEX, COLUMN_INDEX, BLOOM = (4, 5), (6, 7), (14, 15)


# Thrift's compact protocol, as much as a Parquet footer needs: bytes to plain values and back.  Nothing is
# interpreted, so fields that a later edition of Parquet adds come through unchanged.  A footer has a structure for
# each column of each row group, and there may be millions: one reader makes values, or only finds where they end.
# https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

INTEGERS = frozenset({I16, I32, I64})

FIXED = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
"""Bytes of values that are copied as they are; booleans in lists take a byte, in structures none."""

MAX_DEPTH = 32
"""A Parquet footer nests about eight deep."""

SHORT_LIST = 15
"""Elements from which a list's size is a number of its own."""

SHORT_STEP = 15
"""Field numbers that one may be beyond the last, to be written in half a byte."""


class MalformedError(ValueError):
    """The bytes are no compact Thrift."""


Items = tuple[int, list[Any]]
"""The type of the elements of a list or set, and these; of a map both types in one, and keys and values by turns.

A structure among them may be its bytes.
"""


Struct = dict[int, tuple[int, Any]]
"""A structure: field number to (type, value), in the order of the bytes."""


def field(struct: Struct, number: int, default: Any = None) -> Any:
    """Return the value of a field."""
    return struct[number][1] if number in struct else default


def items(struct: Struct, number: int) -> list[Any]:
    """Return a list field's elements, none where it is not set."""
    found = field(struct, number)
    return found[1] if isinstance(found, tuple) else []


def with_field(struct: Struct, number: int, kind: int, value: Any) -> Struct:
    """Return a copy with one field set; fields stay in ascending order, as writers make them."""
    return dict(sorted({**struct, number: (kind, value)}.items()))


def decode(data: bytes, packed: tuple[int, ...] | None = None) -> tuple[Struct, int]:
    """Return the structure that the bytes begin with, and where it ends; `MalformedError` where they hold none.

    `packed` are the fields that lead to a list of structures which stay bytes, for there may be very many.
    """
    try:
        struct, end = _struct(data, 0, 0, packed)
    except (IndexError, KeyError, RecursionError) as error:
        raise MalformedError("the bytes end early or hold an unknown type") from error
    if end > len(data):
        raise MalformedError("the bytes end early")
    return struct, end


def encode(struct: Struct) -> bytes:
    out = bytearray()
    put_struct(out, struct)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned integer of 7 bits a byte, and where it ends."""
    value = data[at] & 0x7F
    shift = 0
    while data[at] > 0x7F:
        at += 1
        shift += 7
        if shift > 63:
            raise MalformedError("an integer of more than 64 bits")
        value |= (data[at] & 0x7F) << shift
    return value, at + 1


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """Return a signed integer, small magnitudes first, and where it ends."""
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _struct(data: bytes, at: int, depth: int, packed: tuple[int, ...] | None) -> tuple[Struct, int]:
    """Return a structure, and where it ends."""
    _check(data, 0, depth)
    fields: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        value = None
        if kind > FALSE:
            inner = packed[1:] if packed and packed[0] == number else None
            value, at = _value(data, at, kind, depth, inner)
        fields[number] = (kind, value)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int, packed: tuple[int, ...] | None) -> tuple[Any, int]:
    if kind in INTEGERS:
        return _zigzag(data, at)
    if kind == STRUCT:
        return _struct(data, at, depth + 1, packed)
    if kind in {LIST, SET, MAP}:
        values = []
        of, kinds, at = _types(data, at, kind, depth + 1)
        for element in kinds:
            if packed == () and element == STRUCT:
                start, at = at, _end(data, at, STRUCT, depth + 1)
                value = data[start:at]
            else:
                value, at = _value(data, at, element, depth + 1, packed)
            values.append(value)
        return (of, values), at
    size, at = _varint(data, at) if kind == BINARY else (FIXED[kind], at)
    return data[at : at + size], at + size


def _types(data: bytes, at: int, kind: int, depth: int) -> tuple[int, tuple[int, ...], int]:
    """Return the byte of a list's, a set's or a map's types, the type of each element, and where these begin."""
    if kind == MAP:
        size, at = _varint(data, at)
        of = data[at] if size else 0
        kinds: tuple[int, ...] = (of >> 4, of & 0x0F)
        at += bool(size)
    else:
        head = data[at]
        size, at = (head >> 4, at + 1) if head >> 4 != SHORT_LIST else _varint(data, at + 1)
        of = head & 0x0F
        kinds = (of,)
    _check(data, size, depth)
    return of, kinds * size, at


def _end(data: bytes, at: int, kind: int, depth: int) -> int:
    if kind == STRUCT:
        _check(data, 0, depth + 1)
        while head := data[at]:
            at += 1
            kind = head & 0x0F
            if not head >> 4:
                _, at = _varint(data, at)
            if kind in INTEGERS:  # of most fields: a loop here is quicker than a call
                while data[at] > 0x7F:
                    at += 1
                at += 1
            elif kind > FALSE:
                at = _end(data, at, kind, depth + 1)
        return at + 1
    if kind in {LIST, SET, MAP}:
        _, kinds, at = _types(data, at, kind, depth + 1)
        for element in kinds:
            at = _end(data, at, element, depth + 1)
        return at
    if kind in INTEGERS:
        return _varint(data, at)[1]
    size, at = _varint(data, at) if kind == BINARY else (FIXED[kind], at)
    return at + size


def _check(data: bytes, size: int, depth: int) -> None:
    """Refuse sizes and depths that only a damaged file announces."""
    if depth > MAX_DEPTH or size > len(data):
        raise MalformedError(f"{size} elements at depth {depth}")


def put_varint(out: bytearray, value: int) -> None:
    """Append an unsigned integer."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def put_integer(out: bytearray, value: int) -> None:
    """Append a signed integer."""
    put_varint(out, (value << 1) ^ (value >> 63))


def put_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in INTEGERS:
        put_integer(out, value)
    elif kind == BINARY:
        put_varint(out, len(value))
        out += value
    elif kind == STRUCT and isinstance(value, bytes):
        out += value
    elif kind == STRUCT:
        put_struct(out, value)
    elif kind in {LIST, SET, MAP}:
        put_items(out, kind, value)
    elif value is not None:
        out += value


def put_items(out: bytearray, kind: int, items: Items) -> None:
    """Append a list, a set, or a map, which has keys and values by turns."""
    of, values = items
    size, kinds = len(values), (of, of)
    if kind == MAP:
        put_varint(out, size // 2)
        out += bytes([of] if size else [])
        kinds = (of >> 4, of & 0x0F)
    else:
        out.append(min(size, SHORT_LIST) << 4 | of)
        if size >= SHORT_LIST:
            put_varint(out, size)
    for i, value in enumerate(values):
        put_value(out, kinds[i % 2], value)


def put_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, (kind, value) in struct.items():
        step = number - last
        if 0 < step <= SHORT_STEP:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            put_integer(out, number)
        if kind not in {TRUE, FALSE}:
            put_value(out, kind, value)
        last = number
    out.append(0)


# Parquet footers: read, checked, and merged, so that columns are added without touching the old ones.  A Parquet file
# says in its footer where every column chunk lies.  An annotated copy therefore is the old file's bytes at their old
# places, the new columns' chunks behind them, and one footer of both: old pages, encodings, codecs, statistics, page
# indexes and Bloom filters stay as they are to the byte.

MAGIC = b"PAR1"
ENCRYPTED = b"PARE"
TAIL = 8
"""Bytes behind the footer: its length and the magic."""

INDEX_PLACES, INDEX_LENGTHS = zip(OFFSET_INDEX, COLUMN_INDEX, strict=True)

# What is read of each structure: a field's type, and what the structures in it are.
Known = Mapping[int, tuple[int, "Known | None"]]
GROUP: Known = {
    COLUMNS: (LIST, None),
    SORTING: (LIST, {SORTED_BY: (I32, None)}),
    **dict.fromkeys((TOTAL_BYTES, ROWS, GROUP_OFFSET, TOTAL_COMPRESSED), (I64, None)),
}
FILE: Known = {
    SCHEMA: (LIST, {NAME: (BINARY, None), CHILDREN: (I32, None)}),
    ROW_GROUPS: (LIST, GROUP),
    KEY_VALUES: (LIST, {KEY: (BINARY, None), VALUE: (BINARY, None)}),
    COLUMN_ORDERS: (LIST, {}),
}
COLUMN: Known = {
    **dict.fromkeys((VALUES, UNCOMPRESSED, COMPRESSED, *PAGES, BLOOM[0]), (I64, None)),
    **dict.fromkeys((CODEC, BLOOM[1]), (I32, None)),
}
CHUNK: Known = {
    METADATA: (STRUCT, COLUMN),
    **dict.fromkeys((CHUNK_OFFSET, *INDEX_PLACES), (I64, None)),
    **dict.fromkeys(INDEX_LENGTHS, (I32, None)),
}


Footer = tuple[int, Struct]
"""Where in the file a footer starts, and what it holds."""


def read_footer(path: Path) -> Footer:
    """Return the footer of a file; `DamagedFileError` says what is wrong with it."""
    with open_bytes(path) as stream:
        footer = parse_whole(stream, path)
    for _ in checked_chunks(path, footer):
        pass
    return footer


def parse_whole(stream: IO[bytes], path: Path) -> Footer:
    """Return the footer of a file, whose chunks are still to be checked."""
    if stream.read(len(MAGIC)) not in {MAGIC, ENCRYPTED}:
        raise damaged(path, "it does not begin as a Parquet file does")
    footer = parse_footer(stream, path)
    if not fits(footer[1], FILE):
        raise damaged(path, "its footer has values whose types are not those of Parquet")
    if ENCRYPTION in footer[1]:
        raise FormatError(f"{path} has encrypted columns; expected plain Parquet: decrypt a copy of it first")
    return footer


def parse_footer(stream: IO[bytes], path: Path) -> Footer:
    """Return the footer that a stream ends with."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - TAIL, 0))
    tail = stream.read(TAIL)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] == ENCRYPTED:
        raise FormatError(f"{path} is encrypted; expected plain Parquet: decrypt a copy of it first")
    if tail[4:] != MAGIC or length > size - TAIL - len(MAGIC):
        raise damaged(path, "it does not end as a Parquet file does")
    start = stream.seek(size - TAIL - length)
    try:
        return start, decode(stream.read(length), packed=(ROW_GROUPS, COLUMNS))[0]
    except MalformedError as error:
        raise damaged(path, f"its footer cannot be read ({error})") from None


def damaged(place: Path | RemoteFile, what: str) -> DamagedFileError:
    """Return the error for a file that was cut or overwritten."""
    size = place.stat().st_size if isinstance(place, Path) else place.n_bytes
    return DamagedFileError(
        f"{place} ({size} bytes) is damaged: {what}; expected a whole file: fetch or write it again"
    )


def checked_chunks(path: Path, footer: Footer) -> Iterator[Struct]:
    """Yield the column chunks; raise unless each lies between the magic and the footer."""
    footer_at, metadata = footer
    for packed in (packed for group in items(metadata, ROW_GROUPS) for packed in items(group, COLUMNS)):
        try:
            chunk, _ = decode(packed)
        except MalformedError:
            chunk = {}
        if METADATA not in chunk or not fits(chunk, CHUNK):
            raise damaged(path, "its footer does not say in which bytes the columns are")
        if FILE_PATH in chunk:
            raise FormatError(f"{path} holds no columns, but points to other files; open those files instead")
        column = field(chunk, METADATA)
        # Some writers say dictionary page 0 for none.
        start = min((o for o in (field(column, DATA_PAGE), field(column, DICTIONARY_PAGE)) if o), default=0)
        end = start + field(column, COMPRESSED, footer_at)
        # For a chunk without values, the places that writers state have no meaning.
        if field(column, VALUES) and (start < len(MAGIC) or end > footer_at):
            raise damaged(path, f"its footer places a column in bytes {start} to {end}, outside of the data")
        yield chunk


def fits(struct: Struct, known: Known) -> bool:
    """Say whether the fields of a structure are of the types that are known of them."""
    for number, (kind, inner) in known.items():
        if number not in struct:
            continue
        stored_kind, value = struct[number]
        if stored_kind != kind or (kind == LIST and value[1] and value[0] != STRUCT):
            return False
        parts = value[1] if kind == LIST else [value]
        if inner is not None and not all(fits(part, inner) for part in parts):
            return False
    return True


def key_values(metadata: Struct) -> dict[str, str]:
    """Return the key-value metadata; a key without a value has an empty one."""
    pairs = items(metadata, KEY_VALUES)
    words = ((field(p, KEY), field(p, VALUE, b"")) for p in pairs)
    return {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in words}


def shifted(column: Struct, shift: int) -> Struct:
    """Return a chunk's metadata as its pages lie `shift` bytes further on."""
    for number in PAGES:
        if offset := field(column, number):
            column = with_field(column, number, I64, offset + shift)
    return column


def merge(
    old: Struct, schema: Struct, chunks: Sequence[Sequence[Struct]], changed: Mapping[str, str | None]
) -> bytes:
    """Return the end of a file, from its footer on: the old columns, then the new.

    `schema` is the metadata of a file of the new columns only, `chunks` theirs in each row group.  Keys of
    `changed` replace old ones in their place or are added, those of None go; all others stay as they are.
    """
    (root, *elements), (other, *more) = items(old, SCHEMA), items(schema, SCHEMA)
    root = with_field(root, CHILDREN, I32, field(root, CHILDREN, 0) + field(other, CHILDREN, 0))
    metadata = with_field(old, SCHEMA, LIST, (STRUCT, [root, *elements, *more]))
    joined = []
    for old_group, new in zip(items(old, ROW_GROUPS), chunks, strict=True):
        group = with_field(old_group, COLUMNS, LIST, (STRUCT, items(old_group, COLUMNS) + list(new)))
        for number, part in ((TOTAL_BYTES, UNCOMPRESSED), (TOTAL_COMPRESSED, COMPRESSED)):
            if number in old_group:
                added = sum(field(field(chunk, METADATA), part, 0) for chunk in new)
                group = with_field(group, number, I64, field(old_group, number) + added)
        joined.append(group)
    metadata = with_field(metadata, ROW_GROUPS, LIST, (STRUCT, joined))
    metadata = with_field(metadata, KEY_VALUES, LIST, (STRUCT, replaced(items(old, KEY_VALUES), changed)))
    # If the old columns state no order, no order can be stated for all, so there are none.
    if COLUMN_ORDERS in metadata:
        orders = items(old, COLUMN_ORDERS) + items(schema, COLUMN_ORDERS)
        metadata = with_field(metadata, COLUMN_ORDERS, LIST, (STRUCT, orders))
    data = encode(metadata)
    return data + len(data).to_bytes(4, "little") + MAGIC


def replaced(pairs: Sequence[Any], changed: Mapping[str, str | None]) -> list[Struct]:
    """Return the key-value pairs with the changed ones in place and the new ones at the end."""
    left = {key.encode(): value for key, value in changed.items()}
    result = []
    for pair in pairs:
        if field(pair, KEY) not in left:
            result.append(pair)
        elif (value := left.pop(field(pair, KEY))) is not None:
            result.append(with_field(pair, VALUE, BINARY, value.encode()))
    new = ((key, value) for key, value in left.items() if value is not None)
    return result + [{KEY: (BINARY, key), VALUE: (BINARY, value.encode())} for key, value in new]


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
            for start, size, stated in pages(stream, *pages_extent(field(chunk, METADATA))):
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
        size = field(header, PAGE_COMPRESSED)
        if not isinstance(size, int) or size < 0 or at + n_bytes + size > end:
            return
        stated = field(header, PAGE_CRC) & CRC if PAGE_CRC in header else None
        yield at + n_bytes, size, stated
        at += n_bytes + size


# New column chunks behind the old ones.

Encoded = tuple[int, bool, int, memoryview, Struct]
"""A row group, whether it is all of it, the number of a column, its pages, and its chunk as if it began a file."""


def write_chunks(
    columns: Iterable[Encoded], stream: IO[bytes], n_groups: int, folder: Path
) -> list[list[Struct]]:
    """Write chunks to the end of a stream; return their metadata there for each row group."""
    written: list[list[Struct]] = [[] for _ in range(n_groups)]
    for (group, whole), of_group in groupby(columns, lambda column: column[:2]):
        if whole:
            for *_, pages, chunk in of_group:
                start = stream.seek(0, os.SEEK_END)
                stream.write(pages)
                column = shifted(field(chunk, METADATA), start)
                written[group].append(with_field(chunk, METADATA, STRUCT, column))
            continue
        with ExitStack() as stack:
            joined: dict[int, tuple[IO[bytes], list[Struct]]] = {}  # of each column its pages, and its chunks
            for *_, number, pages, chunk in of_group:
                if number not in joined:
                    joined[number] = stack.enter_context(tempfile.TemporaryFile(dir=folder)), []
                file, chunks = joined[number]
                chunks.append(chunk)
                start, size = (field(field(chunk, METADATA), place) for place in (DATA_PAGE, COMPRESSED))
                file.write(pages[start : start + size])
            written[group] = [_append_pages(*joined[number], stream) for number in sorted(joined)]
    return written


def _append_pages(file: IO[bytes], chunks: Sequence[Struct], stream: IO[bytes]) -> Struct:
    """Write the pages of pieces, which are in a file, to the end of a stream as one chunk; return its metadata."""
    file.flush()
    stream.seek(0, os.SEEK_END)
    columns = [field(chunk, METADATA) for chunk in chunks]
    places = {n: sum(field(column, n) for column in columns) for n in (VALUES, UNCOMPRESSED, COMPRESSED)}
    places[DATA_PAGE] = copy(file, stream, 0, file.tell())
    # Counts of pages and of bytes of text are those of the first piece, and wrong for all; they are optional.
    column = without(columns[0], ENCODING_STATS, SIZE_STATISTICS)
    for number, value in places.items():
        column = with_field(column, number, I64, value)
    return with_field(chunks[0], METADATA, STRUCT, column)


# Some columns of a Parquet file, copied without decoding their pages.  Where the columns that go lie behind all that
# stay, as those of an earlier annotation do, the copy ends before them, indexes and Bloom filters included; else the
# chunks that stay are put together.

PIECE = 1 << 24
NOWHERE = 1 << 62


def copy_columns(source: Path, stream: IO[bytes], footer: Footer, names: Collection[str]) -> Struct:
    """Write the columns of those names to an empty stream; return the metadata that belong behind them."""
    footer_at, metadata = footer
    elements, groups = items(metadata, SCHEMA), items(metadata, ROW_GROUPS)
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
            groups = [with_chunks(g, [items(g, COLUMNS)[i] for i in leaves], leaves) for g in groups]
    root = with_field(elements[0], CHILDREN, I32, n_kept)
    metadata = with_field(metadata, SCHEMA, LIST, (STRUCT, [root, *kept]))
    metadata = with_field(metadata, ROW_GROUPS, LIST, (STRUCT, groups))
    if COLUMN_ORDERS in metadata:
        orders = [items(metadata, COLUMN_ORDERS)[i] for i in leaves]
        metadata = with_field(metadata, COLUMN_ORDERS, LIST, (STRUCT, orders))
    return metadata


def selected_columns(elements: Sequence[Struct]) -> Iterator[tuple[str, list[Struct], int]]:
    """Yield the columns of a schema: name, its elements depth first, and how many of them hold values."""
    at = 1
    while at < len(elements):
        start, open_elements, leaves = at, 1, 0
        while open_elements:
            children = field(elements[at], CHILDREN, 0)
            open_elements += children - 1
            leaves += not children
            at += 1
        yield field(elements[start], NAME).decode("utf-8", "replace"), list(elements[start:at]), leaves


def end_of_kept(groups: Sequence[Struct], leaves: Sequence[int]) -> int | None:
    """Return where all that stays has ended, if nothing that goes begins before; else None."""
    staying = set(leaves)
    kept, gone = [(0, len(MAGIC))], [(NOWHERE, NOWHERE)]
    for i, packed in (numbered for group in groups for numbered in enumerate(items(group, COLUMNS))):
        chunk = decode(packed)[0]
        column = field(chunk, METADATA)
        blocks = kept if i in staying else gone
        if (pages := pages_extent(column))[1] > pages[0]:
            blocks.append(pages)
        for fields, (start, length) in ((chunk, OFFSET_INDEX), (chunk, COLUMN_INDEX), (column, BLOOM)):
            if place := field(fields, start):
                blocks.append((place, place + (field(fields, length) or NOWHERE)))
    first_gone = min(start for start, _ in gone)
    last_kept = max(start for start, _ in kept)
    return max(end for _, end in kept) if last_kept < first_gone else None


def pages_extent(column: Struct) -> tuple[int, int]:
    """Return the bytes from and to which the pages of a chunk lie; of one without values they may be nowhere."""
    start = min((place for number in PAGES if (place := field(column, number))), default=0)
    return start, start + (field(column, COMPRESSED, 0) if start else 0)


def with_chunks(group: Struct, chunks: Sequence[bytes], leaves: Sequence[int]) -> Struct:
    """Return a row group of only those chunks, which had the numbers `leaves`."""
    group = with_field(group, COLUMNS, LIST, (STRUCT, list(chunks)))
    columns = [field(decode(packed)[0], METADATA) for packed in chunks]
    for number, part in ((TOTAL_BYTES, UNCOMPRESSED), (TOTAL_COMPRESSED, COMPRESSED)):
        if number in group:
            group = with_field(group, number, I64, sum(field(column, part, 0) for column in columns))
    if SORTING not in group:
        return group
    # Rows stay in order by the columns up to the first that goes.
    order: list[Struct] = []
    for column in items(group, SORTING):
        if field(column, SORTED_BY) not in leaves:
            break
        order.append(with_field(column, SORTED_BY, I32, leaves.index(field(column, SORTED_BY))))
    return with_field(group, SORTING, LIST, (STRUCT, order)) if order else without(group, SORTING)


def without(struct: Struct, *numbers: int) -> Struct:
    """Return the structure without some fields."""
    return {number: stored for number, stored in struct.items() if number not in numbers}


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
    """Copy the chunks of a row group; return it with their new places.

    Bloom filters and indexes, which tell places of the old file and which no reader needs, are left out.
    """
    at = new.tell()
    chunks = []
    for i in leaves:
        chunk, _ = decode(items(group, COLUMNS)[i])
        start, end = pages_extent(field(chunk, METADATA))
        shift = copy(old, new, start, end) - start
        column = without(shifted(field(chunk, METADATA), shift), *BLOOM)
        if place := field(chunk, CHUNK_OFFSET):
            chunk = with_field(chunk, CHUNK_OFFSET, I64, place + shift)
        chunk = with_field(chunk, METADATA, STRUCT, column)
        chunks.append(encode(without(chunk, *OFFSET_INDEX, *COLUMN_INDEX)))
    group = with_chunks(group, chunks, leaves)
    return with_field(group, GROUP_OFFSET, I64, at) if GROUP_OFFSET in group else group
