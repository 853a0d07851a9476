"""What a file holds: a catalogue's columns with unit, UCD, range and what looks odd in them; or a model.

One streamed pass of bounded memory (`catalogs.profile.columns`); what needs more than counts comes from a seeded
sample.  With a column of labels, it says which classes `blr init` makes of them: of every label of five rows or more.
Where the column has ten different labels at most, those of two rows are classes too: so few are meant as classes.  So
they are where more than one label in a hundred would be left out.
Spellings that differ in case only are one class, but where the labels of the file show that case is meant, as in
Hubble's 'Sbc' and 'SBc'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from blr.arrays import Floats
from catalogs.arrays import plain_texts
from catalogs.catalog.catalog import Catalog, Column, element_columns, verified
from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import CatalogError, NameClashError, nearest
from catalogs.formats import TableChoice
from catalogs.profile import columns as profiles
from catalogs.profile import quality
from catalogs.profile.quality import Leak
from catalogs.remote.urls import shown
from catalogs.sky.positions import PositionUnit, find_position_columns, positions, unit_of_position
from catalogs.text.table import commented_out
from flows.errors import UsageError
from flows.inputs.opening import opened_together, with_checksums
from flows.inputs.source import LocalSource, resolve_one
from flows.labels.reader import LabelReader, found_leaks, is_doubtful, naming_a_class, without_sentinels
from flows.models.store import is_model_file
from flows.runs.progress import tell

if TYPE_CHECKING:
    from flows.models.description import ModelDescription


@dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """A column as the file describes it, or an element of a vector, such as `MODELMAG[2]`; and its values.

    `absent` are the files of the catalogue that lack it.  `missing` is the share of rows without a value; `minimum` to
    `maximum` are None where there are no numbers, the median is that of a sample.  `distinct` is an estimate.
    `sentinels` are numbers and `texts` texts with their counts that may stand for no value; `not_numbers` says what
    keeps a column of texts from being one of numbers.  `elements` are those of a vector.
    """

    name: str
    datatype: str  # of an element in VOTable's words
    unit: str | None
    ucd: str | None
    description: str | None
    absent: int
    elements: tuple[ColumnSummary, ...] = ()
    missing: float | None
    minimum: float | None
    median: float | None
    maximum: float | None
    distinct: int | None
    constant: bool
    sentinels: tuple[quality.Suspected, ...]
    texts: Mapping[str, int]
    not_numbers: str | None


class IdentifierSummary(TypedDict):
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


class DraftedClass(TypedDict):
    """A class that `blr init` makes of labels: its rows, and the labels or the range of numbers that are in it."""

    rows: int
    spellings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LabelSummary:
    """The column of the class.

    `sampled` rows were looked at for leaks; `unlabelled` and `counts` are of all rows.  `drafted` are the classes that
    `blr init` makes of the labels by name, which leaks are looked for with if there are two.  `gains` are the shares of
    the class's entropy that each column removes by itself, the most telling first; `presence` says of columns
    which class has them more often; `bookkeeping` are columns of the survey's own that tell of the class.
    """

    column: str
    sampled: int
    unlabelled: int
    counts: Mapping[str, int]
    drafted: Mapping[str, DraftedClass]
    leaks: tuple[Leak, ...]
    gains: Mapping[str, float]
    presence: Mapping[str, str]
    bookkeeping: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CatalogueSummary:
    """What a catalogue holds; `n_seen` of its `n_rows` were looked at for ranges and shares.

    `commented_out` says how many lines of text tables may be rows, '' for none; `duplicate_columns` are groups of
    columns that are equal in every row; `wrong_checksums` say of which bytes, and which files
    are incomplete by their own words, unless few rows were looked at.
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

    `columns_file` holds a team's names of columns, where there is one.  `classes` are with their rows, `groups` of
    those that are alike with their labels, `features` with their expressions, `left_out` columns with the reason,
    `suspects` features with what makes them so.  A person reads the `summary` first.
    """

    status: Literal["written", "printed"]
    path: str | None
    columns_file: str | None
    text: str
    classes: Mapping[str, int]
    groups: Mapping[str, tuple[str, ...]]
    features: Mapping[str, str]
    left_out: Mapping[str, str]
    suspects: Mapping[str, str]
    summary: tuple[str, ...]


RADIANS = 2 * np.pi
HOURS = 24

MOST_LABELS = 40  # labels that are counted by name, the most frequent first


def inspect_file(
    file: str | Path, *, limit: int | None = None, label: str | None = None, table: str | None = None
) -> CatalogueSummary | ModelDescription:
    """Return what a file holds, here or at a URL; of a catalogue, what the first `limit` rows show, or all.

    `label` is the column of the class that leaks are looked for; `table` is meant of several in a file.
    """
    source = resolve_one(file)
    if isinstance(source, LocalSource) and source.path.exists() and is_model_file(source.path):
        # Most files that are inspected are no models.
        from flows.models.model import read_model  # noqa: PLC0415
        from flows.models.store import Store  # noqa: PLC0415

        model = read_model(source.path)
        return Store(source.path.parent.parent.parent).described(model, "stored")
    with opened_together(source, TableChoice(table, (label,) if label else ())) as catalog:
        summary = inspect_catalog(catalog, limit=limit, label=label)
    return summary if isinstance(source, LocalSource) else replace(summary, path=shown(source.url))


def inspect_catalog(
    catalog: Catalog, *, limit: int | None = None, label: str | None = None
) -> CatalogueSummary:
    """Return what a catalogue holds; what the first `limit` rows show, or all."""
    if label is not None:
        check_label(catalog, label)
    seen, counts = seen_profile(catalog, label, limit=limit)
    return CatalogueSummary(
        path=str(catalog.path),
        format=catalog.format,
        n_rows=catalog.n_rows,
        n_seen=seen.n_rows,
        files=len(catalog.partitions),
        columns=tuple(_column(c, seen, catalog.names) for c in catalog.columns),
        identifiers=tuple(
            IdentifierSummary(column=name, why=why) for name, why in quality.suspected_identifiers(seen)
        ),
        position=described_positions(catalog, seen),
        commented_out=commented_out(catalog),
        duplicate_columns=tuple(tuple(group) for group in seen.duplicate_columns()),
        label=None if label is None else _label(catalog, seen, label, counts),
        wrong_checksums=() if limit is not None else verified(catalog, "warn")[1],
    )


def check_label(catalog: Catalog, label: str) -> None:
    """Raise UsageError where a column cannot hold classes."""
    if label not in catalog.names:
        raise UsageError(
            f"--label: got '{label}', expected a column of {catalog.path}; {nearest(label, catalog.names)}; to join "
            "labels from another file, name it with --labels of `blr init`, or write under [label] of your own "
            "specification: table = { path = 'labels.fits', id = 'name' }, or ra = 'RA', dec = 'DEC' in the place of id"
        )
    if not profiles.readable(catalog.column(label)):
        if not catalog.n_rows:
            raise UsageError(f"{catalog.path} has no rows, expected labelled objects; name another file")
        raise UsageError(
            f"--label: got '{label}', which holds {catalog.column(label).datatype}, expected a column with a "
            "text or a whole number in each row; choose the column of the class"
        )


def seen_profile(
    catalog: Catalog, label: str | None, *, limit: int | None = None
) -> tuple[profiles.Profile, Counter[str]]:
    """Return the profile of a catalogue's rows, telling how far it is, and how often each label was met.

    Rows are chosen whose `label` names a class.
    """
    counts = Counter[str]()
    choice = None if label is None else partial(naming_a_class, column=label, seen=counts)
    if limit is None:
        catalog = with_checksums(catalog, "warn")
    n = catalog.n_rows if limit is None else min(limit, catalog.n_rows)
    tell().start("looking at rows", n, "rows")
    return profiles.profile(catalog, limit=limit, choice=choice, progress=tell().advance), counts


def _column(column: Column, seen: profiles.Profile, names: tuple[str, ...] = ()) -> ColumnSummary:
    """Return what a column holds, with its elements where it is a vector; `names` are the catalogue's columns."""
    elements = (e.name for e in element_columns(column, names)) if names else ()
    return ColumnSummary(
        name=str(column.name),
        datatype=str(column.datatype),
        unit=column.unit,
        ucd=column.ucd,
        description=column.description,
        absent=column.absent,
        elements=tuple(_column(seen.columns[e].column, seen) for e in elements if e in seen.columns),
        **_values(seen.columns.get(column.name), seen),
    )


