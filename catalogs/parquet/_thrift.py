"""Thrift's compact protocol, as much as a Parquet footer needs: bytes to plain values and back.

Nothing is interpreted, so fields that a later edition of Parquet adds come through unchanged.  The numbers of the
fields that copies have to do with are those of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from catalogs.parquet._thrift_layout import (
    BINARY,
    FALSE,
    FIXED,
    INTEGERS,
    LIST,
    MAP,
    SET,
    SHORT_LIST,
    STRUCT,
    TRUE,
    MalformedError,
    check,
    complete,
    past_struct,
    varint,
    zigzag,
)

__all__ = [
    "BLOOM",
    "CHILDREN",
    "CHUNK_OFFSET",
    "CODEC",
    "COLUMNS",
    "COLUMN_INDEX",
    "COLUMN_ORDERS",
    "COMPRESSED",
    "DATA_PAGE",
    "DICTIONARY_PAGE",
    "ENCODING_STATS",
    "ENCRYPTION",
    "FILE_PATH",
    "GROUP_OFFSET",
    "INDEX_PAGE",
    "KEY",
    "KEY_VALUES",
    "LOCATIONS",
    "METADATA",
    "NAME",
    "OFFSET_INDEX",
    "PAGES",
    "PLACE",
    "ROWS",
    "ROW_GROUPS",
    "SCHEMA",
    "SIZE_STATISTICS",
    "SORTED_BY",
    "SORTING",
    "TOTAL_BYTES",
    "TOTAL_COMPRESSED",
    "UNCOMPRESSED",
    "VALUE",
    "VALUES",
    "Items",
    "Struct",
    "decode",
    "encode",
]

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
# OffsetIndex, PageLocation
LOCATIONS, PLACE = 1, 1

# Where something lies, and how long it is: of a ColumnChunk, the last of its ColumnMetaData
OFFSET_INDEX, COLUMN_INDEX, BLOOM = (4, 5), (6, 7), (14, 15)

SHORT_STEP = 15
"""Field numbers that one may be beyond the last, to be written in half a byte."""


@dataclass(frozen=True)
class Items:
    """The elements of a list or set, all of one type; of a map, keys and values by turns (both types in `of`).

    A structure may be its bytes.
    """

    of: int
    values: list[Any]


@dataclass(frozen=True)
class Struct:
    """A structure: field number to (type, value), in the order of the bytes."""

    fields: dict[int, tuple[int, Any]]

    def get(self, number: int, default: Any = None) -> Any:
        """Return a field's value, or the default where it is not set."""
        return self.fields[number][1] if number in self.fields else default

    def list(self, number: int) -> list[Any]:
        """Return a list field's elements, none where it is not set."""
        items = self.get(number)
        return items.values if isinstance(items, Items) else []

    def replace(self, number: int, kind: int, value: Any) -> Struct:
        """Return a copy with one field set; fields stay in ascending order, as writers make them."""
        fields = {**self.fields, number: (kind, value)}
        return Struct(dict(sorted(fields.items())))


def decode(data: bytes, packed: tuple[int, ...] | None = None) -> Struct:
    """Return the structure that the bytes begin with; `MalformedError` where they do not hold one.

    `packed` are the fields that lead to a list of structures which stay bytes, for there may be very many.
    """
    with complete():
        return Decoder(data).struct(0, packed)


def encode(struct: Struct) -> bytes:
    """Return the bytes of a structure."""
    out = bytearray()
    put_struct(out, struct)
    return bytes(out)


class Decoder:
    """A place in the bytes; every method reads one thing and moves on."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        """Read an unsigned integer."""
        value, self.at = varint(self.data, self.at)
        return value

    def integer(self) -> int:
        """Read a signed integer."""
        value, self.at = zigzag(self.data, self.at)
        return value

    def take(self, size: int) -> bytes:
        """Read so many bytes."""
        if self.at + size > len(self.data):
            raise MalformedError(f"{size} bytes announced, {len(self.data) - self.at} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def value(self, kind: int, depth: int, packed: tuple[int, ...] | None = None) -> Any:
        """Read a value of a type; booleans in lists take a byte, in structures none."""
        if kind in INTEGERS:
            return self.integer()
        if kind in FIXED:
            return self.take(FIXED[kind])
        if kind == BINARY:
            return self.take(self.varint())
        if kind == MAP:
            return self.pairs(depth + 1)
        nested = {STRUCT: self.struct, LIST: self.items, SET: self.items}
        return nested[kind](depth + 1, packed)

    def items(self, depth: int, packed: tuple[int, ...] | None) -> Items:
        """Read a list or a set, which have the same bytes."""
        head = self.take(1)[0]
        size = head >> 4 if head >> 4 != SHORT_LIST else self.varint()
        check(self.data, size, depth)
        of = head & 0x0F
        if of == STRUCT and packed == ():
            return Items(of, [self.packed(depth) for _ in range(size)])
        return Items(of, [self.value(of, depth, packed) for _ in range(size)])

    def packed(self, depth: int) -> bytes:
        """Read a structure's bytes."""
        start = self.at
        self.at = past_struct(self.data, start, depth)
        return self.data[start : self.at]

    def pairs(self, depth: int) -> Items:
        """Read a map: its types in one byte, keys and values by turns."""
        size = self.varint()
        check(self.data, size, depth)
        kinds = self.take(1)[0] if size else 0
        return Items(kinds, [self.value(k, depth) for _ in range(size) for k in (kinds >> 4, kinds & 0x0F)])

    def struct(self, depth: int, packed: tuple[int, ...] | None) -> Struct:
        """Read a structure."""
        check(self.data, 0, depth)
        fields: dict[int, tuple[int, Any]] = {}
        number = 0
        while head := self.take(1)[0]:
            number = number + (head >> 4) if head >> 4 else self.integer()
            kind = head & 0x0F
            inner = packed[1:] if packed and packed[0] == number else None
            fields[number] = (kind, None if kind in {TRUE, FALSE} else self.value(kind, depth, inner))
        return Struct(fields)


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
    """Append a value of a type."""
    if kind in INTEGERS:
        put_integer(out, value)
    elif kind == BINARY:
        put_varint(out, len(value))
        out += value
    elif kind == STRUCT and isinstance(value, bytes):
        out += value
    elif kind == STRUCT:
        put_struct(out, value)
    elif kind in {LIST, SET}:
        put_items(out, value)
    elif kind == MAP:
        put_pairs(out, value)
    elif value is not None:
        out += value


def put_items(out: bytearray, items: Items) -> None:
    """Append a list or a set."""
    size = len(items.values)
    out.append(min(size, SHORT_LIST) << 4 | items.of)
    if size >= SHORT_LIST:
        put_varint(out, size)
    for value in items.values:
        put_value(out, items.of, value)


def put_pairs(out: bytearray, items: Items) -> None:
    """Append a map."""
    put_varint(out, len(items.values) // 2)
    if items.values:
        out.append(items.of)
    for i, value in enumerate(items.values):
        put_value(out, items.of & 0x0F if i % 2 else items.of >> 4, value)


def put_struct(out: bytearray, struct: Struct) -> None:
    """Append a structure."""
    last = 0
    for number, (kind, value) in struct.fields.items():
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
