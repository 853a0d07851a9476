"""FITS tables: sniff, open, read in batches, write annotated."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Annotation, Catalog, Partition
from catalogs.errors import CatalogError, FormatError, require_columns
from catalogs.files.reading import Stamp, stamp
from catalogs.fits._restored import ASCII_TABLE, is_plain, open_tables
from catalogs.fits.columns import MAX_FIELDS, FitsColumn, Table, cells, field_type, heap_cells, table_of
from catalogs.fits.header import GZIP_MAGIC, Hdu, Source, read_hdus, wrong_sum
from catalogs.fits.rewrite import Selection, write_annotated
from catalogs.metadata.fits_cards import provenance_metadata


def headers_as_text(table: Table, hdus: Sequence[Hdu]) -> dict[str, str]:
    """Return the cards of the primary header and of the table's, a line each."""
    headers = {"fits.primary": hdus[0].header.cards, "fits.header": table.hdu.header.cards}
    return {
        key: "\n".join(card.decode("latin-1").rstrip() for card in cards) for key, cards in headers.items()
    }


def left_behind(table: Table, hdus: Sequence[Hdu]) -> Iterator[str]:
    """Yield a sentence for each part that is lost."""
    others = [h for h in hdus if h.index != table.hdu.index and (h.data_bytes or h.index)]
    if others:
        yield f"the other HDUs ({', '.join(map(str, others))}) are left out"
    for column in table.columns:
        if column.is_scaled:
            yield f"'{column.name}': TSCAL and TZERO are applied, values become float64"
        if what := unlike(column):
            yield f"'{column.name}': {what}"


def unlike(column: FitsColumn) -> str | None:
    """Return what cells become whose type other formats do not have."""
    if column.code in "CM":
        return "each complex number becomes a pair of its real and imaginary parts"
    if column.code == "X":
        return "bits become lists of true and false"
    return None


# The rows are read as raw records, some thousands at a time, and only the wanted columns are decoded: native
# byte order, once.  `header`, `columns`, `_decode` and `_heap` know the Standard;
# `_annotate` copies.

FORMAT = "fits"
SUFFIXES = (".fits", ".fit", ".fts", ".fits.gz", ".fit.gz", ".fits.fz", ".fz")

SIGNATURE = b"SIMPLE  ="
IMAGE_HEADER = "LDAC_IMHEAD"
"""The table in which SExtractor keeps the image's header, before that of the objects."""

READ_BYTES = 1 << 20
"""Bytes of rows read at a time: they stay in the processor's cache while the columns are picked out."""


def sniff(path: Path, head: bytes) -> bool:  # noqa: ARG001  (all formats have this signature)
    """Tell a FITS file, gzipped or not, by its first bytes."""
    if head.startswith(GZIP_MAGIC):
        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, len(SIGNATURE))
        except zlib.error:
            return False
    return head.startswith(SIGNATURE)


def open(path: Path | str, table: str | int | None = None, *, columns: Sequence[str] = ()) -> Catalog:  # noqa: A001
    """Open the table of that name or HDU number; else the only one, or the only one with those columns."""
    path = Path(path)
    seen = stamp(path)
    with open_tables(path, seen) as source:
        hdu = _chosen(path, read_hdus(source), table, columns)
    restored = None if is_plain(hdu) else hdu.index
    if restored is not None:
        with open_tables(path, seen, restored) as source:
            hdu = read_hdus(source)[restored]
    found = table_of(hdu)
    partition = FitsPartition(path, path.name, found.n_rows, found, seen, restored)
    _check_by_rows(path, partition.table)
    metadata = {"hdu": str(hdu.index)} | ({"extname": hdu.name} if hdu.name else {})
    metadata |= provenance_metadata(hdu.header.cards)
    return Catalog(FORMAT, path, tuple(c.column for c in partition.table.columns), (partition,), metadata)


@dataclass(frozen=True)
class FitsPartition(Partition):
    """One table of a FITS file; `restored` is its number where it is one of characters, or compressed.

    `first` is the first row that is read.
    """

    table: Table
    stamp: Stamp
    restored: int | None = None
    first: int = 0

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, `rows` rows at a time."""
        if rows < 1:
            raise ValueError(f"got batches of {rows} rows; expected at least one row in each")
        chosen = [self._column(name) for name in columns]
        with self._source() as source:
            for start in range(0, self.n_rows, rows):
                yield _batch(source, self.table, chosen, self.first + start, min(rows, self.n_rows - start))

    def divided(self, rows: int) -> list[FitsPartition]:
        """Return parts to be read, of so many rows; a process that reads several restores a compressed file once."""
        if self.n_rows <= rows:
            return [self]
        return [
            replace(self, first=self.first + i, n_rows=min(rows, self.n_rows - i))
            for i in range(0, self.n_rows, rows)
        ]

    def verified(self) -> tuple[FitsPartition, str | None, bool]:
        """Verify DATASUM and CHECKSUM of all HDUs; return the partition, and which does not match, None if all do."""
        return self, *(wrong_sum(self.path, self.stamp) or (None, False))

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy with the new columns, everything else that is kept as it is, byte for byte.

        Where the file's sums do not match, those of the copy do not match either.
        """
        selection = Selection(self.table, self.kept, self.slim)
        summed = wrong_sum(self.path, self.stamp) is None
        with self._source() as source:
            write_annotated(self, source, selection, out, annotation, summed=summed)

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return the headers' cards as text, and what a copy in another format leaves behind."""
        with self._source() as source:
            hdus = read_hdus(source)
        return headers_as_text(self.table, hdus), tuple(left_behind(self.table, hdus))

    def _source(self) -> AbstractContextManager[Source]:
        return open_tables(self.path, self.stamp, self.restored)

    def _column(self, name: str) -> FitsColumn:
        require_columns(self.path, [name], [c.name for c in self.table.columns])
        named = [c for c in self.table.columns if c.name == name]
        if len(named) > 1:
            raise FormatError(
                f"{self.path} has {len(named)} columns named '{name}'; rename them, or read another column"
            )
        return named[0]