def _values(counts: profiles.ColumnProfile | None, seen: profiles.Profile) -> dict[str, Any]:
    """Return the fields on a column's values; those of a column that was not read, or of no rows, say nothing."""
    if counts is None or not counts.n:
        nothing = dict.fromkeys(("missing", "minimum", "median", "maximum", "distinct", "not_numbers"))
        return {**nothing, "constant": False, "sentinels": (), "texts": {}}
    minimum = maximum = median = None
    as_read = profiles.as_number_column(seen, counts.name)
    read = as_read.columns[counts.name]
    if read.is_number:
        known = as_read.known(counts.name)
        minimum, maximum = read.minimum, read.maximum
        median = float(np.median(known)) if known.size else None
    texts = profiles.suspected_texts(seen, counts.name)
    return {
        "missing": counts.missing_share,
        "minimum": minimum,
        "median": median,
        "maximum": maximum,
        "distinct": min(counts.distinct.estimate, counts.n - counts.missing),
        "constant": counts.constant,
        "sentinels": tuple(quality.suspected_sentinels(seen, counts.name)),
        "texts": texts,
        "not_numbers": None if texts else profiles.not_numbers(seen, counts.name),
    }


def described_positions(catalog: Catalog, seen: profiles.Profile) -> PositionSummary | None:
    """Return which columns hold the position, in which unit, and what is wrong with them; None without any."""
    pair = find_position_columns(catalog)
    if pair is None:  # in other columns than two, which a specification cannot name as they are
        other = quality.find_other_position(catalog)
        if other is None or not all(quality.may_be_galactic(seen, name) for name in other[0]):
            return None
        return PositionSummary(ra=None, dec=None, unit=None, columns=other[0], remarks=(other[1],))
    ra, dec = pair
    try:
        unit = unit_of_position(catalog, ra, dec)
    except CatalogError as error:
        return PositionSummary(ra=ra, dec=dec, unit=None, remarks=(str(error),))
    place = positions(seen.sample[ra], seen.sample[dec], unit)
    remarks = []
    if place.unreadable:
        remarks.append(
            f"{place.unreadable:,} of {len(place.ra):,} sampled rows hold no readable angle: if the texts are "
            'numbers, state position_unit = "deg", or "rad"'
        )
    if place.out_of_range:
        remarks.append(f"{place.out_of_range:,} of {len(place.ra):,} sampled rows are out of range")
    if unit == "deg":
        remarks += _other_units(seen.columns[ra], seen.columns[dec])
    return PositionSummary(ra=ra, dec=dec, unit=unit, remarks=tuple(remarks))


