"""The names that surveys give to columns, by role: what `blr inspect` and `blr init` recognise a column by.

The package's file, `column_names.toml`, is read once.  A team's names come before it (`with_names_of`), for a block of
code (`using`): who asks calls `column_names()`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import Field, ValidationError

from catalogs.column_roles import (
    Bands,
    Condition,
    ErrorParts,
    Expressions,
    Limits,
    Naming,
    Positions,
    Sentinels,
    Table,
    Votes,
    Word,
)
from catalogs.errors import ColumnNamesError, brief, nearest

__all__ = ["ColumnNames", "column_names", "read_column_names", "using", "with_names_of"]

OF_THE_PACKAGE = Path(__file__).with_suffix(".toml")
LARGEST_FILE = 1 << 20
"""Bytes of a file of names, at most."""
EXPECTED = {
    "tuple_type": "a list in [ ]",
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "float_type": "a number",
    "float_parsing": "a number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "a table of keys",
    "dict_type": "a table of keys",
}
"""What pydantic's kinds of errors expect, in words of TOML."""


class ColumnNames(Table):
    """How the columns of each role are called; the roles are explained in `column_names.toml`."""

    flux: Naming = Naming()
    magnitude: Naming = Naming()
    bands: Bands = Bands()
    lines: dict[Word, Expressions] = Field(default_factory=dict)
    error: Naming = Naming()
    sure_error: Naming = Naming()
    position_error: Naming = Naming()
    error_parts: ErrorParts = ErrorParts()
    inverse_variance: Naming = Naming()
    limits: Limits = Limits()
    distance: Naming = Naming()
    dust: Naming = Naming()
    transmission: Naming = Naming()
    observation: Naming = Naming()
    dates: Naming = Naming()
    conditions: tuple[Condition, ...] = ()
    depth: Naming = Naming()
    exposures: Naming = Naming()
    signal_to_noise: Naming = Naming()
    flag: Naming = Naming()
    yes_or_no: Naming = Naming()
    code: Naming = Naming()
    bookkeeping: Naming = Naming()
    bookkeeping_alone: Naming = Naming()
    identifier: Naming = Naming()
    score: Naming = Naming()
    morphological_type: Naming = Naming()
    votes: Votes = Votes()
    positions: Positions = Positions()
    sentinels: Sentinels = Sentinels()


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
            f"{path}: got more than {LARGEST_FILE:,} bytes, expected a short TOML file of names"
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
        raise ColumnNamesError("\n".join(f"{path}: {line}" for line in _lines(error))) from error


@cache
def _of_the_package() -> ColumnNames:
    return read_column_names(OF_THE_PACKAGE)


def _merged(first: Any, second: Any) -> Any:
    """Return two tables as one, the entries of the first one before those of the second."""
    if isinstance(first, Table):
        keys = type(first).model_fields
        return type(first).model_construct(
            **{key: _merged(getattr(first, key), getattr(second, key)) for key in keys}
        )
    if isinstance(first, dict):
        return first | {key: value for key, value in second.items() if key not in first}
    return (*first, *second)


def _lines(error: ValidationError) -> Iterator[str]:
    """Yield a line for each fault: the key, what was got and what was expected."""
    for fault in error.errors(include_url=False):
        place = fault["loc"]
        key, got = _key(place), brief(repr(fault["input"]))
        if fault["type"] == "extra_forbidden":
            known = _known(place[:-1])
            yield f"{key}: got an unknown key, expected one of {', '.join(known)}; {nearest(str(place[-1]), known)}"
        elif fault["type"] == "missing":
            yield f"{key}: this key is missing; add it"
        elif "ctx" in fault and "error" in fault["ctx"]:
            yield f"{key}: got {got}, {fault['ctx']['error']}"
        else:
            message = fault["msg"].removeprefix("Input should be ")
            yield f"{key}: got {got}, expected {EXPECTED.get(fault['type'], message)}"


def _key(place: Sequence[int | str]) -> str:
    """Return a key as TOML has it, with the place in a list counted from 1: `flux.words, entry 2`."""
    named = ".".join(str(part) for part in place if isinstance(part, str) and part != "[key]")
    counted = [f", entry {part + 1}" for part in place if isinstance(part, int)]
    return named + "".join(counted)


def _known(place: Sequence[int | str]) -> list[str]:
    """Return the keys of the table at a place of the file."""
    table: type[Table] = ColumnNames
    for part in place:
        if isinstance(part, str):
            kind = table.model_fields[part].annotation
            table = get_args(kind)[0] if get_origin(kind) is tuple else kind  # type: ignore[assignment]
    return list(table.model_fields)
