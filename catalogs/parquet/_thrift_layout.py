"""Thrift's compact protocol without making values of it: where each ends, and the integers of a structure.

A Parquet footer has a structure for each column of each row group, and there may be millions.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "BINARY",
    "FALSE",
    "FIXED",
    "I32",
    "I64",
    "INTEGERS",
    "LIST",
    "MAP",
    "SET",
    "SHORT_LIST",
    "STRUCT",
    "TRUE",
    "MalformedError",
    "check",
    "complete",
    "outline",
    "past_struct",
    "varint",
    "zigzag",
]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

INTEGERS = frozenset({I16, I32, I64})

FIXED = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
"""Bytes of values that are copied as they are."""

MAX_DEPTH = 32
"""A Parquet footer nests about eight deep."""

SHORT_LIST = 15
"""Elements from which a list's size is a number of its own."""


class MalformedError(ValueError):
    """The bytes are no compact Thrift."""


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
