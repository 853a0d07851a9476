"""Thrift's compact protocol, as much as a Parquet footer needs: bytes to plain values and back.

Nothing is interpreted, so fields that a later edition of Parquet adds come through unchanged.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = [
    "BINARY",
    "I32",
    "I64",
    "LIST",
    "STRUCT",
    "Items",
    "MalformedError",
    "Struct",
    "decode",
    "encode",
    "outline",
]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

INTEGERS = frozenset({I16, I32, I64})

FIXED = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
"""Bytes of values that are copied as they are."""

MAX_DEPTH = 32
"""A Parquet footer nests about eight deep."""

SHORT_LIST = 15
SHORT_STEP = 15


class MalformedError(ValueError):
    """The bytes are no compact Thrift."""


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


def outline(data: bytes, at: int = 0) -> dict[int, tuple[int, int]]:
    """Return the type and value of a structure's integers; of other fields, type and place."""
    fields: dict[int, tuple[int, int]] = {}
    number = 0
    with complete():
        while head := data[at]:
            at += 1
            kind = head & 0x0F
            number += head >> 4
            if not head >> 4:
                number, at = zigzag(data, at)
            fields[number] = (kind, at)
            if kind in INTEGERS:
                value, at = zigzag(data, at)
                fields[number] = (kind, value)
            elif kind > FALSE:
                at = past(data, at, kind, 0)
    return fields


@contextmanager
def complete() -> Iterator[None]:
    """Raise MalformedError where the bytes turn out to end early."""
    try:
        yield
    except (IndexError, KeyError, RecursionError) as error:
        raise MalformedError("the bytes end early or hold an unknown type") from error


def varint(data: bytes, at: int) -> tuple[int, int]:
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


def zigzag(data: bytes, at: int) -> tuple[int, int]:
    """Return a signed integer, small magnitudes first, and where it ends."""
    value, at = varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def past_struct(data: bytes, at: int, depth: int) -> int:
    """Return where a structure ends of which nothing is to be known; there are very many, so loops are open here."""
    check(data, 0, depth)
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if not head >> 4:
            at = past(data, at, I16, depth)
        if kind in INTEGERS:
            while data[at] > 0x7F:
                at += 1
            at += 1
        elif kind > FALSE:
            at = past(data, at, kind, depth + 1)
    return at + 1


def past(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return where a value ends of which nothing is to be known."""
    if kind == STRUCT:
        return past_struct(data, at, depth)
    if kind == BINARY:
        size, at = varint(data, at)
        return at + size
    if kind in {LIST, SET, MAP}:
        return past_items(data, at, kind, depth)
    return varint(data, at)[1] if kind in INTEGERS else at + FIXED[kind]


def past_items(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return where a list, a set or a map ends."""
    head = data[at]
    size, at = (
        (head >> 4, at + 1) if kind != MAP and head >> 4 != SHORT_LIST else varint(data, at + (kind != MAP))
    )
    check(data, size, depth)
    kinds = [head & 0x0F]
    if kind == MAP:
        kinds = [data[at] >> 4, data[at] & 0x0F] if size else []
        at += bool(size)
    of_integers = INTEGERS.issuperset(kinds)
    for _ in range(size):
        for of in kinds:
            if of_integers:
                while data[at] > 0x7F:
                    at += 1
                at += 1
            else:
                at = past(data, at, of, depth + 1)
    return at


def check(data: bytes, size: int, depth: int) -> None:
    """Refuse sizes and depths that only a damaged file announces."""
    if depth > MAX_DEPTH or size > len(data):
        raise MalformedError(f"{size} elements at depth {depth}")


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
