"""The tables `[catalog]`, `[photometry]` and `[target]`: columns, bands, ranges, and what is to be classified."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from catalogs.catalog.catalog import Checksums
from catalogs.errors import ExpressionError
from catalogs.expressions.expression import parse
from catalogs.remote.urls import has_secret, is_remote, shown
from catalogs.sky.photometry import EXTINCTION, Sentinel


class SpecificationTable(BaseModel):
    """A table of the specification: without unknown keys, infinities, or later changes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )


def listed(value: Any) -> Any:
    """Return a single value as a tuple of one, so that users need not write a list for it."""
    return (value,) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value


def without_secret(path: str) -> str:
    """Return a path or URL; ValueError where a URL may hold a secret, since other people read specifications."""
    if is_remote(path) and has_secret(path):
        raise ValueError(
            f"got '{shown(path)}' with a user, a password or a query, expected a URL without them, since a "
            "specification is kept in models and on Prefect's pages; put passwords into ~/.netrc or the "
            "driver's settings, or fetch the file"
        )
    return path


SourceText = Annotated[str, AfterValidator(without_secret)]
Paths = Annotated[tuple[SourceText, ...], BeforeValidator(listed), Field(min_length=1)]
PositionUnit = Literal["deg", "rad", "sexagesimal", "hours"]
"""The same units as in `catalogs.sky.positions`, which this module does not import."""


# Ranges of numbers in a specification: '0..5' is 0 <= x < 5, '..0' is all below 0, '5..' all from 5 on.
#
# They define classes of a column of numbers: `early = ["..0"]` are the T types below 0.  A range includes its lower end
# and excludes its upper end, so that adjacent ranges have no number in common.

NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
RANGE = re.compile(rf"\s*(?P<low>{NUMBER})?\s*\.\.\s*(?P<high>{NUMBER})?\s*", re.IGNORECASE)


def number_range(text: str) -> tuple[float, float] | None:
    """Return the ends of the range in a text, None where the text is not a range; ValueError for an empty range."""
    ends = RANGE.fullmatch(text)
    if ends is None or not (ends["low"] or ends["high"]):
        return None
    low, high = float(ends["low"] or "-inf"), float(ends["high"] or "inf")
    if not low < high:
        raise ValueError(f"got the range '{text}', whose lower end is not the first; exchange the ends")
    return low, high


def as_sentinels(marks: Iterable[float | str]) -> list[Sentinel]:
    """Return marks; a range among them becomes a pair of float64, which both belong to it."""
    sentinels: list[Sentinel] = []
    for mark in marks:
        ends = number_range(mark) if isinstance(mark, str) else None
        sentinels.append(mark if ends is None else (np.float64(ends[0]), np.nextafter(ends[1], -np.inf)))
    return sentinels


@dataclass(frozen=True)
class LabelRange:
    """A range of the class with index k: the numbers x with low <= x < high; `text` is its form in the file."""

    text: str
    low: float
    high: float
    k: int

    def holds(self, x: float) -> bool:
        """Say whether a number is in the range."""
        return self.low <= x < self.high


def label_ranges(spellings: Sequence[Sequence[str]]) -> list[LabelRange]:
    """Return the ranges among the spellings of all classes; `spellings[k]` are those of class k.

    ValueError where a range is empty.
    """
    return [
        LabelRange(text, *ends, k)
        for k, texts in enumerate(spellings)
        for text in texts
        if (ends := number_range(text))
    ]


def label_of(spellings: Sequence[str]) -> str:
    """Return a label for the class with these spellings: the first one, or a number in it if it is a range."""
    ranges = label_ranges([spellings[:1]])
    if not ranges:
        return spellings[0]
    return repr(ranges[0].low if math.isfinite(ranges[0].low) else ranges[0].high - 1)


def overlapping(ranges: Sequence[LabelRange]) -> tuple[LabelRange, LabelRange] | None:
    """Return two ranges of different classes that have a number in common; None where there are no such ranges."""
    pairs = ((a, b) for i, a in enumerate(ranges) for b in ranges[i + 1 :] if a.k != b.k)
    return next(((a, b) for a, b in pairs if max(a.low, b.low) < min(a.high, b.high)), None)


ERROR: Final = "_err"
"""End of the name of a magnitude's error."""


def _parsed(text: str) -> str:
    try:
        parse(text)
    except ExpressionError as error:
        raise ValueError(str(error)) from error
    return text


Expression = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_parsed)]


