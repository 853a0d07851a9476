"""What a text file is, and how it lays out its columns: by a separator, by blanks or by places."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.types as pt

from catalogs.arrays import EXACT_INTEGER
from catalogs.errors import FormatError
from catalogs.files import COMPRESSED_SUFFIXES, first_bytes
from catalogs.text._records import (
    DELIMITERS,
    HEAD_BYTES,
    Dialect,
    commented_names,
    common_width,
    has_no_names,
    is_data,
    is_value,
    unnamed,
    words_of_line,
)

ECSV_MARK = b"# %ECSV"


# Whether a file is a text table, and which texts are not: pages, documents, letters of two bytes.

SNIFFED_ROWS = 5

FOREIGN = (b"<", b"{", b"[{")
"""How HTML, XML and JSON begin."""

WIDE_MARKS, WIDE_BYTES = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), 64
"""How UTF-16 and UTF-32 begin, or else every other of so many bytes is 0."""


def is_delimited_text(path: Path, head: bytes) -> bool:  # noqa: ARG001 -- compressed files are inflated first
    """Say whether a file is ECSV, or lines of two or more fields each."""
    if path.is_dir():
        return False
    text = first_bytes(path, HEAD_BYTES)
    if text.startswith(ECSV_MARK):
        return True
    if b"\0" in text or not text.strip() or text.lstrip().startswith(FOREIGN):
        return False
    return is_delimited(text)


def is_votable(path: Path) -> bool:
    """Say whether a file is XML with a VOTABLE element."""
    text = b"" if path.is_dir() else first_bytes(path, 4096)
    if text.startswith(WIDE_MARKS):
        text = text.decode("utf-16", "ignore").encode()
    xml = text.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith(b"<")
    return xml and re.search(rb"<(\w+:)?VOTABLE\b", text) is not None


def is_delimited(head: bytes) -> bool:
    """Say whether the first lines have two or more fields each, as many between marks of one kind.

    Below a comment of as many names between blanks as each line has words, some of them values, the marks are those
    within texts.
    """
    lines = head_lines(head)
    rows = [r.decode("latin-1") for r in lines if is_data(r)][:SNIFFED_ROWS]
    comments = [r.decode("latin-1") for r in takewhile(lambda line: not is_data(line), lines)]
    words = [words_of_line(row) for row in rows]
    if len({*map(len, words)}) == 1 and any(map(is_value, words[0])):
        _, names = commented_names(comments, len(words[0]), words_of_line) or (0, [])
        if len(names) > 1 and not any(d in name for name in names for d in DELIMITERS):
            return False
    return bool(rows) and max(common_width(rows, d) for d in DELIMITERS) > 1


def head_lines(head: bytes) -> list[bytes]:
    """Return the lines of the first bytes, without one that may be cut."""
    lines = head.splitlines(keepends=True)
    return lines[:-1] if len(head) == HEAD_BYTES else lines


def require_table(path: Path, head: bytes) -> None:
    """Raise a `FormatError` where text is of another kind, or its letters take two bytes or four, as spreadsheets'."""
    if head.lstrip().startswith(FOREIGN):
        raise FormatError(
            f"{path}: got HTML, XML or JSON, expected a line of names and rows below it; if it is a server's "
            "error message, fetch it again; if it is data, convert it: pandas.read_json(...).to_parquet(...)"
        )
    bare = len(head) > 1 and not (any(head[:WIDE_BYTES:2]) and any(head[1:WIDE_BYTES:2]))
    if bare or head.startswith(WIDE_MARKS):
        raise FormatError(
            f"{path}: got text in UTF-16 or UTF-32, expected UTF-8 or Latin-1; convert it: "
            f"iconv -f UTF-16 -t UTF-8 '{path.name}' > converted.csv"
        )


# The types of a text table's columns: inferred once, from all of its rows, and then fixed.  Whole numbers are int64,
# or uint64 where that is needed (identifiers never pass through float); numbers with a zero in front are text, for
# they are names; times are text, as they are written.