def _other_units(ra: profiles.ColumnProfile, dec: profiles.ColumnProfile) -> list[str]:
    """Return what speaks against degrees in two columns that are taken for such."""
    columns = (ra, dec)
    if not all(c.is_number for c in columns):
        return []
    turn, pole = (max(abs(c.minimum), abs(c.maximum)) for c in columns)
    if turn <= RADIANS and pole <= RADIANS / 4 and all(c.column.unit is None for c in columns):
        return ['no unit, and no value beyond 2 pi: if these are radians, state position_unit = "rad"']
    hours = ra.minimum >= 0 and turn <= HOURS < pole and ra.maximum - ra.minimum > HOURS / 2
    remark = f'no {ra.name} beyond {HOURS}: if these are hours, beside degrees, state position_unit = "hours"'
    return [remark] if hours else []


def _label(catalog: Catalog, seen: profiles.Profile, label: str, counts: Counter[str]) -> LabelSummary:
    """Return the labels with their counts in all rows, the classes that `blr init` makes of them, and the leaks."""
    counts = counts.copy()
    texts, drafted = plain_texts(seen.chosen[label]), starting_classes(counts)
    if len(drafted.kept) > 1:
        texts = drafted.named(texts)
    leaks, gains = found_leaks(catalog, seen, label, texts)
    order = sorted(gains, key=lambda name: -gains[name])
    uneven = profiles.uneven_presence(
        {n: without_sentinels(seen, n) for n in seen.chosen if n != label}, texts
    )
    named = dict(quality.suspected_identifiers(seen))
    return LabelSummary(
        column=label,
        sampled=len(texts),
        unlabelled=counts.pop("", 0),
        counts=dict(counts.most_common(MOST_LABELS)),
        drafted={
            name: DraftedClass(rows=n, spellings=(*drafted.kept[name],)) for name, n in drafted.rows.items()
        },
        leaks=tuple(leaks),
        gains={name: max(0.0, gains[name]) for name in order},
        presence=uneven,
        bookkeeping=tuple(
            n for n in order if gains[n] > 0.05 and n not in named and quality.bookkeeping(seen, n)
        ),
    )