class Extinction(SpecificationTable):
    """The Galactic extinction in a band, from columns of the catalogue."""

    e_bv: Expression | None = Field(default=None, description="Column of E(B-V), on the scale of SFD")
    transmission: Expression | None = Field(
        default=None, description="Column of the transmission: the fraction of the light that is not absorbed"
    )
    magnitudes: Expression | None = Field(
        default=None, description="Column of the extinction itself, magnitudes"
    )
    coefficient: float | None = Field(default=None, gt=0, description="A / E(B-V) of the band")
    system: Literal["decam", "sdss"] | None = Field(
        default=None, description="System whose coefficients are used; needs 'band'"
    )
    band: str | None = Field(default=None, description="Band of that system")

    @model_validator(mode="after")
    def _check(self) -> Extinction:
        if sum(x is not None for x in (self.e_bv, self.transmission, self.magnitudes)) != 1:
            raise ValueError(
                "expected one of e_bv, transmission and magnitudes; give the one that the catalogue has"
            )
        if self.e_bv is not None and (self.coefficient is None) == (self.system is None):
            raise ValueError(
                "e_bv: got neither or both, expected a coefficient, or a system with a band; give one of them"
            )
        if self.system is not None and self.band not in EXTINCTION[self.system]:
            known = ", ".join(EXTINCTION[self.system])
            raise ValueError(f"got band '{self.band}', expected one of {known}; or state the coefficient")
        return self

    @property
    def factor(self) -> float:
        """The coefficient A / E(B-V) of the band."""
        return self.coefficient or EXTINCTION[str(self.system)][str(self.band)]


