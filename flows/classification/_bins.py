"""Bins of an expression over a model's features, for labelled rows and for classified ones.

Shapes: n rows, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.expressions.expression import Expression, even_edges, names_between, parse, places_between
from flows.errors import SpecificationError
from flows.models.model import Model

__all__ = ["Bins", "bin_values", "of_features"]

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

MISSING = "missing"
"""The bin of rows where the expression has no value."""


@dataclass(frozen=True)
class Bins:
    """Bins between `edges`, or of a condition (no edges); the last one is of rows without a value."""

    names: tuple[str, ...]
    edges: tuple[float, ...]

    @classmethod
    def between(cls, text: str, edges: Sequence[float]) -> Bins:
        """Return the bins of an expression between edges; those of a condition without any."""
        if not edges:
            return cls((f"not {text}", text), ())
        return cls((*names_between(edges, text), f"{text}: {MISSING}"), tuple(edges))

    @classmethod
    def of(cls, text: str, values: NDArray[Any], *, bins: int, edges: Sequence[float] | None) -> Bins:
        """Return the bins between `edges`, or `bins` with equal numbers of values (n,); one if all are equal."""
        found = (
            () if values.dtype.kind == "b" else even_edges(values, bins) if edges is None else tuple(edges)
        )
        return cls.between(text, found) if found or values.dtype.kind == "b" else cls((text,), ())

    def places(self, values: NDArray[Any]) -> Places:
        """Return the bin (n,) of each value."""
        if values.dtype.kind == "b":
            return values.astype(np.intp)
        return places_between(self.edges, values, missing=len(self.names) - 1)


def bin_values(by: Expression, features: Sequence[str], X: Floats) -> NDArray[Any]:
    """Return the values of an expression for rows (n, F)."""
    columns = {name: X[:, j] for j, name in enumerate(features) if name in by.names}
    with np.errstate(all="ignore"):
        values = np.broadcast_to(by.evaluate(columns), (len(X),))
    return values if values.dtype.kind == "b" else np.asarray(values, dtype=np.float64)


def of_features(model: Model, by: str, *, key: str) -> Expression:
    """Return the expression; SpecificationError where it is of anything but the model's features."""
    expression = parse(by)
    unknown = sorted(set(expression.names) - set(model.features))
    if unknown or not expression.names:
        raise SpecificationError(
            f"{key}: got '{by}', which needs '{unknown[0] if unknown else 'a feature'}', expected an "
            f"expression over the model's features ({', '.join(model.features)}), since labelled rows are "
            "kept with their features only; make it a feature, and train again"
        )
    return expression
