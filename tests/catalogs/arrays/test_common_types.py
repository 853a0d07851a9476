"""The common type of several types: it holds every value of each exactly, or the cast fails."""

from __future__ import annotations

import datetime as dt
import decimal
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalogs.arrays import common_type

INTEGERS = [pa.type_for_alias(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = [*INTEGERS, pa.float16(), pa.float32(), pa.float64()]
STRUCT = pa.struct({"a": pa.int32(), "b": pa.string()})

VALUES: dict[pa.DataType, list[Any]] = {
    pa.null(): [None],
    pa.bool_(): [True, None],
    **{
        t: [int(np.iinfo(t.to_pandas_dtype()).min), int(np.iinfo(t.to_pandas_dtype()).max), 3]
        for t in INTEGERS
    },
    pa.float16(): [0.5, -65504.0, None],
    pa.float32(): [0.5, float(np.float32(1.1)), -3.4e38],
    pa.float64(): [0.1, 1e300, None],
    pa.decimal128(10, 2): [decimal.Decimal("12345678.25"), None],
    pa.decimal128(38, 0): [decimal.Decimal(10**38 - 1)],
    pa.string(): ["é", "", None],
    pa.large_string(): ["a "],
    pa.string_view(): ["view"],
    pa.binary(): [b"\xc3\xa9", None],
    pa.large_binary(): [b"a"],
    pa.binary(2): [b"ab"],
    pa.timestamp("ms"): [dt.datetime(2026, 1, 1)],  # noqa: DTZ001 -- without a zone
    pa.timestamp("us"): [dt.datetime(1, 1, 1, 0, 0, 0, 7)],  # noqa: DTZ001
    pa.timestamp("ms", "UTC"): [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
    pa.time32("ms"): [dt.time(1, 2, 3, 4000)],
    pa.time64("us"): [dt.time(1, 2, 3, 4)],
    pa.duration("s"): [dt.timedelta(days=3)],
    pa.duration("us"): [dt.timedelta(microseconds=3)],
    pa.date32(): [dt.date(2026, 1, 1)],
    pa.date64(): [dt.date(1999, 12, 31)],
    pa.list_(pa.float32()): [[0.5], [], None],
    pa.large_list(pa.int16()): [[7, None]],
    pa.list_(pa.float64(), 2): [[0.1, 0.2]],
    pa.list_(pa.float32(), 2): [[0.5, 1.5], None],
    pa.list_(pa.float32(), 3): [[0.5, 1.5, 2.5]],
    STRUCT: [{"a": 1, "b": "x"}, None],
    pa.struct({"c": pa.float64(), "a": pa.int64()}): [{"c": 0.1, "a": 2**40}],
    pa.map_(pa.string(), pa.int32()): [[("k", 1)], None],
    pa.map_(pa.string(), pa.float64()): [[("k", 0.1)]],
}
TYPES = list(VALUES)


@pytest.mark.parametrize("one", TYPES, ids=str)
def test_values_stay_or_are_refused(one: Any) -> None:
    """Against every other type: the same values in the common one, whichever is named first."""
    for other in TYPES:
        common = common_type(one, other)
        back = common_type(other, one)
        assert (common is None) == (back is None)
        if common is None:
            continue
        for kind in (one, other):
            array = pa.array(VALUES[kind], kind)
            try:
                cast = array.cast(common)
            except pa.ArrowInvalid:
                assert {kind, one, other} <= CHECKED
                continue
            for before, after in zip(array.to_pylist(), cast.to_pylist(), strict=True):
                assert same(before, after), f"{kind} {before!r} as {common}: {after!r}"


CHECKED = {pa.int64(), pa.uint64(), *(t for t in INTEGERS if pa.types.is_signed_integer(t))}
CHECKED |= {pa.float16(), pa.float32(), pa.float64()}
"""Types of which pairs may have values that no type holds beside the other's."""


def same(before: Any, after: Any) -> bool:
    """Say whether two values are the same: a structure's new fields are null, bytes may be text."""
    if isinstance(before, bytes) and isinstance(after, str):
        return before == after.encode()
    if isinstance(before, dict):
        return all(same(before.get(key), value) for key, value in after.items())
    if isinstance(before, list):
        return len(before) == len(after) and all(map(same, before, after))
    return bool(before == after)


def test_integers_and_floats_by_their_ranges() -> None:
    """The type is the narrowest that holds both ranges, found by trying all: the slow obvious way."""
    for one, other in combinations_with_replacement(NUMBERS, 2):
        ends = [v for t in (one, other) for v in extremes(t)]
        whole = pa.types.is_integer(one) and pa.types.is_integer(other)
        fitting = [t for t in NUMBERS if pa.types.is_integer(t) == whole and all(holds(t, v) for v in ends)]
        if fitting:
            common = common_type(one, other)
            assert common in fitting
            assert common.bit_width == min(t.bit_width for t in fitting)


def extremes(datatype: pa.DataType) -> list[Any]:
    """Return the ends of a type's range and, of floats, its smallest step at one."""
    numpy = datatype.to_pandas_dtype()
    if pa.types.is_integer(datatype):
        return [int(np.iinfo(numpy).min), int(np.iinfo(numpy).max)]
    return [float(np.finfo(numpy).max), float(1 + np.finfo(numpy).eps)]


def holds(datatype: pa.DataType, value: float) -> bool:
    """Say whether a type has exactly that value."""
    numpy = datatype.to_pandas_dtype()
    if pa.types.is_integer(datatype):
        return bool(np.iinfo(numpy).min <= value <= np.iinfo(numpy).max)
    with np.errstate(over="ignore"):
        held = numpy(value)
    return bool(np.isfinite(held)) and (int(held) if isinstance(value, int) else float(held)) == value


UNLIKE = [
    (pa.string(), pa.float64()),
    (pa.bool_(), pa.int8()),
    (pa.decimal128(10, 2), pa.float64()),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.date32(), pa.timestamp("us")),
    (pa.list_(pa.string()), pa.list_(pa.float32())),
    (STRUCT, pa.struct({"a": pa.string()})),
    (pa.list_(pa.int8()), pa.int8()),
]


@pytest.mark.parametrize(("one", "other"), UNLIKE, ids=str)
def test_what_means_something_else_has_no_common_type(one: Any, other: Any) -> None:
    for a, b in (one, other), (other, one):
        assert common_type(a, b) is None


def test_every_pair_of_the_same_is_itself() -> None:
    assert all(common_type(t, t) == t for t in TYPES)
    assert {common_type(a, b) for a, b in product([pa.string()], [pa.binary(), pa.string_view()])} == {
        pa.string()
    }
