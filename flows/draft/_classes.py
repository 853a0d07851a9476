"""The classes of a first specification: every label of five rows or more.

Where the column has ten different labels at most, those of two rows are classes too: so few are meant as classes.
The posterior shows how little is known of a class with few rows.  Spellings that differ in case only are one class,
but where the labels of the file show that case is meant, as in Hubble's 'Sbc' and 'SBc'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import NameClashError
from flows.labels.reader import LabelReader, is_doubtful

MOST_CLASSES = 40
"""Most classes of a first training: a column with more values hardly holds classes."""
FEWEST = 5
"""Rows of a class, where the labels have many spellings."""
FEW_DIFFERENT, FEWEST_OF_FEW = 10, 2
"""Different labels up to which all are meant as classes, and the rows of such a class: folds need two."""
MEANT_ROWS, MEANT_SHARE = 5, 0.05
"""Rows of each of two spellings, and share of the rarer in the more frequent, from which case may be meant."""
LONGEST_NAME = 64
"""Of a class: it is part of columns' names."""
MOSTLY_NUMBERS, FEWEST_OF_A_SIGN = 0.9, 3
"""Share of labels that are numbers, and different ones of either sign, from which they are in order and no codes."""
MOST_CODES = 40
MOST_NUMBERED = 8
"""Different numbers up to which labels are codes, in whatever order."""
FEWEST_BELOW = 0.1
"""Share of the rows on either side of a cut."""


@dataclass(frozen=True)
class StartingClass:
    """A class: its spellings in the column, the most frequent first, its rows, and those of each spelling.

    `but_for_case` are the names of classes whose spellings differ from its own in case only.
    """

    name: str
    spellings: tuple[str, ...]
    rows: int
    counts: tuple[int, ...] = ()
    but_for_case: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartingClasses:
    """The classes, and the labels that are in none: too few rows, one class too many, or doubtful."""

    kept: tuple[StartingClass, ...]
    dropped: Mapping[str, int]
    doubtful: Mapping[str, int]
    cut: float | None = None  # of numbers in order, which ranges below and from here on are made of

    def named(self, texts: NDArray[np.object_]) -> NDArray[np.object_]:
        """Return the class (n,) of each label, '' where it is in none."""
        names = np.array(["", *(c.name for c in self.kept)], dtype=object)
        reader = LabelReader.of_lists({c.name: c.spellings for c in self.kept})
        return np.asarray(names[reader.read(texts) + 1])

    @property
    def possible_counts(self) -> tuple[int, int] | None:
        """Least and greatest label, where all are whole numbers, none is negative, and they are many for codes."""
        texts = [*(text for c in self.kept for text in c.spellings), *self.dropped]
        numbers = [number for text in texts for number in [_number(text)] if number is not None]
        if self.cut is not None or len(texts) <= MOST_NUMBERED or len(numbers) < len(texts):
            return None
        whole = min(numbers) >= 0 and all(number.is_integer() for number in numbers)
        return (int(min(numbers)), int(max(numbers))) if whole else None

    def without(self, names: set[str]) -> StartingClasses:
        """Return these without some classes, which are dropped labels then."""
        gone = {c.spellings[0]: c.rows for c in self.kept if c.name in names}
        kept = tuple(c for c in self.kept if c.name not in names)
        return StartingClasses(kept, gone | dict(self.dropped), self.doubtful, self.cut)


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
    rest = Counter({text: n for text, n in known if text not in doubtful})
    return _kept(_spelt(rest), rest, doubtful, fewest_rows(counts))


def fewest_rows(counts: Mapping[str, int]) -> int:
    """Return how many rows a class has at least, where labels have these counts, '' being none."""
    return FEWEST_OF_FEW if sum(1 for text in counts if text) <= FEW_DIFFERENT else FEWEST


def _ordered(counts: Mapping[str, int], doubtful: Mapping[str, int]) -> StartingClasses | None:
    """Return two classes of labels that are numbers in order, T types or fractions of votes; None of other labels.

    Codes are whole numbers, not very many, and at most a few are negative; counts of votes are many.
    """
    numbers = {text: x for text in counts for x in [_number(text)] if x is not None}
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
    below = rows[values < short].sum() / rows.sum()
    return short if FEWEST_BELOW <= below <= 1 - FEWEST_BELOW else float(middle)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _spelt(counts: Counter[str]) -> list[list[str]]:
    """Return the labels with the spellings of one class together, the most frequent spelling first."""
    alike: dict[str, list[str]] = {}
    for text, _ in counts.most_common():
        alike.setdefault(text.casefold(), []).append(text)
    coded = [text for text in counts if _mixed(text) and counts[text] >= MEANT_ROWS]
    classes = []
    for first, *others in alike.values():
        apart, together = [first], [first]
        for text in others:
            enough = counts[text] >= max(MEANT_ROWS, MEANT_SHARE * counts[first])
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


def _kept(
    spelt: list[list[str]], counts: Mapping[str, int], doubtful: Mapping[str, int], fewest: int
) -> StartingClasses:
    """Return the classes of labels whose spellings are together, the most frequent first, of `fewest` rows or more."""
    kept: list[StartingClass] = []
    dropped: dict[str, int] = {}
    for spellings in sorted(spelt, key=lambda some: -sum(counts[text] for text in some)):
        rows = sum(counts[text] for text in spellings)
        name = _name(spellings[0], [c.name for c in kept])
        if rows >= fewest and len(kept) < MOST_CLASSES and name is not None:
            each = tuple(counts[text] for text in spellings)
            kept.append(StartingClass(name, tuple(spellings), rows, each))
        else:
            dropped |= {text: counts[text] for text in spellings}
    return StartingClasses(tuple(_paired(kept)), dropped, doubtful)


def _paired(classes: Sequence[StartingClass]) -> list[StartingClass]:
    """Return the classes, each with those whose spellings differ from its own in case only."""
    folded: dict[str, list[str]] = {}
    for c in classes:
        folded.setdefault(c.spellings[0].casefold(), []).append(c.name)
    alike = {c.name: folded[c.spellings[0].casefold()] for c in classes}
    return [replace(c, but_for_case=tuple(n for n in alike[c.name] if n != c.name)) for c in classes]


def can_name(text: str) -> bool:
    """Say whether a label can be a class's name as it is."""
    return len(text) <= LONGEST_NAME and text.isprintable()


def _name(text: str, taken: list[str]) -> str | None:
    """Return a name for the class of a label that can have a column beside the others'; or None."""
    for name in (text, *(f"{text} {i}" for i in range(2, 5))):
        if not can_name(name):
            return None
        try:
            standard_columns((*taken, name) if taken else (name, "any other"))
        except NameClashError:
            continue
        return name
    return None