ZERO_IN_FRONT = "^[+-]?0[0-9]"
INTEGER = "^[+-]?[0-9]+$"
BLANKS = tuple(" " * n for n in range(65))
"""Fields of nothing, and of blanks only, as where a table is padded to be read by people."""


Kind = Literal["truth", "count", "integer", "large", "real", "text"]
"""What the values of a column can be said to be: counts are whole numbers in 63 bits, large ones need 64."""
COUNTS: set[Kind] = {"count", "integer", "large"}
HOLDING: Sequence[tuple[set[Kind], pa.DataType]] = (
    (set(), pa.null()),
    ({"truth"}, pa.bool_()),
    ({"count", "integer"}, pa.int64()),
    ({"count", "large"}, pa.uint64()),
    (COUNTS, pa.string()),
    ({*COUNTS, "real"}, pa.float64()),
)
"""The type of a column whose values are of some kinds: of the first that has them all; text where none has."""


def convert(
    data: bytes,
    dialect: Dialect,
    *,
    types: Mapping[str, pa.DataType] | None = None,
    missing: Sequence[str] = (),
    encoding: str = "utf8",
) -> pa.Table:
    """Return records as columns; an empty field, one of blanks, and the texts of `missing`, are null in numbers.

    Where there are `types`, only of these columns.
    """
    names, block_size = list(dialect.names), max(len(data), 1) + 1
    return pa_csv.read_csv(
        pa.BufferReader(data),
        pa_csv.ReadOptions(column_names=names, block_size=block_size, encoding=encoding),
        pa_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        pa_csv.ConvertOptions(
            column_types=types,
            include_columns=None if types is None else list(types),
            null_values=[*BLANKS, *missing],
            strings_can_be_null=False,
        ),
    )


def infer_types(
    blocks: Iterable[bytes], dialect: Dialect, missing: Sequence[str]
) -> tuple[dict[str, pa.DataType], int]:
    """Return the columns' types, and the number of rows."""
    names = dialect.names
    kinds: dict[str, set[Kind]] = {name: set() for name in names}
    rows = 0
    for data in blocks:
        table = convert(data, dialect, missing=missing)
        rows += table.num_rows
        doubtful = [n for n, c in zip(names, table.columns, strict=True) if may_be_whole(c)]
        if doubtful:
            texts = convert(data, dialect, types=dict.fromkeys(doubtful, pa.string()), missing=missing)
        for name, column in zip(names, table.columns, strict=True):
            if name in doubtful:
                kinds[name].add(whole(texts.column(name), column, missing))
            elif not pt.is_null(column.type):  # times are text, as they are written
                other: Kind = "truth" if pt.is_boolean(column.type) else "text"
                kinds[name].add("real" if pt.is_floating(column.type) else other)
    return {n: next((t for some, t in HOLDING if kinds[n] <= some), pa.string()) for n in names}, rows


def may_be_whole(column: pa.ChunkedArray) -> bool:
    """Say whether numbers are whole, or so large that float64 could have rounded them so."""
    if not pt.is_floating(column.type):
        return bool(pt.is_integer(column.type))
    low, high = pc.min_max(column).as_py().values()
    if low is None or -EXACT_INTEGER < low <= high < EXACT_INTEGER:  # as nearly all are
        return False
    largest = pc.max(pc.abs(column.filter(pc.is_finite(column)))).as_py()
    return largest is not None and largest >= EXACT_INTEGER