def leaking_column(leaks: list[Leak]) -> dict[str, Leak]:
    """Return the fewest columns to leave out so that no set gives the class away, each with a set that it is in.

    The column in most sets is left out first, of several the one whose sets tell most: it is what was computed from
    the others.
    """
    left, gone = [leak for leak in leaks if leak.derived], {}
    while left:
        weight = Counter(name for leak in left for name in dict.fromkeys(leak.columns))
        beyond = {
            name: sum(k.beyond for k in left if name in k.columns and f"log10({name})" not in k.combination)
            for name in weight
        }
        worst = max(weight, key=lambda name: (weight[name], beyond[name]))
        gone[worst] = next(leak for leak in left if worst in leak.columns)
        left = [leak for leak in left if worst not in leak.columns]
    return gone


MOST_CLASSES = 40  # most classes of a first training: a column with more values hardly holds classes
FEWEST = 5  # rows of a class, where the labels have many spellings
FEW_DIFFERENT, FEWEST_OF_FEW = 10, 2
"""Different labels up to which all are meant as classes, and the rows of such a class: folds need two."""
RARE_SHARE = 0.01
"""Share of the labels that may be left out as rare: three of 100 labels are a class, three of 10,000 may be a slip."""
FEWEST_CODES, CODED_SHARE = 3, 0.1
"""Different labels that are written as no word is, and their share of the rows, from which labels are such codes."""
MEANT_ROWS, MEANT_SHARE = 5, 0.05
"""Rows of each of two spellings, and share of the rarer in the more frequent, from which case may be meant."""
LONGEST_NAME = 64  # of a class: it is part of columns' names
MOSTLY_NUMBERS, FEWEST_OF_A_SIGN = 0.9, 3
"""Share of labels that are numbers, and different ones of either sign, from which they are in order and no codes."""
MOST_CODES = 40
MOST_NUMBERED = 8  # different numbers up to which labels are codes, in whatever order
FEWEST_BELOW = 0.1  # share of the rows on either side of a cut


