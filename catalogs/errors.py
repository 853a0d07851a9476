"""What can be wrong with a catalogue, by what the caller can do about it.

Every message says what was got, what was expected and what to do.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable

LONGEST_SHOWN = 60
"""Characters of a catalogue's text that a message shows, so that its end, which says what to do, stays visible."""

BANDS = frozenset("fnubgvrizyjhkw0123456789")
"""Characters that name a band: GALEX, Johnson, SDSS, 2MASS, and the numbers of WISE and of apertures."""
NEARLY = 0.85
"""Likeness of two names, from 0 to 1, above which one is the other misspelt, as `bmg` is `bmag`."""
LONGEST_OF_BAND = 9
"""Letters of the longest word in names that differ by a band, such as `modelmagg`."""


class CatalogError(Exception):
    """An error in a catalogue, or in how it was asked for, that the user can correct.

    Examples
    --------
    >>> catalogs.open("nothing.fits")
    Traceback (most recent call last):
        ...
    catalogs.errors.CatalogError: ...
    """


class FormatError(CatalogError):
    """The file is not a catalogue, or not of a kind that can be read."""


class DamagedFileError(FormatError):
    """The file says one thing of itself and holds another: cut, overwritten, or never finished."""


class ColumnNotFoundError(CatalogError):
    """No column of that name; the message names the nearest."""


class ColumnNamesError(CatalogError):
    """A file of columns' names that cannot be read, or says what no such file says."""


class ExpressionError(CatalogError):
    """A feature expression that is malformed or not allowed."""


class NameClashError(CatalogError):
    """A new column would take the name of an old one, or two new ones are the same."""


class OutputExistsError(CatalogError):
    """The output is there already, and made from something else."""


def brief(text: str) -> str:
    """Return a text of a catalogue as a message shows it: its beginning, where it is long."""
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless there is one."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('s') else 's'}"


def nearest(name: str, known: Iterable[str], *, others: Container[str] = ()) -> str:
    """Return a clause that names the nearest of the `known` names, or the first few of them.

    Those among `others` mean something else, unless they are spelt nearly alike.  So does a name with the letter or
    the number of another band: `rmag` is no other spelling of `gmag`.
    """
    names, word = sorted(known), name.lower()
    close = difflib.get_close_matches(word, [k.lower() for k in names], n=len(names) or 1, cutoff=0.5)
    for k in (k for c in close for k in names if k.lower() == c and not _of_another_band(name, k)):
        if k not in others or difflib.SequenceMatcher(None, word, k.lower()).ratio() > NEARLY:
            return f"did you mean '{brief(k)}'?"
    shown = ", ".join(map(brief, names[:8])) + (", ..." if len(names) > 8 else "")
    return f"known are: {shown or 'none'}"


def require_columns(where: object, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise ColumnNotFoundError for the first of the wanted names that is not known."""
    for name in wanted:
        if name not in known:
            raise ColumnNotFoundError(f"{where} has no column '{name}'; {nearest(name, known)}")


def require_once(where: object, names: Iterable[str], wanted: Container[str] | None = None) -> None:
    """Raise FormatError where several columns have one name: any, or one of those wanted."""
    several = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice := [name for name in several if wanted is None or name in wanted]:
        raise FormatError(f"{where} has several columns called {twice}; expected each name once: rename them")


def _of_another_band(name: str, other: str) -> bool:
    """Say whether two names differ in one character alone, wherever it stands, and both have a band's there.

    Long words are not named after bands: one that differs in a letter is misspelt.
    """
    if max(map(len, re.findall(r"[a-z]+", f"{name} {other}".lower())), default=0) > LONGEST_OF_BAND:
        return False
    pairs = [*zip(name.lower(), other.lower(), strict=False)]
    if len(name) == len(other) and any(
        a != b and before.isalpha() and after.isalpha()
        for (before, _), (a, b), (after, _) in zip(pairs, pairs[1:], pairs[2:], strict=False)
    ):
        return False  # within a word: `tarket` is `target` misspelt
    mine, theirs = (Counter(filter(str.isalnum, text.lower())) for text in (name, other))
    differing = "".join([*(mine - theirs).elements(), *(theirs - mine).elements()])
    return len(differing) == 2 and mine.total() == theirs.total() and BANDS.issuperset(differing)
