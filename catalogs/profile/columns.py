"""What the values of columns look like: ranges, missing values, sentinels, numbers in texts, classes."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalogs.arrays import (
    NO_VALUES,
    Array,
    DistinctCounter,
    batch_values,
    floats,
    is_text,
    name_words,
    number_of,
    numbers_of,
    row_hashes,
    shortened,
    unique_texts,
    words_of,
)
from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Column, element_columns
from catalogs.column_names import column_names
from catalogs.errors import brief
from catalogs.sky.positions import is_position


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Values of a column over some rows, in B bins; whoever counts other rows in the same bins can compare."""

    edges: tuple[float, ...]  # (B - 1,) between the bins
    counts: tuple[int, ...]  # (B,) rows
    mean: float
    sd: float
    missing: float  # share of the rows without a value


# Text columns that are columns of numbers but for a few texts, as '-' in a CSV file, or a row of units.

FEWEST = 2
"""Rows with a text from which it may be a mark."""
MOST_TEXTS = 3
"""Different texts among numbers, above which the column is one of texts."""


def as_number_column(profile: Profile, name: str) -> Profile:
    """Return the profile with a text column as one of its numbers, where all other texts stand for no value.

    Its counts are then those of the sample.
    """
    if not suspected_texts(profile, name):
        return profile
    numbers = numbers_of(words_of(profile.sample[name]))
    counts = ColumnProfile(replace(profile.columns[name].column, datatype=pa.float64()))
    counts.add(np.where(np.isfinite(numbers), numbers, np.nan))
    columns, sample = {**profile.columns, name: counts}, {**profile.sample, name: numbers}
    return replace(profile, columns=columns, sample=sample)


def suspected_texts(profile: Profile, name: str) -> dict[str, int]:
    """Return the texts, with their rows, that stand for no value in a text column of numbers: '-' in a CSV file.

    None of a column whose texts are all numbers, or written as 0000 is, which are codes.  Where the sample is not all
    there is, only those that catalogues are known to write: an unknown one that it lacks would make the column one of
    texts again.
    """
    column = profile.columns[name]
    if not is_text(column.column.datatype) or is_position(column.column):
        return {}
    if name in profile.texts_found:
        return profile.texts_found[name]
    counts = Counter(text for text in words_of(profile.sample[name]) if text)
    odd = {text: n for text, n in sorted(counts.items()) if number_of(text) is None}
    numbers = counts.total() - sum(odd.values())
    complete = len(profile.sample[name]) >= profile.n_rows
    usual = complete or all(map(column_names().sentinels.text.fullmatch, odd))
    few = 0 < len(odd) <= MOST_TEXTS and all(n >= FEWEST for n in odd.values())
    few = few and not any(re.fullmatch(r"0\d+", text) for text in counts)
    profile.texts_found[name] = odd if usual and few and numbers > sum(odd.values()) else {}
    return profile.texts_found[name]


def not_numbers(profile: Profile, name: str) -> str | None:
    """Return what keeps a text column from being one of numbers, in words: a row of units, Fortran's exponents.

    None of a column of which most texts are neither numbers nor numbers written otherwise.
    """
    if not is_text(profile.columns[name].column.datatype):
        return None
    words = [text for text in words_of(profile.sample[name]) if text]
    odd = Counter(text for text in words if number_of(text) is None)
    shown = ", ".join(f"'{brief(text)}'" for text, _ in odd.most_common(MOST_TEXTS))
    if odd and sum(odd.values()) < 0.5 * len(words):
        marks = sorted({text[0] for text in odd})
        limits = f": limits, which not_detected = {{ '{name}' = {marks} }} under [catalog] reads"
        found = f"{len(words) - sum(odd.values()):,} of {len(words):,} texts are numbers, but not {shown}"
        return found + (limits if {*marks} <= {">", "<"} else "")
    otherwise = (number_of(re.sub(r"[dD](?=[+-]?\d+$)", "e", text).replace(",", "")) for text in odd)
    if odd and None not in otherwise:
        return f"{shown}: numbers in another notation, expected one such as 1234.5 or 1.2345e3; convert them"
    return None


# Columns that were measured mainly for some classes: their presence gives the class away, whatever their values.  A
# redshift that only galaxies have, or a parallax that only stars have, tells how objects were chosen.  Columns that
# are shares of one whole, as fractions of votes, which sum to 1 or to 100 %, give it away too.  Their names begin
# alike; parts of light, as bulge and disk, have names that do not.  Shapes: n rows.

MOST_ANSWERS = 12
WHOLES = (1.0, 100.0)
CLOSE, NEARLY_ALL = 0.02, 0.95
"""Share of the whole by which a sum may be off, and of the rows in which it is not."""
FEWEST_ROWS = 20
NUMBERED = re.compile(r"\d$")
"""Ends of the names of a histogram's bins, which are measurements; answers have names."""

