"""From a catalogue's columns to the feature matrix, its mask and its errors: where `catalogs` and `blr` meet.

Conventions: n rows, F features.  What is not finite is missing: X is 0 there and `missing` is true, since
`blr` refuses NaN.  Expressions use our names of columns; `columns` gives the catalogue's names for them.

Units of a catalogue are compared with those of the first one of a training: converted where unambiguous, else refused.
A column of which one side states no unit is taken as it is, with a remark; magnitudes are in mag without one.
Fluxes of [photometry] are converted there, by their zero points.
A salted hash of what the specification names chooses the rows that no fit sees: the same ones for every model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from blr.arrays import Array, Floats, Mask
from catalogs.arrays import floats, holds_text, is_real, numbers_of, numbers_or_texts, words_of
from catalogs.catalog.catalog import Catalog, ColumnMetadata
from catalogs.column_names import column_names
from catalogs.errors import CatalogError, ExpressionError, brief, nearest
from catalogs.expressions.expression import Expression, expression_name, parse
from catalogs.formats import TableChoice
from catalogs.profile import split
from catalogs.profile.columns import measured
from catalogs.sky import photometry
from catalogs.sky.photometry import ZERO_POINT, State, flux_unit, unit_factor
from catalogs.sky.positions import PositionUnit, positions, unit_of_position
from flows.errors import SpecificationError
from flows.features.columns import OurColumns
from flows.specification.catalog import MARKS, CatalogTable, Target, as_sentinels, listed
from flows.specification.specification import Specification


def split_columns(specification: Specification) -> tuple[str, ...]:
    """Return the columns that the split needs."""
    catalog, by = specification.catalog, specification.split.by
    if by == "healpix":
        return tuple(name for name in (catalog.ra, catalog.dec) if name)
    return (catalog.id,) if by == "id" and catalog.id else listed(by)


Place = tuple[str, str, PositionUnit]
"""Columns of right ascension and declination, and their unit."""


def known_place(table: CatalogTable, catalog: Catalog) -> Place | None:
    """Return columns of a position with their unit; None where one is lacking, or where the unit cannot be read."""
    ra, dec = table.ra, table.dec
    if ra is None or dec is None or not {ra, dec} <= {*catalog.names}:
        return None
    with suppress(CatalogError):
        return ra, dec, unit_of_position(catalog, ra, dec, stated=table.position_unit)
    return None


def position_unit(specification: Specification, catalog: Catalog) -> PositionUnit:
    """Return the unit of the position in a catalogue; SpecificationError where it is needed and not known."""
    place, table = specification.catalog, specification.label.table
    needed = specification.split.by == "healpix" or (table is not None and table.id is None)
    if not needed or place.ra is None or place.dec is None:
        return "deg"
    try:
        return unit_of_position(catalog, place.ra, place.dec, stated=place.position_unit)
    except CatalogError as error:
        who = "split.by: got 'healpix'" if specification.split.by == "healpix" else "label.table"
        raise SpecificationError(f"{who}: {error}, or split by 'id'") from error


SplitPlaces = NDArray[np.int64] | NDArray[np.uint64]
"""What the split of rows goes by, (n,): the finest pixels, or the keys of what columns name."""


def split_places(
    specification: Specification, values: Mapping[str, Array], unit: PositionUnit
) -> SplitPlaces:
    """Return what the split of rows (n,) goes by; `values` are columns under our names, positions in that unit."""
    columns = [values[name] for name in split_columns(specification)]
    if specification.split.by != "healpix":
        return split.name_keys(columns)
    place = positions(columns[0], columns[1], unit)
    return split.healpix_pixels(place.ra, place.dec, order=split.FINEST_ORDER)


def held_out(
    specification: Specification, places: SplitPlaces, *, trial: bool = False
) -> tuple[Mask, NDArray[np.uint64], split.SplitSummary, str]:
    """Return which rows are held out (N,) by their places (N,), their groups (N,), and a summary.

    The text says why the split will not do, "" where it will; a `trial` of few rows is never refused.
    """
    asked, by, order = specification.split.held_out, specification.split.by, None
    shares: dict[int, float] = {}
    if asked and by == "healpix":
        stated = specification.split.healpix_order
        order, shares = split.split_by_pixels(places.astype(np.int64), asked, order=stated)
    chosen, group = sides(specification, places, order)
    summary = split.SplitSummary(
        by=", ".join(listed(by)),
        asked=asked,
        share=float(chosen.mean()) if len(chosen) else 0.0,
        n_places=len(np.unique(group)),
        healpix_order=order,
    )
    if order is None:
        share, doubtful = summary.share, asked and by != "id" and summary.n_places < FEW_VALUES
    else:
        share, doubtful = shares[order], not split.is_about(shares[order], asked)
    refused = doubtful and not trial
    return chosen, group, summary, _far_off(specification, group, share, order) if refused else ""


def sides(
    specification: Specification, places: SplitPlaces, order: int | None
) -> tuple[Mask, NDArray[np.uint64]]:
    """Return which rows are held out (N,) and their group (N,), by their places (N,).

    `order` is that of the pixels; None keeps the finest places, whose neighbours are in the same fold.
    """
    pixels = specification.split.by == "healpix" and order is not None
    group = split.healpix_keys(places.astype(np.int64), order or 0) if pixels else places.astype(np.uint64)
    asked = specification.split.held_out
    return (split.held_out_keys(group, asked) if asked else np.zeros(len(group), dtype=bool)), group


FEW_VALUES = 50
"""Different values of a column below which the share held out may be far from that asked for, and is checked."""


def _far_off(specification: Specification, group: NDArray[np.uint64], share: float, order: int | None) -> str:
    """Return why a split by positions, or by a column of few values, will not do: its share is far from that asked for.

    `order` is that of the pixels, None for columns.
    """
    asked, by = specification.split.held_out, ", ".join(listed(specification.split.by))
    if asked / 2 <= share <= 2 * asked and (order is None or specification.split.healpix_order is not None):
        return ""
    if order is None:
        return (
            f"split.by: got '{by}', whose {len(np.unique(group))} different values hold {share:.0%} of the labelled "
            f"rows out, expected about {asked:.0%}; split by a column with more values, or by 'id'"
        )
    ra, dec = specification.catalog.ra, specification.catalog.dec
    return (
        f"split.by: got 'healpix', whose pixels of order {order} hold {share:.0%} of the labelled rows out, expected "
        f"about {asked:.0%}: '{ra}' and '{dec}' hold positions in few places, or no readable ones; leave healpix_order "
        'out, split by \'id\', or state position_unit = "deg" (or "rad", "sexagesimal", "hours") under [catalog]'
    )


SHOWN = 4
"""Texts that a message names."""
MEANT = "catalog.sentinels (target.sentinels of a target), not_detected or masked"


@dataclass(frozen=True)
class FeatureBatch:
    """The features of some rows: X (n, F), missing (n, F), errors (n, F) or None, inside (n,)."""

    X: Floats
    missing: Mask
    errors: Floats | None
    inside: Mask
    not_detected: Mask | None = None  # (n,), where some column was looked at and not seen

    @cached_property
    def within(self) -> tuple[Floats, Mask]:
        """The features (m, F) of the rows inside, and what is missing of them: no copy where these are all."""
        whole = self.inside.all()
        return (self.X, self.missing) if whole else (self.X[self.inside], self.missing[self.inside])


@dataclass(frozen=True)
class FeatureReader:
    """What to read from a catalogue, and how features come of it."""

    features: Mapping[str, Expression]
    errors: Mapping[str, Expression] = field(default_factory=dict)
    where: Expression | None = None
    sentinels: Mapping[str, tuple[float | str, ...]] = field(default_factory=dict)
    also: Mapping[str, str] = field(default_factory=dict)  # further columns = the key that wants each
    columns: OurColumns = field(default_factory=OurColumns)
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
        return tuple(sorted(set[str]().union(*(self.columns.needs(name) for name in self._spoken))))

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The catalogue's names of the columns needed, each once."""
        return self.columns.read(self.names)

    def of(self, catalog: Catalog) -> FeatureReader:
        """Return the reader for one catalogue, whose units of flux are known.

        ColumnNotFoundError where the catalogue lacks a column, saying who wants it.
        """
        wanted = [(name, f"{key} = '{e.text}'") for key, e in self._keyed() for name in sorted(e.names)]
        for name, by in [*wanted, *self.also.items()]:
            for column in sorted(self.columns.needs(name)):
                self.columns.check(catalog, column, wanted_by=by, target=self.stated is not None)
        return replace(self, columns=self.columns.in_units_of(catalog, self.stated))

    def values(self, batch: pa.RecordBatch, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return the columns under our names, the derived ones too, sentinels made missing."""
        wanted = self._spoken if names is None else frozenset(names)
        needed = wanted.union(*(self.columns.needs(name) for name in wanted))
        raw = self.columns.values(batch, (name for name in needed if name in self.columns.needs(name)))
        values = {name: self._usable(name, column) for name, column in raw.items()}
        computed = {name: self._computed(name, raw, values) for name in needed if name not in raw}
        return {name: column for name, column in (values | computed).items() if name in wanted}

    def marks(self, batch: pa.RecordBatch) -> dict[str, int]:
        """Return which numbers that catalogues write for 'no value' the columns still hold, and in how many rows."""
        found: dict[str, int] = {}
        for name, column in self.values(batch).items():
            if column.dtype.kind in "iuf" and column.ndim == 1:
                numbers = floats(column)
                for mark in column_names().sentinels.numbers:
                    hits = int(np.count_nonzero(np.abs(numbers - mark) <= 1e-7 * abs(mark)))
                    if hits and abs(mark) > 1:  # 0 and -1 are values of too many columns
                        found[f"{name} = {mark:g}"] = hits
        return found

    def _usable(self, name: str, values: Array) -> Array:
        """Return a column without what stands for no value, in the unit of the training."""
        sentinels, factor = self.sentinels.get(name, ()), self.scales.get(name)
        if holds_text(values):
            values = self.columns.read_text(name, values, sentinels)
        else:
            values = apply_sentinels(self.columns.observed(name, values), sentinels)
        return values if factor is None else floats(values) * factor

    def _computed(self, name: str, raw: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        asked = self.columns.indicated(name)
        if asked is None or self.columns.band_of(name) is not None:
            return self.columns.make(name, values)
        column, state = asked
        return self.columns.indicator(column, raw[column], state).astype(np.float64)

    def _undetected(self, batch: pa.RecordBatch) -> Mask | None:
        """Return which rows (n,) have a column of a feature that was looked at and not seen."""
        used = {cell for e in self.features.values() for one in e.cells for cell in self.columns.cells(*one)}
        asked = sorted(cell for cell in used if cell[0] in self.columns.not_detected)
        if not asked:
            return None
        values = self.columns.values(batch, {name for name, _ in asked})
        undetected = np.zeros(batch.num_rows, dtype=bool)
        for name, index in asked:
            cell: Any = (slice(None), *index)
            undetected |= self.columns.indicator(name, values[name][cell], State.NOT_DETECTED)
        return undetected

    def count_states(self, batch: pa.RecordBatch) -> Counter[tuple[str, State]]:
        """Return how many rows are in each state, of the columns of which any value has one."""
        marked = {*self.sentinels, *self.columns.not_detected, *self.columns.masked}
        values = self.columns.values(batch, (name for name in self.names if name in marked))
        counts: Counter[tuple[str, State]] = Counter()
        for name, column in values.items():
            states = self.columns.states(name, column, self.sentinels.get(name, ()))
            for state in State:
                counts[name, state] += int(np.count_nonzero(states == state))
        return counts

    def select(self, batch: pa.RecordBatch) -> Mask:
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
        errors = np.zeros(X.shape) if self.errors else None  # one sigma, 0 where a feature states none
        if errors is not None:
            stated = [j for j, name in enumerate(self.features) if name in self.errors]
            ordered = {name: self.errors[name] for name in self.features if name in self.errors}
            errors[:, stated] = self._matrix(ordered, values, len(X))
            missing |= np.isposinf(errors)  # of an infinite error, or no weight at all, nothing is known
        if any(expression.tells_presence for expression in self.features.values()):
            missing |= self._unmeasured(values, missing)[:, None]
        if errors is not None:
            errors = np.where(np.isfinite(errors) & (errors > 0) & ~missing, errors, 0.0)
        X[missing] = 0.0
        return FeatureBatch(X, missing, errors, self.select(batch), self._undetected(batch))

    def _unmeasured(self, values: Mapping[str, Array], missing: Mask) -> Mask:
        """Return which rows (n,) have no value in any column that a feature is made of.

        A feature such as `isfinite(jmag)` has a value there all the same, which is no measurement.
        """
        unmeasured = np.ones(len(missing), dtype=bool)
        for j, expression in enumerate(self.features.values()):
            cells: Any = [(name, (slice(None), *index)) for name, index in sorted(expression.cells)]
            present = np.logical_or.reduce([measured(values[name][cell]) for name, cell in cells])
            unmeasured &= missing[:, j] | (expression.tells_presence & ~present)
        return unmeasured

    def _matrix(self, expressions: Mapping[str, Expression], values: Mapping[str, Array], n: int) -> Floats:
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

    def _keyed(self) -> list[tuple[str, Expression]]:
        """Return the expressions, each with the specification's key for it."""
        keyed = [(f"features.{name}", e) for name, e in self.features.items()]
        keyed += [(f"errors.{name}", e) for name, e in self.errors.items()]
        return keyed + ([("where", self.where)] if self.where else [])


def _evaluated(name: str, expression: Expression, values: Mapping[str, Array]) -> Array:
    """Return what an expression gives; an error says of which feature, and which column holds text, and which."""
    try:
        return expression.evaluate(values)
    except ExpressionError as error:
        texts = [column for column in sorted(expression.names) if holds_text(values[column])]
        if not texts or any(mark in expression.text for mark in "'\""):  # it compares text itself
            raise ExpressionError(f"feature '{name}': {error}") from error
        raise ExpressionError(
            f"feature '{name}' = '{expression.text}': the column '{texts[0]}' holds text"
            f"{_others(words_of(values[texts[0]]))}, expected numbers; convert the column, or state the texts that "
            f"mean 'no value' under {MEANT}"
        ) from error


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


def training_reader(specification: Specification) -> FeatureReader:
    """Return the reader of the labelled catalogue: features, label, weight, and the columns of the split."""
    catalog = specification.catalog
    also = {catalog.id: "catalog.id"} if catalog.id else {}
    also |= {name: "split.by" for name in split_columns(specification) if name not in also}
    also |= dict.fromkeys(parse(catalog.weight).names if catalog.weight else (), "catalog.weight")
    return FeatureReader(
        features=_parsed(specification.features),
        errors=_parsed(specification.errors),
        where=parse(catalog.where) if catalog.where else None,
        sentinels=catalog.sentinels,
        also=also | _label_columns(specification),
        columns=OurColumns(
            bands=specification.photometry,
            not_detected=catalog.not_detected,
            masked=catalog.masked,
            limits=catalog.limits,
        ),
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


def target_reader(specification: Specification, features: Iterable[str]) -> FeatureReader:
    """Return the reader of a catalogue to classify, for a model of those features."""
    wanted, target, marks = tuple(features), specification.target, specification.target_marks()
    made = _parsed(target.expressions)
    bands = {name: band for name, band in specification.photometry.items() if name not in made}
    columns = OurColumns(
        target.columns,
        made,
        bands,
        marks["not_detected"],
        marks["masked"],
        specification.catalog.limits,
    )
    return FeatureReader(
        features=_parsed({name: specification.features[name] for name in wanted}),
        errors=_parsed({name: e for name, e in specification.errors.items() if name in wanted}),
        where=parse(target.where) if target.where else None,
        sentinels=marks["sentinels"],
        columns=columns,
        limits=target.limits,
    )


def _parsed(texts: Mapping[str, str]) -> dict[str, Expression]:
    return {name: parse(text) for name, text in texts.items()}


def check_marks(specification: Specification, catalogs: Sequence[Catalog]) -> None:
    """Raise `SpecificationError` where marked values would stay values, as nothing of the kind is in the catalogues."""
    known = {name for catalog in catalogs for name in catalog.names}
    for key, name, marks in _marked(specification.catalog):
        if name not in known:
            raise SpecificationError(
                f"catalog.{key}: got '{name}', which is not a column of {catalogs[0].path}, expected one of "
                f"its columns, without an index; {nearest(name, known)}"
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
    return TableChoice(specification.catalog.table, training_reader(specification).names)


def target_table(specification: Specification, reader: FeatureReader) -> TableChoice:
    """Return which table a reader of the target reads: as a rule one like the labelled one."""
    return TableChoice(specification.target.table, reader.read, usual=specification.catalog.table)


PLAIN = dict.fromkeys(("degrees", "degree"), "deg") | dict.fromkeys(("radians", "radian"), "rad")
PLAIN |= dict.fromkeys(("mags", "magnitude", "magnitudes"), "mag") | {"arcmins": "arcmin"}
PLAIN |= dict.fromkeys(("arcsecs", "seconds of arc"), "arcsec")


def converted(
    reader: FeatureReader,
    catalog: Catalog,
    *,
    trained: Mapping[str, ColumnMetadata],
    stated: Mapping[str, str] | None,
) -> FeatureReader:
    """Return the reader for one catalogue, columns in units other than the training's converted as they are read.

    `trained` says of each of our columns what the training's catalogue did.  `stated` are the units that the
    specification gives where this catalogue says none, or the wrong one; None of a labelled catalogue, which has none.
    """
    here = replace(reader, stated=stated).of(catalog)
    scales = _conversions(here, catalog, _with_magnitudes(trained, here))
    # A limit of the model is in the training's unit, and is converted with its column; the target's own is not.
    limits = {name: limit / scales.get(name, 1.0) for name, limit in here.columns.limits.items()}
    return replace(here, scales=scales, columns=replace(here.columns, limits={**limits, **reader.limits}))


UnitRemark = tuple[str, str]
"""A column, and what is stated of its unit, both in words."""


def unchecked(
    reader: FeatureReader, catalog: Catalog, trained: Mapping[str, ColumnMetadata]
) -> tuple[UnitRemark, ...]:
    """Return the columns of which one side alone states a unit, so that nothing could be compared, and what it states.

    A catalogue that states no unit at all, as CSV files do, gets no remark: nobody expects units there.
    """
    here = {c.name: c.unit for c in catalog.columns}
    ours = reader.columns
    stated_names = ours.fluxes.union(reader.stated or (), ours.expressions)
    unstated = []
    for name, column in _with_magnitudes(trained, reader).items():
        if name in stated_names or name not in reader.names:
            continue
        unit = ours.unit(name, here)
        if unit and not column.unit:
            unstated.append((ours.said(name), f"in '{unit}', but had no unit in training"))
        elif column.unit and not unit and any(here.values()):
            unstated.append((ours.said(name), f"without a unit here, unlike in training ('{column.unit}')"))
    return tuple(unstated)


def _with_magnitudes(
    trained: Mapping[str, ColumnMetadata], reader: FeatureReader
) -> dict[str, ColumnMetadata]:
    """Return what the training's catalogue said of columns, with the unit that a magnitude has where it stated none."""
    known = {n for n, c in trained.items() if (c.ucd or "").lower().startswith("phot.mag")}
    known |= reader.columns.magnitudes
    return {n: replace(c, unit="mag") if n in known and not c.unit else c for n, c in trained.items()}


def in_units_of_the_first(reader: FeatureReader, catalog: Catalog, first: Catalog) -> FeatureReader:
    """Return the reader for one of several labelled catalogues; positions and votes stay as they are."""
    if catalog is first:
        return reader.of(catalog)
    named = [name for name in reader.names if name not in reader.also]
    trained = {name: ColumnMetadata.of(first.column(name)) for name in named}
    return converted(reader, catalog, trained=trained, stated=None)


def _conversions(
    reader: FeatureReader, catalog: Catalog, trained: Mapping[str, ColumnMetadata]
) -> dict[str, float]:
    """Return the factor of each column that has to be converted, by our names; `trained` as of `converted`."""
    columns, stated = reader.columns, reader.stated
    here, fluxes = {c.name: c.unit for c in catalog.columns}, columns.fluxes
    factors = {}
    for name, column in trained.items():
        if name in fluxes or not here.keys() >= {*columns.theirs(name)}:
            continue
        unit = (stated or {}).get(name) or columns.unit(name, here)
        factor = _factor(column.unit, unit)
        if factor is None:
            raise CatalogError(
                f"{catalog.path}: got {columns.said(name)} in '{unit}', expected '{column.unit}', in which "
                + _remedy(name, str(column.unit), columns.read([name]), unit or "", training=stated is None)
            )
        if factor != 1:
            factors[name] = factor
    return factors


def _remedy(name: str, trained: str, theirs: tuple[str, ...], unit: str, *, training: bool) -> str:
    """Return what to do about a column whose unit cannot be converted, and why it has to be done."""
    if training:
        return "the first labelled catalogue has it; convert it, or correct its unit"
    state = f'the model was trained; if they are the same, state it: units = {{ {name} = "{trained}" }} under [target]'
    flux, old_flux = flux_unit(unit), flux_unit(trained)
    column = expression_name(theirs[0]) if len(theirs) == 1 else "..."
    if flux is not None and PLAIN.get(trained.lower(), trained).startswith("mag"):
        value = f"{ZERO_POINT[flux]} - 2.5 * log10({column})"
    elif old_flux is not None and PLAIN.get(unit.lower(), unit).startswith("mag"):
        value = f"10 ** (0.4 * ({ZERO_POINT[old_flux]} - {column}))"
    else:
        return f"{state}; else convert it, or compute it from the target's columns under [target.expressions]"
    return f"{state}; if they are AB magnitudes, convert them: expressions = {{ {name} = '{value}' }} under [target]"


def _factor(trained: str | None, here: str | None) -> float | None:
    """Return what brings a value here to the unit of the training; None where nothing does."""
    ours, theirs = ((PLAIN.get(t.strip().lower(), t.strip()) if t else "") for t in (trained, here))
    if not ours or not theirs or ours == theirs:
        return 1.0
    flux, other = flux_unit(ours), flux_unit(theirs)
    if flux is not None and other is not None:
        return unit_factor(other, flux) if flux != other else 1.0
    import astropy  # noqa: PLC0415 -- slow to import, and most units are spelt alike

    old, new = (astropy.units.Unit(t, parse_strict="silent") for t in (ours, theirs))
    try:
        return float(new.to(old))
    except (astropy.units.UnitsError, TypeError, AttributeError):
        # Only after astropy, to which mJy and MJy are two.
        return 1.0 if ours.lower() == theirs.lower() else None
