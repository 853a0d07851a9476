"""Thrift's compact protocol, as much as a Parquet footer needs: bytes to plain values and back.

Nothing is interpreted, so fields that a later edition of Parquet adds come through unchanged.  A footer has a structure
for each column of each row group, and there may be millions: one reader makes values, or only finds where they end.
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
    "outline_and_end",
]

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


VALUES, OUTLINE, ENDS = range(3)
"""What is made of the bytes: values, the integers and places of a structure's fields, or nothing."""


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
    with _complete():
        return Struct(_struct(data, 0, 0, VALUES, packed)[0])


def outline(data: bytes, at: int = 0) -> dict[int, tuple[int, int]]:
    """Return the type and value of a structure's integers; of other fields, type and place."""
    return outline_and_end(data, at)[0]


def outline_and_end(data: bytes, at: int = 0) -> tuple[dict[int, tuple[int, int]], int]:
    """Return the outline of a structure, and where it ends."""
    with _complete():
        fields, end = _struct(data, at, 0, OUTLINE)
    if end > len(data):
        raise MalformedError("the bytes end early")
    return fields, end


def encode(struct: Struct) -> bytes:
    """Return the bytes of a structure."""
    out = bytearray()
    put_struct(out, struct)
    return bytes(out)


@contextmanager
def _complete() -> Iterator[None]:
    """Raise MalformedError where the bytes turn out to end early."""
    try:
        yield
    except (IndexError, KeyError, RecursionError) as error:
        raise MalformedError("the bytes end early or hold an unknown type") from error


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


def _struct(
    data: bytes, at: int, depth: int, mode: int, packed: tuple[int, ...] | None = None
) -> tuple[dict[int, tuple[int, Any]], int]:
    """Return a structure's fields, of no use where only its end is wanted, and where it ends."""
    _check(data, 0, depth)
    fields: dict[int, tuple[int, Any]] = {}
    number, ends, places = 0, mode == ENDS, mode == OUTLINE
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        if kind in INTEGERS and ends:  # of most fields: a loop here is quicker than a call
            while data[at] > 0x7F:
                at += 1
            at += 1
        elif kind in INTEGERS:
            value, at = _zigzag(data, at)
            fields[number] = (kind, value)
        elif kind <= FALSE:
            fields[number] = (kind, at if places else None)
        elif ends:
            _, at = _value(data, at, kind, depth, ENDS)
        elif places:
            fields[number] = (kind, at)
            _, at = _value(data, at, kind, depth, ENDS)
        else:
            inner = packed[1:] if packed and packed[0] == number else None
            values, at = _value(data, at, kind, depth, mode, inner)
            fields[number] = (kind, values)
    return fields, at + 1


def _value(
    data: bytes, at: int, kind: int, depth: int, mode: int, packed: tuple[int, ...] | None = None
) -> tuple[Any, int]:
    """Return a value of a type, None where only its end is wanted, and where it ends."""
    if kind in INTEGERS:
        return _zigzag(data, at)
    if kind == STRUCT:
        fields, end = _struct(data, at, depth + 1, mode, packed)
        return (Struct(fields) if mode == VALUES else None), end
    if kind in {LIST, SET, MAP}:
        return _items(data, at, kind, depth + 1, mode, packed)
    size, at = _varint(data, at) if kind == BINARY else (FIXED[kind], at)
    return (data[at : at + size] if mode == VALUES else None), at + size


def _items(
    data: bytes, at: int, kind: int, depth: int, mode: int, packed: tuple[int, ...] | None
) -> tuple[Items | None, int]:
    """Return a list, a set or a map, which has its types in one byte and keys and values by turns, and its end."""
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
    if mode == ENDS or (kind != MAP and of == STRUCT and packed == ()):
        return _ends(data, at, of, kinds * size, depth, mode)
    values = []
    for element in kinds * size:
        value, at = _value(data, at, element, depth, mode, packed)
        values.append(value)
    return Items(of, values), at


def _ends(
    data: bytes, at: int, of: int, kinds: tuple[int, ...], depth: int, mode: int
) -> tuple[Items | None, int]:
    """Return the elements of a list as their bytes, None where only the end is wanted, and where it ends."""
    values = []
    for kind in kinds:
        start = at
        if kind in INTEGERS:
            while data[at] > 0x7F:
                at += 1
            at += 1
        else:
            _, at = _value(data, at, kind, depth, ENDS)
        if mode == VALUES:
            values.append(data[start:at])
    return (Items(of, values) if mode == VALUES else None), at


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
