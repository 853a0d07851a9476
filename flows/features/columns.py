"""A catalogue's columns under our names: the target's own, magnitudes of [photometry], and why a value is missing.

"Ours" are the names that the specification's features speak of, "theirs" the target's.  `NAME` is a magnitude and
`NAME_err` its one-sigma error where one is stated.  `COLUMN_not_detected` is 1 where a column holds one of its
catalog.not_detected values, `COLUMN_masked` where one of catalog.masked: any expression may use them.  Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from blr.arrays import Array, Floats, Mask
from catalogs.arrays import batch_values, floats, numbers_or_texts, words_of
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError, ColumnNotFoundError, ExpressionError, nearest
from catalogs.expressions.expression import Expression, parse
from catalogs.sky import photometry
from catalogs.sky.photometry import ZERO_POINT, State, flux_unit, states
from flows.errors import SpecificationError
from flows.specification.catalog import ERROR, Band, Marks, as_sentinels, made_by

Units = Mapping[str, str | None]
"""Units of columns, by our names."""


def unit_of_band(
    name: str, band: Band, flux: Expression, units: Units, catalog: Catalog, *, training: bool
) -> str:
    """Return the unit of a band's flux from its columns' `units`; CatalogError where they do not say it.

    What the catalogue says of itself comes first: a target in nJy is read as nJy.  Words that nobody can read are
    overruled by who states the unit, for the labelled catalogue under [photometry], for a target under [target].
    """
    written = written_unit(flux, units)
    said = flux_unit(written)
    if said is not None:
        return said
    if band.unit is not None and (training or not written):
        return str(band.unit)
    expected = band.unit or f"one of {', '.join(ZERO_POINT)}"
    column = min(flux.names, default=str(band.flux))
    remedy = (
        f'unit = "nanomaggy" under [photometry.{name}]'
        if training
        else f'units = {{ "{column}" = "{band.unit}" }} under [target]'
    )
    raise CatalogError(
        f"photometry.{name}: got a flux in '{written or 'no unit'}' in {catalog.path}, expected {expected}; "
        f"state it: {remedy}, or convert the column"
    )


def error_scale(name: str, text: str, error: Expression, units: Units, flux: str, written: Units) -> float:
    """Return what brings the one-sigma error of a band, or its inverse variance's, to the unit of its flux.

    An error of which nobody can tell the unit is taken to be in the flux's.  `text` is the key of the error, `written`
    are the units of the flux's own columns.
    """
    unit_text = written_unit(error, units)
    if not unit_text or unit_text in written.values():
        return 1.0
    known, wanted = flux_unit(unit_text) if text == "error" else None, flux
    if known is None:
        import astropy  # noqa: PLC0415 -- slow to import, and most units are known

        unit = astropy.units.Unit(unit_text, parse_strict="silent")
        if text == "inverse_variance":
            wanted = f"{flux}^-2"
            with suppress(ValueError, astropy.units.UnitsError):
                known = flux_unit((unit**-0.5).to_string())
        if known is None and isinstance(unit, astropy.units.UnrecognizedUnit):
            return 1.0
    if known is not None:
        return photometry.unit_factor(known, flux)
    raise CatalogError(
        f"photometry.{name}.{text}: got '{error.text}' in '{unit_text}', expected {wanted}, as its flux has; "
        "name the column with the error of this flux, or correct its unit"
    )


def written_unit(expression: Expression, units: Units) -> str | None:
    """Return the unit of an expression's values from its columns' `units`: of one column as the catalogue writes it."""
    own = {name: units.get(name) for name in expression.names}
    if expression.is_column:
        return next(iter(own.values()))
    return expression.unit({name: flux_unit(text) or text for name, text in own.items()})


INDICATORS: Final = {"_not_detected": State.NOT_DETECTED, "_masked": State.MASKED}
"""How the name of a state's indicator ends."""
BLANK: Final = "blank"
"""Among the values that mean not detected, or masked: null, NaN or ''.  A word, since JSON has no NaN."""


