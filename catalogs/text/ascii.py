"""Blank-separated and fixed-width text tables (CDS, MRT, IPAC, SExtractor): read by astropy, copied as ECSV.

Such a table is read whole, so up to a stated size.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from astropy.io import ascii as astropy_ascii
from astropy.io.ascii import convert_numpy
from astropy.table import MaskedColumn, Table

from catalogs.arrays import text_of
from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Column, Partition, recognised_provenance
from catalogs.errors import DamagedFileError, FormatError, require_alone, require_columns
from catalogs.files import Stamp, check_unchanged, reading, stamp
from catalogs.memory.tables import AstropyTable
from catalogs.metadata.astropy_header import ASTROPY
from catalogs.parquet.metadata import columns_of
from catalogs.text._records import Dialect, is_data, words_of_line
from catalogs.text.sniff import ASCII, DESCRIBED, LayoutKind, layout_of, readme_of

Layout = tuple[LayoutKind, Dialect]

LARGEST_BYTES = 1 << 27
"""Lines times the longest one: astropy gives all texts of a column the room of the longest."""

LONGEST_WORDS = 160
"""Characters of astropy's message that an error shows."""
ZERO_IN_FRONT = re.compile(r"(?:^|\s)[-+]?0\d+(?=\s|$)", re.MULTILINE)
NAME_OF_NUMBER = re.compile(r"[-+]?0\d+")


@lru_cache(maxsize=2)
def _read(path: Path, layout: Layout, missing: tuple[str, ...], _seen: Stamp) -> pa.Table:
    """Return the whole table, its metadata with astropy's words on it; the last two that were read are kept.

    FormatError where it is too large or has two columns of a name, DamagedFileError where it is no such table.
    """
    lines = _lines(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # units that are not standard pass through as they are spelt
            table = _by_astropy(path, layout, lines, missing)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError) as error:
        said = " ".join(str(error).split())[:LONGEST_WORDS]
        raise DamagedFileError(
            f"{path} is damaged or not a table: {said}; expected rows as its header describes them: correct "
            "it, or fetch it again"
        ) from None
    for column in table.columns.values():
        if column.dtype.kind == "U" and isinstance(column, MaskedColumn):
            table[column.name] = column.filled("")  # no text is the empty one, as in all text tables
    return AstropyTable(table).stored()[0]


def _lines(path: Path) -> list[str]:
    """Return the lines; FormatError where they are too many or too long."""
    with reading(path) as stream:
        data = stream.read(LARGEST_BYTES + 1)
    lines = data.splitlines()
    room = max(len(data), len(lines) * max(map(len, lines), default=0))
    if room > LARGEST_BYTES:
        raise FormatError(
            f"{path}: got {len(lines):,} lines of up to {max(map(len, lines)):,} characters, expected at "
            f"most {LARGEST_BYTES >> 20} MB of text in total, since such tables are read into memory at "
            "once; write it as CSV, FITS or Parquet, or in several files"
        )
    text = text_of(data).removeprefix("\ufeff")
    return re.split(r"\r\n|\n|\r", text)


def _by_astropy(path: Path, layout: Layout, lines: list[str], missing: Sequence[str]) -> Any:
    fill = [(text, "0") for text in missing]
    kind, dialect = layout
    if kind == "blanks":
        return _by_blanks(dialect, lines, fill)
    if kind == "sextractor" and not any(is_data(line.encode()) for line in lines):
        raise FormatError(
            f"{path} holds no line of data; expected a line of column names, then rows; fetch it again"
        )
    if kind != "cds":
        return astropy_ascii.read(lines, format=kind, guess=False, fill_values=fill or [("", "0")])
    readme = None if any(map(DESCRIBED.match, lines)) else readme_of(path)
    reader = astropy_ascii.get_reader(astropy_ascii.Cds, readme=None if readme is None else str(readme))
    if readme is not None:
        reader.data.table_name = re.sub(r"\.(gz|bz2)$", "", path.name)
    reader.data.fill_values = [*reader.data.fill_values, *fill]
    return reader.read([line for line in lines if line.strip()])


def _by_blanks(dialect: Dialect, lines: list[str], fill: Sequence[tuple[str, str]]) -> Any:
    """Return astropy's table of rows of as many words each; the comments, but for the names, go into its `meta`."""
    rows = [line for line in lines[dialect.header + 1 :] if is_data(line.encode()) and line.strip()]
    table = Table(names=list(dialect.names), dtype=["U1"] * len(dialect.names))
    # Numbers with a zero in front are names: texts, as in CSV.
    odd = (zip(dialect.names, words_of_line(row), strict=False) for row in rows if ZERO_IN_FRONT.search(row))
    names_of_numbers = {n for words in odd for n, word in words if NAME_OF_NUMBER.fullmatch(word)}
    if rows:
        table = astropy_ascii.read(
            rows,
            format="no_header",
            names=list(dialect.names),
            guess=False,
            delimiter=" ",
            fast_reader=True,
            fill_values=fill,
            converters={name: [convert_numpy(str)] for name in names_of_numbers},
        )
    comments = [
        line.lstrip("# ") for i, line in enumerate(lines) if i != dialect.header and line.startswith("#")
    ]
    if comments:
        table.meta["comments"] = comments
    return table


@dataclass(frozen=True)
class AsciiPartition(Partition):
    """One table of blanks or places, which is read whole; its copies are ECSV."""

    columns: tuple[Column, ...]
    layout: Layout
    stamp: Stamp
    missing: tuple[str, ...] = ()

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, exactly `rows` rows at a time (fewer in the last)."""
        require_columns(self.path, columns, [c.name for c in self.columns])
        table = self.table().select(list(columns)).replace_schema_metadata(None)
        for start in range(0, self.n_rows, rows):
            part = table.slice(start, rows)
            yield from part.combine_chunks().to_batches() if columns else [pa.record_batch([], names=[])]

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return what astropy says of the table, keywords and comments included; nothing is left behind."""
        return texts_of(self.table()), ()

    def table(self) -> pa.Table:
        """Return the whole table; DamagedFileError where the file is not what it was."""
        check_unchanged(self.path, self.stamp)
        return _read(self.path, self.layout, self.missing, self.stamp)


def open(path: Path, table: str | int | None = None, *, missing: Sequence[str] = ()) -> Catalog:  # noqa: A001 -- every format's verb
    """Open such a table; the texts of `missing` stand for no value."""
    require_alone(path, table)
    layout = layout_of(path)
    if layout is None:
        raise FormatError(
            f"{path} is not a table of columns separated by spaces or of fixed width; expected a header, and "
            "as many words in every row; fetch it again"
        )
    seen = stamp(path)
    whole = _read(path, layout, tuple(missing), seen)
    columns = columns_of(whole.schema, {})
    partition = AsciiPartition(path, path.name, whole.num_rows, columns, layout, seen, tuple(missing))
    metadata = texts_of(whole) | {"layout": layout[0]} | recognised_provenance(columns)
    metadata |= {f"type.{c.name}": str(c.datatype) for c in columns}
    return Catalog(ASCII, path, columns, (partition,), metadata)


def texts_of(table: pa.Table) -> dict[str, str]:
    """Return astropy's words on a table."""
    return {ASTROPY: (table.schema.metadata or {}).get(ASTROPY.encode(), b"").decode()}
