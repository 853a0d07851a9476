"""Text tables, CSV and ECSV: streamed, with types inferred once (CSV) or taken from the header (ECSV).

An annotated copy has the old records to the byte, each with its new values behind it.  CSV has no place
for provenance; ECSV has it in its header, beside types, units and descriptions (astropy's APE 6).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalogs.catalog.catalog import (
    BATCH_ROWS,
    Annotation,
    Catalog,
    Column,
    Computed,
    Partition,
    each_batch,
    exactly,
    is_provenance,
    provenance_entries,
    recognised_provenance,
)
from catalogs.errors import DamagedFileError, FormatError, require_alone, require_columns
from catalogs.files import COMPRESSED_SUFFIXES, atomic_path, first_bytes, open_bytes, reading
from catalogs.metadata.astropy_header import (
    META,
    EcsvHeaderError,
    add_entries,
    entry_line,
    is_utf8,
    read_columns,
    read_items,
    remove_entries,
)
from catalogs.metadata.fits_cards import meta_provenance
from catalogs.text._records import (
    COMMENT,
    HEAD_BYTES,
    Dialect,
    append_values,
    blocks,
    fields,
    find_dialect,
    is_data,
    is_plain,
    quoted,
    value_lines,
    written,
)
from catalogs.text.sniff import ECSV_MARK, convert, head_lines, infer_types, require_table

CSV, ECSV = "csv", "ecsv"
SUFFIXES = tuple(s + c for s in (".csv", ".tsv", ".ecsv", ".txt", ".dat") for c in COMPRESSED_SUFFIXES)
ECSV_NULL = "null"
"""What Gaia's archive writes for a missing number, where ECSV has an empty field."""


@dataclass(frozen=True)
class TextPartition(Partition):
    """One text table.

    `comments` are lines of comments, `commented_out` those that may be rows whose first field begins with #.
    """

    format: str
    dialect: Dialect
    columns: tuple[Column, ...]
    encoding: str = "utf8"
    missing: tuple[str, ...] = ()
    commented_out: int = 0
    comments: int = 0

    def verified(self) -> tuple[TextPartition, str | None, bool]:
        """Return the partition, and whether its last line has no end, as where a transfer broke off within it."""
        with open_bytes(self.path) as stream:
            compressed = stream.read(3) != first_bytes(self.path, 3)
            stream.seek(-1, os.SEEK_END)
            ended = compressed or stream.read() in {b"\n", b"\r"}
        told = f"{self.path} ends within a line: where a transfer broke off, its last row is cut and others are lost; "
        told += "compare its number of rows with the source's, and add a line end if all are there"
        return self, None if ended else told, False

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return no texts, and a sentence on the comments where there are some: of ECSV what the header says more."""
        what = "comments are" if self.format == CSV else "other metadata of the ECSV header is"
        return {}, [f"{what} left out"] if self.comments else []

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
        for data in data_blocks(self.path, self.dialect):
            table = convert(data, self.dialect, types=types, missing=self.missing, encoding=self.encoding)
            for i, name in enumerate(wanted):
                if known[name].shape:
                    table = table.set_column(i, name, vectors(table.column(i), known[name].datatype))
            yield from table.select(list(columns)).combine_chunks().to_batches()

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy with the new columns to `out`, streamed and atomic; old records keep their bytes."""
        nan = "nan" if self.format == ECSV else ""
        write = partial(value_lines, columns=annotation.columns, delimiter=self.dialect.delimiter, nan=nan)
        batches = self.batches(annotation.read, annotation.rows)
        with closing(each_batch(batches, lambda b: write(annotation.compute(b)), annotation)) as lines:
            header = partial(self.header, annotation=annotation)
            values = chain.from_iterable(lines)
            append_values(self.path, out, self.dialect, annotation, values, header=header)

    def header(self, above: list[bytes], annotation: Annotation) -> list[bytes]:
        """Return what stands above the names of an annotated copy."""
        if self.format == CSV:
            return [] if annotation.slim else above
        dropped = [name for name in self.dialect.names if not annotation.stays(name)]
        return annotated_header(above, annotation, dropped)


