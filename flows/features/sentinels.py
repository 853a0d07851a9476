"""Whether the values that mean "no value" can mean it: their columns are there, and hold such values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from catalogs.arrays.texts import numbers_of
from catalogs.arrays.values import is_real
from catalogs.catalog.catalog import Catalog
from catalogs.errors import nearest
from flows.errors import SpecificationError
from flows.specification.catalog import MARKS, CatalogTable, Target
from flows.specification.specification import Specification

__all__ = ["check_marks", "check_target_marks"]


def check_marks(specification: Specification, catalogs: Sequence[Catalog]) -> None:
    """Raise `SpecificationError` where marked values would stay values, as nothing of the kind is in the catalogues."""
    known = {name for catalog in catalogs for name in catalog.names}
    for key, name, marks in _marked(specification.catalog):
        if name not in known:
            vector = name.partition("[")[0]
            hint = (
                f"did you mean '{vector}', all elements of it?" if vector in known else nearest(name, known)
            )
            raise SpecificationError(
                f"catalog.{key}: got '{name}', which is not a column of {catalogs[0].path}, expected one of "
                f"its columns; {hint}"
            )
        if all(_holds_numbers(catalog, name) for catalog in catalogs):
            _check_numbers(f"catalog.{key}", name, marks)


def check_target_marks(target: Target, catalog: Catalog) -> None:
    """Raise `SpecificationError` where a mark of a target's column of numbers is a number in quotes."""
    for key, name, marks in _marked(target):
        theirs = target.columns.get(name, name)
        if name in target.expressions or (theirs in catalog.names and _holds_numbers(catalog, theirs)):
            _check_numbers(f"target.{key}", name, marks)


def _marked(table: CatalogTable | Target) -> Iterator[tuple[str, str, tuple[float | str, ...]]]:
    for key in MARKS:
        for name, marks in getattr(table, key).items():
            yield key, name, marks


def _check_numbers(key: str, name: str, marks: Sequence[float | str]) -> None:
    texts = [mark for mark in marks if isinstance(mark, str)]
    numbers = [mark for mark in texts if not np.isnan(numbers_of(np.array([mark], dtype=object))[0])]
    if numbers:
        raise SpecificationError(
            f"{key}: got the text '{numbers[0]}' for '{name}', which is a column of numbers, expected a "
            f"number; write {numbers[0]} without quotes"
        )


def _holds_numbers(catalog: Catalog, name: str) -> bool:
    datatype = catalog.column(name).datatype if name in catalog.names else pa.float64()
    return pt.is_integer(datatype) or is_real(datatype)
