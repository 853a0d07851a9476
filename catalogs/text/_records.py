"""Text tables as records: where they begin and end, whether the first holds names, and annotated copies of them."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.catalog.catalog import Annotation, NewValues
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import DamagedFileError, FormatError, brief, require_once
from catalogs.files import atomic_path, reading, writing_like

# Whether the first line of a text table holds names, or is an object like the others.

FEW = 0.2
"""Share of a line's words up to which names may look like numbers."""
DIGITS_OF_OBJECT = 3
"""Digits of a name from which it is an object's, if that in the line below differs in digits only."""
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
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a.strip() and not is_value(a)]
    # 'NGC 224' and 'NGC 598' differ in digits only.
    alike = [a for a, b in pairs if pattern_of(a) == pattern_of(b)]
    values = [word for word in first if is_value(word)]
    if not values:
        return any(len(re.findall(r"\d", a)) >= DIGITS_OF_OBJECT for a in alike)
    whole = all(re.fullmatch(r"\s*\d+\s*", word) for word in values)
    # Names where hardly any word is a value, and more of the others stand above one.
    above = sum(is_value(b) for _, b in pairs)
    few = len(values) <= FEW * len(first) and above > 2 * len(values)
    same = any(a == b for a, b in pairs) or any(re.search(r"\d", a) for a in alike)
    return len(values) == len(first) or not (whole or few) or same


def pattern_of(word: str) -> str:
    """Return a word with 0 in place of each number, and + in place of each sign: as alike names of objects are."""
    return re.sub(r"\d+", "0", word).replace("-", "+")


def is_value(word: str) -> bool:
    return VALUE.fullmatch(word.strip()) is not None


def words_of_line(line: str) -> list[str]:
    """Return the words between blanks, those in quotation marks as one and without these."""
    return [word[1:-1].replace('""', '"') if word[:1] == '"' else word for word in WORD.findall(line)]


def unnamed(path: Path, line: str, n: int, delimiter: str = " ") -> FormatError:
    """Return the error for a table whose first line is an object of `n` values."""
    names = [*(f"name{i}" for i in range(1, min(n, 3) + 1)), *(["..."] if n > 3 else [])]
    example = delimiter.join(names)
    return FormatError(
        f"{path} has no line of column names: its first line holds values, '{brief(line.strip())}'; expected {n} "
        f"names above it; write a line such as '{example}' there (of a CDS table, put its ReadMe beside the file)"
    )


# Text tables as lines: where records begin and end, and how a file is written (its dialect).  A record is a line, or
# several where a quoted field holds line ends.  Lines keep their ends, so that a copy is the same to the byte; LF, CR
# LF and CR alone all occur.

COMMENT = b"#"
DELIMITERS = ",;\t|"
BLOCK_BYTES = 1 << 23
LONGEST_RECORD = 1 << 24
"""Bytes within which an opened quotation has to close."""

HEAD_BYTES = 1 << 18
"""Bytes within which header, comments and some rows are expected."""

HEAD_RECORDS = 50
"""Records beyond the comments that tell the dialect."""

# Of the first lines; 131,072 characters are a usual polygon.
csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))

BYTE_ORDER_MARK = "\ufeff"
DASHES = re.compile("-+ *")  # a field of the line below units


@dataclass(frozen=True)
class Dialect:
    """How a text table is written; `header` is the number of the record that holds the names.

    VizieR writes the `units` below the names, and dashes below the units.
    """

    delimiter: str
    names: tuple[str, ...]
    header: int
    units: tuple[str, ...] = ()

    @cached_property
    def opening(self) -> re.Pattern[bytes]:
        """Matches a quotation mark that opens a field."""
        return re.compile(rb"(?:\A|" + re.escape(self.delimiter.encode()) + rb')"')

    @cached_property
    def field(self) -> re.Pattern[bytes]:
        """Matches a field as it is written, quotation marks included."""
        mark = re.escape(self.delimiter.encode())
        return re.compile(rb'((?:"(?:[^"]|"")*+")?[^' + mark + rb"]*+)(?:" + mark + rb"|\Z)", re.DOTALL)


QUOTED = re.compile(rb'(?:[^"]|"")*+"')
NOT_PLAIN = (b'"', b"\n#", b"\r#", b"\n\n", b"\n\r", b"\r\r")
"""In none of these bytes, nor with a comment or an empty line at the beginning, every line is a row."""


Block = tuple[bytes, list[bytes] | None]
"""Whole records, some thousands, comments and empty lines included; the records where these are not the lines."""