def data_blocks(
    path: Path, dialect: Dialect, aside: Callable[[Sequence[bytes]], None] | None = None
) -> Iterator[bytes]:
    """Yield the rows of a table, some thousands at a time, without names, comments and empty lines.

    `aside` is called with comments and empty lines among the rows.
    """
    with reading(path) as stream:
        above = dialect.header + (3 if dialect.units else 1)
        for block, records in blocks(stream, dialect, path):
            if not above and is_plain((block, records)):
                yield block
                continue
            lines = block.splitlines(keepends=True) if records is None else records
            data = [record for record in lines[above:] if is_data(record)]
            if aside is not None and len(data) < len(lines) - above:
                aside([record for record in lines[above:] if not is_data(record)])
            above = max(above - len(lines), 0)
            if data:
                yield b"".join(data)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say in our words that rows do not fit the names or the types."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise DamagedFileError(
            f"{path} is damaged or not a table: {error}; expected as many fields in every row as in the line of names, "
            "and one type of values in each column: correct that row, or fetch it again; put # before lines above the "
            "names, and a name over the row names that R writes"
        ) from None


def open(path: Path, table: str | int | None = None, *, missing: Sequence[str] = ()) -> Catalog:  # noqa: A001 -- every format's verb
    """Open a text table; the texts of `missing` stand for no value in columns of numbers, as does none."""
    require_alone(path, table)
    with reading(path) as stream:
        first = stream.read(HEAD_BYTES)
    require_table(path, first)
    head = head_lines(first)
    with explained(path):
        if head and head[0].startswith(ECSV_MARK):
            dialect, columns = ecsv_dialect(head, path)
            meta = table_meta(header_text(head[: dialect.header]))
            provenance, more = meta_provenance(meta), sum(not is_provenance(key) for key in meta)
            texts = (ECSV_NULL, *missing)
            partition = TextPartition(
                path, path.name, 0, ECSV, dialect, columns, missing=texts, comments=more
            )
            n_rows = sum(b.num_rows for b in partition.pieces(dialect.names[:1]))
            partition = replace(partition, n_rows=n_rows)
        else:
            partition = open_csv(path, head, tuple(missing))
            provenance = recognised_provenance(partition.columns)
    metadata = {"delimiter": partition.dialect.delimiter, "encoding": partition.encoding}
    metadata |= {f"type.{c.name}": str(c.datatype) for c in partition.columns} | provenance
    return Catalog(partition.format, path, partition.columns, (partition,), metadata)


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

    types, n_rows = infer_types(watched(), dialect, missing)
    if not (utf8 and is_utf8(b"".join(head))):
        renamed = find_dialect(head, path, "latin1")
        types = {new: types[old] for new, old in zip(renamed.names, dialect.names, strict=True)}
        dialect, utf8 = renamed, False
    rows = like_rows(head[dialect.header + 1 :], dialect)
    if rows and not n_rows:
        shown = rows[0][:60].decode("latin-1").strip()
        raise FormatError(
            f"{path}: all lines below the names are comments such as '{shown}', with as many fields as there "
            "are names; expected rows: put fields that begin with # into quotation marks"
        )
    units = dialect.units or [""] * len(types)
    columns = tuple(Column(n, of, unit or None) for (n, of), unit in zip(types.items(), units, strict=True))
    encoding = "utf8" if utf8 else "latin1"
    return TextPartition(
        path, path.name, n_rows, CSV, dialect, columns, encoding, missing, doubtful, comments
    )


def like_rows(comments: Sequence[bytes], dialect: Dialect) -> list[bytes]:
    """Return the comments that may be rows: they have as many fields as there are names."""
    delimiters, mark = len(dialect.names) - 1, dialect.delimiter.encode()
    return [r for r in comments if 0 < r.count(mark) == delimiters]


def commented_out(catalog: Catalog) -> str:
    """Return how many lines of text tables may be rows, '' where none."""
    n = sum(p.commented_out for p in catalog.partitions if isinstance(p, TextPartition))
    lines = "1 line begins" if n == 1 else f"{n:,} lines begin"
    return f"{lines} with # and may be rows, but are taken for comments" if n else ""


# ECSV: text tables whose header says types, units and descriptions (astropy's APE 6).

OWN_LINE = re.compile(r"""- \{?["']?blr\.""")


def header_text(head: Sequence[bytes]) -> str:
    """Return the header's YAML: what stands behind the number signs."""
    lines = (r.decode("utf-8", "replace").rstrip("\r\n") for r in head if not r.startswith(ECSV_MARK))
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)


