"""Redundant columns are found and named, whatever their scales; independent ones are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blr.arrays import Matrix, Vector
from blr.fitting.newton import find_collinearity
from blr.sums import Rows


def found(Phi: Matrix, weight: Vector | None = None) -> tuple[Any, Any]:
    return find_collinearity(Rows(np.ascontiguousarray(Phi, dtype=float), np.zeros(len(Phi)), weight))


@pytest.fixture
def columns() -> Matrix:
    rng = np.random.default_rng(0)
    return np.column_stack([np.ones(300), rng.standard_normal((300, 3))])


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_independent_columns_are_free(columns: Matrix | str, scale: float) -> None:
    assert sum(map(len, found(columns * [1, scale, 1, 1 / scale]))) == 0


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_a_duplicate_is_named_with_its_twin(columns: Matrix | str, scale: float) -> None:
    ((column, others),) = found(np.column_stack([columns, scale * columns[:, 2]]))[1]
    assert {column, *others} == {2, 4}


def test_a_sum_is_named_with_its_parts(columns: Matrix | str) -> None:
    total = columns[:, 1] + 2 * columns[:, 3]
    ((column, others),) = found(np.column_stack([columns, total]))[1]
    assert {column, *others} == {1, 3, 4}


def test_a_constant_is_the_intercepts_twin(columns: Matrix | str) -> None:
    ((column, others),) = found(np.column_stack([columns, np.full(300, 7.0)]))[1]
    assert {column, *others} == {0, 4}


def test_empty_columns(columns: Matrix | str) -> None:
    assert found(np.column_stack([columns, np.zeros(300)]))[0] == (4,)


def test_more_columns_than_rows() -> None:
    rng = np.random.default_rng(0)
    assert sum(map(len, found(rng.standard_normal((5, 20))))) == 15


def test_a_far_offset_is_not_collinear(columns: Matrix | str) -> None:
    """1,000 plus or minus one is a narrow column, not a constant."""
    columns[:, 1] += 1000
    assert sum(map(len, found(columns))) == 0


def test_rows_without_weight_do_not_count(columns: Matrix | str) -> None:
    weight = np.zeros(300)
    weight[:3] = 1
    assert sum(map(len, found(columns, weight))) == 1
