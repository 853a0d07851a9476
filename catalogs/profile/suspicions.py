"""What the numbers of a catalogue look like: values that stand for none, identifiers, observing bookkeeping.

All of this is uncertain, so no data are changed: `blr inspect` shows it, and `blr init` writes it into a specification
that a person reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.types as pt

from catalogs.arrays.values import is_real, is_text
from catalogs.catalog.elements import Element
from catalogs.column_names import column_names
from catalogs.profile.columns import ColumnProfile, Profile
from catalogs.profile.numbers_in_texts import as_number_column, not_numbers
from catalogs.profile.subjects import about_a_magnitude, about_an_error, without_unit
from catalogs.sky.positions import is_position

__all__ = [
    "Suspected",
    "bookkeeping",
    "naming_column",
    "repeating_column",
    "suspected_identifiers",
    "suspected_sentinels",
]

Array = np.ndarray[Any, Any]

FEWEST = 2
"""Rows with a number that other catalogues use as a mark, from which it may be one here."""
FEWEST_UNUSUAL = 5
"""The same of any other number."""
GAP = 1.0
"""Distance of a mark from the other values, in ranges of their middle 98 %."""
FAR = 1000.0
"""The same from which it may be the value of most rows."""
SHIFT = 10.0
"""How much of extinction or offsets catalogues take off their marks, at most."""
SPIKE = 0.003
"""Share of the rows at an extreme value from which it may be a mark though no gap sets it apart."""
NINES = re.compile(r"-?9+(\.9*)?(e[+-]?\d+)?")
"""Marks that no quantity ends at: 90 is a bound of inclinations, -1 of correlations, 0 of sizes."""
DENSE, LARGEST_COUNT = 2.0, 1e6
"""Range of numbers a row, and their middle, from which different ones are names and no measurements."""
MOST_CODES = 12
"""Different values up to which a column may be one of codes."""
FEW_REPEATS = 0.05
"""Share of the rows that may repeat the identifier of another, or lack one, in a column that names each row."""
MOST_REPEATS = 5.0
"""Rows a value up to which a column that is called an identifier names objects of which each has several rows."""
COORDINATES = ("pos.", "time.")


@dataclass(frozen=True)
class Suspected:
    """A number that may stand for no value, or a range of such, '90..' or '..-90', and how many rows have it."""

    value: float | str
    count: int
    why: str


def suspected_sentinels(profile: Profile, name: str) -> list[Suspected]:
    """Return the numbers of a column that look like marks: at an end, apart from the others, and repeated or alike.

    Numbers are also those of a text column, without the texts among them that stand for no value.
    """
    profile = as_number_column(profile, name)
    column = profile.columns[name]
    if not column.is_number or column.minimum == column.maximum or _coordinate(column):
        return []
    return [*_repeated(profile, name), *_shifted(profile, name)]


def _repeated(profile: Profile, name: str) -> list[Suspected]:
    """Return the numbers that several rows have, or one row, where they are marks of other columns."""
    column = profile.columns[name]
    candidates = dict(column.marks)
    candidates |= {column.minimum: column.n_minimum, column.maximum: column.n_maximum}
    if column.distinct.estimate <= MOST_CODES:
        candidates = {
            v: n for v, n in candidates.items() if v in column.marks and _stands_for_none(v, column)
        }
    elsewhere = {v for v, n in candidates.items() if n < FEWEST and _marks_others(profile, name, v)}
    if max(candidates.values(), default=0) < FEWEST and not elsewhere:
        return []
    sample = profile.numbers(name)
    known = sample[np.isfinite(sample)]
    with np.errstate(over="ignore"):  # beyond float32 all are infinite, and none a mark
        marked = np.isin(known.astype(np.float32), np.array([*candidates], dtype=np.float32))
    bulk = known[~marked]
    if len(bulk) < 20:
        return []
    middle = float(np.subtract(*np.quantile(bulk, [0.99, 0.01])))
    suspected = []
    for value, count in sorted(candidates.items()):
        apart = max(float(bulk.min()) - value, value - float(bulk.max()))
        if apart > 0 and (count >= FEWEST or value in elsewhere):
            why = _why_a_mark(column, value, count, apart, middle)
            suspected += [] if why is None else [Suspected(value, count, why)]
    return suspected


def _why_a_mark(column: ColumnProfile, value: float, count: int, apart: float, middle: float) -> str | None:
    """Return why a number stands for no value; None where it does not.

    `apart` is its distance from the other values, `middle` the range of their middle 98 %.
    """
    famous = value in column.marks and _stands_for_none(value, column)
    nines = famous and NINES.fullmatch(f"{value:g}") is not None
    if count < FEWEST:
        return (
            "far from all others, and it marks missing values in other columns"
            if apart > GAP * middle
            else None
        )
    most = 0.5 if apart < FAR * middle else 1.0
    if not famous and not (FEWEST_UNUSUAL <= count < most * column.n and column.distinct.estimate > 20):
        return None
    if apart > GAP * middle or (nines and apart > 0.1 * middle):
        return "repeated, and far from all other values"
    if famous and value < 0 <= value + apart and about_an_error(column.column):
        return "repeated, and no error is negative"
    spike = count > SPIKE * column.n and (nines or (famous and value == 0))
    return "many equal values at the end of the range" if spike else None


def _marks_others(profile: Profile, name: str, value: float) -> bool:
    """Say whether a number of nines ends the range of another column, and is repeated there."""
    if NINES.fullmatch(f"{value:g}") is None or value not in profile.columns[name].marks:
        return False
    return any(other != name for other in profile.repeated_marks.get(value, ()))


def _shifted(profile: Profile, name: str) -> list[Suspected]:
    """Return the ranges of marks from which something was taken, as 99 less extinction: alike, and in one row each."""
    column, marks = profile.columns[name], column_names().sentinels.shifted
    # Of nearly all columns the extremes say that there is none: no sample is sorted.
    signs = [
        sign
        for sign, extreme in ((-1, -column.minimum), (1, column.maximum))
        if any(abs(extreme - mark) < SHIFT for mark in marks)
    ]
    sample = profile.numbers(name) if signs else np.empty(0)
    known = sample[np.isfinite(sample)]
    if len(known) < 4 * FEWEST_UNUSUAL:
        return []
    suspected = []
    for sign in signs:
        x = np.sort(sign * known)
        above = len(x) // 2 + int(np.argmax(np.diff(x[len(x) // 2 :]))) + 1
        rest, cloud = x[:above], x[above:]
        apart = cloud[0] - rest[-1] > GAP * (rest[-1] - np.quantile(rest, 0.01))
        near = any(np.abs(cloud - mark).max() < SHIFT for mark in marks)
        if apart and near and len(np.unique(cloud)) >= FEWEST_UNUSUAL:
            end = np.floor(cloud[0])
            text = f"{end:.0f}.." if sign > 0 else f"..{1 - end:.0f}"
            suspected.append(
                Suspected(
                    text, len(cloud), "near a usual mark for a missing value, and far from all other values"
                )
            )
    return suspected


def _stands_for_none(value: float, column: ColumnProfile) -> bool:
    """Say whether one of the numbers that other catalogues use as marks may be one in a column of this kind.

    0 is a value but of magnitudes, and -1 a code beside few others: stars and galaxies are -1 and 1 in VISTA's tables.
    """
    if value == 0:
        return is_real(column.column.datatype) and about_a_magnitude(column.column)
    return value != -1 or column.distinct.estimate > MOST_CODES


def _coordinate(column: ColumnProfile) -> bool:
    return (column.column.ucd or "").lower().startswith(COORDINATES)


def suspected_identifiers(profile: Profile) -> list[tuple[str, str]]:
    """Return the columns that may name the objects, the likeliest first, each with what speaks for it or against.

    A column of numbers with fractions names nothing, and integers above 2^53 in floating point were rounded.
    """
    identifiers = []
    for place, (name, c) in enumerate(profile.columns.items()):
        if isinstance(name, Element):
            continue
        word, ucd = name.lower(), (c.column.ucd or "").lower()
        by_ucd, by_name = ucd.startswith("meta.id"), _names_an_object(word)
        if is_real(c.column.datatype):
            if by_name and c.is_number and c.maximum > 2**53:
                identifiers.append(
                    (9, place, name, "identifiers are stored as floating-point numbers, which rounds them")
                )
            continue
        unique = c.distinct.n > 0 and c.distinct.repeated == 0 and c.missing == 0
        if unique and not (by_ucd or by_name or is_text(c.column.datatype) or _numbered(profile, name)):
            continue  # measurements in whole numbers, of which few rows have no two alike
        if pt.is_boolean(c.column.datatype) or is_position(c.column) or not (by_ucd or by_name or unique):
            continue
        if not (by_ucd or by_name) and not_numbers(profile, name):
            continue  # measurements that differ in every row, below a row of units
        if unique:
            rank = (
                0
                if "meta.main" in ucd
                else 1
                if by_ucd or by_name
                else 3
                if is_text(c.column.datatype)
                else 4
            )
            identifiers.append((rank, place, name, "different in every row"))
        else:
            identifiers += [(rank, place, name, why) for rank, why in _with_repeats(c)]
    return [(name, why) for _, _, name, why in sorted(identifiers)]


def _with_repeats(column: ColumnProfile) -> list[tuple[int, str]]:
    """Return the rank of an identifier with repeats, and what speaks for it; none of a column of codes."""
    missing, repeated = column.missing, column.distinct.repeated
    if _names_repeats(column):
        known = column.n - missing
        return [(7, f"{column.distinct.estimate:,} values in {known:,} rows: an object has several rows")]
    if repeated < FEW_REPEATS * column.n and missing < FEW_REPEATS * column.n:
        return [(6, f"{repeated:,} rows repeat the value of another row, and {missing:,} rows have none")]
    return []


def _numbered(profile: Profile, name: str) -> bool:
    """Say whether whole numbers count the rows, rise from row to row, or are larger than what is counted."""
    values = profile.numbers(name)
    known = values[np.isfinite(values)]
    if len(known) < FEWEST:
        return False
    dense = float(np.ptp(known)) < DENSE * profile.columns[name].n
    return dense or bool((np.diff(known) > 0).all()) or float(np.median(known)) > LARGEST_COUNT


def naming_column(profile: Profile) -> str | None:
    """Return the column to take for the objects' names: different in every row, or repeated where objects are."""
    suspected = [profile.columns[name] for name, _ in suspected_identifiers(profile)]
    named = [
        c for c in suspected if not c.missing and not is_real(c.column.datatype) and not _names_repeats(c)
    ]
    unique = (c.column.name for c in named if not c.distinct.repeated)
    repeated = (c.column.name for c in named if c.distinct.repeated)
    return next(unique, None) or next(repeated, None)