def whole(texts: pa.ChunkedArray, numbers: pa.ChunkedArray, missing: Sequence[str]) -> Kind:
    """Return the kind of numbers that may be whole, from how they are written."""
    gone = pc.is_in(texts, value_set=pa.array([*BLANKS, *missing]))
    written = pc.utf8_trim_whitespace(texts.filter(pc.invert(gone)))
    if pt.is_integer(numbers.type):
        if pc.any(pc.match_substring_regex(written, ZERO_IN_FRONT)).as_py():
            return "text"
        return "integer" if pc.min(numbers).as_py() < 0 else "count"
    if not pc.all(pc.match_substring_regex(written, INTEGER)).as_py():
        return "real"
    try:
        pc.cast(written, pa.uint64())
    except pa.ArrowInvalid:
        return "text"  # identifiers that no integer holds are names
    return "large"


# CDS and the Machine-Readable Tables of the AAS describe columns byte by byte, in the file or in a ReadMe beside it
# (https://vizier.unistra.fr/doc/catstd.htx); IPAC between bars, SExtractor in numbered comments; others in
# a line of names.

LayoutKind = Literal["cds", "ipac", "sextractor", "fixed_width_two_line", "blanks"]

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
SENTENCE = {"the", "of", "is", "are", "and", "from", "by", "with", "for", "this", "comment", "comments"}


def layout_of(path: Path) -> tuple[LayoutKind, Dialect] | None:
    """Return the layout of a file and, of blanks, its names; None where it is no such table.

    FormatError where nothing names its columns.
    """
    head = b"" if path.is_dir() else first_bytes(path, HEAD_BYTES)
    if b"\0" in head or not head.strip() or head.startswith(ECSV_MARK) or head.lstrip().startswith(FOREIGN):
        return None
    text = head.decode("utf-8", "replace").lstrip("\ufeff")
    lines = [line.decode("utf-8", "replace").lstrip("\ufeff") for line in head_lines(head)]
    rows = [line.rstrip() for line in lines if is_data(line.encode())]
    described = [match[1].strip() for match in DESCRIBED.finditer(text)]
    if described and is_readme(path):
        raise FormatError(
            f"{path} describes tables but holds no rows; open one of the tables instead: {', '.join(described)}"
        )
    kind: LayoutKind | None = "cds" if described or readme_of(path) is not None else None
    kind = kind or ("ipac" if IPAC.match(text) else "sextractor" if SEXTRACTOR.match(text) else None)
    if kind is None and is_delimited(head):
        return None
    if kind is None and len(rows) > 1 and RULER.fullmatch(rows[1].strip()):
        kind = "fixed_width_two_line"
    if kind is not None:
        return kind, Dialect(" ", (), -1)
    dialect = blank_separated(path, lines)
    return None if dialect is None else ("blanks", dialect)


def is_readme(path: Path) -> bool:
    """Say whether a file is named as the descriptions of tables are."""
    return path.name in READMES


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


def blank_separated(path: Path, lines: list[str]) -> Dialect | None:
    """Return the names of rows of as many words each, and their place; None where they are not of as many."""
    places = [i for i, line in enumerate(lines) if is_data(line.encode()) and line.strip()][:ROWS_LOOKED_AT]
    rows = [words_of_line(lines[i]) for i in places]
    if not rows or len(rows[0]) < FEWEST_MARKS:
        return None
    if any(len(row) != len(rows[-1]) for row in rows[1:]) or len(rows[0]) != len(rows[-1]):
        return None
    numbers = any(all(map(is_value, column)) for column in zip(*rows[1:], strict=True))
    if not (numbers or path.name.lower().endswith((*SUFFIXES, ".txt", ".csv"))):
        return None  # sentences
    if found := commented_names(lines[: places[0]], len(rows[0]), words_of_names):
        return Dialect(" ", tuple(found[1]), found[0])
    if has_no_names(rows):
        raise unnamed(path, lines[places[0]], len(rows[0]))
    return Dialect(" ", tuple(rows[0]), places[0])


def words_of_names(line: str) -> list[str]:
    """Return the words of a line, none of one that looks like a sentence."""
    words = words_of_line(line)
    prose = any(word.endswith(PROSE) or "'" in word or word.lower() in SENTENCE for word in words)
    return [] if prose else words
