"""Expressions of a first specification: the columns that they use, and their values in the labelled rows.

Shapes: n rows, k elements of a vector.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.catalog import Element
from catalogs.expressions.expression import expression_name, parse
from flows.draft._exclusions import Evidence

__all__ = ["columns_of", "evaluated", "quoted"]


def quoted(name: str) -> str:
    """Return a column's name, or an element's, as expressions have it."""
    if isinstance(name, Element):
        return f"{quoted(name.vector)}[{name.place}]"
    return expression_name(name)


def columns_of(text: str) -> set[str]:
    """Return the columns of an expression, elements of vectors as `flux[2]`."""
    return {f"{name}[{index[0]}]" if index else name for name, index in parse(text).cells}


def evaluated(text: str, evidence: Evidence) -> NDArray[np.float64]:
    """Return the values (n,) of an expression in the labelled rows."""
    expression = parse(text)
    values = expression.evaluate({name: _values(evidence, name) for name in expression.names})
    return np.asarray(values, dtype=np.float64)


def _values(evidence: Evidence, name: str) -> NDArray[np.float64]:
    """Return the values (n,) of a column, or (n, k) of a vector's elements, NaN where none was measured."""
    if name in evidence.rows:
        return evidence.rows[name]
    elements = {e.place: e for e in evidence.rows if isinstance(e, Element) and e.vector == name}
    whole = np.full((len(evidence.rows[next(iter(elements.values()))]), max(elements) + 1), np.nan)
    for place, element in elements.items():
        whole[:, place] = evidence.rows[element]
    return whole
