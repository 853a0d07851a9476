"""The tables on columns and labels: `[catalog]`, `[photometry]`, `[target]`, `[label]` and `[label.noise]`.

They say which columns and bands there are, where labels are, how many of them are wrong, and what is to be classified.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from blr.arrays import Floats
from blr.selection.grouping import Grouping
from catalogs.catalog.catalog import Checksums
from catalogs.errors import ExpressionError, nearest
from catalogs.expressions.expression import parse
from catalogs.remote.urls import has_secret, is_remote, shown
from catalogs.sky.photometry import EXTINCTION, Sentinel


class SpecificationTable(BaseModel):
    """A table of the specification: without unknown keys, infinities, or later changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def setting(description: str, *, default: Any = None, **limits: Any) -> Any:
    """Return the field of a key that may be left out: what it means, its default, and the limits of its value."""
    return Field(default=default, description=description, **limits)


def listed(value: Any) -> Any:
    """Return a single value as a tuple of one, so that users need not write a list for it."""
    return (value,) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value


def _without_secret(path: str) -> str:
    if is_remote(path) and has_secret(path):
        raise ValueError(
            f"got '{shown(path)}' with a user, a password or a query, expected a URL without them, since other people "
            "read specifications; put passwords into ~/.netrc or the driver's settings, or fetch the file"
        )
    return path


SourceText = Annotated[str, AfterValidator(_without_secret)]
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


LabelRange = tuple[str, float, float, int]
"""A range as the file has it, its ends, low <= x < high, and the index of its class."""


def label_ranges(spellings: Sequence[Sequence[str]]) -> list[LabelRange]:
    """Return the ranges among the spellings of all classes; `spellings[k]` are those of class k.

    ValueError where a range is empty.
    """
    every = ((text, k) for k, texts in enumerate(spellings) for text in texts)
    return [(text, *ends, k) for text, k in every if (ends := number_range(text))]


