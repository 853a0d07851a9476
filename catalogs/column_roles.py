"""The tables of `column_names.toml`, or of a team's own file: how the columns of each role are called.

Regular expressions do not look at case.  Of several that match, the first one counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "Bands",
    "Condition",
    "ErrorParts",
    "Expressions",
    "Filter",
    "Limits",
    "Naming",
    "Parts",
    "Positions",
    "Sentinels",
    "Table",
    "Votes",
    "Word",
    "WrittenTogether",
]


def _expression(text: str) -> str:
    try:
        matches_all = re.compile(text).fullmatch("") is not None
    except re.error as error:
        raise ValueError(
            f"expected a regular expression ({error}); write \\( for a literal bracket"
        ) from error
    if matches_all:
        raise ValueError("expected a regular expression that matches at least one character")
    return text


def _template(text: str) -> str:
    if text.count("{}") != 1:
        raise ValueError("expected one {} in the place of the magnitude's name")
    return text


def _filter_expression(text: str) -> str:
    if "number" not in re.compile(_expression(text)).groupindex:
        raise ValueError("expected a group (?P<number>\\d+) for the filter's wavelength")
    return text


Expression = Annotated[str, AfterValidator(_expression)]
Expressions = tuple[Expression, ...]
Word = Annotated[str, Field(min_length=1), AfterValidator(str.lower)]
Words = tuple[Word, ...]


def _either(expressions: Sequence[str]) -> str:
    """Return the regular expression that matches where one of several does, the first one first."""
    return "|".join(f"(?:{text})" for text in expressions) or r"(?!)"


def _compiled(expressions: Sequence[str]) -> re.Pattern[str]:
    return re.compile(_either(expressions), re.IGNORECASE)


class Table(BaseModel):
    """A table of the file: frozen, and without keys that nobody reads."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Naming(Table):
    """How columns of a role are called: whole names (`*`: any characters), words, or regular expressions."""

    names: Words = ()
    words: Expressions = ()
    whole: Expressions = ()
    inside: Expressions = ()

    @cached_property
    def _named(self) -> re.Pattern[str]:
        return _compiled([re.escape(name).replace(r"\*", ".*") for name in self.names])

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return _compiled(self.whole)

    @cached_property
    def _inside(self) -> re.Pattern[str]:
        return _compiled(self.inside)

    @cached_property
    def _words(self) -> re.Pattern[str]:
        return _compiled(self.words)

    def named(self, name: str) -> bool:
        """Say whether a name is among the whole names."""
        return self._named.fullmatch(name) is not None

    def fits(self, name: str, words: Sequence[str] = ()) -> bool:
        """Say whether a column of this name, which has these words, is called so."""
        if self.named(name) or self._whole.fullmatch(name) or self._inside.search(name):
            return True
        return any(self._words.fullmatch(word) for word in words)


class Condition(Table):
    """Words about an observation, and the range of the values that they may name."""

    words: Expressions
    low: float
    high: float

    @cached_property
    def _words(self) -> re.Pattern[str]:
        return _compiled(self.words)

    def fits(self, words: Sequence[str]) -> bool:
        """Say whether one of the words is of this condition."""
        return any(self._words.fullmatch(word) for word in words)


class Filter(Table):
    """A filter that is called by its wavelength: in hundredths of a micrometre, or in nanometres."""

    pattern: Annotated[str, AfterValidator(_filter_expression)]
    nanometres: tuple[int, ...] = ()
    nanometres_between: tuple[int, int] | None = None
    hundredths: tuple[int, ...] = ()

    def wavelength(self, band: str) -> float | None:
        """Return the wavelength of a band in micrometres; None of another kind of filter."""
        match = re.fullmatch(self.pattern, band, re.IGNORECASE)
        if match is None:
            return None
        number = int(match["number"])
        low, high = self.nanometres_between or (1, 0)
        within = low <= number <= high and number not in self.hundredths
        return number / (1000 if within or number in self.nanometres else 100)


class WrittenTogether(Table):
    """Bands written together with kinds of magnitude, everywhere or only alone and behind `mag` or `flux`."""

    bands: Expressions
    kinds: Expressions
    only_beside: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Groups `band` and `kind` of a word."""
        return re.compile(f"(?P<band>{_either(self.bands)})(?P<kind>{_either(self.kinds)})", re.IGNORECASE)


class Bands(Table):
    """How bands are called; wavelengths in micrometres."""

    wavelengths: dict[Word, Annotated[float, Field(gt=0)]] = {}
    filters: tuple[Filter, ...] = ()
    written_together: tuple[WrittenTogether, ...] = ()
    glued_before: Expressions = ()
    glued_after: Expressions = ()
    beside: Words = ()
    systems: Words = ()
    alone: Expressions = ()
    instruments: Expressions = ()
    kinds: Expressions = ()

    @cached_property
    def glued(self) -> re.Pattern[str]:
        """Words that are written together with a band's."""
        return re.compile(
            f"^(?:{_either(self.glued_before)})|(?:{_either(self.glued_after)})$", re.IGNORECASE
        )

    @cached_property
    def bare(self) -> re.Pattern[str]:
        """Bands that may be a whole name."""
        return _compiled(self.alone)

    @cached_property
    def instrument(self) -> re.Pattern[str]:
        """Words that say who measured a band."""
        return _compiled(self.instruments)

    @cached_property
    def kind(self) -> re.Pattern[str]:
        """Words that say which kind of magnitude it is."""
        return _compiled(self.kinds)

    def wavelength(self, band: str) -> float | None:
        """Return a band's wavelength in micrometres, None of what is called as no band."""
        if band in self.wavelengths:
            return self.wavelengths[band]
        return next((x for f in self.filters for x in [f.wavelength(band)] if x is not None), None)


