"""What can be wrong with a catalogue, by what the caller can do about it.

Every message says what was got, what was expected and what to do.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Container, Iterable

LONGEST_SHOWN = 60
"""Characters of a catalogue's text that a message shows, so that its end, which says what to do, stays visible."""


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


def printable(text: str) -> str:
    """Return the text on one line, without control characters: they steer terminals."""
    return "".join(c if c.isprintable() else " " for c in text)


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless there is one."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('s') else 's'}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a clause that names the nearest of the `known` names, or the first few of them."""
    names = {k.lower(): k for k in sorted(known, reverse=True)}
    if close := difflib.get_close_matches(name.lower(), names, n=1):
        return f"did you mean '{brief(names[close[0]])}'?"
    shown = ", ".join(map(brief, sorted(names.values())[:8])) + (", ..." if len(names) > 8 else "")
    return f"known are: {shown or 'none'}"


def require_columns(where: object, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise ColumnNotFoundError for the first of the wanted names that is not known."""
    for name in wanted:
        if name not in known:
            raise ColumnNotFoundError(f"{where} has no column '{name}'; {nearest(name, known)}")


def require_alone(where: object, table: str | int | None) -> None:
    """Raise FormatError where one of several tables is asked for in a file that holds one."""
    if table is not None:
        raise FormatError(
            f"got table={table!r} for {where}, but Parquet and text files hold one table; leave it out"
        )


def require_once(where: object, names: Iterable[str], wanted: Container[str] | None = None) -> None:
    """Raise FormatError where several columns have one name: any, or one of those wanted."""
    several = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice := [name for name in several if wanted is None or name in wanted]:
        raise FormatError(f"{where} has several columns called {twice}; expected each name once: rename them")
