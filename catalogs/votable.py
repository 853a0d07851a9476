"""VOTable: any serialisation in, BINARY2 out, through astropy, in memory and so up to a stated size.

The whole document is kept: other tables, resources, parameters, groups, coordinate systems.
https://www.ivoa.net/documents/VOTable/
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from astropy.io.votable import parse
from astropy.io.votable.tree import TableElement, VOTableFile

from catalogs.annotate import computed_batches
from catalogs.annotations import NewColumn, Provenance
from catalogs.astropy_arrow import arrow_array
from catalogs.atomic import atomic_path
from catalogs.batching import exactly
from catalogs.catalog import BATCH_ROWS, Catalog, Column, Compute, Progress
from catalogs.compressed import COMPRESSED_SUFFIXES, first_bytes, read_all, writing_like
from catalogs.errors import ColumnNotFoundError, DamagedFileError, FormatError, nearest
from catalogs.votable_changes import (
    add_columns,
    check_own_fields,
    column_names,
    drop_columns,
    drop_other_tables,
    own_infos,
    replace_provenance,
    write,
)
from catalogs.votable_tabledata import parse_tabledata

__all__ = ["FORMAT", "MAX_BYTES", "SUFFIXES", "VOTablePartition", "open", "sniff"]

FORMAT = "votable"
SUFFIXES = tuple(s + c for s in (".vot", ".votable", ".xml") for c in COMPRESSED_SUFFIXES)

DIMENSIONLESS = "---"
"""What astropy writes for a unit that is empty."""

MAX_BYTES = 1 << 28
"""Bytes, inflated, beyond which a VOTable is refused: astropy needs several times as much memory."""

ELSEWHERE = re.compile(rb"<(?:\w+:)?(?:STREAM|FITS|PARQUET)\b[^>]*\bhref\s*=")
"""Data that lie in another file, or on the network: what a document says is not fetched."""


def sniff(path: Path, head: bytes) -> bool:  # noqa: ARG001 -- compressed files are inflated first
    """Say whether a file is XML with a VOTABLE element."""
    if path.is_dir():
        return False
    text = first_bytes(path, 4096)
    return (
        text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
        and re.search(rb"<(\w+:)?VOTABLE\b", text) is not None
    )


@dataclass(frozen=True)
class Stamp:
    """What changes when a file does."""

    size: int
    modified_ns: int


def stamp(path: Path) -> Stamp:
    """Return the file's stamp."""
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)
def document(path: Path, _: Stamp) -> VOTableFile:
    """Return a parsed file; the last one is kept, since parsing takes long."""
    data = read_all(path, MAX_BYTES)
    if ELSEWHERE.search(data):
        raise FormatError(
            f"{path} says that its data lie in another place; expected them inside: save it whole"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of units and older editions, which are passed on as they are
            return parse_tabledata(data) or parse(io.BytesIO(data), verify="ignore")
    except Exception as error:  # a damaged document makes astropy fail in more ways than can be listed
        size = path.stat().st_size
        raise DamagedFileError(
            f"{path} ({size} bytes) is damaged: {str(error).strip()}; expected a whole VOTable: fetch it again"
        ) from error


@dataclass(frozen=True)
class VOTablePartition:
    """One table of a VOTable file: that of number `index`, counted from 0.

    `kept` are the columns that an annotated copy keeps, all where it is None; a `slim` one has no other table.
    """

    path: Path
    key: str
    n_rows: int
    index: int
    stamp: Stamp
    kept: frozenset[str] | None = None
    slim: bool = False

    @property
    def counted(self) -> bool:
        """True: rows of a VOTable are their own."""
        return True

    def table(self) -> TableElement:
        """Return astropy's table."""
        return list(document(self.path, self.stamp).iter_tables())[self.index]

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, `rows` rows at a time."""
        table = self.table()
        names = column_names(table)
        for name in columns:
            if name not in names:
                raise ColumnNotFoundError(f"{self.path} has no column '{name}'; {nearest(name, names)}")
            if names.count(name) > 1:
                raise FormatError(f"{self.path} has several columns called '{name}'; rename them")
        arrays = [field_values(table, names.index(name)) for name in columns]
        batch = pa.record_batch(arrays, names=list(columns))
        yield from exactly([batch], rows)

    def keeping(self, columns: Sequence[str], *, slim: bool = False) -> VOTablePartition:
        """Return the partition of which annotated copies keep only those columns and, if `slim`, no other table."""
        return replace(self, kept=frozenset(columns), slim=slim)

    def write_annotated(
        self,
        out: Path,
        columns: Sequence[NewColumn],
        compute: Compute,
        *,
        read: Sequence[str],
        provenance: Provenance,
        rows: int = BATCH_ROWS,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> None:
        """Write a copy with the new columns to `out` as BINARY2, atomic."""
        new: dict[str, list[np.ndarray[Any, Any]]] = {c.name: [] for c in columns}
        for batch, values in computed_batches(self, read, compute, rows, threads):
            for name, parts in new.items():
                parts.append(values[name])
            if progress is not None:
                progress(batch.num_rows)
        file, table = document(self.path, self.stamp), self.table()
        check_own_fields(self.path, file, table)
        document.cache_clear()  # what is changed here is nobody else's
        dropped = drop_columns(table, self.kept)
        add_columns(
            file, table, columns, {name: np.concatenate(parts) for name, parts in new.items() if parts}
        )
        replace_provenance(table, provenance, dropped)
        if self.slim:
            drop_other_tables(file, table)
        with atomic_path(out) as temporary, writing_like(temporary, self.path) as stream:
            write(file, stream)


def open(  # noqa: A001 -- every format's verb
    path: Path, table: str | int | None = None, *, columns: Sequence[str] = ()
) -> Catalog:
    """Open the table of that name, ID or number (from 0); else the only one, or the only one with those columns."""
    seen = stamp(path)
    file = document(path, seen)
    tables = list(file.iter_tables())
    index = chosen(path, tables, table, columns)
    element = tables[index]
    names = column_names(element)
    found = tuple(column(element, i, name) for i, name in enumerate(names))
    partition = VOTablePartition(path, path.name, len(element.array), index, seen)
    metadata = {"version": str(file.version), "table": element.name or element.ID or str(index)}
    metadata |= own_infos(element)
    return Catalog(FORMAT, path, found, (partition,), metadata)


def chosen(
    path: Path, tables: Sequence[TableElement], wanted: str | int | None, columns: Sequence[str]
) -> int:
    """Return the number of the table that is meant."""
    names = [t.name or t.ID or "" for t in tables]
    if wanted is not None:
        exact = [i for i, t in enumerate(tables) if wanted in {t.name, t.ID}]
        folded = [i for i, t in enumerate(tables) if str(wanted).casefold() in folded_names(t)]
        found = exact or folded or [i for i in range(len(tables)) if str(wanted) == str(i)]
    else:
        found = [i for i, t in enumerate(tables) if set(columns) <= set(column_names(t)) and t.fields]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{i} '{name}'" for i, name in enumerate(names)) or "none"
    got = (
        f"table {wanted!r}"
        if wanted is not None
        else f"{len(found)} tables" + (f" with {list(columns)}" if columns else "")
    )
    raise FormatError(f"{path}: got {got}, expected one; say which by name or number: {listed}")


def folded_names(table: TableElement) -> set[str]:
    """Return a table's name and ID in small letters."""
    return {name.casefold() for name in (table.name, table.ID) if name}


def column(table: TableElement, index: int, name: str) -> Column:
    """Return a field as a column."""
    field = table.fields[index]
    datatype = field_values(table, index).type
    shape, inner = [], datatype
    while pt.is_fixed_size_list(inner):
        shape.append(inner.list_size)
        inner = inner.value_type
    null = field.values.null if isinstance(field.values.null, int | np.integer) else None
    return Column(
        name,
        datatype,
        unit if (unit := str(field.unit or "")) not in {"", DIMENSIONLESS} else None,
        field.ucd,
        " ".join(str(field.description or "").split()) or None,  # lines are broken anew by every writer
        None if null is None else int(null),
        tuple(shape),
    )


def field_values(table: TableElement, index: int) -> pa.Array:
    """Return a field's values."""
    return arrow_array(table.array[table.array.dtype.names[index]])
