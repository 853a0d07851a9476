"""The names that surveys give to columns, by role: tables of names, from `column_names.toml` and a team's own file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from catalogs.errors import ColumnNamesError, brief

# The tables of `column_names.toml`, or of a team's own file: how the columns of each role are called.  Regular
# expressions do not look at case.  Of several that match, the first one counts.


def _expression(text: str) -> str:
    try:
        matches_all = re.compile(text).fullmatch("") is not None
    except re.error as error:
        raise ValueError(f"a regular expression ({error}); write \\( for a literal bracket") from error
    if matches_all:
        raise ValueError("a regular expression that matches at least one character")
    return text


def _filter_expression(text: str) -> str:
    if "number" not in re.compile(_expression(text)).groupindex:
        raise ValueError("a group (?P<number>\\d+) for the filter's wavelength")
    return text


Expression = Annotated[str, AfterValidator(_expression)]
Expressions = tuple[Expression, ...]
Word = Annotated[str, Field(min_length=1), AfterValidator(str.lower)]
Words = tuple[Word, ...]


def _either(expressions: Sequence[str]) -> str:
    """Return the regular expression that matches where one of several does, the first one first."""
    return "|".join(f"(?:{text})" for text in expressions) or r"(?!)"


def _pattern(form: str) -> cached_property[re.Pattern[str]]:
    """Return a property of a table: the pattern of that form, in which `{key}` stands for that key's expressions."""

    def compiled(table: Any) -> re.Pattern[str]:
        text = re.sub(r"\{(\w+)\}", lambda key: _either(getattr(table, key[1])), form)
        return re.compile(text, re.IGNORECASE)

    return cached_property(compiled)


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
        names = [re.escape(name).replace(r"\*", ".*") for name in self.names]
        return re.compile(_either(names), re.IGNORECASE)

    _whole = _pattern("{whole}")
    _inside = _pattern("{inside}")
    _words = _pattern("{words}")

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

    _words = _pattern("{words}")

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

    pattern = _pattern(r"(?P<band>{bands})(?P<kind>{kinds})")
    """Groups `band` and `kind` of a word."""


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

    glued = _pattern(r"^(?:{glued_before})|(?:{glued_after})$")
    """Words that are written together with a band's."""
    bare = _pattern("{alone}")
    """Bands that may be a whole name."""
    instrument = _pattern("{instruments}")
    """Words that say who measured a band."""
    kind = _pattern("{kinds}")
    """Words that say which kind of magnitude it is."""

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
    flux_words: Expressions = ()
    flux_endings: Expressions = ()

    removed_pattern = _pattern("{removed}")
    """Parts of words that say error."""
    flux_word = _pattern("{flux_words}")
    """Words of a flux's error that say error."""
    flux_ending = _pattern(r"(?:{flux_endings})$")
    """Ends of a flux's error's words that say error."""


class Limits(Table):
    """Endings of columns that are an end of another column's interval."""

    endings: Expressions = ()

    pattern = _pattern(r"(?P<of>.+?)[_-]?(?:{endings})")
    """The group `of` is the other column's name."""


class Votes(Table):
    """Endings of columns of votes."""

    endings: Expressions = ()
    others: Words = ()
    alone: Expressions = ()

    pattern = _pattern(r"(?P<stem>.+)_(?P<kind>{endings})")
    """The groups `stem` and `kind` of a name in small letters."""
    whole = _pattern(r"(?:.+_)?(?:{alone})")
    """The name in small letters of a column that is of votes whatever lies beside it."""


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

    of_right_ascension = _pattern(
        r"(?:{right_ascension})_?(?:(?P<hours>{hours})|(?P<minutes>{minutes})|(?P<seconds>{seconds}))(?:_?(?:{equinox}))?"
    )
    of_declination = _pattern(
        r"(?:{declination})_?(?:(?P<sign>{sign})|(?P<degrees>{degrees})|(?P<minutes>{minutes})|(?P<seconds>{seconds}))"
        r"(?:_?(?:{equinox}))?"
    )


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
    parts: Parts = Field(default_factory=Parts)

    @cached_property
    def coordinates(self) -> frozenset[str]:
        """Names of right ascensions and declinations."""
        return frozenset({*self.right_ascension, *self.declination})

    @cached_property
    def words(self) -> frozenset[str]:
        """Words that no name has that is about anything but a place."""
        return self.coordinates - {*self.not_by_word}

    qualifier = _pattern("{beside}")
    """Words beside a coordinate's."""
    glued = _pattern(r"(?:{glued_before})(?=(?:ra|dec)$)")
    """Words that are written together with a coordinate's."""
    other = _pattern("{others}")
    """Names of other places, without anything but letters and digits."""
    direction = _pattern("{orientation}")
    """Parts of names of directions."""
    vector = _pattern("{vectors}")
    """Names of vectors of positions."""