UNEVEN = 0.5
"""Difference of the measured shares of two classes from which a column's presence tells them apart."""
FEWEST_PRESENT = 12
"""Rows of a class below which its share says nothing."""


def measured(values: Array) -> Array:
    """Return which values (n,) are there: finite numbers, texts that are not empty."""
    if values.dtype == NO_VALUES:
        return np.zeros(len(values), dtype=bool)
    there = ~np.ma.getmaskarray(values)
    data = np.ma.getdata(values)
    if data.dtype.kind == "f":
        return np.asarray(there & np.isfinite(data))
    if data.dtype.kind in "mM":
        return np.asarray(there & ~np.isnat(data))
    return np.asarray(there & (data != "")) if data.dtype.kind in "OUS" else there


def uneven_presence(columns: Mapping[str, Array], labels: Array) -> dict[str, str]:
    """Return in words how the presence of columns (n,) tells classes apart, of labels (n,), '' where it is missing."""
    texts, inverse, counts = unique_texts(labels)
    usable = np.flatnonzero([bool(t) and n >= FEWEST_PRESENT for t, n in zip(texts, counts, strict=True)])
    if len(usable) < 2:
        return {}
    uneven = {}
    for name, values in columns.items():
        share = np.bincount(inverse, weights=measured(values), minlength=len(texts)) / counts
        most, least = usable[share[usable].argmax()], usable[share[usable].argmin()]
        if share[most] - share[least] >= UNEVEN:
            uneven[name] = (
                f"measured for {share[most]:.0%} of class '{texts[most]}' "
                f"and {share[least]:.0%} of class '{texts[least]}'"
            )
    return uneven


def shares_of_one(rows: Mapping[str, NDArray[np.float64]]) -> dict[str, str]:
    """Return the columns (n,) that sum to a whole with others of names that begin alike, each with one of these."""
    for_whole: dict[tuple[str, float], list[str]] = {}
    for name, values in rows.items():
        known = values[np.isfinite(values)]
        most = known.max() if known.size and known.min() >= 0 else np.inf
        whole = next((w for w in WHOLES if most <= w * (1 + CLOSE)), None)
        if whole is None or known.min() == known.max() or NUMBERED.search(name):
            continue
        # Every beginning may be the question's: 'smooth or featured' is answered by 'featured or disk'.
        for beginning in list(accumulate(name_words(name), "{} {}".format))[:-1]:
            for_whole.setdefault((beginning, whole), []).append(name)
    shares: dict[str, str] = {}
    for (_, whole), names in for_whole.items():
        if not 2 <= len(names) <= MOST_ANSWERS:
            continue
        total = np.sum([rows[name] for name in names], axis=0)
        known = total[np.isfinite(total)]
        off = np.abs(known - whole)
        if known.size >= FEWEST_ROWS and np.mean(off < CLOSE * whole) >= NEARLY_ALL:
            shares |= {name: next(n for n in names if n != name) for name in names}
    return shares


# What the rows of a catalogue show, in one pass of bounded memory: counts a column, and a sample of the rows.  Counts
# are exact.  What needs sorting (quantiles, distinct values, what a class depends on) comes from a sample of the
# rows, each as likely as the other: the rows whose seeded random keys are the smallest, so that the order and the
# size of batches matter only through the draw.  Few rows of many, as those with a class often are, are sampled by
# themselves too.

Choice = Callable[[Mapping[str, Array]], NDArray[np.bool_]]
"""Which rows (n,) of a batch are meant, from the values (n,) of its columns."""

SAMPLE_ROWS = 20_000
"""Rows in the sample: a share is known to 0.4 %, and a hundred columns take 16 MB.  Long texts are cut."""

BATCH_BYTES = 1 << 25
"""Bytes of a file that a batch takes, about: texts, which types do not tell of, may be polygons and spectra."""


