"""Columns of texts converted at once: the same result as text by text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from catalogs.arrays import code_points, hashed, hashed_strings, text_array

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
