"""From a catalogue's columns to the feature matrix, its mask and its errors: where `catalogs` and `blr` meet.

Conventions: n rows, F features.  What is not finite is missing: X is 0 there and `missing` is true, since
`blr` refuses NaN.  Expressions use our names of columns; `mapping` gives the catalogue's names for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from catalogs.arrays.texts import holds_text, numbers_of, numbers_or_texts, words_of
from catalogs.arrays.values import is_real
from catalogs.catalog.catalog import Catalog
from catalogs.errors import ExpressionError, brief, nearest
from catalogs.expressions.expression import Expression, parse
from catalogs.formats import TableChoice
from catalogs.profile.columns import measured
from catalogs.sky import photometry
from catalogs.sky.photometry import State, floats
from flows.errors import SpecificationError
from flows.features.columns import ColumnMapping, DerivedColumns
from flows.features.split import split_columns
from flows.specification.catalog import MARKS, CatalogTable, Target, as_sentinels
from flows.specification.specification import Specification

Array = np.ndarray[Any, Any]

SHOWN = 4
"""Texts that a message names."""
MEANT = "catalog.sentinels (target.sentinels of a target), not_detected or masked"


@dataclass(frozen=True)
class FeatureBatch:
    """The features of some rows: X (n, F), missing (n, F), errors (n, F) or None, inside (n,)."""

    X: NDArray[np.float64]
    missing: NDArray[np.bool_]
    errors: NDArray[np.float64] | None
    inside: NDArray[np.bool_]
    not_detected: NDArray[np.bool_] | None = None  # (n,), where some column was looked at and not seen


@dataclass(frozen=True)
class FeatureReader:
    """What to read from a catalogue, and how features come of it."""

    features: Mapping[str, Expression]
    errors: Mapping[str, Expression] = field(default_factory=dict)
    where: Expression | None = None
    sentinels: Mapping[str, tuple[float | str, ...]] = field(default_factory=dict)
    mapping: ColumnMapping = field(default_factory=ColumnMapping)
    also: Mapping[str, str] = field(default_factory=dict)  # further columns = the key that wants each
    derived: DerivedColumns = field(default_factory=DerivedColumns)
    scales: Mapping[str, float] = field(default_factory=dict)  # what brings a column to the training's unit
    limits: Mapping[str, float] = field(default_factory=dict)  # a target's own, in its units
    stated: Mapping[str, str] | None = None  # units of a target's columns, where it does not say, or wrongly

    @cached_property
    def _spoken(self) -> frozenset[str]:
        """The names in expressions, of the catalogue's columns and of derived ones."""
        used = {name for _, expression in self._keyed() for name in expression.names}
        return frozenset(used.union(self.also))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Our names of the columns needed, sorted."""
        return tuple(sorted(set[str]().union(*(self.derived.needs(name) for name in self._spoken))))

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The catalogue's names of the columns needed, each once."""
        return self.mapping.read(self.names)

    def check(self, catalog: Catalog) -> None:
        """Raise `ColumnNotFoundError` where the catalogue lacks a column, saying who wants it."""
        for key, expression in self._keyed():
            for name in sorted(expression.names):
                self._check_columns(
                    catalog, self.derived.needs(name), wanted_by=f"{key} = '{expression.text}'"
                )
        for name, key in self.also.items():
            self._check_columns(catalog, self.derived.needs(name), wanted_by=key)
        self.derived.in_units_of(catalog, self.mapping, self.stated)

    def of(self, catalog: Catalog) -> FeatureReader:
        """Return the reader for one catalogue, whose units of flux are known."""
        return (
            replace(self, derived=self.derived.in_units_of(catalog, self.mapping, self.stated))
            if self.derived.bands
            else self
        )

    def values(self, batch: pa.RecordBatch, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return the columns under our names, the derived ones too, sentinels made missing."""
        wanted = self._spoken if names is None else frozenset(names)
        needed = wanted.union(*(self.derived.needs(name) for name in wanted))
        raw = self.mapping.values(batch, (name for name in needed if name in self.derived.needs(name)))
        values = {name: self._usable(name, column) for name, column in raw.items()}
        computed = {name: self._computed(name, raw, values) for name in needed if name not in raw}
        return {name: column for name, column in (values | computed).items() if name in wanted}

    def _usable(self, name: str, values: Array) -> Array:
        """Return a column without what stands for no value, in the unit of the training."""
        sentinels, factor = self.sentinels.get(name, ()), self.scales.get(name)
        if holds_text(values):
            values = self.derived.read_text(name, values, sentinels)
        else:
            values = apply_sentinels(self.derived.observed(name, values), sentinels)
        return values if factor is None else floats(values) * factor

    def _computed(self, name: str, raw: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        asked = self.derived.indicated(name)
        if asked is None or self.derived.band_of(name) is not None:
            return self.derived.make(name, values)
        column, state = asked
        return self.derived.indicator(column, raw[column], state).astype(np.float64)

    def _undetected(self, batch: pa.RecordBatch) -> NDArray[np.bool_] | None:
        """Return which rows (n,) have a column of a feature that was looked at and not seen."""
        used = {cell for e in self.features.values() for one in e.cells for cell in self.derived.cells(*one)}
        asked = sorted(cell for cell in used if cell[0] in self.derived.not_detected)
        if not asked:
            return None
        values = self.mapping.values(batch, {name for name, _ in asked})
        undetected = np.zeros(batch.num_rows, dtype=bool)
        for name, index in asked:
            cell: Any = (slice(None), *index)
            undetected |= self.derived.indicator(name, values[name][cell], State.NOT_DETECTED)
        return undetected

    def count_states(self, batch: pa.RecordBatch) -> Counter[tuple[str, State]]:
        """Return how many rows are in each state, of the columns of which any value has one."""
        marked = {*self.sentinels, *self.derived.not_detected, *self.derived.masked}
        values = self.mapping.values(batch, (name for name in self.names if name in marked))
        counts: Counter[tuple[str, State]] = Counter()
        for name, column in values.items():
            states = self.derived.states(name, column, self.sentinels.get(name, ()))
            for state in State:
                counts[name, state] += int(np.count_nonzero(states == state))
        return counts

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
        errors = self._error_matrix(values, X.shape)
        missing = ~np.isfinite(X)
        if errors is not None:
            missing |= np.isposinf(errors)  # of an infinite error, or no weight at all, nothing is known
        if any(expression.tells_presence for expression in self.features.values()):
            missing |= self._unmeasured(values, missing)[:, None]
        if errors is not None:
            errors = np.where(np.isfinite(errors) & (errors > 0) & ~missing, errors, 0.0)
        X[missing] = 0.0
        return FeatureBatch(X, missing, errors, self.select(batch), self._undetected(batch))

    def _unmeasured(self, values: Mapping[str, Array], missing: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows (n,) have no value in any column that a feature is made of.

        A feature such as `isfinite(jmag)` has a value there all the same, which is no measurement.
        """
        unmeasured = np.ones(len(missing), dtype=bool)
        for j, expression in enumerate(self.features.values()):
            cells: Any = [(name, (slice(None), *index)) for name, index in sorted(expression.cells)]
            present = np.logical_or.reduce([measured(values[name][cell]) for name, cell in cells])
            unmeasured &= missing[:, j] | (expression.tells_presence & ~present)
        return unmeasured

    def _matrix(
        self, expressions: Mapping[str, Expression], values: Mapping[str, Array], n: int
    ) -> NDArray[np.float64]:
        X = np.empty((n, len(expressions)))
        for j, (name, expression) in enumerate(expressions.items()):
            result = _evaluated(name, expression, values)
            if result.dtype.kind not in "biuf":
                raise ExpressionError(
                    f"feature '{name}' = \"{expression.text}\" gives text, expected numbers; compare the "
                    "text with a value, as in hubble == 'E', or state the texts that mean 'no value' under "
                    f"{MEANT}{_others(result)}"
                )
            X[:, j] = result
        return X

    def _error_matrix(
        self, values: Mapping[str, Array], shape: tuple[int, ...]
    ) -> NDArray[np.float64] | None:
        """Return one-sigma errors (n, F), as they are: 0 where a feature states none."""
        if not self.errors:
            return None
        sigma = np.zeros(shape)
        for j, name in enumerate(self.features):
            if name in self.errors:
                sigma[:, j] = self._matrix({name: self.errors[name]}, values, len(sigma))[:, 0]
        return sigma

    def _keyed(self) -> list[tuple[str, Expression]]:
        """Return the expressions, each with the specification's key for it."""
        keyed = [(f"features.{name}", e) for name, e in self.features.items()]
        keyed += [(f"errors.{name}", e) for name, e in self.errors.items()]
        return keyed + ([("where", self.where)] if self.where else [])

    def _check_columns(self, catalog: Catalog, names: Iterable[str], *, wanted_by: str) -> None:
        for name in sorted(names):
            self.mapping.check(
                catalog, name, wanted_by=wanted_by, target=self.stated is not None, read=self.read
            )


def _evaluated(name: str, expression: Expression, values: Mapping[str, Array]) -> Array:
    """Return what an expression gives; an error says of which feature, and which column holds text, and which."""
    try:
        return expression.evaluate(values)
    except ExpressionError as error:
        texts = [column for column in sorted(expression.names) if holds_text(values[column])]
        marked = (
            f"\nThe column '{texts[0]}' holds text{_others(words_of(values[texts[0]]))}: convert the column, "
            f"or state the texts that mean 'no value' under {MEANT}"
            if texts
            else ""
        )
        raise ExpressionError(f"feature '{name}': {error}{marked}") from error


def apply_sentinels(values: Array, sentinels: Iterable[float | str]) -> Array:
    """Return a column with its sentinels made missing: NaN, or masked where it holds integers.

    A text among them says that the column is one of numbers, but for such texts; or is a range, '..-90'.
    """
    marks = as_sentinels(sentinels)
    texts = [s for s in marks if isinstance(s, str)]
    if texts and holds_text(values):
        words = words_of(values)
        values = numbers_or_texts(words, ~np.isin(words, ["", *(text.strip() for text in texts)]))
    numbers = [s for s in marks if not isinstance(s, str)]
    return photometry.apply_sentinels(values, numbers) if values.dtype.kind in "iuf" else values


def _others(words: Array) -> str:
    """Return a clause that names texts that are no numbers."""
    numbers = np.isfinite(numbers_of(words))
    texts = dict.fromkeys(words[~numbers & (words != "")].tolist())
    shown = ", ".join(f"'{brief(text)}'" for text in list(texts)[:SHOWN])
    place = "among the numbers are" if numbers.any() else "no number, but"
    return f" ({place} {shown})" if texts else ""


def training_reader(specification: Specification, *, split_by: Iterable[str] = ()) -> FeatureReader:
    """Return the reader of the labelled catalogue: features, label, weight, and the columns of the split."""
    catalog = specification.catalog
    also = {catalog.id: "catalog.id"} if catalog.id else {}
    also |= dict.fromkeys(split_by, "split.by")
    also |= dict.fromkeys(parse(catalog.weight).names if catalog.weight else (), "catalog.weight")
    also |= _label_columns(specification)
    return FeatureReader(
        features=_parsed(specification.features),
        errors=_parsed(specification.errors),
        where=parse(catalog.where) if catalog.where else None,
        sentinels=catalog.sentinels,
        also=also,
        derived=derived_columns(specification),
    )


def label_columns_reader(specification: Specification) -> FeatureReader:
    """Return the reader of the labelled catalogue's labels alone, and of what its condition needs."""
    return replace(training_reader(specification), features={}, errors={}, also=_label_columns(specification))


def _label_columns(specification: Specification) -> dict[str, str]:
    """Return the catalogue's columns that labels come from, each with the key that wants it."""
    label, catalog = specification.label, specification.catalog
    if label.votes is not None:
        return dict.fromkeys(label.votes.values(), "label.votes") | (
            {label.total: "label.total"} if label.total else {}
        )
    wanted = {label.column: "label.column"} if label.column and label.table is None else {}
    if label.annotator:
        wanted[label.annotator] = "label.annotator"
    if catalog.id and (label.extra or (label.table is not None and label.table.id is not None)):
        wanted[catalog.id] = "catalog.id"
    if label.table is not None and label.table.ra is not None:
        wanted |= {name: "label.table" for name in (catalog.ra, catalog.dec) if name}
    return wanted


def derived_columns(specification: Specification) -> DerivedColumns:
    """Return what a specification makes of the labelled catalogue's columns."""
    catalog = specification.catalog
    return DerivedColumns(specification.photometry, catalog.not_detected, catalog.masked, catalog.limits)


def target_reader(specification: Specification, features: Iterable[str]) -> FeatureReader:
    """Return the reader of a catalogue to classify, for a model of those features."""
    wanted, target, marks = tuple(features), specification.target, specification.target_marks()
    mapping = ColumnMapping(target.columns, _parsed(target.expressions))
    derived = replace(
        derived_columns(specification).without(mapping.expressions),
        not_detected=marks["not_detected"],
        masked=marks["masked"],
    )
    return FeatureReader(
        features=_parsed({name: specification.features[name] for name in wanted}),
        errors=_parsed({name: e for name, e in specification.errors.items() if name in wanted}),
        where=parse(target.where) if target.where else None,
        sentinels=marks["sentinels"],
        mapping=mapping,
        derived=derived,
        limits=target.limits,
    )


def _parsed(texts: Mapping[str, str]) -> dict[str, Expression]:
    return {name: parse(text) for name, text in texts.items()}


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


def training_table(specification: Specification) -> TableChoice:
    """Return which table the labelled rows are in."""
    reader = training_reader(specification, split_by=split_columns(specification))
    return TableChoice(specification.catalog.table, reader.names)


def target_table(specification: Specification, reader: FeatureReader) -> TableChoice:
    """Return which table a reader of the target reads: as a rule one like the labelled one."""
    return TableChoice(specification.target.table, reader.read, usual=specification.catalog.table)
