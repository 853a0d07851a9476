"""From a catalogue's columns to the feature matrix, its mask and its errors: where `catalogs` and `blr` meet.

Conventions: n rows, F features.  What is not finite is missing: X is 0 there and `missing` is true, since
`blr` refuses NaN.  Expressions speak our names of columns; `columns` maps them to the catalogue's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.catalog import Catalog
from catalogs.errors import ColumnNotFoundError, ExpressionError, nearest
from catalogs.expressions import Expression, parse
from catalogs.values import batch_values
from flows.config import Specification

__all__ = ["FeatureBatch", "FeatureReader", "apply_sentinels", "target_reader", "training_reader"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FeatureBatch:
    """The features of some rows: X (n, F), missing (n, F), errors (n, F) or None, inside (n,)."""

    X: NDArray[np.float64]
    missing: NDArray[np.bool_]
    errors: NDArray[np.float64] | None
    inside: NDArray[np.bool_]


@dataclass(frozen=True)
class FeatureReader:
    """What to read from a catalogue, and how features come of it."""

    features: Mapping[str, Expression]
    errors: Mapping[str, Expression] = field(default_factory=dict)
    where: Expression | None = None
    sentinels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, str] = field(default_factory=dict)  # further columns = the key that wants each

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Our names of the columns needed, sorted."""
        used = {name for _, expression in self._keyed() for name in expression.names}
        return tuple(sorted(used.union(self.also)))

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The catalogue's names of the columns needed, each once."""
        return tuple(dict.fromkeys(self.columns.get(name, name) for name in self.names))

    def check(self, catalog: Catalog) -> None:
        """Raise `ColumnNotFoundError` where the catalogue lacks a column, saying who wants it."""
        for key, expression in self._keyed():
            self._check_columns(catalog, expression.names, wanted_by=f"{key} = '{expression.text}'")
        for name, key in self.also.items():
            self._check_columns(catalog, [name], wanted_by=key)

    def values(self, batch: pa.RecordBatch, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return the columns under our names, sentinels made missing."""
        wanted = self.names if names is None else tuple(names)
        theirs = batch_values(batch, {self.columns.get(name, name) for name in wanted})
        return {
            name: apply_sentinels(theirs[self.columns.get(name, name)], self.sentinels.get(name, ()))
            for name in wanted
        }

    def select(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return the rows (n,) that `where` wants; all without one."""
        if self.where is None:
            return np.ones(batch.num_rows, dtype=bool)
        chosen = self.where.selects(self.values(batch, self.where.names))
        return np.broadcast_to(chosen, (batch.num_rows,))

    def evaluate(self, batch: pa.RecordBatch) -> FeatureBatch:
        """Return the features of a batch."""
        values = self.values(batch)
        X = self._matrix(self.features, values, batch.num_rows)
        missing = ~np.isfinite(X)
        X[missing] = 0.0
        return FeatureBatch(X, missing, self._error_matrix(values, missing), self.select(batch))

    def _matrix(
        self, expressions: Mapping[str, Expression], values: Mapping[str, Array], n: int
    ) -> NDArray[np.float64]:
        X = np.empty((n, len(expressions)))
        for j, (name, expression) in enumerate(expressions.items()):
            result = expression.evaluate(values)
            if result.dtype.kind not in "biuf":
                raise ExpressionError(
                    f"feature '{name}' = \"{expression.text}\" gives text, expected numbers; "
                    "compare the text with something, as in hubble == 'E'"
                )
            X[:, j] = result
        return X

    def _error_matrix(
        self, values: Mapping[str, Array], missing: NDArray[np.bool_]
    ) -> NDArray[np.float64] | None:
        """Return one-sigma errors (n, F): 0 where a feature states none, or is missing."""
        if not self.errors:
            return None
        sigma = np.zeros(missing.shape)
        for j, name in enumerate(self.features):
            if name in self.errors:
                column = self._matrix({name: self.errors[name]}, values, len(missing))[:, 0]
                sigma[:, j] = np.where(np.isfinite(column) & (column > 0) & ~missing[:, j], column, 0.0)
        return sigma

    def _keyed(self) -> list[tuple[str, Expression]]:
        """Return the expressions, each with the specification's key for it."""
        keyed = [(f"features.{name}", e) for name, e in self.features.items()]
        keyed += [(f"errors.{name}", e) for name, e in self.errors.items()]
        return keyed + ([("where", self.where)] if self.where else [])

    def _check_columns(self, catalog: Catalog, names: Iterable[str], *, wanted_by: str) -> None:
        for name in sorted(names):
            theirs = self.columns.get(name, name)
            if theirs not in catalog.names:
                raise ColumnNotFoundError(
                    f"{catalog.path} has no column '{theirs}', expected by {wanted_by}; "
                    f"{nearest(theirs, catalog.names)}"
                )


def apply_sentinels(values: Array, sentinels: Iterable[float]) -> Array:
    """Return a column with its sentinels made missing: NaN, or masked where it holds integers."""
    if values.dtype.kind not in "iuf":
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        # In the column's own precision: a float32 column holds 99.99 as float32 has it.
        marks = [np.asarray(s).astype(np.asarray(values).dtype) for s in sentinels if _holds(values, s)]
    hit = np.isin(np.ma.getdata(values), marks) if marks else np.zeros(1, dtype=bool)
    if not hit.any():
        return values
    if values.dtype.kind == "f":
        return np.where(hit, np.nan, values)
    return np.ma.MaskedArray(np.ma.getdata(values), mask=hit | np.ma.getmaskarray(values))


def _holds(values: Array, sentinel: float) -> bool:
    """Say whether a column's type can hold the sentinel: -9999 is in no column of unsigned integers."""
    if values.dtype.kind == "f":
        return True
    limits = np.iinfo(values.dtype)
    return sentinel == int(sentinel) and limits.min <= sentinel <= limits.max


def training_reader(specification: Specification, *, split_by: Iterable[str] = ()) -> FeatureReader:
    """Return the reader of the labelled catalogue: features, label, weight, and the columns of the split."""
    catalog = specification.catalog
    also = dict.fromkeys(split_by, "split.by")
    also |= dict.fromkeys(parse(catalog.weight).names if catalog.weight else (), "catalog.weight")
    also |= {specification.label.column: "label.column"} if specification.label.column else {}
    return FeatureReader(
        features=_parsed(specification.features),
        errors=_parsed(specification.errors),
        where=parse(catalog.where) if catalog.where else None,
        sentinels=catalog.sentinels,
        also=also,
    )


def target_reader(specification: Specification, features: Iterable[str]) -> FeatureReader:
    """Return the reader of a catalogue to classify, for a model of those features."""
    wanted, target = tuple(features), specification.target
    return FeatureReader(
        features=_parsed({name: specification.features[name] for name in wanted}),
        errors=_parsed({name: e for name, e in specification.errors.items() if name in wanted}),
        where=parse(target.where) if target.where else None,
        sentinels=specification.catalog.sentinels,
        columns=target.columns,
    )


def _parsed(texts: Mapping[str, str]) -> dict[str, Expression]:
    return {name: parse(text) for name, text in texts.items()}
