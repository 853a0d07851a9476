"""Compact Thrift: bytes to values and back, unchanged; malformed bytes are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogs.parquet._footer import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Items,
    MalformedError,
    Struct,
    decode,
    encode,
    outline,
)
from tests.catalogs.parquet_samples import write_rich

TRUE, FALSE, BYTE, DOUBLE, SET, MAP, UUID = 1, 2, 3, 7, 10, 11, 13


def test_a_real_footer_comes_back_to_the_byte(tmp_path: Path) -> None:
    data = write_rich(tmp_path / "a.parquet").read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert encode(decode(footer)) == footer
    packed = decode(footer, packed=(4, 1))
    assert encode(packed) == footer
    chunks = [chunk for group in packed.list(4) for chunk in group.list(1)]
    assert {type(chunk) for chunk in chunks} == {bytes}
    assert [decode(c) for c in chunks] == [c for group in decode(footer).list(4) for c in group.list(1)]


def values(kind: str) -> Any:
    """Return a strategy of values of a type, and of the structures around them."""
    simple = {
        BYTE: st.binary(min_size=1, max_size=1),
        I32: st.integers(-(2**31), 2**31 - 1),
        I64: st.integers(-(2**63), 2**63 - 1),
        DOUBLE: st.binary(min_size=8, max_size=8),
        BINARY: st.binary(max_size=20),
        UUID: st.binary(min_size=16, max_size=16),
        STRUCT: st.deferred(lambda: structs),
        MAP: st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=3)), max_size=3).map(
            lambda p: Items(I32 << 4 | BINARY if p else 0, [x for pair in p for x in pair])
        ),
    }
    if kind in {LIST, SET}:
        return st.sampled_from([I64, BINARY, STRUCT]).flatmap(
            lambda of: st.lists(simple[of], max_size=20).map(lambda v: Items(of, v))
        )
    return simple.get(kind, st.none())


KINDS = [TRUE, FALSE, BYTE, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID]
fields = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), values(kind)))
structs = st.dictionaries(st.integers(1, 300), fields, max_size=4).map(
    lambda d: Struct(dict(sorted(d.items())))
)


@settings(max_examples=30)  # each is many of the structures that the next test draws
@given(st.lists(structs, max_size=3), st.integers(1, 7), st.integers(1, 300), st.integers(1, 300))
def test_packed_structures_are_the_bytes_of_the_decoded(
    some: Any, times: int, outer: Any, number: int
) -> None:
    """Found by passing over them, where the slow way makes objects of all; lists of 15 have another header."""
    inner = some * times
    middle = Struct({number: (LIST, Items(STRUCT, inner))})
    data = encode(Struct({outer: (LIST, Items(STRUCT, [middle, middle]))}))
    packed = decode(data, packed=(outer, number))
    assert encode(packed) == data
    for element in packed.list(outer):
        assert element.list(number) == list(map(encode, inner))


@given(structs)
def test_what_is_written_is_read_and_its_outline_has_the_integers(struct: Any) -> None:
    assert decode(encode(struct)) == struct
    found = outline(b"before" + encode(struct), 6)
    assert {number: kind for number, (kind, _) in found.items()} == {
        n: k for n, (k, _) in struct.fields.items()
    }
    integers = {n: field for n, field in struct.fields.items() if field[0] in {I32, I64}}
    assert {n: found[n] for n in integers} == integers


@given(st.binary(max_size=60))
@pytest.mark.parametrize("read", [decode, lambda data: decode(data, packed=(1,)), outline])
def test_any_bytes_are_read_or_refused(read: Any, data: bytes) -> None:
    try:
        read(data)
    except MalformedError as error:
        assert str(error)  # noqa: PT017


def test_integers_of_more_than_64_bits_are_refused() -> None:
    with pytest.raises(MalformedError, match="64 bits"):
        decode(bytes([0x16]) + b"\xff" * 10 + b"\x01\x00")


def test_sizes_beyond_the_bytes_are_refused() -> None:
    """A list that says it has a million elements in ten bytes takes no memory."""
    with pytest.raises(MalformedError, match="elements"):
        decode(bytes([0x19, 0xF6]) + b"\xff\xff\xff\x7f" + bytes(4))


def test_replace_keeps_the_order_of_fields() -> None:
    struct = Struct({1: (I32, 5), 4: (BINARY, b"x")}).replace(2, I64, 7)
    assert list(struct.fields) == [1, 2, 4]
    assert struct.get(2) == 7
    assert struct.get(9, "none") == "none"
