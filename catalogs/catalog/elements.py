"""The elements of vector columns, as columns of their own: SDSS keeps the magnitudes of five bands in one.

Only short vectors of numbers: the elements of a spectrum or a light curve are too many to be columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.types as pt

from catalogs.catalog.catalog import Column

__all__ = ["MOST_ELEMENTS", "Element", "element_columns", "element_values"]

MOST_ELEMENTS = 12
"""Longest vector whose elements become columns: the number of bands of J-PLUS and S-PLUS."""


class Element(str):
    """The name of an element, `MODELMAG[2]`, with its vector and place, since a column may have the same name."""

    __slots__ = ("__dict__",)
    vector: str
    place: int

    @classmethod
    def of(cls, vector: str, place: int) -> Element:
        """Return the name of a vector's element."""
        name = cls(f"{vector}[{place}]")
        name.vector, name.place = vector, place
        return name


def element_columns(column: Column, names: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the elements of a short vector column as columns; none if one of `names` is called like an element."""
    datatype = column.datatype
    if not pt.is_fixed_size_list(datatype) or not 1 < datatype.list_size <= MOST_ELEMENTS:
        return ()
    if not (pt.is_integer(datatype.value_type) or pt.is_floating(datatype.value_type)):
        return ()
    elements = [Element.of(column.name, i) for i in range(datatype.list_size)]
    if set(elements) & set(names):
        return ()
    return tuple(replace(column, name=e, datatype=datatype.value_type, shape=()) for e in elements)


def element_values(
    values: np.ndarray[Any, Any], columns: tuple[Column, ...]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the name of each element with its values (n,), from those of the vector column (n, k)."""
    for i, column in enumerate(columns):
        yield column.name, values[:, i]