def label_of(spellings: Sequence[str]) -> str:
    """Return a label for the class with these spellings: the first one, or a number in it if it is a range."""
    ranges = label_ranges([spellings[:1]])
    if not ranges:
        return spellings[0]
    _, low, high, _ = ranges[0]
    return repr(low if math.isfinite(low) else high - 1)


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

    e_bv: Expression | None = setting("Column of E(B-V), on the scale of SFD")
    transmission: Expression | None = setting(
        "Column of the transmission: the fraction of the light that is not absorbed"
    )
    magnitudes: Expression | None = setting("Column of the extinction itself, magnitudes")
    coefficient: float | None = setting("A / E(B-V) of the band", gt=0)
    system: Literal["decam", "sdss"] | None = setting("System whose coefficients are used; needs 'band'")
    band: str | None = setting("Band of that system")

    @model_validator(mode="after")
    def _check(self) -> Extinction:
        if sum(x is not None for x in (self.e_bv, self.transmission, self.magnitudes)) != 1:
            raise ValueError("expected one of e_bv, transmission and magnitudes; give what the catalogue has")
        if self.e_bv is not None and (self.coefficient is None) == (self.system is None):
            raise ValueError(
                "e_bv: got neither or both, expected a coefficient, or a system with a band; give one"
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

    flux: Expression | None = setting("Column of the flux")
    magnitude: Expression | None = setting("Column of the magnitude")
    unit: Literal["nanomaggy", "nJy", "uJy", "mJy", "Jy"] | None = setting(
        "Unit of the flux, if the column does not state one that can be read"
    )
    scale: Literal["asinh", "pogson"] = setting(
        "asinh stays finite where noise made the flux zero or negative", default="asinh"
    )
    softening: float | None = setting("b of asinh magnitudes; default: the training rows' median error", gt=0)
    error: Expression | None = setting("Column of the one-sigma error")
    inverse_variance: Expression | None = setting("Column of the inverse variance")
    extinction: Extinction | None = setting("Extinction to correct for; default: none")
    dereddened: bool = setting("Whether the catalogue is already corrected for extinction", default=False)

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
                "got no softening, expected one, or an error or inverse_variance; add one, or set scale = 'pogson'"
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
    table: TableName | None = setting("Table of files with several; default: the one with the columns")
    id: str | None = setting("Column that names an object")
    ra: str | None = setting("Column of right ascension")
    dec: str | None = setting("Column of declination")
    where: Expression | None = setting("Condition that training rows fulfil")
    sentinels: dict[str, Sentinels] = setting(
        "Values of a column that mean: not measured; ranges too, as '..-90'", default={}
    )
    position_unit: PositionUnit | None = setting("Unit of the position; default: what the columns say")
    not_detected: dict[str, Sentinels] = setting(
        "Values of a column that mean: not seen (flag 8); '>' for all that begin so", default={}
    )
    masked: dict[str, Sentinels] = setting(
        "Values of a column that mean: not to be used; \"blank\": null, NaN or ''", default={}
    )
    limits: dict[str, float] = setting(
        "Value that a column takes where not detected; default: it is missing", default={}
    )
    checksums: Checksums = setting(
        "What happens to a file whose bytes have other checksums than it states (FITS, Parquet): "
        '"quarantine", "warn", "ignore"',
        default="quarantine",
    )
    weight: Expression | None = setting("Weight of a training row; default 1; rows of weight 0 are left out")

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
        for name, value in ((n, v) for n, some in values.items() for v in some if v in others.get(n, ())):
            raise ValueError(
                f"got {value!r} of column '{name}' in {one} and in {other}, expected it in one of them; remove one"
            )


class Target(SpecificationTable):
    """The catalogue to classify, where it differs from the labelled one."""

    paths: Paths | None = setting("Files, folders or globs, relative to the specification; or URLs")
    table: TableName | None = setting(
        "Table of files with several; default: catalog.table, or the fitting one"
    )
    columns: dict[str, str] = setting("Our name of a column = its name in the target", default={})
    expressions: dict[str, Expression] = setting(
        "Our name of a column = an expression over the target's columns", default={}
    )
    units: dict[str, str] = setting(
        "Our name of a column = its unit, if the target does not state the right one", default={}
    )
    sentinels: dict[str, Sentinels] = setting(
        "Our name of a column = catalog.sentinels in its place here; [] for none", default={}
    )
    not_detected: dict[str, Sentinels] = setting(
        "Our name of a column = catalog.not_detected in its place here; [] for none", default={}
    )
    masked: dict[str, Sentinels] = setting(
        "Our name of a column = catalog.masked in its place here; [] for none", default={}
    )
    limits: dict[str, float] = setting(
        "Our name of a column = catalog.limits in its place, in the target's unit", default={}
    )
    where: Expression | None = setting("Condition on the rows to classify (in our names); others get flag 5")


EXPECTED = (
    "expected a share above 0 and below 0.5, as noise = 0.02, a table of them by true class, a table of tables by true "
    'and recorded class, or "estimated"'
)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _checked(value: Any) -> Any:
    """Return the value of label.noise if it is allowed; ValueError otherwise."""
    if value is None or value == "estimated":
        return value
    if _is_number(value):
        if not 0 < value < 0.5:
            raise ValueError(f"got {value}, {EXPECTED}; correct it")
        return float(value)
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"got {value!r}, {EXPECTED}; change it")
    for name, share in value.items():
        if isinstance(share, Mapping):
            _check_row(str(name), share)
        elif not _is_number(share) or not 0 <= share < 0.5:
            raise ValueError(f"got {share!r} for class '{name}', {EXPECTED}; change it")
    return value


def _check_row(name: str, row: Mapping[Any, Any]) -> None:
    wrong = [share for share in row.values() if not _is_number(share) or not 0 <= share <= 1]
    if wrong:
        raise ValueError(
            f"got {wrong[0]!r} in the row of class '{name}', expected shares from 0 to 1; change it"
        )
    other = sum(share for key, share in row.items() if key != name)
    if other >= 0.5:
        raise ValueError(
            f"got {other:g} as the share of class '{name}' recorded as another, expected less than 0.5; correct it"
        )
    if name in row and abs(row[name] + other - 1) > 1e-6:
        raise ValueError(
            f"got shares of class '{name}' that sum to {row[name] + other:g}, expected 1; correct them"
        )


Noise = Annotated[
    float | Literal["estimated"] | dict[str, float | dict[str, float]], BeforeValidator(_checked)
]


