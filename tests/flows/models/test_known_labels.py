"""The labels that a model keeps, by which a census counts the same objects of a target."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.errors import ModelError
from flows.models.row_files import ROWS_FILE, KnownLabels, row_keys, write_rows


def made(n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return identifiers, some repeated and some missing, features with gaps, and classes."""
    rng = np.random.default_rng(3)
    names = np.array([f"G{i % 40}" if i % 7 else "" for i in range(n)], dtype=object)
    X = rng.integers(0, 3, (n, 2)).astype(float)  # so coarse that objects share their features
    X[rng.random((n, 2)) < 0.2] = np.nan
    return names, X, rng.integers(0, 3, n)


def slowly(
    names: np.ndarray, X: np.ndarray, target: np.ndarray, other: np.ndarray, Y: np.ndarray
) -> list[int]:
    """Return the classes of rows (other, Y), object by object."""
    by_object = defaultdict(set)
    for name, x, k in zip(names, X, target, strict=True):
        if name:
            by_object[name, repr(x.astype(np.float32).tolist())].add(int(k))
    found = (
        by_object.get((name, repr(y.astype(np.float32).tolist())), set())
        for name, y in zip(other, Y, strict=True)
    )
    return [next(iter(k)) if len(k) == 1 else -1 for k in found]


def test_classes_are_those_of_the_object_with_the_name_and_the_features() -> None:
    names, X, target = made()
    known = KnownLabels.of(*row_keys(names, X), target)
    rng = np.random.default_rng(4)
    rows = rng.permutation(60)
    other, Y = np.r_[names[rows], names], np.r_[X[rows] + 1e-12, X[::-1]]
    found = known.classes(Y, lambda some: other[some])
    assert found.tolist() == slowly(names, X, target, other, Y)
    assert (found >= 0).any()
    assert (found < 0).any()


@pytest.mark.parametrize("names", [np.array([7, 12]), np.array([7.0, 12.0]), np.array(["7 ", "12"])])
def test_numbers_are_the_same_names_as_texts(names: np.ndarray) -> None:
    X = np.array([[0.1], [0.2]])
    known = KnownLabels.of(*row_keys(np.array(["7", "12"], dtype=object), X), np.array([1, 0]))
    assert known.classes(X, lambda rows: names[rows]).tolist() == [1, 0]


def test_labels_of_another_model_are_refused(tmp_path: Path) -> None:
    names, X, target = made()
    key, features = row_keys(names, X)
    write_rows({"key": key, "features": features, "target": target}, tmp_path)
    with pytest.raises(ModelError, match="got labelled rows of 3 classes, expected 2"):
        KnownLabels.read(tmp_path, classes=2)
    pq.write_table(pa.table({"key": [1]}), tmp_path / ROWS_FILE)
    with pytest.raises(ModelError, match="cannot be read as the table of labelled rows"):
        KnownLabels.read(tmp_path, classes=3)