def ecsv_dialect(head: Sequence[bytes], path: Path) -> tuple[Dialect, tuple[Column, ...]]:
    """Return how an ECSV file is written, and what its header says of the columns."""
    names_at = next((i for i, r in enumerate(head) if is_data(r)), None)
    if names_at is None:
        raise FormatError(f"{path} has no line of column names below its header; write it again")
    text = header_text(head[:names_at])
    try:
        columns = read_columns(text)
    except EcsvHeaderError as error:
        raise FormatError(f"{path} has an ECSV header that cannot be read: {error}; write it again") from None
    delimiter = "," if re.search(r"^delimiter: ['\"],['\"]\s*$", text, re.MULTILINE) else " "
    names = tuple(fields(head[names_at].decode("utf-8", "replace"), delimiter))
    if names != tuple(c.name for c in columns):
        got = sorted(set(names) ^ {c.name for c in columns})
        raise FormatError(f"{path} has a header that does not fit its names: see {got}; write it again")
    return Dialect(delimiter, names, names_at), columns


def vectors(texts: pa.ChunkedArray, datatype: pa.DataType) -> pa.Array:
    """Return a column of vectors from their JSON; ArrowInvalid where a text is no such vector."""
    try:
        return pa.array([json.loads(t) if t else None for t in texts.to_pylist()], datatype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise pa.ArrowInvalid(f"a vector of {datatype} cannot be read: {error}") from None


def annotated_header(head: Sequence[bytes], annotation: Annotation, dropped: Sequence[str]) -> list[bytes]:
    """Return the lines of a header with the new columns and the provenance in it, the dropped columns out."""
    end = b"\r\n" if head[0].endswith(b"\r\n") else b"\n"
    mark, *rest = head
    text = header_text(rest)
    pairs = provenance_entries(meta_provenance(table_meta(text)), annotation.provenance, dropped)
    staying = remove_entries(text, dropped) if dropped else text
    text = add_entries(staying, [entry_line(c) for c in annotation.columns])
    lines = with_meta(text.split("\n"), pairs, slim=annotation.slim)
    return [mark, *(f"# {line}".rstrip().encode() + end for line in lines)]


def table_meta(text: str) -> dict[str, Any]:
    """Return what a header says of the table itself."""
    with suppress(EcsvHeaderError):
        return {key: value for key, value, _ in read_items(text)}
    return {}


def with_meta(lines: list[str], entries: Mapping[str, str], *, slim: bool) -> list[str]:
    """Return the YAML with entries at the top of the table's metadata, where that is the usual ordered mapping.

    Our own old ones go; of a slim copy all go, for they tell of columns that are no longer there.
    """
    at = next((i for i, line in enumerate(lines) if line.startswith("meta:")), None)
    if at is None:
        at = next((i for i, line in enumerate(lines) if line.startswith("schema:")), len(lines))
        lines = [*lines[:at], *([META] if entries else []), *lines[at:]]
    elif slim:
        rest = (i for i in range(at + 1, len(lines)) if not lines[i].startswith(("-", " ")))
        lines = [*lines[:at], *([META] if entries else []), *lines[next(rest, len(lines)) :]]
    elif lines[at].rstrip() != META:
        return lines
    lines = [line for line in lines if not OWN_LINE.match(line)]
    added = [f"- {{{json.dumps(key)}: {json.dumps(value)}}}" for key, value in entries.items()]
    return [*lines[: at + 1], *added, *lines[at + 1 :]]


# A new ECSV file from Arrow batches: streamed, atomic, under the header that astropy would write.

BLANK = " "


def create(
    out: Path,
    old: Sequence[Column],
    annotation: Annotation,
    computed: Iterable[Computed],
    *,
    header: str | None,
    dropped: Sequence[str] = (),
) -> None:
    """Write the old columns that stay and the new ones, whole or not at all.

    `header` is astropy's YAML on all old columns, the `dropped` ones too; a slim copy has none of its metadata.
    """
    new = annotation.columns
    yaml = header or "\n".join(["datatype:", *map(entry_line, old)])
    head = [ECSV_MARK + b" 1.0\n", b"# ---\n", *(f"# {line}\n".encode() for line in yaml.splitlines())]
    names = BLANK.join(quoted(name, BLANK) for name in [*(c.name for c in old), *(c.name for c in new)])
    with atomic_path(out) as temporary, temporary.open("wb") as stream:
        stream.writelines(annotated_header(head, annotation, dropped if header else ()))
        stream.write(names.encode() + b"\n")
        for batch, values in computed:
            # "" for none
            texts = [pc.coalesce(written(batch.column(c.name), BLANK), '""') for c in old]
            added = pa.array(value_lines(values, new, BLANK, nan="nan"), pa.binary())
            rows = pc.binary_join_element_wise(*(t.cast(pa.binary()) for t in texts), added, BLANK.encode())
            stream.write(b"".join(row + b"\n" for row in rows.to_pylist()))
