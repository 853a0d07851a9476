"""Whether the first line of a text table holds names, or is an object like the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from catalogs.errors import FormatError, brief

__all__ = ["has_no_names", "is_value", "unnamed", "words_of_line"]

FEW = 0.2
"""Share of a line's words up to which names may look like numbers."""
WORD = re.compile(r'"(?:[^"]|"")*"|\S+')
VALUE = re.compile(
    r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?|[-+]?(?:nan|inf)"  # a number
    r"|[-+]?\d+:\d+(?::\d+(?:\.\d*)?)?",  # an angle or a time
    re.IGNORECASE,
)


def has_no_names(rows: Sequence[Sequence[str]]) -> bool:
    """Say whether the first of the rows is an object like the others.

    Names may be whole numbers, as wavelengths are, and one or two of many may look like any number (`1e5`, `nan`); then
    the other words of the line tell.
    """
    first, second = rows[0], rows[1] if len(rows) > 1 else []
    values = [word for word in first if is_value(word)]
    if not values:
        return False
    whole = all(re.fullmatch(r"\s*\d+\s*", word) for word in values)
    if len(values) == len(first) or not (whole or _few_above_numbers(first, second)):
        return True
    texts = [(a, b) for a, b in zip(first, second, strict=False) if a.strip() and not is_value(a)]
    return any(a == b or (re.search(r"\d", a) and pattern_of(a) == pattern_of(b)) for a, b in texts)


def _few_above_numbers(first: Sequence[str], second: Sequence[str]) -> bool:
    """Say whether hardly any word is a value, and more of the others stand above one: then they are names."""
    n = sum(map(is_value, first))
    pairs = zip(first, second, strict=False)
    names = sum(not is_value(a) and bool(a.strip()) and is_value(b) for a, b in pairs)
    return n <= FEW * len(first) and names > 2 * n


def pattern_of(word: str) -> str:
    """Return a word with its digits alike: 'NGC 224' and 'NGC 598' are of one pattern."""
    return re.sub(r"\d+", "0", word)


def is_value(word: str) -> bool:
    """Say whether a word is a number or an angle."""
    return VALUE.fullmatch(word.strip()) is not None


def words_of_line(line: str) -> list[str]:
    """Return the words between blanks, those in quotation marks as one and without these."""
    return [word[1:-1].replace('""', '"') if word[:1] == '"' else word for word in WORD.findall(line)]


def unnamed(path: Path, line: str, n: int, delimiter: str = " ") -> FormatError:
    """Return the error for a table whose first line is an object of `n` values."""
    example = delimiter.join(f"name{i}" for i in range(1, min(n, 3) + 1)) + (
        f"{delimiter}..." if n > 3 else ""
    )
    return FormatError(
        f"{path} has no line of column names: its first line holds values, '{brief(line.strip())}'; expected {n} "
        f"names above it; write a line such as '{example}' there (of a CDS table, put its ReadMe beside the file)"
    )