def check_noise(noise: Any, classes: Sequence[str]) -> None:
    """Raise ValueError where the shares name an unknown class."""
    if not isinstance(noise, Mapping):
        return
    named = [*noise, *(key for row in noise.values() if isinstance(row, Mapping) for key in row)]
    for name in named:
        if name not in classes:
            raise ValueError(f"noise: got '{name}', expected one of the classes; {nearest(name, classes)}")


def stated_confusion(noise: Any, classes: Sequence[str]) -> Floats:
    """Return p(recorded | true class), (K, K), from stated shares; labels of a class without a share are right."""
    K = len(classes)
    rows = noise if isinstance(noise, Mapping) else dict.fromkeys(classes, noise)
    confusion = np.eye(K)
    for name, row in rows.items():
        k = classes.index(name)
        others = row if isinstance(row, Mapping) else {c: row / (K - 1) for c in classes if c != name}
        for recorded, share in others.items():
            confusion[k, classes.index(recorded)] = share
        confusion[k, k] = 0.0
        confusion[k, k] = 1.0 - confusion[k].sum()
    return confusion


ClassName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]


def _as_texts(value: Any) -> Any:
    """Return labels as the texts that values of a column are compared with: '1' for 1 and 1.0, 'True' for true."""
    if not isinstance(value, (str, int, float, list, tuple)):
        return value
    labels = value if isinstance(value, (list, tuple)) else (value,)
    whole = (int(v) if isinstance(v, float) and v.is_integer() else v for v in labels)
    return tuple(str(v) if isinstance(v, (int, float)) else v for v in whole)


Stripped = Annotated[str, StringConstraints(strip_whitespace=True)]
"""A label: blanks around it do not count, as they do not in a catalogue."""
Texts = Annotated[tuple[Stripped, ...], BeforeValidator(_as_texts)]