@dataclass(frozen=True)
class OurColumns:
    """How each of our columns is read from a catalogue, or made of what is read.

    Ours is the catalogue's column of the same name, unless `columns` names another one or `expressions` a formula.
    `units` has the unit of each band's flux, `error_scales` the factor that brings the band's error to that unit.
    """

    columns: Mapping[str, str] = field(default_factory=dict)  # ours = theirs
    expressions: Mapping[str, Expression] = field(default_factory=dict)  # ours = made of theirs
    bands: Mapping[str, Band] = field(default_factory=dict)
    not_detected: Marks = field(default_factory=dict)
    masked: Marks = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    error_scales: Mapping[str, float] = field(default_factory=dict)

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

    def check(self, catalog: Catalog, name: str, *, wanted_by: str, target: bool = True) -> None:
        """Raise `ColumnNotFoundError` where a catalogue lacks what one of our columns is, or is made of."""
        expression = self.expressions.get(name)
        by = wanted_by if expression is None else f"target.expressions.{name} = '{expression.text}'"
        remedy = f"; or state what it is here: columns = {{ '{name}' = '...' }} under [target]"
        for theirs in self.theirs(name):
            if theirs not in catalog.names:
                raise ColumnNotFoundError(
                    f"{catalog.path} has no column '{theirs}', expected by {by}; "
                    f"{nearest(theirs, catalog.names)}"
                    f"{remedy if target and expression is None else ''}"
                )

    def values(self, batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Array]:
        """Return columns (n,) or (n, ...) of a batch under our names."""
        wanted = {name: self.expressions.get(name) for name in names}
        theirs = {name: self.columns.get(name, name) for name, made in wanted.items() if made is None}
        plain, found = batch_values(batch, {*theirs.values()}), dict[str, Array]()
        for name, expression in wanted.items():
            try:
                found[name] = expression.evaluate_batch(batch) if expression else plain[theirs[name]]
            except ExpressionError as error:
                raise ExpressionError(f"target.expressions.{name}: {error}") from error
        return found

    @cached_property
    def _parsed(self) -> dict[str, Expression]:
        return {text: parse(text) for band in self.bands.values() for text in band.texts}

    @property
    def fluxes(self) -> frozenset[str]:
        """The columns of fluxes and their errors, whose unit is the zero point's business."""
        flux_bands = [band for band in self.bands.values() if band.flux is not None]
        return self._names(text for b in flux_bands for text in (b.flux, b.error, b.inverse_variance))

    @property
    def magnitudes(self) -> frozenset[str]:
        """The columns that [photometry] calls magnitudes."""
        return self._names(band.magnitude for band in self.bands.values())

    def _names(self, texts: Iterable[str | None]) -> frozenset[str]:
        return frozenset().union(*(self._parsed[text].names for text in texts if text is not None))

    def band_of(self, name: str) -> str | None:
        """Return the band that makes a column of that name."""
        return made_by(name, self.bands)

    def needs(self, name: str) -> frozenset[str]:
        """Return the catalogue's columns, under our names, that a column is made of: itself, if it is one."""
        return frozenset(column for column, _ in self.cells(name))

    def cells(self, name: str, index: tuple[int, ...] = ()) -> frozenset[tuple[str, tuple[int, ...]]]:
        """Return the columns as of `needs`, each with the index of the element; () of a whole column."""
        band = self.band_of(name)
        if band is not None:
            return frozenset().union(*(self._parsed[text].cells for text in self.bands[band].texts))
        asked = self.indicated(name)
        return frozenset({(name if asked is None else asked[0], index)})

    def indicated(self, name: str) -> tuple[str, State] | None:
        """Return the column and the state that an indicator of that name is of."""
        for ending, state in INDICATORS.items():
            column = name.removesuffix(ending)
            if name.endswith(ending) and column in self._marks(state):
                return column, state
        return None

    def _marks(self, state: State) -> Marks:
        return self.not_detected if state is State.NOT_DETECTED else self.masked

    def states(
        self, name: str, values: Array, not_observed: Sequence[float | str] = ()
    ) -> NDArray[np.int8] | None:
        """Return the `State` of each value (n,) of a column; None of a column whose states nobody stated."""
        marks = {state: self._marks(state).get(name, ()) for state in INDICATORS.values()}
        if not (not_observed or any(marks.values())):
            return None
        blank = next((state for state, some in marks.items() if BLANK in some), State.NOT_OBSERVED)
        unseen = as_sentinels(not_observed)
        numbers = {state: as_sentinels(m for m in some if m != BLANK) for state, some in marks.items()}
        undetected, masked = numbers[State.NOT_DETECTED], numbers[State.MASKED]
        return states(values, not_observed=unseen, not_detected=undetected, masked=masked, otherwise=blank)

    def indicator(self, name: str, values: Array, state: State) -> Mask:
        """Return which rows (n,) of a column are in a state."""
        states = self.states(name, values)
        return np.zeros(len(values), dtype=bool) if states is None else states == state

    def observed(self, name: str, values: Array) -> Array:
        """Return a column with what was not detected at its limit, or missing where none is stated; the masked too."""
        states = self.states(name, values)
        if states is None or not np.isin(states, (State.NOT_DETECTED, State.MASKED)).any():
            return values
        limited = np.where(states == State.NOT_DETECTED, self.limits.get(name, np.nan), floats(values))
        return np.where(states == State.MASKED, np.nan, limited)

    def read_text(self, name: str, values: Array, not_observed: Sequence[float | str] = ()) -> Array:
        """Return a column of texts as numbers (n,), the texts that say why a number is missing at the limit or missing.

        It stays a column of texts where no such texts are stated, or where any other text is no number.
        """
        states = self.states(name, values, not_observed)
        if states is None:
            return values
        known = numbers_or_texts(words_of(values), states == State.MEASURED)
        limit = self.limits.get(name)
        if limit is None or known.dtype.kind == "O":
            return known
        numbers = known if known.dtype.kind == "f" else np.full(len(values), np.nan)
        return np.where(states == State.NOT_DETECTED, limit, numbers)

    def make(self, name: str, values: Mapping[str, Array]) -> Floats:
        """Return a magnitude or its error (n,) from the columns that it needs."""
        band = self.bands[str(self.band_of(name))]
        return (self._magnitudes if name in self.bands else self._errors)(band, values, name)

    def _evaluate(self, text: str, values: Mapping[str, Array]) -> Floats:
        return np.asarray(self._parsed[text].evaluate(values), dtype=np.float64)

    def _magnitudes(self, band: Band, values: Mapping[str, Array], name: str) -> Floats:
        known = self._evaluate(str(band.magnitude or band.flux), values)
        if band.error is not None or band.inverse_variance is not None:
            # An infinite error, of an inverse variance of 0, says not measured.
            known = np.where(np.isposinf(self.sigma(name, values)), np.nan, known)
        freed = self._freed(band, values, known)
        if band.magnitude is not None:
            return freed
        zero = ZERO_POINT[self.units[name]]
        if band.scale == "asinh":
            return photometry.asinh_magnitude(freed, self._softening(band, name), zero)
        return photometry.magnitude(freed, zero)

    def _freed(self, band: Band, values: Mapping[str, Array], known: Floats) -> Floats:
        """Return a magnitude, a flux or its error without extinction: of fluxes, before the logarithm (or asinh)."""
        taken = None if band.dereddened else band.extinction
        if taken is None:
            return known
        if taken.transmission is not None:
            through = self._evaluate(taken.transmission, values)
            if band.magnitude:
                return known - photometry.magnitude(through, 0.0)
            return photometry.dereddened_flux(known, through)
        factor = taken.factor if taken.e_bv is not None else 1.0
        absorbed = self._evaluate(taken.e_bv or str(taken.magnitudes), values)
        if band.magnitude:
            return known - factor * absorbed
        return np.asarray(known * 10 ** (0.4 * factor * absorbed))

    def sigma(self, name: str, values: Mapping[str, Array]) -> Floats:
        """Return the stated one-sigma errors (n,) of a band, in its flux's unit or in magnitudes."""
        band = self.bands[name]
        if band.inverse_variance is not None:
            sigma = photometry.error_from_inverse_variance(self._evaluate(band.inverse_variance, values))
        else:
            sigma = self._evaluate(str(band.error), values)
        return sigma * self.error_scales.get(name, 1.0)

    def _errors(self, band: Band, values: Mapping[str, Array], name: str) -> Floats:
        stem = name.removesuffix(ERROR)
        sigma = self.sigma(stem, values)
        if band.magnitude is not None:
            return sigma
        flux = self._freed(band, values, self._evaluate(str(band.flux), values))
        sigma = self._freed(band, values, sigma)
        if band.scale == "asinh":
            zero = ZERO_POINT[self.units[stem]]
            return photometry.asinh_magnitude_error(flux, sigma, self._softening(band, stem), zero)
        return photometry.magnitude_error(flux, sigma)

    @staticmethod
    def _softening(band: Band, name: str) -> float:
        if band.softening is None:
            raise SpecificationError(
                f"photometry.{name}: got no softening, expected the one that was learned in training; give it"
            )
        return band.softening

    def in_units_of(self, catalog: Catalog, stated: Mapping[str, str] | None = None) -> OurColumns:
        """Return these for a catalogue, the fluxes' units stated or read from it; refused where neither says.

        `stated` are the units that a specification gives of a target's columns, by our names; None of the labelled
        catalogue.
        """
        known = {c.name: c.unit for c in catalog.columns}
        units, scales, limits = {}, {}, dict(self.limits)
        for name, band in self.bands.items():
            if band.flux is None:
                continue
            ours = {n: self.unit(n, known) for text in band.texts for n in self._parsed[text].names}
            ours |= {n: unit for n, unit in (stated or {}).items() if n in ours}
            flux = self._parsed[band.flux]
            units[name] = unit_of_band(name, band, flux, ours, catalog, training=stated is None)
            for n in flux.names.intersection(limits if band.unit else ()):
                limits[n] *= photometry.unit_factor(str(band.unit), units[name])
            for key in ("error", "inverse_variance"):
                text = getattr(band, key)
                if text is not None:
                    own = {n: ours[n] for n in flux.names}
                    scales[name] = error_scale(name, key, self._parsed[text], ours, units[name], own)
        return replace(self, units=units, error_scales=scales, limits=limits)
