"""The classes of a first specification: the labels that are frequent enough, and how the others could be grouped.

A label of a few rows makes a class that nothing can be said of, and a fit that cannot be trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from catalogs.annotations import standard_columns
from catalogs.errors import NameClashError
from flows.labels import LabelReader, is_doubtful

__all__ = ["StartingClass", "StartingClasses", "can_name", "starting_classes"]

MOST_CLASSES = 8
"""More of them are listed in a comment: a first training takes minutes with thirty."""
FEWEST, FEWEST_SHARE, ENOUGH = 30, 0.005, 100
"""A class has at least 30 rows, and half a percent of all, but 100 are always enough."""
FEWEST_AT_ALL = 5
"""Where no two classes have those."""
LONGEST_CODE = 3
"""Characters up to which case is meant, but for the first: 'Sa' and 'SA' are two types, 'Ell' and 'ell' one."""
LONGEST_NAME = 64
"""Of a class: it is part of columns' names."""
MOSTLY_NUMBERS, FEWEST_OF_A_SIGN = 0.9, 3
"""Share of labels that are numbers, and different ones of either sign, from which they are in order and no codes."""
MOST_CODES = 40
FEWEST_BELOW = 0.1
"""Share of the rows on either side of a cut."""
FEWEST_LABELS, MOST_GROUPS = 10, 6
"""From so many labels groups by their first letter are worth a thought, where there are no more of these."""