class LabelTable(SpecificationTable):
    """A separate file of labels, joined to the catalogue by identifier or by position."""

    path: SourceText = Field(
        description="The file, or files by a folder or glob, relative to the specification, or a URL"
    )
    id: str | None = setting("Column of the file that holds catalog.id")
    ra: str | None = setting("Column of right ascension in the file, to join by position")
    dec: str | None = setting("Column of declination in the file")
    position_unit: PositionUnit | None = setting(
        "Unit of the position in the file; default: what its columns say"
    )
    radius: float = setting("Arcseconds within which positions match", default=1.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _check(self) -> LabelTable:
        if (self.id is None) == (self.ra is None or self.dec is None):
            raise ValueError("expected id, or ra and dec, by which to join the labels; give one of the two")
        return self


class Label(SpecificationTable):
    """What the classes are, and where a row's class is written."""

    column: str | None = setting("Column that holds the class")
    classes: dict[ClassName, Texts] | None = setting(
        "Class = its spellings, or ranges, '0..5' being 0 <= x < 5; default: each"
    )
    case_sensitive: bool = setting("Whether 'Sa' and 'SA' are two spellings", default=True)
    exclude: Texts = setting("Spellings whose rows are not used for training", default=())
    table: LabelTable | None = setting("A separate file that holds the labels")
    votes: dict[ClassName, str] | None = setting(
        "Class = column of its vote count, or of its fraction with 'total'"
    )
    total: str | None = setting("Column of the number of votes, where votes are fractions")
    fewest_votes: float = setting("Rows with fewer votes are left out", default=1.0, ge=0)
    overdispersion: bool = setting(
        "Correct for votes that scatter more than independent votes would", default=True
    )
    extra: tuple[SourceText, ...] = setting("Label tables that came back from review", default=())
    review_weights: bool = setting(
        "Whether drawn objects of reviews count by their inclusion weights", default=False
    )
    noise: Noise | None = setting("Share of wrong labels, of all classes or by class, or 'estimated'")
    annotator: str | None = setting("Column of who labelled a row: wrong labels are estimated for each")

    @model_validator(mode="after")
    def _check(self) -> Label:
        if self.column is None and self.votes is None:
            raise ValueError(
                "got no 'column', expected the column that holds the class; add column = \"...\", or [label.votes]"
            )
        if self.votes is None and self.total is not None:
            raise ValueError("got 'total' without votes, expected [label.votes]; add it, or drop total")
        if self.review_weights and not self.extra:
            raise ValueError(
                "got 'review_weights' without 'extra', expected the lists with the weights; add extra"
            )
        _check_votes(self)
        _check_classes(self)
        _check_labelling(self)
        return self

    @property
    def key(self) -> str:
        """The key of the specification that says where labels come from."""
        return "label.votes" if self.votes is not None else "label.column"


def _check_labelling(label: Label) -> None:
    if label.noise is not None and label.votes is not None:
        raise ValueError("got 'noise' with votes, which show already how much voters differ; remove noise")
    if label.annotator is not None and label.noise != "estimated":
        raise ValueError(
            "got 'annotator' without noise = \"estimated\", expected both; add noise, or remove annotator"
        )
    for key in ("table", "extra"):
        if label.annotator is not None and getattr(label, key):
            raise ValueError(
                f"got 'annotator' beside '{key}', expected labels in a column of the catalogue; remove one of the keys"
            )
    if label.classes is not None:
        check_noise(label.noise, tuple(label.classes))


def _check_votes(label: Label) -> None:
    if label.votes is None:
        return
    for key in ("column", "classes", "table", "exclude", "extra"):
        if getattr(label, key):
            raise ValueError(f"got '{key}' and votes, expected one source of labels; remove one")
    if len(label.votes) < 2:
        raise ValueError(f"got {len(label.votes)} class(es) in 'votes', expected two or more; add the others")
    if len(set(label.votes.values())) < len(label.votes):
        raise ValueError("got a column twice in 'votes', expected a column for each class; correct it")


def _check_classes(label: Label) -> None:
    if label.classes is None:
        return
    if len(label.classes) < 2:
        raise ValueError(
            f"got {len(label.classes)} class(es) in 'classes', expected at least two; add the others"
        )
    for (one, low, high, j), (other, start, stop, k) in combinations(
        label_ranges([*label.classes.values()]), 2
    ):
        if j != k and max(low, start) < min(high, stop):
            raise ValueError(
                f"'{one}' and '{other}' overlap, expected ranges without common numbers, whose upper end does not "
                "belong to them; correct one"
            )
    seen: dict[str, str] = {}
    for name, spellings in label.classes.items():
        if not spellings:
            raise ValueError(
                f"class '{name}' lists no spelling, expected at least one; add it, or remove the class"
            )
        for text in spellings:
            other = seen.setdefault(text if label.case_sensitive else text.casefold(), name)
            if text in label.exclude or other != name:
                where = "'exclude' and in class" if text in label.exclude else f"class '{other}' and in"
                raise ValueError(f"'{text}' is in {where} '{name}'; keep it in one of them")


MOST_PAIRS = 3
"""Pairs of classes that the sentence names."""
MOST_IN_NAME = 3
"""Classes up to which a group is named after all of them."""


def alike_words(found: Grouping, classes: Sequence[str], who: str, whose: str) -> str:
    """Return the sentence on classes that `who` cannot tell apart, by what is `whose`; '' without such classes."""
    if not found.mistaken:
        return ""
    pairs = []
    for j, k, *shares in found.mistaken[:MOST_PAIRS]:
        a, b = (f"{share:.0%}" for share in shares)
        how_many = f"{a} of each" if a == b else f"{a} and {b}"
        pairs.append(f"{classes[j]} and {classes[k]}: {how_many} are taken for the other")
    return (
        f"{who} cannot tell all classes apart ({'; '.join(pairs)}). {len(found.groups)} groups keep "
        f"{found.kept:.0%} of what {whose} knows of the {len(classes)} classes."
    )


def grouped(found: Grouping, classes: Sequence[str], rows: Sequence[int]) -> dict[str, list[str]]:
    """Return the classes of each group by the group's name; nothing where none are joined."""
    groups = {}
    for group in found.groups if found.mistaken else ():
        first = max(group, key=lambda k: rows[k])
        whole = "/".join(classes[k] for k in group)
        name = whole if len(group) <= MOST_IN_NAME else f"{classes[first]} and {len(group) - 1} more"
        groups[name] = [classes[k] for k in group]
    return groups
