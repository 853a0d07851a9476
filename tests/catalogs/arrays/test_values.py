"""Types of Arrow and NumPy: values, common types, texts converted at once."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogs.arrays import code_points, column_values, hashed, hashed_strings, text_array
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


def test_bytes_that_are_no_utf8() -> None:
    assert column_values(pa.array([b"\xe9", b"b"])).tolist() == ["é", "b"]


def test_text_vectors() -> None:
    values = column_values(pa.array([["a", "b "], None], pa.list_(pa.string(), 2)))
    assert values.tolist() == [["a", "b"], ["", ""]]


def test_large_nullable_integers_are_masked_not_rounded() -> None:
    values = column_values(pa.array([2**60 + 1, None]))
    assert isinstance(values, np.ma.MaskedArray)
    assert values[0] == 2**60 + 1
    assert values.mask.tolist() == [False, True]


def test_times_stay_times() -> None:
    assert column_values(pa.array([dt.date(2026, 1, 2)])).dtype.kind == "M"


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ExpressionError, match="'epochs' holds lists of 1 to 2 elements"):
        column_values(pa.array([[1], [1, 2]]), name="epochs")


def test_structs_are_refused() -> None:
    with pytest.raises(ExpressionError, match="'s' holds struct"):
        column_values(pa.array([{"a": 1}]), name="s")


ANY = st.text(st.characters(blacklist_categories=["Cs"]), max_size=9)
NUMPYS = st.lists(st.one_of(ANY, st.text("aZ \t~", max_size=9)), max_size=20).map(
    lambda t: np.array(t, np.str_)
)
"""NumPy has no NUL behind a text: what it gives back is what counts."""


@given(NUMPYS)
def test_arrow_has_the_texts(texts: np.ndarray) -> None:
    for given_texts in (texts, texts.astype(texts.dtype.newbyteorder()), texts[::-2]):
        assert text_array(given_texts).equals(pa.array(given_texts.tolist(), pa.string()))


@given(NUMPYS)
def test_code_points(texts: np.ndarray) -> None:
    found = ["".join(map(chr, codes)).rstrip("\0") for codes in code_points(texts).tolist()]
    assert found == texts.tolist()


def test_hashes_of_strings_are_those_of_their_texts() -> None:
    names = [f"NGC {i}é" * (i % 4) for i in range(100)]
    column = pa.array(names)
    assert hashed_strings(column).tolist() == hashed(np.array(names, object)).tolist()
    assert hashed_strings(column.slice(7, 9)).tolist() == hashed(np.array(names[7:16], object)).tolist()
    assert hashed_strings(column.slice(0, 0)).tolist() == []
