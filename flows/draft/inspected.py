"""What `blr inspect` and `blr init` return: a catalogue and its columns in numbers, a first specification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from catalogs.profile.quality import Suspected
from catalogs.sky.positions import PositionUnit

__all__ = [
    "UNKNOWN",
    "CatalogueSummary",
    "ColumnSummary",
    "DraftedClass",
    "ElementSummary",
    "IdentifierSummary",
    "LabelSummary",
    "LeakSummary",
    "PositionSummary",
    "PresenceSummary",
    "StartedSpecification",
    "ValueSummary",
]


@dataclass(frozen=True, kw_only=True)
class ValueSummary:
    """The values of a column of one value a row; nothing is known of other columns, and of those without rows.

    `missing` is the share of rows without a value; `minimum` to `maximum` are None where there are no numbers, the
    median is that of a sample.  `distinct` is an estimate.  `sentinels` are numbers and `texts` texts with their counts
    that may stand for no value; `not_numbers` says what keeps a column of texts from being one of numbers.
    """

    missing: float | None
    minimum: float | None
    median: float | None
    maximum: float | None
    distinct: int | None
    constant: bool
    sentinels: tuple[Suspected, ...]
    texts: Mapping[str, int]
    not_numbers: str | None


UNKNOWN = ValueSummary(
    missing=None,
    minimum=None,
    median=None,
    maximum=None,
    distinct=None,
    constant=False,
    sentinels=(),
    texts={},
    not_numbers=None,
)
"""Of a column that was not read, or of no rows."""


@dataclass(frozen=True, kw_only=True)
class NamedColumn:
    """What a column, or an element of one, is called, and what it holds in VOTable's words."""

    name: str
    datatype: str


@dataclass(frozen=True, kw_only=True)
class ElementSummary(ValueSummary, NamedColumn):
    """One element of a vector, such as `MODELMAG[2]`."""


@dataclass(frozen=True, kw_only=True)
class DescribedColumn(NamedColumn):
    """A column as the file describes it; `absent` are the files of the catalogue that lack it.

    `elements` are those of a vector, each with its own values.
    """

    unit: str | None
    ucd: str | None
    description: str | None
    absent: int
    elements: tuple[ElementSummary, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ColumnSummary(ValueSummary, DescribedColumn):
    """A column with its description and its values."""


@dataclass(frozen=True)
class IdentifierSummary:
    """A column that seems to name the objects, and why."""

    column: str
    why: str


@dataclass(frozen=True, kw_only=True)
class PositionSummary:
    """Which columns hold the position, in which `unit` (None: unreadable), and what is wrong with them.

    `ra` and `dec` are None where it is in other `columns`: parts of angles, galactic coordinates, a vector.
    """

    ra: str | None
    dec: str | None
    unit: PositionUnit | None
    columns: tuple[str, ...] = ()
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LeakSummary:
    """Columns that give the class away; the fields are those of `catalogs.profile.leaks.Leak`."""

    columns: tuple[str, ...]
    gain: float
    beyond: float
    combination: str
    derived: bool


@dataclass(frozen=True, kw_only=True)
class PresenceSummary:
    """The classes in which a column is measured most and least often, with the shares of their rows, and in words."""

    most: str
    most_share: float
    least: str
    least_share: float
    shown: str


@dataclass(frozen=True, kw_only=True)
class DraftedClass:
    """A class that `blr init` makes of labels: its rows, and the labels or the range of numbers that are in it."""

    rows: int
    spellings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LabelSummary:
    """The column of the class.

    `sampled` rows were looked at for leaks; `unlabelled` and `counts` are of all rows.  `drafted` are the classes that
    `blr init` makes of the labels by name, which leaks are looked for with if there are two.  `gains` are the shares of
    the class's entropy that each column removes by itself, the most telling first; `presence` are columns that some
    class has more often than another; `bookkeeping` are columns of the survey's own that tell of the class.
    """

    column: str
    sampled: int
    unlabelled: int
    counts: Mapping[str, int]
    drafted: Mapping[str, DraftedClass]
    leaks: tuple[LeakSummary, ...]
    gains: Mapping[str, float]
    presence: Mapping[str, PresenceSummary]
    bookkeeping: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CatalogueSummary:
    """What a catalogue holds; `n_seen` of its `n_rows` were looked at for ranges and shares.

    `commented_out` says how many lines of text tables may be rows, '' for none; `duplicate_columns` are groups of
    columns that are equal in every row; `wrong_checksums` say of which bytes, unless few rows were looked at.
    """

    path: str
    format: str
    n_rows: int
    n_seen: int
    files: int
    columns: tuple[ColumnSummary, ...]
    identifiers: tuple[IdentifierSummary, ...]
    position: PositionSummary | None
    commented_out: str
    duplicate_columns: tuple[tuple[str, ...], ...]
    label: LabelSummary | None = None
    wrong_checksums: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StartedSpecification:
    """What `blr init` wrote, or printed where there is no `path`.

    `columns_file` holds a team's names of columns, where there is one.  `classes` are with their rows, `features` with
    their expressions, `left_out` columns with the reason, `suspects` features with what makes them so.  A person reads
    the `summary` first.
    """

    status: Literal["written", "printed"]
    path: str | None
    columns_file: str | None
    text: str
    classes: Mapping[str, int]
    features: Mapping[str, str]
    left_out: Mapping[str, str]
    suspects: Mapping[str, str]
    summary: tuple[str, ...]
