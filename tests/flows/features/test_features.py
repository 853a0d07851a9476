"""Columns to features: missing values, sentinels, other names, errors; labels to classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalogs.arrays import plain_texts
from catalogs.catalog.catalog import Catalog, Column
from catalogs.errors import ColumnNotFoundError, ExpressionError
from catalogs.expressions.expression import parse
from flows.errors import TrainingError
from flows.features.columns import ColumnMapping, DerivedColumns
from flows.features.reader import FeatureReader, apply_sentinels
from flows.labels.reader import LabelReader, check_classes
from flows.specification.catalog import Label


def reader(**expressions: str) -> FeatureReader:
    return FeatureReader({name: parse(text) for name, text in expressions.items()})


def batch(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def catalog(*names: str) -> Catalog:
    return Catalog("parquet", Path("x.parquet"), tuple(Column(n, pa.float64()) for n in names), ())


def test_what_is_not_finite_is_missing() -> None:
    found = reader(b_j="bmag - jmag", ratio="bmag / jmag", plain="bmag").evaluate(
        batch(bmag=[15.0, None, np.nan, np.inf, 1.0], jmag=[12.0, 1.0, 1.0, 1.0, 0.0])
    )
    assert found.missing.tolist() == [[False] * 3, [True] * 3, [True] * 3, [True] * 3, [False, True, False]]
    assert found.X[0].tolist() == [3.0, 1.25, 15.0]
    assert np.isfinite(found.X).all()
    assert found.errors is None
    assert found.inside.all()


def test_columns_under_other_names() -> None:
    mapped = FeatureReader(
        {"b_j": parse("bmag - jmag")},
        where=parse("bmag < 14"),
        mapping=ColumnMapping({"bmag": "MAG_B", "jmag": "MAG_J"}),
    )
    assert mapped.read == ("MAG_B", "MAG_J")
    found = mapped.evaluate(batch(MAG_B=[15.0, 13.0], MAG_J=[12.0, 12.0], bmag=[0.0, 0.0]))
    assert found.X[:, 0].tolist() == [3.0, 1.0]
    assert found.inside.tolist() == [False, True]


def test_sentinels_hold_in_the_columns_own_precision() -> None:
    sentinels = {"a": (99.99,), "b": (-9999.0, 99.0)}
    table = batch(
        a=pa.array([99.99, 1.0], pa.float32()), b=pa.array([-9999, 5], pa.int16()), c=pa.array([-9999.0, 1.0])
    )
    found = FeatureReader({n: parse(n) for n in "abc"}, sentinels=sentinels).evaluate(table)
    assert found.missing.tolist() == [[True, True, False], [False, False, False]]


def test_an_element_that_was_not_detected_is_said_of_features_that_use_it() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([99.0, 1.0, 2.0, 99.0, 3.0, 4.0]), 2)
    for text, unseen in (("v[0]", [0]), ("v[1]", [1]), ("v[0] - v[1]", [0, 1]), ("v_not_detected[1]", [1])):
        marked = replace(reader(x=text), derived=DerivedColumns(not_detected={"v": (99.0,)}))
        found = marked.evaluate(batch(v=vectors))
        assert found.not_detected is not None
        assert np.flatnonzero(found.not_detected).tolist() == unseen
    assert found.X[:, 0].tolist() == [0.0, 1.0, 0.0]


def test_texts_among_numbers_are_sentinels() -> None:
    column = np.array(["1.5", " - ", "", "-2"], dtype=object)
    assert np.array_equal(apply_sentinels(column, ["-"]), [1.5, np.nan, np.nan, -2.0], equal_nan=True)
    assert np.array_equal(apply_sentinels(column, ["-", -2.0]), [1.5, *3 * [np.nan]], equal_nan=True)
    assert apply_sentinels(column, [-2.0]) is column
    words = np.array(["E", "-", "S0"], dtype=object)
    assert apply_sentinels(words, ["-"]).tolist() == ["E", "", "S0"]
    numbers = np.array([1.0, 2.0])
    assert apply_sentinels(numbers, ["-"]) is numbers


def test_a_condition_is_a_feature_and_text_is_none() -> None:
    table = batch(hubble=["E", "Sc"], bmag=[1.0, 2.0])
    assert reader(early="hubble == 'E'").evaluate(table).X[:, 0].tolist() == [1.0, 0.0]
    with pytest.raises(
        ExpressionError, match=r"feature 'x' = .hubble. gives text, expected numbers; compare"
    ):
        reader(x="hubble").evaluate(table)


def test_errors_of_some_features() -> None:
    read = FeatureReader({"b": parse("b"), "j": parse("j")}, errors={"j": parse("s")})
    sigma = read.evaluate(batch(b=[1.0] * 4, j=[1.0, 1.0, np.nan, 1.0], s=[0.1, np.nan, 0.1, -1.0])).errors
    assert sigma.tolist() == [[0, 0.1], [0, 0], [0, 0], [0, 0]]


def test_an_absent_column_is_told_with_its_key_and_the_nearest() -> None:
    with pytest.raises(ColumnNotFoundError, match=r"no column 'jmga', expected by features.b_j.*mean 'jmag'"):
        reader(b_j="bmag - jmga").check(catalog("bmag", "jmag"))
    mapped = FeatureReader({"b": parse("bmag")}, mapping=ColumnMapping({"bmag": "MAG_BB"}))
    with pytest.raises(ColumnNotFoundError, match=r"no column 'MAG_BB'.*did you mean 'MAG_B'"):
        mapped.check(catalog("MAG_B"))
    with pytest.raises(ColumnNotFoundError, match=r"no column 'x', expected by where"):
        FeatureReader({"b": parse("bmag")}, where=parse("x > 1")).check(catalog("bmag"))


def test_no_rows() -> None:
    found = reader(b="bmag").evaluate(batch(bmag=pa.array([], pa.float64())))
    assert found.X.shape == found.missing.shape == (0, 1)


LABEL = Label(column="hubble", classes={"late": ("Sc", "Sb"), "early": ("E",)})


def test_labels_group_spellings_in_the_order_given() -> None:
    read = LabelReader.of(LABEL, Counter())
    assert read.classes == ("late", "early")
    assert read.read(np.array(["E", "Sb", "S?", "", "Sc"], dtype=object)).tolist() == [1, 0, -1, -1, 0]
    assert read.read(np.array([], dtype=object)).tolist() == []


def test_without_classes_each_value_is_one() -> None:
    read = LabelReader.of(Label(column="kind"), Counter({"STAR": 3, "GALAXY": 2, "": 9}))
    assert read.classes == ("GALAXY", "STAR")
    assert read.read(np.array(["STAR", "", "GALAXY"], dtype=object)).tolist() == [1, -1, 0]
    with pytest.raises(TrainingError, match=r"'kind' with 101 different values.*list the spellings"):
        LabelReader.of(Label(column="kind"), Counter(str(i) for i in range(101)))


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (np.array([1, 0, 12], dtype=np.int16), ["1", "0", "12"]),
        (np.array([1.0, np.nan, 2.5]), ["1", "", "2.5"]),
        (np.array(["E ", " Sc", ""], dtype=object), ["E", "Sc", ""]),
        (np.ma.MaskedArray([3, 4], mask=[False, True]), ["3", ""]),
        (np.array([True, False]), ["True", "False"]),
    ],
)
def test_label_texts(values: Any, texts: list[str]) -> None:
    assert plain_texts(values).tolist() == texts


def test_one_class_and_a_class_without_rows() -> None:
    read = LabelReader.of(LABEL, Counter())
    seen = Counter({"Sc": 10, "Es": 2, "": 4})
    with pytest.raises(
        TrainingError, match=r"label.classes.early: got no training row with 'E'.*'Sc' \(10\).*'Es'"
    ):
        check_classes(LABEL, read, seen, [10, 0])
    single = Label(column="kind")
    with pytest.raises(TrainingError, match=r"'kind' with the labels 'GALAXY' \(5\).*at least two classes"):
        check_classes(single, LabelReader.of(single, Counter({"GALAXY": 5})), Counter({"GALAXY": 5}), [5])


def test_whether_a_value_is_there_is_no_measurement_by_itself() -> None:
    found = reader(has="isfinite(jmag)", lacks="where(isfinite(jmag), 0, 1)", bmag="bmag").evaluate(
        batch(bmag=[15.0, None, None, 14.0], jmag=[12.0, 1.0, None, None])
    )
    assert found.missing.tolist() == [
        [False, False, False],
        [False, False, True],
        [True, True, True],
        [False, False, False],
    ]
    assert found.X.tolist() == [[1.0, 0.0, 15.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 14.0]]


def test_a_stated_non_detection_is_a_measurement() -> None:
    marked = replace(
        reader(unseen="jmag_not_detected", jmag="jmag"),
        derived=DerivedColumns(not_detected={"jmag": (99.0,)}),
    )
    assert marked.evaluate(batch(jmag=[99.0])).missing.tolist() == [[False, True]]
