"""How a text table is laid out whose columns are separated by blanks or by their places: from its first lines.

CDS and the Machine-Readable Tables of the AAS describe columns byte by byte, in the file or in a ReadMe beside it
(https://vizier.unistra.fr/doc/catstd.htx); IPAC between bars, SExtractor in numbered comments; others in
a line of names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from catalogs.errors import FormatError
from catalogs.files.compressed import COMPRESSED_SUFFIXES, first_bytes
from catalogs.text._records import has_no_names, is_data, is_value, unnamed, words_of_line
from catalogs.text._sniff import FOREIGN, HEAD_BYTES, head_lines, is_delimited
from catalogs.text.ecsv import ECSV_MARK

__all__ = ["ASCII", "SUFFIXES", "Layout", "is_readme", "layout_of"]

Kind = Literal["cds", "ipac", "sextractor", "fixed_width_two_line", "blanks"]

ASCII = "ascii"
SUFFIXES = tuple(s + c for s in (".dat", ".tab", ".tbl", ".mrt", ".cat") for c in COMPRESSED_SUFFIXES)
ROWS_LOOKED_AT = 50
FEWEST_MARKS = 2

DESCRIBED = re.compile(r"^\s*byte-by-byte description of file\s*:?\s*(.*)$", re.IGNORECASE | re.MULTILINE)
READMES = tuple(name + end for name in ("ReadMe", "README", "readme", "Readme") for end in ("", ".txt"))
BARS = r"[ \t]*\|[^\n]*\|[ \t]*\r?\n"
TYPE = r"[ \t-]*(?:i(?:nt)?|l(?:ong)?|d(?:ouble)?|f(?:loat)?|r(?:eal)?|c(?:har)?|t|date)?[ \t-]*"
TYPES = rf"[ \t]*\|(?:{TYPE}\|)+[ \t]*(?:\r?\n|$)"
IPAC = re.compile(rf"(?:\\[^\n]*\n)*{BARS}(?:{TYPES}|(?=[ \t]*[^|\s]))", re.IGNORECASE)
SEXTRACTOR = re.compile(r"#[ \t]*1[ \t]+[A-Za-z]\w*[^\n]*\n(?:#[^\n]*\n)*")
RULER = re.compile(r"[-=]+(?:[ \t]+[-=]+)+[ \t]*")
PROSE = (".", ",", ":", ";")
"""Ends of words in sentences, not of names."""
SENTENCE = frozenset(
    {"the", "of", "is", "are", "and", "from", "by", "with", "for", "this", "comment", "comments"}
)


@dataclass(frozen=True)
class Layout:
    """A layout: CDS with the `readme` that describes the file, blanks with the `names` and the line that has them."""

    kind: Kind
    readme: Path | None = None
    names: tuple[str, ...] = ()
    header: int = -1


def layout_of(path: Path) -> Layout | None:
    """Return the layout of a file, None where it is no such table; FormatError where nothing names its columns."""
    head = b"" if path.is_dir() else first_bytes(path, HEAD_BYTES)
    if b"\0" in head or not head.strip() or head.startswith(ECSV_MARK) or head.lstrip().startswith(FOREIGN):
        return None
    text = head.decode("utf-8", "replace").lstrip("\ufeff")
    layout = described(path, text) or marked(text)
    if layout is not None or is_delimited(head):
        return layout
    lines = [line.decode("utf-8", "replace").lstrip("\ufeff") for line in head_lines(head)]
    return ruled(lines) or blank_separated(path, lines)


def is_readme(path: Path) -> bool:
    """Say whether a file is named as the descriptions of tables are."""
    return path.name in READMES


def described(path: Path, text: str) -> Layout | None:
    """Return the layout of a table that is described byte by byte; FormatError of a ReadMe, which has no rows."""
    if DESCRIBED.search(text) is None:
        readme = readme_of(path)
        return None if readme is None else Layout("cds", readme)
    if is_readme(path):
        names = ", ".join(match[1].strip() for match in DESCRIBED.finditer(text))
        raise FormatError(
            f"{path} describes tables but holds no rows; open one of the tables instead: {names}"
        )
    return Layout("cds")


def marked(text: str) -> Layout | None:
    """Return the layout of a table of IPAC's or SExtractor's."""
    kinds: dict[Kind, re.Pattern[str]] = {"ipac": IPAC, "sextractor": SEXTRACTOR}
    return next((Layout(kind) for kind, pattern in kinds.items() if pattern.match(text)), None)


def readme_of(path: Path) -> Path | None:
    """Return the ReadMe beside a file that describes it byte by byte."""
    name = re.sub(r"\.(gz|bz2)$", "", path.name)
    for beside in (path.absolute().parent / other for other in READMES):
        text = first_bytes(beside, HEAD_BYTES).decode("utf-8", "replace")
        patterns = [
            word for match in DESCRIBED.finditer(text) for word in re.split(r"[, ]+", match[1].strip())
        ]
        if beside.name != path.name and any(fnmatch(name, pattern) for pattern in patterns if pattern):
            return beside
    return None


def ruled(lines: list[str]) -> Layout | None:
    """Return the layout of a table whose second line underlines the columns."""
    rows = [line.rstrip() for line in lines if is_data(line.encode())]
    return Layout("fixed_width_two_line") if len(rows) > 1 and RULER.fullmatch(rows[1].strip()) else None


def blank_separated(path: Path, lines: list[str]) -> Layout | None:
    """Return the layout of rows of as many words each, with their names; None where they are not of as many."""
    places = [i for i, line in enumerate(lines) if is_data(line.encode()) and line.strip()][:ROWS_LOOKED_AT]
    rows = [words_of_line(lines[i]) for i in places]
    if not rows or len(rows[0]) < FEWEST_MARKS:
        return None
    if any(len(row) != len(rows[-1]) for row in rows[1:]) or len(rows[0]) != len(rows[-1]):
        return None
    numbers = any(all(map(is_value, column)) for column in zip(*rows[1:], strict=True))
    if not (numbers or path.name.lower().endswith((*SUFFIXES, ".txt", ".csv"))):
        return None  # sentences
    names_line = commented_names(lines[: places[0]], len(rows[0]))
    if names_line is not None:
        return Layout("blanks", names=names_line[1], header=names_line[0])
    if has_no_names(rows):
        raise unnamed(path, lines[places[0]], len(rows[0]))
    return Layout("blanks", names=tuple(rows[0]), header=places[0])


def commented_names(comments: list[str], n: int) -> tuple[int, tuple[str, ...]] | None:
    """Return the last comment above the rows that is `n` different names, and its place; None without any."""
    candidates = []
    for i, comment in enumerate(comments):
        words = words_of_line(comment.lstrip("# \t"))
        plain = not any(is_value(word) or word.endswith(PROSE) or "'" in word for word in words)
        if comment.startswith("#") and len(words) == n == len(set(words)) and plain:
            candidates.append((not SENTENCE & {word.lower() for word in words}, i, tuple(words)))
    return max(candidates)[1:] if candidates else None
