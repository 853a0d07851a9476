"""Text tables, CSV and ECSV: streamed, with types inferred once (CSV) or taken from the header (ECSV).

An annotated copy has the old records to the byte, each with its new values behind it.  CSV has no place
for provenance; ECSV has it in its header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Annotation, Catalog, Column, Partition, each_batch, exactly
from catalogs.catalog.earlier_columns import recognised_provenance
from catalogs.errors import DamagedFileError, FormatError, require_columns
from catalogs.files.reading import COMPRESSED_SUFFIXES, reading
from catalogs.metadata.astropy_header import is_utf8
from catalogs.text._records import COMMENT, Dialect, append_values, blocks, find_dialect, is_data, value_lines
from catalogs.text.ecsv import (
    ECSV_MARK,
    annotated_header,
    ecsv_columns,
    ecsv_dialect,
    header_text,
    other_meta,
    own_meta,
    vectors,
)
from catalogs.text.sniff import HEAD_BYTES, convert, head_lines, infer_types, require_table, sniff

__all__ = ["CSV", "ECSV", "SUFFIXES", "TextPartition", "commented_out", "open", "sniff"]

CSV, ECSV = "csv", "ecsv"
SUFFIXES = tuple(s + c for s in (".csv", ".tsv", ".ecsv", ".txt", ".dat") for c in COMPRESSED_SUFFIXES)

ECSV_NULL = "null"
"""What Gaia's archive writes for a missing number, where ECSV has an empty field."""


@dataclass(frozen=True)
class TextPartition(Partition):
    """One text table.

    A `slim` copy has no comments.
    `comments` are lines of comments, `commented_out` those that may be rows whose first field begins with #.
    """

    format: str
    dialect: Dialect
    columns: tuple[Column, ...]
    encoding: str = "utf8"
    missing: tuple[str, ...] = ()
    commented_out: int = 0
    comments: int = 0

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return no texts, and a sentence on the comments where there are some: of ECSV what the header says more."""
        said = (
            "comments are left out" if self.format == CSV else "other metadata of the ECSV header is left out"
        )
        return {}, [said] if self.comments else []

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, exactly `rows` rows at a time (fewer in the last)."""
        require_columns(self.path, columns, self.dialect.names)
        with explained(self.path):
            yield from exactly(self.pieces(columns), rows)

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, as many rows at a time as a block of the file holds."""
        wanted = list(dict.fromkeys(columns)) or [self.dialect.names[0]]
        known = {c.name: c for c in self.columns}
        types = {n: pa.string() if known[n].shape else known[n].datatype for n in wanted}
        convert_block = partial(
            convert,
            names=self.dialect.names,
            delimiter=self.dialect.delimiter,
            types=types,
            wanted=wanted,
            missing=self.missing,
            encoding=self.encoding,
        )
        for data in data_blocks(self.path, self.dialect):
            table = convert_block(data)
            for i, name in enumerate(wanted):
                if known[name].shape:
                    table = table.set_column(i, name, vectors(table.column(i), known[name].datatype))
            yield from table.select(list(columns)).combine_chunks().to_batches()

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy with the new columns to `out`, streamed and atomic; old records keep their bytes."""
        nan = "nan" if self.format == ECSV else ""
        columns = annotation.columns
        write = partial(value_lines, columns=columns, delimiter=self.dialect.delimiter, nan=nan)
        batches = self.batches(annotation.read, annotation.rows)
        with closing(each_batch(batches, lambda b: write(annotation.compute(b)), annotation)) as lines:
            append_values(
                self.path,
                out,
                self.dialect,
                columns,
                chain.from_iterable(lines),
                header=self.header(annotation),
                kept=self.kept,
                slim=self.slim,
            )

    def header(self, annotation: Annotation) -> Callable[[list[bytes]], list[bytes]]:
        """Return what makes, of the lines above the names, those of an annotated copy."""
        if self.format == CSV:
            return (lambda _: []) if self.slim else list
        dropped = [n for n in self.dialect.names if self.kept is not None and n not in self.kept]
        return partial(
            annotated_header,
            columns=annotation.columns,
            provenance=annotation.provenance,
            dropped=dropped,
            slim=self.slim,
        )