@dataclass(frozen=True)
class StartingClasses:
    """The classes, and the labels that are in none: too few rows, one class too many, or doubtful; all with their rows.

    `kept` has the spellings of each class, the most frequent first, or a range of numbers.  `bare` are those of the
    `dropped` labels of which hardly any row has a feature.
    """

    kept: Mapping[str, Mapping[str, int]]
    dropped: Mapping[str, int]
    doubtful: Mapping[str, int]
    cut: float | None = None  # of numbers in order, which ranges below and from here on are made of
    bare: frozenset[str] = frozenset()

    @property
    def rows(self) -> dict[str, int]:
        """The rows of each class."""
        return {name: sum(spellings.values()) for name, spellings in self.kept.items()}

    @property
    def n_rows(self) -> int:
        """The rows of all classes."""
        return sum(self.rows.values())

    def named(self, texts: NDArray[np.object_]) -> NDArray[np.object_]:
        """Return the class (n,) of each label, '' where it is in none."""
        names = np.array(["", *self.kept], dtype=object)
        reader = LabelReader.of_lists({name: [*spellings] for name, spellings in self.kept.items()})
        return np.asarray(names[reader.read(texts) + 1])

    def without(self, names: set[str], *, bare: bool = False) -> StartingClasses:
        """Return these without some classes, which are dropped labels then; `bare` ones have hardly any feature."""
        gone = {next(iter(self.kept[name])): n for name, n in self.rows.items() if name in names}
        kept = {name: spellings for name, spellings in self.kept.items() if name not in names}
        more = gone.keys() if bare else set()
        return replace(self, kept=kept, dropped=gone | dict(self.dropped), bare=self.bare | more)


def starting_classes(counts: Mapping[str, int]) -> StartingClasses:
    """Return the classes that labels with these counts make, '' being none."""
    known = [(text, n) for text, n in Counter(counts).most_common() if text]
    doubtful = {text: n for text, n in known if is_doubtful(text)}
    if "-1" in counts and all(text.isdecimal() for text, _ in known if text != "-1"):
        # Among codes that count from 0 or 1; of T types, which go down to -6, some other is negative too.
        doubtful["-1"] = counts["-1"]
    rest = Counter({text: n for text, n in known if text not in doubtful})
    return _ordered(rest, doubtful) or _kept(rest, doubtful, fewest_rows(counts))


def fewest_rows(counts: Mapping[str, int]) -> int:
    """Return how many rows a class has at least, where labels have these counts, '' being none."""
    rows = [n for text, n in counts.items() if text]
    rare = sum(n for text, n in counts.items() if text and n < FEWEST and not is_doubtful(text))
    meant = rare > RARE_SHARE * sum(rows) and sum(n >= FEWEST_OF_FEW for n in rows) <= MOST_CLASSES
    return FEWEST_OF_FEW if meant or len(rows) <= FEW_DIFFERENT else FEWEST


def _ordered(counts: Mapping[str, int], doubtful: Mapping[str, int]) -> StartingClasses | None:
    """Return two classes of labels that are numbers in order, T types or fractions of votes; None of other labels.

    Codes are whole numbers, not very many, and at most a few are negative; counts of votes are many.
    """
    numbers: dict[str, float] = {}
    for text in counts:
        with suppress(ValueError):
            numbers[text] = float(text)
    values = np.array([*numbers.values()])
    rows = np.array([counts[text] for text in numbers])
    if rows.sum() < MOSTLY_NUMBERS * sum(counts.values()) or len(set(numbers.values())) <= MOST_NUMBERED:
        return None
    signs = min(len({x for x in numbers.values() if x < 0}), len({x for x in numbers.values() if x > 0}))
    codes = signs < FEWEST_OF_A_SIGN and len(values) <= MOST_CODES
    if codes and (values == np.trunc(values)).all():
        return None
    cut = _cut(values, rows)
    below = int(rows[values < cut].sum())
    shown = f"{cut:.0f}" if cut.is_integer() else repr(cut)
    dropped = {text: n for text, n in counts.items() if text not in numbers}
    kept = {f"below_{shown}": {f"..{shown}": below}, f"from_{shown}": {f"{shown}..": int(rows.sum()) - below}}
    return StartingClasses(kept, dropped, doubtful, cut)


