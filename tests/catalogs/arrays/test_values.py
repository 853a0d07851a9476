"""Types of Arrow and NumPy: values, common types, texts converted at once."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogs.arrays import column_values, common_type, distinct, floats, hashed, hashed_strings, text_array
from catalogs.errors import ExpressionError

NAN = np.nan

NUMBERS = {
    "int64": (pa.array([1, 2]), [1, 2], "int64"),
    "int64 with nulls": (pa.array([1, None]), [1, NAN], "float64"),
    "uint8": (pa.array([1, 255], pa.uint8()), [1, 255], "uint8"),
    "float32 with nulls": (pa.array([0.5, None], pa.float32()), [0.5, NAN], "float32"),
    "half": (pa.array(np.array([0.5, 1.5], np.float16)), [0.5, 1.5], "float16"),
    "decimal": (pa.array([decimal.Decimal("1.25"), None]), [1.25, NAN], "float64"),
    "dictionary": (pa.array([3, 3]).dictionary_encode(), [3, 3], "int64"),
    "bool": (pa.array([True, False]), [True, False], "bool"),
    "sliced": (pa.array([9, 1, None, 9])[1:3], [1, NAN], "float64"),
    "chunked": (pa.chunked_array([[1.0], [2.0]]), [1, 2], "float64"),
    "vectors": (pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)), [[1, 2], [3, 4]], "int32"),
    "vectors with nulls": (
        pa.array([[1, None], None], pa.list_(pa.int32(), 2)),
        [[1, NAN], [NAN, NAN]],
        "float64",
    ),
    "sliced vectors": (
        pa.array([[9, 9], [1, 2], None], pa.list_(pa.float32(), 2))[1:],
        [[1, 2], [NAN, NAN]],
        "float64",
    ),
    "lists of one length": (pa.array([[1.0, 2.0], [3.0, 4.0]]), [[1, 2], [3, 4]], "float64"),
    "matrices": (
        pa.array([[[1, 2]], [[3, 4]]], pa.list_(pa.list_(pa.int8(), 2), 1)),
        [[[1, 2]], [[3, 4]]],
        "int8",
    ),
    "no rows": (pa.array([], pa.list_(pa.int8(), 2)), np.zeros((0, 2)), "int8"),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers(kind: str) -> None:
    column, expected, datatype = NUMBERS[kind]
    values = column_values(column)
    assert values.dtype == datatype
    np.testing.assert_array_equal(values, expected)


TEXTS = {
    "string": pa.array(["a ", None]),
    "large": pa.array(["a", None], pa.large_string()),
    "view": pa.array(["a", None], pa.string_view()),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "bytes": pa.array([b"a\0", None]),
    "fixed bytes": pa.array([b"a  ", None], pa.binary(3)),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_text(kind: str) -> None:
    """Every kind of text is an array of `str`, without padding, empty where null."""
    values = column_values(TEXTS[kind])
    assert values.dtype == object
    assert values.tolist() == ["a", ""]


def test_text_vectors_and_bytes_that_are_no_utf8() -> None:
    assert column_values(pa.array([b"\xe9", b"b"])).tolist() == ["é", "b"]
    values = column_values(pa.array([["a", "b "], None], pa.list_(pa.string(), 2)))
    assert values.tolist() == [["a", "b"], ["", ""]]


def test_large_nullable_integers_are_masked_not_rounded() -> None:
    values = column_values(pa.array([2**60 + 1, None]))
    assert isinstance(values, np.ma.MaskedArray)
    assert values[0] == 2**60 + 1
    assert values.mask.tolist() == [False, True]


def test_lists_of_different_lengths_and_structs_are_refused() -> None:
    with pytest.raises(ExpressionError, match="'epochs' holds lists of 1 to 2 elements"):
        column_values(pa.array([[1], [1, 2]]), name="epochs")
    with pytest.raises(ExpressionError, match="'s' holds struct"):
        column_values(pa.array([{"a": 1}]), name="s")


ANY = st.text(st.characters(blacklist_categories=["Cs"]), max_size=9)
NUMPYS = st.lists(ANY | st.text("aZ \t~", max_size=9), max_size=20).map(lambda t: np.array(t, np.str_))
"""NumPy has no NUL behind a text: what it gives back is what counts."""


@given(NUMPYS)
def test_arrow_has_the_texts(texts: np.ndarray) -> None:
    for given_texts in (texts, texts.astype(texts.dtype.newbyteorder()), texts[::-2]):
        assert text_array(given_texts).equals(pa.array(given_texts.tolist(), pa.string()))


def test_hashes_of_strings_are_those_of_their_texts() -> None:
    names = [f"NGC {i}é" * (i % 4) for i in range(100)]
    column = pa.array(names)
    assert hashed_strings(column).tolist() == hashed(np.array(names, object)).tolist()
    assert hashed_strings(column.slice(7, 9)).tolist() == hashed(np.array(names[7:16], object)).tolist()
    assert hashed_strings(column.slice(0, 0)).tolist() == []


INTEGERS = [pa.type_for_alias(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
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


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_distinct_hashes_are_those_of_numpy(n: int) -> None:
    hashes = np.random.default_rng(n).integers(n // 2 + 1, size=n).astype(np.uint64)
    np.testing.assert_array_equal(distinct(hashes), np.unique(hashes))


def test_a_signalling_nan_is_a_nan() -> None:
    bits = np.array([0x7F800001, 0x3F800000], np.uint32)  # as damaged bytes may hold one
    np.testing.assert_array_equal(floats(pa.array(bits.view(np.float32))), [np.nan, 1.0])