def _batch(
    source: Source, table: Table, columns: Sequence[FitsColumn], start: int, n_rows: int
) -> pa.RecordBatch:
    """Return rows as Arrow: picked out of the records in small blocks, decoded all at once."""
    stored = _stored(source, table, columns, start, n_rows)
    arrays = [
        heap_cells(source, table, c, values) if c.heap else cells(c, values)
        for c, values in zip(columns, stored, strict=True)
    ]
    if not arrays:  # a batch of no columns has a length only when made from structs
        return pa.RecordBatch.from_struct_array(pa.array([{}] * n_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns])


def _stored(
    source: Source, table: Table, columns: Sequence[FitsColumn], start: int, n_rows: int
) -> list[npt.NDArray[np.generic]]:
    """Return the columns as they are stored, but contiguous and in native byte order."""
    names = [str(i) for i in range(len(columns))]
    formats = [field_type(c) for c in columns]
    record = np.dtype(
        {
            "names": names,
            "formats": formats,
            "offsets": [c.offset for c in columns],
            "itemsize": table.row_bytes,
        }
    )
    stored = [np.empty((n_rows, *f.shape), f.base.newbyteorder("=")) for f in formats]
    at_once = max(1, READ_BYTES // table.row_bytes)
    buffer = np.empty(min(at_once, n_rows), record)
    for first in range(0, n_rows if columns else 0, at_once):
        block = buffer[: n_rows - first]
        source.fill(block.view(np.uint8), table.hdu.data_offset + (start + first) * table.row_bytes)
        for name, values in zip(names, stored, strict=True):
            values[first : first + len(block)] = block[name]
    return stored


def _chosen(path: Path, hdus: Sequence[Hdu], table: str | int | None, columns: Sequence[str]) -> Hdu:
    """Return the HDU asked for, or the only one that it can be."""
    if table is not None:
        return _asked_for(path, hdus, table)
    tables = [h for h in hdus if _is_table(h) and "ZIMAGE" not in h.header and h.name != IMAGE_HEADER]
    if not tables:
        raise FormatError(f"{path} holds no table; it holds the HDUs {_listed(hdus)}")
    if len(tables) > 1 and columns:
        wanted = set(columns)
        holding = [h for h in tables if wanted <= _names(h)]
        tables = holding or tables
    if len(tables) > 1:
        raise CatalogError(
            f"{path} holds {len(tables)} tables: {_listed(tables)}; name one, or give its number: with "
            "--table of `blr inspect` and `blr init`, or as table under [catalog] and [target]"
        )
    return tables[0]


def _check_by_rows(path: Path, table: Table) -> None:
    """Raise `FormatError` where each column is one cell, a vector as long as all others: STILTS' "colfits"."""
    lengths = {c.column.shape[:1] for c in table.columns}
    if table.n_rows == 1 and len(table.columns) > 1 and len(lengths) == 1 and lengths.isdisjoint({(), (1,)}):
        raise FormatError(
            f"{path}: got one row whose {len(table.columns)} columns are vectors of {lengths.pop()[0]:,} "
            "elements each, which is a table stored by columns (colfits), expected one row for each object; "
            f"write it by rows: stilts tcopy ifmt=colfits in={path.name} ofmt=fits-basic out=..."
        )


def _asked_for(path: Path, hdus: Sequence[Hdu], table: str | int) -> Hdu:
    named = [h for h in hdus if h.name and h.name.casefold() == str(table).casefold()]
    numbered = [h for h in hdus if str(h.index) == str(table)]
    tables = [h for h in named or numbered if _is_table(h)]
    if len(tables) != 1:
        raise CatalogError(
            f"{path} has {len(tables)} tables called '{table}'; expected one of {_listed(hdus)}: name one, "
            "or give its number"
        )
    return tables[0]


def _is_table(hdu: Hdu) -> bool:
    return hdu.is_bintable or hdu.kind == ASCII_TABLE


def _names(hdu: Hdu) -> set[str | None]:
    return {
        hdu.header.text(f"TTYPE{n}") for n in range(1, 1 + min(MAX_FIELDS, hdu.header.integer("TFIELDS")))
    }


def _listed(hdus: Sequence[Hdu]) -> str:
    return ", ".join(f"{h} {h.kind}" for h in hdus)