def _cut(values: Floats, rows: NDArray[np.int_]) -> float:
    """Return where numbers, of so many rows each, are cut in two: 0 of T types, a half of shares, else the median."""
    whole = next((w for w in (1.0, 100.0) if 0.9 * w < values.max() <= w), None)
    usual = 0.0 if values.min() < 0 or whole is None else 0.5 * whole
    below = rows[values < usual].sum() / rows.sum()
    if FEWEST_BELOW <= below <= 1 - FEWEST_BELOW:
        return usual
    order = np.argsort(values)
    middle = values[order][np.searchsorted(np.cumsum(rows[order]), rows.sum() / 2, side="right")]
    short = float(f"{middle:.3g}")
    below = rows[values < short].sum() / rows.sum()
    return short if FEWEST_BELOW <= below <= 1 - FEWEST_BELOW else float(middle)


def _spelt(counts: Counter[str]) -> list[list[str]]:
    """Return the labels with the spellings of one class together, the most frequent spelling first."""
    alike: dict[str, list[str]] = {}
    for text, _ in counts.most_common():
        alike.setdefault(text.casefold(), []).append(text)
    mixed = {text: n for text, n in counts.items() if _mixed(text)}
    # Where several labels are written so, as SBb and SABc, a few rows of SBc are no slip for Sbc.
    codes = len({text.casefold() for text in mixed}) >= FEWEST_CODES
    codes = codes and sum(mixed.values()) >= CODED_SHARE * sum(counts.values())
    coded = [text for text, n in mixed.items() if codes or n >= MEANT_ROWS]
    classes = []
    for first, *others in alike.values():
        apart, together = [first], [first]
        for text in others:
            enough = codes or counts[text] >= max(MEANT_ROWS, MEANT_SHARE * counts[first])
            if enough and all(_case_is_meant(text, other, coded) for other in apart):
                apart.append(text)
            else:
                together.append(text)
        classes += [together, *([text] for text in apart[1:])]
    return classes


def _mixed(text: str) -> bool:
    """Say whether a label is written as no word is: 'SBc' and 'cD', but neither 'Sbc' nor 'SBC'."""
    return text not in {text.lower(), text.upper(), text.capitalize(), text.title()}


def _case_is_meant(text: str, other: str, coded: Collection[str]) -> bool:
    """Say whether two labels that differ in case only are two types.

    One of them is written as no word is, or begins another label that is: 'SAB' does where there are 'SABc'.  The
    other is not written so that its case says nothing, all in capitals or all in small letters.
    """
    codes = [t for t in (text, other) if _mixed(t) or any(c != t and c.startswith(t) for c in coded)]
    plain = [t for t in (text, other) if t not in codes and t in {t.upper(), t.lower()}]
    return len(text) > 1 and bool(codes) and not plain


def _kept(counts: Counter[str], doubtful: Mapping[str, int], fewest: int) -> StartingClasses:
    """Return the classes of labels with their spellings, the most frequent first, of `fewest` rows or more."""
    kept: dict[str, dict[str, int]] = {}
    dropped: dict[str, int] = {}
    every = ({text: counts[text] for text in some} for some in _spelt(counts))
    for spellings in sorted(every, key=lambda some: -sum(some.values())):
        name = _name(next(iter(spellings)), [*kept])
        if sum(spellings.values()) >= fewest and len(kept) < MOST_CLASSES and name is not None:
            kept[name] = spellings
        else:
            dropped |= spellings
    return StartingClasses(kept, dropped, doubtful)


def _name(text: str, taken: list[str]) -> str | None:
    """Return a name for the class of a label that can have a column beside the others'; or None."""
    for name in (text, *(f"{text} {i}" for i in range(2, 5))):
        if len(name) > LONGEST_NAME or not name.isprintable():
            return None
        try:
            standard_columns((*taken, name) if taken else (name, "any other"))
        except NameClashError:
            continue
        return name
    return None
