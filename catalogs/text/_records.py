"""Text tables as lines: where records begin and end, and how a file is written (its dialect).

A record is a line, or several where a quoted field holds line ends.  Lines keep their ends, so that a copy
is the same to the byte; LF, CR LF and CR alone all occur.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from catalogs.errors import DamagedFileError, FormatError, brief
from catalogs.text._names import has_no_names, is_value, unnamed, words_of_line

__all__ = [
    "COMMENT",
    "DELIMITERS",
    "HEAD_BYTES",
    "Block",
    "Dialect",
    "blocks",
    "common_width",
    "fields",
    "find_dialect",
    "is_data",
]

COMMENT = b"#"
DELIMITERS = ",;\t|"
BLOCK_BYTES = 1 << 23
LONGEST_RECORD = 1 << 24
"""Bytes within which an opened quotation has to close."""

HEAD_BYTES = 1 << 18
"""Bytes within which header, comments and some rows are expected."""

HEAD_RECORDS = 50
"""Records beyond the comments that tell the dialect."""

csv.field_size_limit(
    max(csv.field_size_limit(), LONGEST_RECORD)
)  # of the first lines; 131,072 characters are a usual polygon

BYTE_ORDER_MARK = "\ufeff"

NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|\s*[-+]?(nan|inf)\s*|\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """How a text table is written; `header` is the number of the record that holds the names."""

    delimiter: str
    names: tuple[str, ...]
    header: int

    @cached_property
    def opening(self) -> re.Pattern[bytes]:
        """Matches a quotation mark that opens a field."""
        return re.compile(rb"(?:\A|" + re.escape(self.delimiter.encode()) + rb')"')

    @cached_property
    def field(self) -> re.Pattern[bytes]:
        """Matches a field as it is written, quotation marks included."""
        mark = re.escape(self.delimiter.encode())
        return re.compile(rb'((?:"(?:[^"]|"")*+")?[^' + mark + rb"]*+)(?:" + mark + rb"|\Z)", re.DOTALL)

    def raw_fields(self, body: bytes) -> list[bytes]:
        """Return the fields of a record as they are written."""
        if b'"' not in body:
            return body.split(self.delimiter.encode())
        matches = self.field.findall(body)
        # At the end of a field that ends the record, an empty one matches once more.
        return matches if body.endswith(self.delimiter.encode()) else matches[:-1]


QUOTED = re.compile(rb'(?:[^"]|"")*+"')
NOT_PLAIN = (b'"', b"\n#", b"\r#", b"\n\n", b"\n\r", b"\r\r")
"""In none of these bytes, nor with a comment or an empty line at the beginning, every line is a row."""


@dataclass(frozen=True)
class Block:
    """Whole records, some thousands, comments and empty lines included: `records` where these are not the lines."""

    data: bytes
    quoted: list[bytes] | None = None

    @property
    def records(self) -> list[bytes]:
        """The records, with their ends."""
        return self.data.splitlines(keepends=True) if self.quoted is None else self.quoted

    @cached_property
    def plain(self) -> bool:
        """Whether every line is a row, and no field quoted: most blocks of most tables, and quick to go through."""
        if self.quoted is not None or self.data.startswith((COMMENT, b"\n", b"\r")):
            return False
        # Searching for one byte is much faster than for two.
        return not any(mark in self.data for mark in NOT_PLAIN if mark[-1:] in self.data)

    @property
    def end(self) -> bytes | None:
        """What all lines end with; None where they differ."""
        feeds, returns = self.data.count(b"\n"), self.data.count(b"\r")
        if not (feeds and returns):
            return b"\r" if returns else b"\n"
        return b"\r\n" if feeds == returns == self.data.count(b"\r\n") else None


def whole_lines(stream: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield a stream, cut behind the ends of lines; DamagedFileError where a line does not end."""
    rest, before_rest = b"", 0
    while block := stream.read(BLOCK_BYTES):
        block = rest + block
        # The last line may continue in the next block, if only with the LF of a CR LF.
        before = len(block) - (2 if block.endswith(b"\r\n") else 1)
        cut = 1 + max(block.rfind(b"\n", 0, before), block.rfind(b"\r", 0, before))
        rest = block[cut:]
        before_rest += cut
        if cut:
            yield block[:cut]
        if len(rest) > LONGEST_RECORD:
            raise endless(path, rest, f"the line that begins at byte {before_rest:,}")
    if rest:
        yield rest


def blocks(stream: IO[bytes], dialect: Dialect, path: Path) -> Iterator[Block]:
    """Yield the records of a stream; DamagedFileError where a quotation is never closed."""
    pending: list[bytes] = []
    size = 0
    for data in whole_lines(stream, path):
        if not pending and b'"' not in data:
            yield Block(data)
            continue
        records = []
        for line in data.splitlines(keepends=True):
            # Quotation marks in a comment, `# delimiter: ","`, open nothing.
            comment = not pending and line.startswith(COMMENT)
            inside = not comment and is_open(line, dialect, inside=bool(pending))
            pending.append(line)
            size += len(line)
            if not inside:
                records.append(b"".join(pending))
                pending, size = [], 0
            elif size > LONGEST_RECORD:
                raise unclosed(path, pending[0])
        yield Block(b"".join(records), records)
    if pending:
        raise unclosed(path, pending[0])