def data_blocks(
    path: Path, dialect: Dialect, aside: Callable[[Sequence[bytes]], None] | None = None
) -> Iterator[bytes]:
    """Yield the rows of a table, some thousands at a time, without names, comments and empty lines.

    `aside` is called with comments and empty lines among the rows.
    """
    with reading(path) as stream:
        above = dialect.header + 1
        for block in blocks(stream, dialect, path):
            if block.plain and not above:
                yield block.data
                continue
            records = block.records
            data = [record for record in records[above:] if is_data(record)]
            if aside is not None and len(data) < len(records) - above:
                aside([record for record in records[above:] if not is_data(record)])
            above = max(above - len(records), 0)
            if data:
                yield b"".join(data)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say in our words that rows do not fit the names or the types."""
    try:
        yield
    except pa.ArrowInvalid as error:
        counts = re.search(r"Expected (\d+) columns, got (\d+)", str(error))
        names, fields = map(int, counts.groups()) if counts else (0, 0)
        remedy = "correct that row, or fetch it again"
        if fields == names + 1:
            remedy += (
                "; if every row has one field more, as in R's files with row names, add a name at the "
                "beginning of the line of names"
            )
        elif names == 1:
            remedy += "; begin each line above the names with #, or remove it"
        raise DamagedFileError(
            f"{path} is damaged or not a table: {error}; expected as many fields in every row as in the line "
            f"of names, and one type of values in each column: {remedy}"
        ) from None


def open(path: Path, table: str | int | None = None, *, missing: Sequence[str] = ()) -> Catalog:  # noqa: A001 -- every format's verb
    """Open a text table; the texts of `missing` stand for no value in columns of numbers, as does none."""
    if table is not None:
        raise FormatError(f"got table={table!r} for {path}, but a text file holds one table; leave it out")
    with reading(path) as stream:
        first = stream.read(HEAD_BYTES)
    require_table(path, first)
    head = head_lines(first)
    opened = open_ecsv if head and head[0].startswith(ECSV_MARK) else open_csv
    with explained(path):
        partition = opened(path, head, tuple(missing))
    metadata = {"delimiter": partition.dialect.delimiter, "encoding": partition.encoding}
    metadata |= {f"type.{c.name}": str(c.datatype) for c in partition.columns}
    if partition.format == ECSV:
        metadata |= own_meta(header_text(head[: partition.dialect.header]))
    else:
        metadata |= recognised_provenance(partition.columns)
    return Catalog(partition.format, path, partition.columns, (partition,), metadata)


def open_ecsv(path: Path, head: Sequence[bytes], missing: tuple[str, ...]) -> TextPartition:
    """Open a table whose header says what its columns are."""
    dialect, entries = ecsv_dialect(head, path)
    missing = (ECSV_NULL, *missing)
    partition = TextPartition(path, path.name, 0, ECSV, dialect, ecsv_columns(entries), missing=missing)
    partition = replace(partition, comments=len(other_meta(header_text(head[: dialect.header]))))
    return replace(partition, n_rows=sum(b.num_rows for b in partition.pieces(dialect.names[:1])))


def open_csv(path: Path, head: Sequence[bytes], missing: tuple[str, ...]) -> TextPartition:
    """Open a table of which nothing is known but its text: all of it is read once, for its types."""
    dialect = find_dialect(head, path, "utf8")
    utf8, doubtful = True, 0
    comments = sum(r.startswith(COMMENT) for r in head[: dialect.header])

    def count(aside: Sequence[bytes]) -> None:
        nonlocal doubtful, comments
        doubtful += len(like_rows(aside, dialect))
        comments += sum(r.startswith(COMMENT) for r in aside)

    def watched() -> Iterator[bytes]:
        nonlocal utf8
        for data in data_blocks(path, dialect, count):
            utf8 = utf8 and is_utf8(data)
            yield data

    types, n_rows = infer_types(watched(), dialect.names, dialect.delimiter, missing=missing)
    if not (utf8 and is_utf8(b"".join(head))):
        renamed = find_dialect(head, path, "latin1")
        types = {new: types[old] for new, old in zip(renamed.names, dialect.names, strict=True)}
        dialect, utf8 = renamed, False
    if not n_rows:
        require_comments(path, dialect, head)
    columns = tuple(Column(name, datatype) for name, datatype in types.items())
    encoding = "utf8" if utf8 else "latin1"
    partition = TextPartition(path, path.name, n_rows, CSV, dialect, columns, encoding, missing)
    return replace(partition, commented_out=doubtful, comments=comments)


def like_rows(comments: Sequence[bytes], dialect: Dialect) -> list[bytes]:
    """Return the comments that may be rows: they have as many fields as there are names."""
    delimiters, mark = len(dialect.names) - 1, dialect.delimiter.encode()
    return [r for r in comments if 0 < r.count(mark) == delimiters]


def commented_out(catalog: Catalog) -> str:
    """Return how many lines of text tables may be rows, '' where none."""
    n = sum(p.commented_out for p in catalog.partitions if isinstance(p, TextPartition))
    lines = "1 line begins" if n == 1 else f"{n:,} lines begin"
    return f"{lines} with # and may be rows, but are taken for comments" if n else ""


def require_comments(path: Path, dialect: Dialect, head: Sequence[bytes]) -> None:
    """Raise a `FormatError` where all rows would be comments, since their first field begins as one does."""
    rows = like_rows(head[dialect.header + 1 :], dialect)
    if rows:
        shown = rows[0][:60].decode("latin-1").strip()
        raise FormatError(
            f"{path}: all lines below the names are comments such as '{shown}', with as many fields as there "
            "are names; expected rows: put fields that begin with # into quotation marks"
        )
