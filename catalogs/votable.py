"""VOTable: any serialisation in, BINARY2 out, through astropy, in memory and so up to a stated size.

The whole document is kept: other tables, resources, parameters, groups, coordinate systems.
https://www.ivoa.net/documents/VOTable/
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from astropy.io.votable import parse
from astropy.io.votable.tree import Field, Info, TableElement, VOTableFile
from astropy.utils.xml.check import fix_id

from catalogs.annotate import computed_batches
from catalogs.annotations import NewColumn, Provenance
from catalogs.astropy_arrow import arrow_array
from catalogs.atomic import atomic_path
from catalogs.batching import exactly
from catalogs.catalog import BATCH_ROWS, Catalog, Column, Compute, Progress
from catalogs.compressed import COMPRESSED_SUFFIXES, first_bytes, read_all, writing_like
from catalogs.errors import ColumnNotFoundError, DamagedFileError, FormatError, nearest
from catalogs.votable_fields import field_type
from catalogs.votable_tabledata import parse_tabledata

__all__ = ["FORMAT", "MAX_BYTES", "SUFFIXES", "VOTablePartition", "open", "sniff"]

FORMAT = "votable"
SUFFIXES = tuple(s + c for s in (".vot", ".votable", ".xml") for c in COMPRESSED_SUFFIXES)

MAX_BYTES = 1 << 28
"""Bytes, inflated, beyond which a VOTable is refused: astropy needs several times as much memory."""

OLDEST_WITH_BINARY2 = "1.3"
WRITTEN_VERSION = "1.4"

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
    """One table of a VOTable file: that of number `index`, counted from 0."""

    path: Path
    key: str
    n_rows: int
    index: int
    stamp: Stamp

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
        add_columns(
            file, table, columns, {name: np.concatenate(parts) for name, parts in new.items() if parts}
        )
        for key, value in provenance.metadata().items():
            table.infos.append(Info(name=key, value=value))
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
    metadata |= {f"info.{i.name}": str(i.value) for i in element.infos if i.name}
    return Catalog(FORMAT, path, found, (partition,), metadata)


def chosen(
    path: Path, tables: Sequence[TableElement], wanted: str | int | None, columns: Sequence[str]
) -> int:
    """Return the number of the table that is meant."""
    names = [t.name or t.ID or "" for t in tables]
    if isinstance(wanted, int):
        found = [wanted] if 0 <= wanted < len(tables) else []
    elif wanted is not None:
        found = [i for i, t in enumerate(tables) if wanted in {t.name, t.ID}]
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


def column_names(table: TableElement) -> list[str]:
    """Return the names of the fields, or their IDs."""
    return [f.name or f.ID for f in table.fields]


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
        str(field.unit or "") or None,
        field.ucd,
        field.description,
        None if null is None else int(null),
        tuple(shape),
    )


def field_values(table: TableElement, index: int) -> pa.Array:
    """Return a field's values."""
    return arrow_array(table.array[table.array.dtype.names[index]])


def check_own_fields(path: Path, file: VOTableFile, table: TableElement) -> None:
    """Refuse a table that shares its fields with another one: they cannot part within one document."""
    if sum(t.fields is table.fields for t in file.iter_tables()) > 1:
        raise FormatError(
            f"{path} has tables that share their fields (by ref); save this table on its own first"
        )


def add_columns(
    file: VOTableFile,
    table: TableElement,
    columns: Sequence[NewColumn],
    values: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    """Add fields and their values to a table."""
    taken = {f.ID for f in table.fields}
    fields = [new_field(file, c, taken) for c in columns]
    old = table.array
    kept: list[Any] = [(n, old.dtype[n].base, old.dtype[n].shape) for n in old.dtype.names]
    added = [(f.ID, f.converter.format) for f in fields]
    data = np.zeros(len(old), dtype=kept + added)
    mask = np.zeros(len(old), dtype=np.ma.make_mask_descr(data.dtype))
    for name in old.dtype.names:
        data[name] = np.ma.getdata(old[name])
        mask[name] = np.ma.getmaskarray(old[name])
    for field in fields:
        data[field.ID] = values.get(field.name, data[field.ID])
    table.fields.extend(fields)
    table.array = np.ma.MaskedArray(data, mask)


def new_field(file: VOTableFile, column: NewColumn, taken: set[str]) -> Field:
    """Return a field for a new column."""
    kind, size = field_type(column.datatype)
    identifier = fix_id(column.name)
    while identifier in taken:
        identifier += "_"
    taken.add(identifier)
    field = Field(
        file,
        ID=identifier,
        name=column.name,
        datatype=kind,
        arraysize=size or None,
        unit=column.unit,
        ucd=column.ucd,
    )
    field.description = column.description
    return field


def write(file: VOTableFile, stream: Any) -> None:
    """Write a document as BINARY2."""
    if file.version < OLDEST_WITH_BINARY2:
        file.version = WRITTEN_VERSION
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.to_xml(stream, tabledata_format="binary2")
