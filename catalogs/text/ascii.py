"""Blank-separated and fixed-width text tables (CDS, MRT, IPAC, SExtractor): read through astropy, copied as ECSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Annotation, Catalog, Column
from catalogs.catalog.computing import computed_batches
from catalogs.catalog.earlier_columns import recognised_provenance
from catalogs.errors import ColumnNotFoundError, DamagedFileError, FormatError, nearest
from catalogs.metadata.astropy_header import ASTROPY
from catalogs.text import ecsv_create
from catalogs.text._ascii_read import read_table
from catalogs.text.ascii_layout import ASCII, SUFFIXES, Layout, layout_of

__all__ = ["ASCII", "SUFFIXES", "AsciiPartition", "open", "sniff"]


@dataclass(frozen=True)
class AsciiPartition:
    """One table of blanks or places, which is read whole; its copies are ECSV."""

    path: Path
    key: str
    n_rows: int
    columns: tuple[Column, ...]
    layout: Layout
    missing: tuple[str, ...] = ()

    counted: ClassVar[bool] = True
    """Rows of such a table are their own."""

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, exactly `rows` rows at a time (fewer in the last)."""
        names = [c.name for c in self.columns]
        for name in columns:
            if name not in names:
                raise ColumnNotFoundError(f"{self.path} has no column '{name}'; {nearest(name, names)}")
        table = self.table().select(list(columns)).replace_schema_metadata(None)
        for start in range(0, self.n_rows, rows):
            part = table.slice(start, rows)
            yield from part.combine_chunks().to_batches() if columns else [pa.record_batch([], names=[])]

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy in ECSV with all old columns and the new ones to `out`, atomic."""
        read = list(annotation.read)
        needed = list(dict.fromkeys([*(c.name for c in self.columns), *read]))
        whole = replace(annotation, read=needed, compute=lambda batch: annotation.compute(batch.select(read)))
        ecsv_create.create(
            out,
            self.columns,
            annotation.columns,
            computed_batches(self, whole),
            provenance=annotation.provenance,
            header=self.beside_the_columns()[0][ASTROPY],
        )

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return what astropy says of the table, keywords and comments included; nothing is left behind."""
        return texts_of(self.table()), ()

    def table(self) -> pa.Table:
        """Return the whole table; DamagedFileError where it is not what it was."""
        table = read_table(self.path, self.layout, self.missing)
        if table.num_rows != self.n_rows or tuple(table.column_names) != tuple(c.name for c in self.columns):
            raise DamagedFileError(
                f"{self.path} has other rows or columns than when it was opened, expected it to stay "
                "unchanged; open it again when it is complete"
            )
        return table


def sniff(path: Path, head: bytes) -> bool:  # noqa: ARG001 -- compressed files are inflated first
    """Say whether a file is such a table."""
    return layout_of(path) is not None


def open(path: Path, table: str | int | None = None, *, missing: Sequence[str] = ()) -> Catalog:  # noqa: A001 -- every format's verb
    """Open such a table; the texts of `missing` stand for no value."""
    if table is not None:
        raise FormatError(f"got table={table!r} for {path}, but a text file holds one table; leave it out")
    layout = layout_of(path)
    if layout is None:
        raise FormatError(
            f"{path} is not a table of columns separated by spaces or of fixed width; expected a header, and "
            "as many words in every row; fetch it again"
        )
    whole = read_table(path, layout, tuple(missing))
    columns = tuple(map(column_of, whole.schema))
    partition = AsciiPartition(path, path.name, whole.num_rows, columns, layout, tuple(missing))
    metadata = texts_of(whole) | {"layout": layout.kind} | recognised_provenance(columns)
    metadata |= {f"type.{c.name}": str(c.datatype) for c in columns}
    return Catalog(ASCII, path, columns, (partition,), metadata)


def texts_of(table: pa.Table) -> dict[str, str]:
    """Return astropy's words on a table."""
    return {ASTROPY: (table.schema.metadata or {}).get(ASTROPY.encode(), b"").decode()}


def column_of(field: pa.Field) -> Column:
    """Return a column with what the header says of it."""
    known = {k.decode(): v.decode() for k, v in (field.metadata or {}).items()}
    return Column(field.name, field.type, known.get("unit"), known.get("ucd"), known.get("description"))