class Sentinels(Table):
    """Values that stand for no value."""

    numbers: tuple[float, ...] = ()
    shifted: tuple[float, ...] = ()
    texts: Expressions = ()

    text = _pattern("{texts}")
    """Texts among numbers that stand for no value."""


# The names that surveys give to columns, by role: what `blr inspect` and `blr init` recognise a column by.  The
# package's file, `column_names.toml`, is read once.  A team's names come before it (`with_names_of`), for a block of
# code (`using`): who asks calls `column_names()`.

OF_THE_PACKAGE = Path(__file__).with_suffix(".toml")
LARGEST_FILE = 1 << 20
"""Bytes of a file of names, at most."""


class ColumnNames(Table):
    """How the columns of each role are called; the roles are explained in `column_names.toml`."""

    flux: Naming = Field(default_factory=Naming)
    magnitude: Naming = Field(default_factory=Naming)
    bands: Bands = Field(default_factory=Bands)
    error: Naming = Field(default_factory=Naming)
    sure_error: Naming = Field(default_factory=Naming)
    position_error: Naming = Field(default_factory=Naming)
    error_parts: ErrorParts = Field(default_factory=ErrorParts)
    inverse_variance: Naming = Field(default_factory=Naming)
    limits: Limits = Field(default_factory=Limits)
    distance: Naming = Field(default_factory=Naming)
    dust: Naming = Field(default_factory=Naming)
    observation: Naming = Field(default_factory=Naming)
    dates: Naming = Field(default_factory=Naming)
    conditions: tuple[Condition, ...] = ()
    depth: Naming = Field(default_factory=Naming)
    exposures: Naming = Field(default_factory=Naming)
    signal_to_noise: Naming = Field(default_factory=Naming)
    flag: Naming = Field(default_factory=Naming)
    yes_or_no: Naming = Field(default_factory=Naming)
    code: Naming = Field(default_factory=Naming)
    bookkeeping: Naming = Field(default_factory=Naming)
    bookkeeping_alone: Naming = Field(default_factory=Naming)
    identifier: Naming = Field(default_factory=Naming)
    score: Naming = Field(default_factory=Naming)
    morphological_type: Naming = Field(default_factory=Naming)
    votes: Votes = Field(default_factory=Votes)
    positions: Positions = Field(default_factory=Positions)
    sentinels: Sentinels = Field(default_factory=Sentinels)


_in_use: ContextVar[ColumnNames | None] = ContextVar("column_names", default=None)


def column_names() -> ColumnNames:
    """Return the names in use: the package's, and those of the team that `using` brought in."""
    return _in_use.get() or _of_the_package()


@contextmanager
def using(names: ColumnNames) -> Iterator[None]:
    """Recognise columns by these names in the block."""
    token = _in_use.set(names)
    try:
        yield
    finally:
        _in_use.reset(token)


def with_names_of(path: Path) -> ColumnNames:
    """Return a team's names, read from a TOML file, before the package's; ColumnNamesError where it is not valid."""
    return _merged(read_column_names(path), _of_the_package())


def read_column_names(path: Path) -> ColumnNames:
    """Return the names in a TOML file; ColumnNamesError names the file, the key, and what was expected."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ColumnNamesError(
            f"{path}: got no file that can be read ({error.strerror}), expected names of columns in TOML; "
            "correct the path"
        ) from error
    if len(content) > LARGEST_FILE:
        raise ColumnNamesError(
            f"{path}: got more than {LARGEST_FILE:,} bytes, expected a short file of names"
        )
    try:
        tree = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ColumnNamesError(
            f"{path}: got text that is not TOML ({error}), expected tables such as [bands.wavelengths]; "
            "correct that line"
        ) from error
    try:
        return ColumnNames.model_validate(tree)
    except ValidationError as error:
        faults = [f"{path}: {_line(fault)}" for fault in error.errors(include_url=False)]
        raise ColumnNamesError("\n".join(faults)) from error


@cache
def _of_the_package() -> ColumnNames:
    return read_column_names(OF_THE_PACKAGE)


def _merged(first: Any, second: Any) -> Any:
    """Return two tables as one, the entries of the first one before those of the second."""
    if isinstance(first, Table):
        keys = type(first).model_fields
        return type(first).model_construct(
            **{k: _merged(getattr(first, k), getattr(second, k)) for k in keys}
        )
    if isinstance(first, dict):
        return first | {key: value for key, value in second.items() if key not in first}
    return (*first, *second)


def _line(fault: ErrorDetails) -> str:
    """Return the key, with places in lists counted from 0, what was got and what was expected."""
    key = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    if fault["type"] == "extra_forbidden":
        return f"{key}: got an unknown key, expected one of those in {OF_THE_PACKAGE}"
    expected = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    for word, of_toml in (("tuple", "list"), ("dictionary", "table"), ("Field required", "this key too")):
        expected = expected.replace(word, of_toml)
    return f"{key}: got {brief(repr(fault['input']))}, expected {expected}"
