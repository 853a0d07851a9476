"""A target's columns under our names: of other names, or made of the target's own by an expression.

Conventions: n rows.  "Ours" are the names that the specification's features speak of, "theirs" the target's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.errors import ColumnNotFoundError, ExpressionError, nearest
from catalogs.expressions.expression import Expression
from flows.features.flux_units import written_unit

__all__ = ["ColumnMapping"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ColumnMapping:
    """What a catalogue has in the place of each of our columns; a column of the same name, unless another is named."""

    columns: Mapping[str, str] = field(default_factory=dict)  # ours = theirs
    expressions: Mapping[str, Expression] = field(default_factory=dict)  # ours = made of theirs

    def theirs(self, name: str) -> tuple[str, ...]:
        """Return the catalogue's columns that are read for one of ours, sorted."""
        expression = self.expressions.get(name)
        return (self.columns.get(name, name),) if expression is None else tuple(sorted(expression.names))

    def read(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the catalogue's columns that are read for some of ours, each once."""
        return tuple(dict.fromkeys(theirs for name in names for theirs in self.theirs(name)))

    def said(self, name: str) -> str:
        """Return what stands for one of ours, for messages."""
        expression = self.expressions.get(name)
        return f"column '{self.columns.get(name, name)}'" if expression is None else f"'{expression.text}'"

    def unit(self, name: str, units: Mapping[str, str | None]) -> str | None:
        """Return the unit of one of ours, from the `units` of theirs; None or '' where none is known."""
        expression = self.expressions.get(name)
        if expression is None:
            return units.get(self.columns.get(name, name))
        return written_unit(expression, units)

    def check(
        self, catalog: Catalog, name: str, *, wanted_by: str, target: bool = True, read: Sequence[str] = ()
    ) -> None:
        """Raise `ColumnNotFoundError` where a catalogue lacks what one of our columns is, or is made of.

        Columns that are `read` as others of ours are no other spelling of this one.
        """
        expression = self.expressions.get(name)
        by = wanted_by if expression is None else f"target.expressions.{name} = '{expression.text}'"
        remedy = f"; or state what it is here: columns = {{ '{name}' = '...' }} under [target]"
        for theirs in self.theirs(name):
            if theirs not in catalog.names:
                raise ColumnNotFoundError(
                    f"{catalog.path} has no column '{theirs}', expected by {by}; "
                    f"{nearest(theirs, catalog.names, others=read)}"
                    f"{remedy if target and expression is None else ''}"
                )

    def values(self, batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Array]:
        """Return columns (n,) or (n, ...) of a batch under our names."""
        wanted = tuple(names)
        plain = batch_values(batch, {self.columns.get(n, n) for n in wanted if n not in self.expressions})
        return {
            name: self._computed(name, batch)
            if name in self.expressions
            else plain[self.columns.get(name, name)]
            for name in wanted
        }

    def _computed(self, name: str, batch: pa.RecordBatch) -> Array:
        try:
            return self.expressions[name].evaluate_batch(batch)
        except ExpressionError as error:
            raise ExpressionError(f"target.expressions.{name}: {error}") from error