def is_open(line: bytes, dialect: Dialect, *, inside: bool) -> bool:
    """Say whether a quotation is open at the end of a line, which begins inside of one or with a record."""
    at = 0
    while True:
        if not inside:
            opened = dialect.opening.search(line, at)
            if opened is None:
                return False
            at = opened.end()
        closed = QUOTED.match(line, at)
        if closed is None:
            return True
        inside, at = False, closed.end()


def endless(path: Path, record: bytes, what: str) -> DamagedFileError:
    """Return the error for a line that is longer than any record."""
    shown = record[:60].decode("utf-8", "replace").strip()
    return DamagedFileError(
        f"{path}: {what}, '{shown}', has more than {LONGEST_RECORD >> 20} MB, expected a line end before, and a "
        "closing quotation mark where one is open; correct that line, or fetch the file again"
    )


def unclosed(path: Path, record: bytes) -> DamagedFileError:
    """Return the error for a quotation that never ends."""
    shown = record[:60].decode("utf-8", "replace").strip()
    return DamagedFileError(
        f"{path}: a quotation in the record that begins '{shown}' is never closed; "
        'expected a closing " before a delimiter or line end: correct that line, or fetch the file again'
    )


def is_data(record: bytes) -> bool:
    """Say whether a record is neither a comment nor empty."""
    return not record.startswith(COMMENT) and bool(record.strip(b"\r\n"))


def fields(record: str, delimiter: str) -> list[str]:
    """Return the fields of a record."""
    return next(csv.reader([record.rstrip("\r\n")], delimiter=delimiter, strict=False), [])


def find_dialect(head: Iterable[bytes], path: Path, encoding: str) -> Dialect:
    """Return the dialect of the first records: delimiter, and where the names stand."""
    texts = [r.decode(encoding, "replace") for r in head]
    rows = [i for i, r in enumerate(texts) if is_data(head_bytes(r))][:HEAD_RECORDS]
    if not texts and path.stat().st_size:
        raise FormatError(
            f"{path} begins with a line of more than {HEAD_BYTES >> 10} kB, expected a shorter line of column names, "
            "then rows; write a table of so many columns as Parquet"
        )
    if not rows:
        raise FormatError(f"{path} holds no line of data; expected a line of column names, then rows")
    delimiter = max(
        DELIMITERS, key=lambda d: (common_width([texts[i] for i in rows], d), -DELIMITERS.index(d))
    )
    if len(rows) > 1 and common_width([texts[i] for i in rows], delimiter) == 1:
        require_described([texts[i] for i in rows], path)
    header, first = rows[0], fields(texts[rows[0]].lstrip(BYTE_ORDER_MARK), delimiter)
    if any(NUMBER.fullmatch(f) or is_value(f) for f in first if f.strip()):
        header, first = commented_header(texts[: header + 1], delimiter, path)
        if header == rows[0] and has_no_names([fields(texts[i], delimiter) for i in rows[:2]]):
            raise unnamed(path, texts[header], len(first), delimiter)
    names = tuple(name.strip() for name in first)
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise FormatError(f"{path} has more than one column named {twice}; expected each once: rename them")
    return Dialect(delimiter, names, header)


def require_described(lines: list[str], path: Path) -> None:
    """Raise FormatError where lines of one field each are rows of places in the line that nothing describes."""
    words = [[word for word in words_of_line(line) if any(map(str.isalnum, word))] for line in lines]
    first, values = words[0], max((sum(map(is_value, row)) for row in words[1:]), default=0)
    if len(first) > 1 and (2 * sum(map(is_value, first)) >= len(first) or (len(first) > 2 and values > 1)):
        raise FormatError(
            f"the columns of {path} are not known: its lines hold {min(map(len, words))} to "
            f"{max(map(len, words))} words, the first line '{brief(lines[0].strip())}'; expected delimiters "
            "between values, or a line of names and as many words in every line below; put the ReadMe of a "
            "CDS table beside the file, or write such a description above it"
        )


def head_bytes(text: str) -> bytes:
    """Return a line's first characters as bytes, without a byte-order mark."""
    return text.lstrip(BYTE_ORDER_MARK).encode("utf-8", "replace")


def common_width(rows: list[str], delimiter: str) -> int:
    """Return the number of fields that all rows have with a delimiter, 1 where they differ."""
    widths = {len(fields(row, delimiter)) for row in rows}
    return widths.pop() if len(widths) == 1 else 1


def commented_header(lines: list[str], delimiter: str, path: Path) -> tuple[int, list[str]]:
    """Return the last comment before the first row if it holds as many names, as in `# id, ra, dec`."""
    *comments, row = lines
    first = fields(row.lstrip(BYTE_ORDER_MARK), delimiter)
    for i in reversed(range(len(comments))):
        names = fields(comments[i].lstrip(BYTE_ORDER_MARK).lstrip("# "), delimiter)
        if len(names) == len(first) and not any(NUMBER.fullmatch(n) for n in names):
            return i, names
    if all(NUMBER.fullmatch(f) for f in first):
        raise unnamed(path, row, len(first), delimiter)
    return len(comments), first