def is_plain(block: Block) -> bool:
    """Say whether every line is a row, and no field quoted: most blocks of most tables, and quick to go through."""
    data, records = block
    if records is not None or data.startswith((COMMENT, b"\n", b"\r")):
        return False
    # Searching for one byte is much faster than for two.
    return not any(mark in data for mark in NOT_PLAIN if mark[-1:] in data)


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
            shown = rest[:60].decode("utf-8", "replace").strip()
            raise DamagedFileError(
                f"{path}: the line that begins at byte {before_rest:,}, '{shown}', has more than "
                f"{LONGEST_RECORD >> 20} MB, expected a line end before, and a closing quotation mark where one is "
                "open; correct that line, or fetch the file again"
            )
    if rest:
        yield rest


def blocks(stream: IO[bytes], dialect: Dialect, path: Path) -> Iterator[Block]:
    """Yield the records of a stream; DamagedFileError where a quotation is never closed."""
    pending: list[bytes] = []
    size = 0
    for data in whole_lines(stream, path):
        if not pending and b'"' not in data:
            yield data, None
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
        yield b"".join(records), records
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


def unclosed(path: Path, record: bytes) -> DamagedFileError:
    shown = record[:60].decode("utf-8", "replace").strip()
    return DamagedFileError(
        f"{path}: a quotation in the record that begins '{shown}' is never closed; "
        'expected a closing " before a delimiter or line end: correct that line, or fetch the file again'
    )


def is_data(record: bytes) -> bool:
    """Say whether a record is neither a comment nor empty."""
    return not record.startswith(COMMENT) and bool(record.strip(b"\r\n"))


def fields(record: str, delimiter: str) -> list[str]:
    return next(csv.reader([record.rstrip("\r\n")], delimiter=delimiter, strict=False), [])


def find_dialect(head: Iterable[bytes], path: Path, encoding: str) -> Dialect:
    """Return the dialect of the first records: delimiter, and where the names stand."""
    records = [record.removeprefix(codecs.BOM_UTF8) for record in head]
    texts = [record.decode(encoding, "replace") for record in records]
    rows = [*islice((i for i, record in enumerate(records) if is_data(record)), HEAD_RECORDS)]
    if not rows:
        raise DamagedFileError(
            f"{path} holds no line of data; expected a line of column names, then rows, in its first "
            f"{HEAD_BYTES >> 10} kB: fetch it again, or write a table of very many columns as Parquet"
        )
    lines = [texts[i] for i in rows]
    delimiter = max(DELIMITERS, key=lambda d: (common_width(lines, d), -DELIMITERS.index(d)))
    if len(rows) > 1 and common_width(lines, delimiter) == 1:
        require_described(lines, path)
    header, (first, *second) = rows[0], [*islice(csv.reader(lines, delimiter=delimiter), 2)]
    unknown = has_no_names([first, *second])
    if unknown or any(map(is_value, first)):
        found = commented_names(texts[:header], len(first), lambda line: fields(line, delimiter))
        if found is None and unknown:
            raise unnamed(path, texts[header], len(first), delimiter)
        header, first = found or (header, first)
    names = tuple(name.strip() for name in first)
    require_once(path, names)
    units, dashes = (fields(text, delimiter) for text in [*texts[header + 1 : header + 3], "", ""][:2])
    described = len(units) == len(names) and "--" in "".join(dashes) and all(map(DASHES.fullmatch, dashes))
    return Dialect(delimiter, names, header, tuple(unit.strip() for unit in units) if described else ())


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


def common_width(rows: list[str], delimiter: str) -> int:
    """Return the number of fields that all rows have with a delimiter, 1 where they differ.

    A row may be several lines, where a quoted field holds line ends; the last one may be cut.
    """
    found = csv.reader(rows, delimiter=delimiter)
    widths = {len(row) for row in found if row and not row[-1].endswith(("\r", "\n"))}
    return widths.pop() if len(widths) == 1 else 1


def commented_names(
    lines: list[str], n: int, split: Callable[[str], list[str]]
) -> tuple[int, list[str]] | None:
    """Return the last line that is a comment of `n` different names, as in `# id, ra, dec`, and its place."""
    for i in reversed(range(len(lines))):
        names = split(lines[i].lstrip("# \t" + BYTE_ORDER_MARK))
        if len(names) == n == len(set(names)) and not any(map(is_value, names)):
            return i, names
    return None


LEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?:#[# ]*)?")
"""A byte-order mark, and what makes a comment of the line of names."""