@dataclass(frozen=True)
class StartingClass:
    """A class: its spellings in the column, the most frequent first, and its rows."""

    name: str
    spellings: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class StartingClasses:
    """The classes, and the labels that are in none: too few rows, one class too many, or doubtful."""

    kept: tuple[StartingClass, ...]
    dropped: Mapping[str, int]
    doubtful: Mapping[str, int]
    cut: float | None = None  # of numbers in order, which ranges below and from here on are made of

    @property
    def reader(self) -> LabelReader:
        """What reads labels as these classes."""
        return LabelReader.of_lists({c.name: c.spellings for c in self.kept})

    def without(self, names: set[str]) -> StartingClasses:
        """Return these without some classes, which are dropped labels then."""
        gone = {text: c.rows for c in self.kept if c.name in names for text in c.spellings[:1]}
        kept = tuple(c for c in self.kept if c.name not in names)
        return StartingClasses(kept, gone | dict(self.dropped), self.doubtful, self.cut)

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return groups of all labels by their first letter; none where that makes too many, or too small ones."""
        counts = {text: c.rows for c in self.kept for text in c.spellings} | dict(self.dropped)
        if self.cut is not None:
            return {}
        found: dict[str, list[str]] = {}
        for text in counts:
            found.setdefault(text[0].upper(), []).append(text)
        small = [letter for letter, texts in found.items() if sum(counts[t] for t in texts) < FEWEST]
        if len(counts) < FEWEST_LABELS or not 2 <= len(found) <= MOST_GROUPS or small:
            return {}
        return {letter: tuple(texts) for letter, texts in found.items()}


def starting_classes(counts: Mapping[str, int]) -> StartingClasses:
    """Return the classes that labels with these counts make, '' being none."""
    known = [(text, n) for text, n in Counter(counts).most_common() if text]
    doubtful = {text: n for text, n in known if is_doubtful(text)}
    if "-1" in counts and all(text.isdecimal() for text, _ in known if text != "-1"):
        # Among codes that count from 0 or 1; of T types, which go down to -6, some other is negative too.
        doubtful["-1"] = counts["-1"]
    ordered = _ordered({text: n for text, n in known if text not in doubtful}, doubtful)
    if ordered is not None:
        return ordered
    total = sum(n for text, n in known if text not in doubtful)
    fewest = max(FEWEST, min(ENOUGH, FEWEST_SHARE * total))
    together: dict[str, list[tuple[str, int]]] = {}
    for text, n in known:
        if text not in doubtful:
            together.setdefault(_word(text), []).append((text, n))
    whole = _kept(together, doubtful, fewest)
    # A small set is better than none: what can be said of its classes, the posterior says.
    return whole if len(whole.kept) > 1 else _kept(together, doubtful, FEWEST_AT_ALL)


def _ordered(counts: Mapping[str, int], doubtful: Mapping[str, int]) -> StartingClasses | None:
    """Return two classes of labels that are numbers in order, T types or fractions of votes; None of other labels.

    Codes are whole numbers, not very many, and few or none of them are negative; counts of votes are many.
    """
    numbers = {text: x for text in counts for x in [_number(text)] if x is not None}
    values = np.array([*numbers.values()])
    rows = np.array([counts[text] for text in numbers])
    if rows.sum() < MOSTLY_NUMBERS * sum(counts.values()) or len(set(numbers.values())) <= MOST_CLASSES:
        return None
    signs = min(len({x for x in numbers.values() if x < 0}), len({x for x in numbers.values() if x > 0}))
    codes = signs < FEWEST_OF_A_SIGN and len(values) <= MOST_CODES
    if codes and (values == np.trunc(values)).all():
        return None
    cut = _cut(values, rows)
    below = int(rows[values < cut].sum())
    shown = f"{cut:.0f}" if cut.is_integer() else repr(cut)
    dropped = {text: n for text, n in counts.items() if text not in numbers}
    kept = (
        StartingClass(f"below_{shown}", (f"..{shown}",), below),
        StartingClass(f"from_{shown}", (f"{shown}..",), int(rows.sum()) - below),
    )
    return StartingClasses(kept, dropped, doubtful, cut)


def _cut(values: NDArray[np.float64], rows: NDArray[np.int_]) -> float:
    """Return where numbers, of so many rows each, are cut in two: 0 of T types, a half of shares, else the median."""
    whole = next((w for w in (1.0, 100.0) if 0.9 * w < values.max() <= w), None)
    usual = 0.0 if values.min() < 0 or whole is None else 0.5 * whole
    below = rows[values < usual].sum() / rows.sum()
    if FEWEST_BELOW <= below <= 1 - FEWEST_BELOW:
        return usual
    order = np.argsort(values)
    middle = values[order][np.searchsorted(np.cumsum(rows[order]), rows.sum() / 2, side="right")]
    short = float(f"{middle:.3g}")
    return (
        short
        if FEWEST_BELOW <= rows[values < short].sum() / rows.sum() <= 1 - FEWEST_BELOW
        else float(middle)
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _kept(
    together: Mapping[str, list[tuple[str, int]]], doubtful: Mapping[str, int], fewest: float
) -> StartingClasses:
    """Return the classes of at least so many rows, the most frequent first."""
    kept: list[StartingClass] = []
    dropped: dict[str, int] = {}
    for spellings in sorted(together.values(), key=lambda some: -sum(n for _, n in some)):
        rows = sum(n for _, n in spellings)
        name = _name(spellings[0][0], [c.name for c in kept])
        if rows >= fewest and len(kept) < MOST_CLASSES and name is not None:
            kept.append(StartingClass(name, tuple(text for text, _ in spellings), rows))
        else:
            dropped |= dict(spellings)
    return StartingClasses(tuple(kept), dropped, doubtful)


def _word(text: str) -> str:
    """Return what spellings of one word share: 'Galaxy' and 'GALAXY'; types such as 'Sbc' and 'SBc' are two."""
    spelt = text in {text.lower(), text.upper(), text.capitalize(), text.title()}
    if spelt and len(text) > LONGEST_CODE:
        return text.casefold()
    return text[:1].upper() + text[1:] if len(text) > 1 else text


def can_name(text: str) -> bool:
    """Say whether a label can be a class's name as it is."""
    return len(text) <= LONGEST_NAME and text.isprintable()


def _name(text: str, taken: list[str]) -> str | None:
    """Return a name for the class of a label that can have a column beside the others'; None where there is none."""
    for name in (text, *(f"{text} {i}" for i in range(2, 5))):
        if not can_name(name):
            return None
        try:
            standard_columns((*taken, name) if taken else (name, "any other"))
        except NameClashError:
            continue
        return name
    return None