@dataclass
class ColumnProfile:
    """One column of one value a row: counts over all rows, `minimum` and `maximum` with how often each occurs."""

    column: Column
    n: int = 0
    missing: int = 0
    minimum: float = np.inf
    maximum: float = -np.inf
    n_minimum: int = 0
    n_maximum: int = 0
    marks: dict[float, int] = field(default_factory=dict)
    distinct: DistinctCounter = field(default_factory=DistinctCounter)
    content: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers of which some were there."""
        return self.minimum <= self.maximum

    @property
    def missing_share(self) -> float:
        """Share of the rows without a value."""
        return self.missing / max(1, self.n)

    @property
    def constant(self) -> bool:
        """Whether all rows that have a value have the same."""
        return self.n > self.missing and self.distinct.estimate == 1

    def add(self, values: Array) -> Array:
        """Count a batch; return the hashes (n,) of its values, 0 for what is missing."""
        self.n += len(values)
        hashes = np.zeros(len(values), dtype=np.uint64)
        if values.dtype.kind in "OUS":
            gone = values == ""
            self.missing += int(np.count_nonzero(gone))
            hashes[~gone] = self.distinct.add(values[~gone])
            self.content.update("\x1f".join(values.tolist()).encode())
            return hashes
        if values.dtype.kind not in "biuf":
            none = values.dtype.kind == "V"
            self.missing += len(values) if none else int(np.count_nonzero(np.isnat(values)))
            return hashes
        numbers = as_numbers(values)
        known = np.isfinite(numbers)
        self.missing += len(numbers) - int(known.sum())
        self.content.update(numbers.tobytes())
        hashes[known] = self.distinct.add(np.ma.getdata(values)[known])
        self._extremes(numbers[known])
        return hashes

    def _extremes(self, known: NDArray[np.float64]) -> None:
        if not known.size:
            return
        low, high = float(known.min()), float(known.max())
        if low < self.minimum:
            self.minimum, self.n_minimum = low, 0
        if high > self.maximum:
            self.maximum, self.n_maximum = high, 0
        self.n_minimum += int(np.count_nonzero(known == self.minimum))
        self.n_maximum += int(np.count_nonzero(known == self.maximum))
        for mark in column_names().sentinels.numbers:
            if low <= mark <= high:
                # 99.99 in a float32 column is the float32 nearest to it
                hits = int(np.count_nonzero(np.abs(known - mark) <= 1e-7 * abs(mark)))
                if hits:
                    self.marks[mark] = self.marks.get(mark, 0) + hits


@dataclass(frozen=True, eq=False)
class Profile:
    """All columns that have one value a row, and the sample: `sample[name]` (n,), the same rows of each.

    `repeated_rows` are those in excess of one that hold the same in all of these columns.

    `chosen` is a sample of the rows that were chosen, in the same way.  The elements of short vectors are columns
    too, `flux[3]`.
    """

    n_rows: int
    columns: Mapping[str, ColumnProfile]
    sample: Mapping[str, Array]
    chosen: Mapping[str, Array]
    repeated_rows: int = 0
    texts_found: dict[str, dict[str, int]] = field(default_factory=dict)  # what `suspected_texts` has found

    @cached_property
    def repeated_marks(self) -> Mapping[float, Collection[str]]:
        """The marks that end the range of a column and are in several rows of it, with these columns."""
        found: dict[float, set[str]] = {}
        for c in self.columns.values():
            for value in {c.minimum, c.maximum}:
                if c.marks.get(value, 0) > 1:
                    found.setdefault(value, set()).add(c.name)
        return found

    @cached_property
    def described(self) -> Mapping[str, Column]:
        """The columns as the catalogue describes them."""
        return {name: c.column for name, c in self.columns.items()}

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of the sample as float64, NaN where missing or not finite."""
        return as_numbers(self.sample[name])

    def known(self, name: str) -> NDArray[np.float64]:
        """Return the finite numbers of a column of the sample."""
        numbers = self.numbers(name)
        return numbers[np.isfinite(numbers)]

    def duplicate_columns(self) -> list[tuple[str, ...]]:
        """Return the groups of columns that hold the same in every row."""
        groups: dict[bytes, list[str]] = {}
        for name, c in self.columns.items():
            if c.n > c.missing:
                groups.setdefault(c.content.digest(), []).append(name)
        return [tuple(names) for names in groups.values() if len(names) > 1]


def as_numbers(values: Array) -> NDArray[np.float64]:
    """Return values (n,) as float64, NaN where missing or not finite."""
    numbers = floats(values)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def readable(column: Column) -> bool:
    """Say whether a column holds one number, truth value or text a row."""
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    kinds = (*numbers, pa.types.is_boolean, is_text)
    return not column.shape and any(is_kind(column.datatype) for is_kind in kinds)