def append_values(
    source: Path,
    out: Path,
    dialect: Dialect,
    annotation: Annotation,
    values: Iterator[bytes],
    *,
    header: Callable[[list[bytes]], list[bytes]],
) -> None:
    """Write a copy of `source` to `out`: one of `values` behind each row, `header` for what stands above.

    A slim copy has no comments.
    """
    staying = [i for i, name in enumerate(dialect.names) if annotation.stays(name)]
    stay = staying if annotation.slim or annotation.replaced else None
    mark, new_columns = dialect.delimiter, annotation.columns
    names = mark.join(quoted(c.name, mark) for c in new_columns).encode()
    below = [mark.join(c.unit or "" for c in new_columns), mark.join("-" * len(c.name) for c in new_columns)]
    below = below if dialect.units else []
    above: list[bytes] | None = []
    with atomic_path(out) as temporary, reading(source) as old, writing_like(temporary, source) as new:
        for data, records in blocks(old, dialect, source):
            feeds, returns = data.count(b"\n"), data.count(b"\r")
            end = b"\r\n" if feeds and returns else b"\r" if returns else b"\n"
            alike = not (feeds and returns) or feeds == returns == data.count(end)
            if alike and above is None and not below and stay is None and is_plain((data, records)):
                rows = data.splitlines()
                pairs = zip(rows, taken(values, len(rows), source), strict=True)
                new.write(end.join(map(mark.encode().join, pairs)))
                new.write(end if data.endswith(end) else b"")
                continue
            written = []
            for record in data.splitlines(keepends=True) if records is None else records:
                if above is not None and len(above) < dialect.header:
                    above.append(record)
                elif above is not None:
                    written += [*header(above), appended(dialect, stay, record, names)]
                    above = None
                elif below:
                    written.append(appended(dialect, stay, record, below.pop(0).encode()))
                elif is_data(record):
                    written.append(appended(dialect, stay, record, *taken(values, 1, source)))
                elif not annotation.slim:
                    written.append(record)
            new.write(b"".join(written))


def taken(values: Iterator[bytes], n: int, source: Path) -> list[bytes]:
    """Return the next n values; DamagedFileError where there are fewer."""
    block = list(islice(values, n))
    if len(block) < n:
        raise DamagedFileError(
            f"{source} has more rows than when it was opened, expected it to stay unchanged; open it again "
            "when it is complete"
        )
    return block


def appended(dialect: Dialect, stay: Sequence[int] | None, record: bytes, text: bytes) -> bytes:
    """Return a record's fields that stay, all where it is None, with text behind; the line's begin and end are kept."""
    end = len(record.rstrip(b"\r\n"))
    mark = dialect.delimiter.encode()
    if stay is None:
        return record[:end] + mark + text + record[end:]
    start = next(m.end() for m in LEAD.finditer(record))  # it matches nothing, if nothing is there
    body = record[start:end]
    # An empty one matches once more at the end of a field that ends the record.
    fields = dialect.field.findall(body) if b'"' in body else body.split(mark)
    return record[:start] + mark.join([*(fields[i] for i in stay), text]) + record[end:]


def value_lines(values: NewValues, columns: Sequence[NewColumn], delimiter: str, *, nan: str) -> list[bytes]:
    """Return each row's new values, as they stand behind the old ones."""
    arrays = (
        pa.array(values[c.name].tolist() if pt.is_string(c.datatype) else values[c.name], c.datatype)
        for c in columns
    )
    texts = [written(array, delimiter, nan=nan) for array in arrays]
    lines: list[bytes] = pc.cast(pc.binary_join_element_wise(*texts, delimiter), pa.binary()).to_pylist()
    return lines


def written(column: pa.Array, delimiter: str, *, nan: str = "nan") -> pa.Array:
    """Return values as text: the shortest that reads back as the same; a null stays null."""
    if pt.is_boolean(column.type):
        return pc.if_else(column, "True", "False")
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        texts = column.to_pylist()
        words = {text: None if text is None else quoted(text, delimiter) for text in set(texts)}
        return pa.array([words[text] for text in texts], pa.string())
    texts = column.cast(pa.string())
    return pc.if_else(pc.is_nan(column), nan, texts) if pt.is_floating(column.type) else texts


def quoted(word: str, delimiter: str) -> str:
    """Return a word in quotation marks where it needs them."""
    special = {'"', "\r", "\n", "#", delimiter} & set(word)
    needed = special or (delimiter == " " and not word)
    return '"' + word.replace('"', '""') + '"' if needed else word
