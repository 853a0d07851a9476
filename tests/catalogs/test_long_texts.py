"""Columns of long texts, as polygons, JSON and spectra are: memory grows with the texts, not with rows x longest."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalogs.arrays import LONGEST_TEXT, shortened, unique_texts
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError
from catalogs.fits.fields import FitsField
from catalogs.metadata.astropy_header import arrow_array
from catalogs.profile.columns import uneven_presence
from catalogs.profile.leaks import Classes, sorted_texts
from catalogs.profile.split import held_out_keys, name_keys
from flows.labels.reader import naming_a_class

N, LONG = 3000, 50_000
"""As texts of one width, 600 MB."""
BOUND = 30e6


def texts(n: int = N, length: int = LONG) -> Any:
    values = np.array([f"word {i % 5}" for i in range(n)], dtype=object)
    values[n // 2] = "x" * length
    return values


def peak(work: Callable[[], object]) -> int:
    """Return the most memory that is taken meanwhile, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda t: Classes.of(t, np.random.default_rng(0)), id="classes"),
        pytest.param(sorted_texts, id="column of texts"),
        pytest.param(lambda t: uneven_presence({"x": np.ones(len(t))}, t), id="presence"),
        pytest.param(lambda t: held_out_keys(name_keys([t]), 0.2), id="held-out rows"),
        pytest.param(lambda t: naming_a_class({"t": t}, "t", Counter()), id="labelled rows"),
    ],
)
def test_one_long_text_takes_no_room_in_the_other_rows(work: Callable[[Any], object]) -> None:
    values = texts()
    assert peak(lambda: work(values)) < BOUND


def test_unique_texts_are_those_of_numpy() -> None:
    values = np.array(["b", "", "a", "ä", "b", "Z"], dtype=object)
    expected = np.unique(values.astype(str), return_inverse=True, return_counts=True)
    got = unique_texts(values)
    assert got[0] == expected[0].tolist()
    assert got[1].tolist() == expected[1].tolist()
    assert got[2].tolist() == expected[2].tolist()
    assert unique_texts(np.empty(0, dtype=object))[0] == []


def test_long_texts_in_a_sample_stay_different() -> None:
    values = np.array(["a" * 1000 + "1", "a" * 1000 + "2", "b"], dtype=object)
    short = shortened(values).tolist()
    assert len(set(short)) == 3
    assert short[2] == "b"
    assert max(map(len, short)) == LONGEST_TEXT


def test_a_text_longer_than_promised_is_refused_before_all_get_its_room() -> None:
    field = FitsField.of_new(NewColumn("c", pa.string(), width=8))

    def write() -> None:
        with pytest.raises(CatalogError, match="expected at most 8 characters"):
            field.encode_new(texts())

    assert peak(write) < BOUND


def test_bytes_of_one_width_become_texts_of_their_own_lengths() -> None:
    stored = np.array([b"a", b"\xff", b"y" * 20_000] + [b"b"] * 500)
    assert peak(lambda: arrow_array(stored)) < 25e6  # 40 MB as texts of one width
    assert arrow_array(stored).slice(0, 2).to_pylist() == ["a", "�"]
    masked = np.ma.MaskedArray(np.array([b"a", b"b"]), [False, True])
    assert arrow_array(masked).to_pylist() == ["a", None]