def profile(
    catalog: Catalog,
    *,
    limit: int | None = None,
    choice: Choice | None = None,
    also: Callable[[pa.RecordBatch], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Profile:
    """Return what the rows show, all or the first `limit`; `also` is called with each batch of all columns.

    `choice` says of which rows there is to be a sample by themselves; without it that is the sample of all.
    """
    single = [c for c in catalog.columns if readable(c)]
    vectors = {c.name: element_columns(c, catalog.names) for c in catalog.columns}
    parts = [part for name in vectors for part in vectors[name]]
    columns = {c.name: ColumnProfile(c) for c in (*single, *parts)}
    rng, left = np.random.default_rng(0), catalog.n_rows if limit is None else limit
    reservoir, chosen, whole_rows, n = _Reservoir(), _Reservoir(), DistinctCounter(), 0
    if not columns:
        return Profile(catalog.n_rows, columns, {}, {})
    wanted = [*(c.name for c in single), *(name for name, elements in vectors.items() if elements)]
    # Fewer rows at a time of wide tables and of long texts: about four million values, or 32 MB of the file.
    stored = sum(p.n_bytes for p in catalog.partitions) // max(1, sum(p.n_rows for p in catalog.partitions))
    at_once = max(256, min(BATCH_ROWS, 4_000_000 // max(1, len(columns)), BATCH_BYTES // max(1, stored)))
    for whole in catalog.batches(wanted, max(1, min(at_once, left))):
        batch = whole.slice(0, left)
        values = batch_values(batch, wanted)
        for name in wanted[len(single) :]:
            values |= zip((c.name for c in vectors[name]), values.pop(name).T, strict=True)
        whole_rows.add_hashes(row_hashes([counts.add(values[name]) for name, counts in columns.items()]))
        values = {n: shortened(v) if v.dtype.kind == "O" else v for n, v in values.items()}
        keys = rng.random(batch.num_rows)
        reservoir.add(values, keys)
        if choice is not None:
            these = choice(values)
            chosen.add({name: column[these] for name, column in values.items()}, keys[these])
        if also is not None:
            also(batch)
        if progress is not None:
            progress(batch.num_rows)
        n, left = n + batch.num_rows, left - batch.num_rows
        if left <= 0:
            break
    sample = reservoir.rows(tuple(columns))
    among = sample if choice is None else chosen.rows(tuple(columns))
    return Profile(n, columns, sample, among, whole_rows.repeated)


class _Reservoir:
    """The rows with the smallest keys so far."""

    def __init__(self) -> None:
        self.keys: Array = np.empty(0)
        self.parts: dict[str, Array] = {}

    def add(self, values: Mapping[str, Array], keys: Array) -> None:
        joined = np.concatenate([self.keys, keys])
        full = len(joined) > SAMPLE_ROWS
        chosen = np.sort(np.argpartition(joined, SAMPLE_ROWS)[:SAMPLE_ROWS]) if full else None
        self.keys = joined if chosen is None else joined[chosen]
        for name, column in values.items():
            parts = [*([self.parts[name]] if name in self.parts else []), column]
            masked = any(map(np.ma.isMaskedArray, parts))
            whole = (np.ma.concatenate if masked else np.concatenate)(parts)
            self.parts[name] = whole if chosen is None else whole[chosen]

    def rows(self, names: Sequence[str]) -> dict[str, Array]:
        parts = {name: self.parts.get(name, np.empty(0)) for name in names}
        return {n: p if np.ma.getmaskarray(p).any() else np.ma.getdata(p) for n, p in parts.items()}


@dataclass(frozen=True, kw_only=True)
class ColumnRange:
    """A column of many files: rows, missing values, infinite ones among them, and the range; None without numbers."""

    n: int = 0
    missing: int = 0
    infinite: int = 0
    minimum: float | None = None
    maximum: float | None = None

    @classmethod
    def of(cls, column: pa.Array) -> ColumnRange:
        """Return the counts of a batch of a column."""
        if is_text(column.type):
            empty = pc.sum(pc.equal(pc.binary_length(column), 0)).as_py() or 0
            return cls(n=len(column), missing=column.null_count + int(empty))
        if not pa.types.is_integer(column.type) and not pa.types.is_floating(column.type):
            return cls(n=len(column), missing=column.null_count)
        known = column.drop_null().to_numpy(zero_copy_only=False)
        missing, infinite = len(column) - len(known) + int(np.count_nonzero(np.isnan(known))), 0
        if missing == len(column):
            return cls(n=len(column), missing=missing)
        low, high = float(np.fmin.reduce(known)), float(np.fmax.reduce(known))  # NaN does not count
        if np.isinf([low, high]).any():
            infinite = int(np.count_nonzero(np.isinf(known)))
            missing += infinite
            known = known[np.isfinite(known)]
            if not len(known):
                return cls(n=len(column), missing=missing, infinite=infinite)
            low, high = float(known.min()), float(known.max())
        return cls(n=len(column), missing=missing, infinite=infinite, minimum=low, maximum=high)

    def __add__(self, other: ColumnRange) -> ColumnRange:
        """Return the counts of two parts of a column together."""
        lows, highs = (self.minimum, other.minimum), (self.maximum, other.maximum)
        return ColumnRange(
            n=self.n + other.n,
            missing=self.missing + other.missing,
            infinite=self.infinite + other.infinite,
            minimum=min((x for x in lows if x is not None), default=None),
            maximum=max((x for x in highs if x is not None), default=None),
        )