class ErrorParts(Table):
    """How the name of an error comes of the name of what it is of."""

    removed: Expressions = ()
    first_words: Words = ()
    last_words: Words = ()
    templates: tuple[Annotated[str, AfterValidator(_template)], ...] = ()
    flux_words: Expressions = ()
    flux_endings: Expressions = ()

    @cached_property
    def removed_pattern(self) -> re.Pattern[str]:
        """Parts of words that say error."""
        return _compiled(self.removed)

    @cached_property
    def flux_word(self) -> re.Pattern[str]:
        """Words of a flux's error that say error."""
        return _compiled(self.flux_words)

    @cached_property
    def flux_ending(self) -> re.Pattern[str]:
        """Ends of a flux's error's words that say error."""
        return re.compile(f"(?:{_either(self.flux_endings)})$", re.IGNORECASE)


class Limits(Table):
    """Endings of columns that are an end of another column's interval."""

    endings: Expressions = ()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The group `of` is the other column's name."""
        return re.compile(rf"(?P<of>.+?)[_-]?(?:{_either(self.endings)})", re.IGNORECASE)


class Votes(Table):
    """Endings of columns of votes."""

    endings: Expressions = ()
    others: Words = ()
    counts: Expressions = ()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The groups `stem` and `kind` of a name in small letters."""
        return re.compile(f"(?P<stem>.+)_(?P<kind>{_either(self.endings)})", re.IGNORECASE)

    @cached_property
    def counted(self) -> re.Pattern[str]:
        """The end of a name of numbers of votes."""
        return re.compile(f"_(?:{_either(self.counts)})$", re.IGNORECASE)


class Parts(Table):
    """Parts of sexagesimal angles in columns each."""

    right_ascension: Expressions = ()
    declination: Expressions = ()
    hours: Expressions = ()
    sign: Expressions = ()
    degrees: Expressions = ()
    minutes: Expressions = ()
    seconds: Expressions = ()
    equinox: Expressions = ()

    @cached_property
    def of_right_ascension(self) -> re.Pattern[str]:
        """The names of the parts of a right ascension, a group each: `hours`, `minutes`, `seconds`."""
        return self._pattern(self.right_ascension, ("hours", "minutes", "seconds"))

    @cached_property
    def of_declination(self) -> re.Pattern[str]:
        """The names of the parts of a declination, a group each: `sign`, `degrees`, `minutes`, `seconds`."""
        return self._pattern(self.declination, ("sign", "degrees", "minutes", "seconds"))

    def _pattern(self, coordinate: Sequence[str], parts: Sequence[str]) -> re.Pattern[str]:
        each = "|".join(f"(?P<{part}>{_either(getattr(self, part))})" for part in parts)
        end = rf"(?:_?(?:{_either(self.equinox)}))?"
        return re.compile(rf"(?:{_either(coordinate)})_?(?:{each}){end}", re.IGNORECASE)


class Positions(Table):
    """How places and directions on the sky are called."""

    right_ascension: Words = ()
    declination: Words = ()
    not_by_word: Words = ()
    only_together: Words = ()
    beside: Expressions = ()
    glued_before: Expressions = ()
    others: Expressions = ()
    orientation: Expressions = ()
    vectors: Expressions = ()
    galactic: tuple[tuple[Word, Word], ...] = ()
    parts: Parts = Parts()

    @cached_property
    def coordinates(self) -> frozenset[str]:
        """Names of right ascensions and declinations."""
        return frozenset({*self.right_ascension, *self.declination})

    @cached_property
    def words(self) -> frozenset[str]:
        """Words that no name has that is about anything but a place."""
        return self.coordinates - {*self.not_by_word}

    @cached_property
    def qualifier(self) -> re.Pattern[str]:
        """Words beside a coordinate's."""
        return _compiled(self.beside)

    @cached_property
    def glued(self) -> re.Pattern[str]:
        """Words that are written together with a coordinate's."""
        return re.compile(f"(?:{_either(self.glued_before)})(?=(?:ra|dec)$)", re.IGNORECASE)

    @cached_property
    def other(self) -> re.Pattern[str]:
        """Names of other places, without anything but letters and digits."""
        return _compiled(self.others)

    @cached_property
    def direction(self) -> re.Pattern[str]:
        """Parts of names of directions."""
        return _compiled(self.orientation)

    @cached_property
    def vector(self) -> re.Pattern[str]:
        """Names of vectors of positions."""
        return _compiled(self.vectors)


class Sentinels(Table):
    """Values that stand for no value."""

    numbers: tuple[float, ...] = ()
    shifted: tuple[float, ...] = ()
    texts: Expressions = ()

    @cached_property
    def text(self) -> re.Pattern[str]:
        """Texts among numbers that stand for no value."""
        return _compiled(self.texts)