def repeating_column(profile: Profile) -> str | None:
    """Return the column that names objects of which each has several rows: what splits should keep together."""
    suspected = (profile.columns[name] for name, _ in suspected_identifiers(profile))
    return next(
        (c.column.name for c in suspected if not is_real(c.column.datatype) and _names_repeats(c)),
        None,
    )


def _names_repeats(column: ColumnProfile) -> bool:
    """Say whether a column that is called an identifier has several rows a value, and not as many as codes have."""
    known, distinct = column.n - column.missing, column.distinct
    return (
        distinct.repeated >= FEW_REPEATS * column.n
        and column.missing < FEW_REPEATS * column.n
        and distinct.estimate > MOST_CODES
        and known <= MOST_REPEATS * distinct.estimate
    )


def _names_an_object(word: str) -> bool:
    return column_names().identifier.fits(word, word.replace("-", "_").split("_"))


def bookkeeping(profile: Profile, name: str) -> bool:
    """Say whether a column is about the observation: whole numbers of no unit, of instruments, fields and dates.

    Such columns tell how objects were selected, not what they are.
    """
    c = profile.columns[name]
    if is_text(c.column.datatype) or pt.is_boolean(c.column.datatype) or c.column.unit:
        return False
    if not isinstance(name, Element) and without_unit(name) != name.lower():
        return False
    if (c.column.ucd or "").lower().startswith(("phot.", "phys.", "src.")):
        return False
    values = profile.numbers(name)
    known = values[np.isfinite(values)]
    return bool(known.size and (known == np.trunc(known)).all())
