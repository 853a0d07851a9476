"""Ranges among the marks of missing values: '90..' for marks from which a pipeline has subtracted the extinction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogs.expressions.expression import parse
from catalogs.sky.photometry import is_sentinel
from flows.errors import SpecificationError
from flows.features.columns import DerivedColumns
from flows.features.reader import FeatureReader
from flows.specification.catalog import as_sentinels, number_range
from flows.specification.toml_file import parse_specification

ENDS = st.floats(-1e4, 1e4, width=32)


@given(low=ENDS, high=ENDS, x=st.lists(ENDS, min_size=1, max_size=20), single=st.booleans())
def test_a_range_holds_its_lower_end_and_not_its_upper_one(low: Any, high: Any, x: int, single: Any) -> None:
    if not low < high:
        low, high = high, low
    if low == high:
        return
    values = np.array([*x, low, high], dtype=np.float32 if single else np.float64)
    for text, expected in (
        (f"{low!r}..{high!r}", (values >= low) & (values < high)),
        (f"{low!r}..", values >= low),
        (f"..{high!r}", values < high),
    ):
        assert is_sentinel(values, as_sentinels([text])).tolist() == expected.tolist(), text


def test_texts_that_are_not_ranges() -> None:
    for text in ("..", "...", "-", "a..b", ">23.1", "1.5"):
        assert number_range(text) is None
        assert as_sentinels([text]) == [text]
    with pytest.raises(ValueError, match=r"got the range '5\.\.0', whose lower end is not the first"):
        number_range("5..0")


SPECIFICATION = """
name = "m"
[catalog]
paths = ["x.parquet"]
{marks}
[label]
column = "kind"
[features]
f = "mag"
"""


@pytest.mark.parametrize("key", ["sentinels", "not_detected", "masked"])
def test_an_empty_range_is_refused_before_any_work(key: str) -> None:
    with pytest.raises(SpecificationError, match=r"got the range '90\.\.80'"):
        parse_specification(SPECIFICATION.format(marks=f'{key} = {{ mag = "90..80" }}'), source="x")


@pytest.mark.parametrize("texts", [False, True])
def test_ranges_are_missing_not_detected_or_masked(*, texts: bool) -> None:
    numbers = [20.5, 98.7, 99.1, -9999.3, 60.0, -99.0]
    column = pa.array([str(x) for x in numbers]) if texts else pa.array(numbers, pa.float32())
    derived = DerivedColumns(not_detected={"mag": ("98..100",)}, masked={"mag": ("50..70",)})
    reader = FeatureReader({"f": parse("mag")}, sentinels={"mag": ("..-90",)}, derived=derived)
    found = reader.evaluate(pa.record_batch({"mag": column}))
    assert found.missing[:, 0].tolist() == [False, True, True, True, True, True]
    assert found.not_detected.tolist() == [False, True, True, False, False, False]


def test_integers_stay_whole() -> None:
    ids = pa.array([2**62 + 1, 5, -12], pa.int64())
    reader = FeatureReader({"f": parse("where(i == 4611686018427387905, 1, 0)")}, sentinels={"i": ("..-9",)})
    assert reader.evaluate(pa.record_batch({"i": ids})).X[:, 0].tolist() == [1, 0, 0]