class Band(SpecificationTable):
    """One magnitude: from a flux or from another magnitude, corrected for extinction."""

    flux: Expression | None = Field(default=None, description="Column of the flux")
    magnitude: Expression | None = Field(default=None, description="Column of the magnitude")
    unit: Literal["nanomaggy", "nJy", "uJy", "mJy", "Jy"] | None = Field(
        default=None, description="Unit of the flux, if the column does not state one that can be read"
    )
    scale: Literal["asinh", "pogson"] = Field(
        default="asinh", description="asinh stays finite where noise made the flux zero or negative"
    )
    softening: float | None = Field(
        default=None,
        gt=0,
        description="b of asinh magnitudes; default: the training rows' median error, stored",
    )
    error: Expression | None = Field(default=None, description="Column of the one-sigma error")
    inverse_variance: Expression | None = Field(default=None, description="Column of the inverse variance")
    extinction: Extinction | None = Field(
        default=None, description="Extinction to correct for; default: none"
    )
    dereddened: bool = Field(
        default=False, description="Whether the catalogue is already corrected for extinction"
    )

    @model_validator(mode="after")
    def _check(self) -> Band:
        if (self.flux is None) == (self.magnitude is None):
            raise ValueError("got neither or both, expected a flux or a magnitude; give one of them")
        if self.error is not None and self.inverse_variance is not None:
            raise ValueError("got error and inverse_variance, expected one of them; remove the other")
        if self.magnitude is not None and (self.unit is not None or self.softening is not None):
            raise ValueError("got unit or softening with a magnitude, which has neither; remove them")
        learned = self.flux is not None and self.scale == "asinh" and self.softening is None
        if learned and self.error is None and self.inverse_variance is None:
            raise ValueError(
                "got no softening of the asinh magnitude, expected one, or an error or inverse_variance from "
                "which it is computed; add one, or set scale = 'pogson'"
            )
        return self

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions from which the magnitude and its error are computed."""
        taken = self.extinction if self.extinction and not self.dereddened else None
        parts = [self.flux, self.magnitude, self.error, self.inverse_variance]
        parts += [taken.e_bv, taken.transmission, taken.magnitudes] if taken else []
        return tuple(text for text in parts if text is not None)


def made_by(name: str, bands: Mapping[str, Band]) -> str | None:
    """Return the band that defines a name as its magnitude, or as its error if one is stated; None without one."""
    if name in bands:
        return name
    stem = name.removesuffix(ERROR)
    has_error = stem in bands and (bands[stem].error or bands[stem].inverse_variance)
    return stem if name.endswith(ERROR) and has_error else None


Sentinels = Annotated[tuple[float | str, ...], BeforeValidator(listed)]
TableName = Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=0)]

Marks = Mapping[str, tuple[float | str, ...]]
"""Values that mark a missing measurement, by column."""
MARKS = ("sentinels", "not_detected", "masked")
"""The keys with the values of columns that count as missing; each key stands for another reason."""


class CatalogTable(SpecificationTable):
    """The labelled catalogue."""

    paths: Paths = Field(description="Files, folders or globs, relative to the specification; or URLs")
    table: TableName | None = Field(
        default=None,
        description="Table to read from files with several: its name or number; default: the table that has the "
        "columns",
    )
    id: str | None = Field(default=None, description="Column that names an object")
    ra: str | None = Field(default=None, description="Column of right ascension")
    dec: str | None = Field(default=None, description="Column of declination")
    where: Expression | None = Field(default=None, description="Condition that training rows fulfil")
    sentinels: dict[str, Sentinels] = Field(
        default={},
        description="Values of a column that mean: not measured; texts too, as '-' in a CSV file; ranges of numbers, "
        "'..-90' for all below -90, '90..' for all from 90 on",
    )
    position_unit: PositionUnit | None = Field(
        default=None, description="Unit of the position; default: what the columns say"
    )
    not_detected: dict[str, Sentinels] = Field(
        default={},
        description="Values of a column that mean: looked at, and not seen (flag 8); texts too, '>' for all that begin "
        "so, as '>23.1'; \"blank\": null, NaN or ''",
    )
    masked: dict[str, Sentinels] = Field(
        default={},
        description="Values of a column that mean: measured, but not to be used; texts too; \"blank\": null, NaN or ''",
    )
    limits: dict[str, float] = Field(
        default={}, description="Value that a column takes where not detected; default: it is missing"
    )
    checksums: Checksums = Field(
        default="quarantine",
        description="What happens to a file whose bytes have other checksums than it states (FITS, Parquet): "
        '"quarantine", "warn", "ignore"',
    )
    weight: Expression | None = Field(
        default=None, description="Weight of a training row, an expression; default 1"
    )

    @model_validator(mode="after")
    def _check_states(self) -> CatalogTable:
        check_states({key: getattr(self, key) for key in MARKS})
        return self


def check_states(marks: Mapping[str, Marks]) -> None:
    """Raise ValueError where a value of a column has two meanings, or a range is empty; `marks` by key and column."""
    for some in marks.values():
        for mark in chain.from_iterable(some.values()):
            if isinstance(mark, str):
                number_range(mark)
    for (one, values), (other, others) in combinations(marks.items(), 2):
        both = [(name, v) for name, some in values.items() for v in some if v in others.get(name, ())]
        for name, value in both:
            raise ValueError(
                f"got {value!r} of column '{name}' in {one} and in {other}, expected it in one of them, "
                "since they have different meanings; remove it from the other"
            )


class Target(SpecificationTable):
    """The catalogue to classify, where it differs from the labelled one."""

    paths: Paths | None = Field(
        default=None, description="Files, folders or globs, relative to the specification; or URLs"
    )
    table: TableName | None = Field(
        default=None,
        description="Table to read from files with several: its name or number; default: catalog.table, or the table "
        "that has the columns",
    )
    columns: dict[str, str] = Field(default={}, description="Our name of a column = its name in the target")
    expressions: dict[str, Expression] = Field(
        default={},
        description="Our name of a column that the target does not have = an expression over its columns, such as "
        "`31.4 - 2.5 * log10(flux_r)`",
    )
    units: dict[str, str] = Field(
        default={},
        description="Our name of a column = its unit, if the target does not state it or states a wrong one",
    )
    sentinels: dict[str, Sentinels] = Field(
        default={}, description="Our name of a column = catalog.sentinels in its place here; [] for none"
    )
    not_detected: dict[str, Sentinels] = Field(
        default={}, description="Our name of a column = catalog.not_detected in its place here; [] for none"
    )
    masked: dict[str, Sentinels] = Field(
        default={}, description="Our name of a column = catalog.masked in its place here; [] for none"
    )
    limits: dict[str, float] = Field(
        default={},
        description="Our name of a column = catalog.limits in its place here, in the target's unit",
    )
    where: Expression | None = Field(
        default=None, description="Condition on the rows to classify (in our names); others get flag 5"
    )


def check_expressions(
    target: Target, catalog: CatalogTable, texts: Iterable[str], bands: Container[str]
) -> None:
    """Raise ValueError where `target.expressions` defines what must be a column, or what another key defines.

    `texts` are the expressions of features and errors, `bands` the names under [photometry].
    """
    vectors = {name for text in texts for name, index in parse(text).cells if index}
    for name in target.expressions:
        key, stem = f"target.expressions.{name}", name.removesuffix(ERROR)
        if name in {catalog.id, catalog.ra, catalog.dec}:
            raise ValueError(
                f"{key}: got an expression for the name or the position of the objects, expected a column of "
                "the target; name it under [target.columns]"
            )
        if name in target.columns:
            raise ValueError(
                f"{key}: got '{name}' under [target.columns] too, expected one of the two; remove the other"
            )
        if name in vectors:
            raise ValueError(
                f"{key}: got an expression, which has one value in each row, for a vector column whose "
                "elements are features, expected a column of the target; name it under [target.columns]"
            )
        if stem != name and stem in bands and stem not in target.expressions:
            raise ValueError(
                f"{key}: got the error of the magnitude '{stem}' without the magnitude, expected both, since "
                f"[photometry] computes them together; add {stem} under [target.expressions]"
            )
