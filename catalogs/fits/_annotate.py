"""An annotated copy of a FITS file by copying bytes: unknown parts survive, since none is interpreted.

All bytes before the table, a new header, each row's old bytes and its new ones, heap, padding, and all bytes
behind are written in one pass, in the memory of a few batches; the checksums add up on the way.  A row's place
in the copy is known beforehand, so the thread that has computed a batch writes it too.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import Annotation, Partition
from catalogs.catalog.computing import NewValues, in_order
from catalogs.catalog.new_columns import check_names
from catalogs.files.atomic import atomic_path
from catalogs.fits._checksum import OnesSum
from catalogs.fits.columns import Table
from catalogs.fits.header import read_hdus
from catalogs.fits.rewrite import NewField, Selection, annotated_cards, with_checksums
from catalogs.fits.source import Source, is_gzipped
from catalogs.metadata.fits_cards import empty_primary, padding

__all__ = ["write_annotated"]

BLOCK_BYTES = 1 << 20
"""Bytes of rows put together at a time: they stay in the processor's cache until they are written."""

GZIP_LEVEL = 4


def write_annotated(
    partition: Partition,
    source: Source,
    selection: Selection,
    out: Path,
    annotation: Annotation,
    *,
    summed: bool,
) -> None:
    """Write the annotated copy of a partition, whose bytes are the source's, to `out`; gzipped if they were.

    Without `summed` the copy states the checksums that did not match, and they do not match it either.
    """
    check_names((c.name for c in selection.columns), annotation.columns)
    rewriting = _Rewriting(selection, tuple(NewField.of(c) for c in annotation.columns))
    cards = annotated_cards(selection, rewriting.fields, annotation.provenance, summed=summed)
    zipped = is_gzipped(partition.path)
    with atomic_path(out) as temporary, _sink(temporary, zipped=zipped) as stream:
        header = rewriting.write_before(source, stream)
        total = OnesSum()
        # Written in the place of the final header, whose checksums are known only at the end.
        stream.write(with_checksums(cards, total, summed=summed))
        stream.flush()
        place = stream.tell()

        def work(numbered: tuple[range, pa.RecordBatch]) -> tuple[int, OnesSum]:
            rows, batch = numbered
            new = annotation.compute(batch)
            return len(rows), rewriting.write_rows(source, stream.fileno(), place, rows, new)

        batches = partition.batches(annotation.read, annotation.rows)
        with closing(in_order(_numbered(batches), work, annotation.threads)) as written:
            for n_rows, part in written:
                total.include(part)
                if annotation.progress is not None:
                    annotation.progress(n_rows)
        rewriting.write_behind(source, stream, place, total)
        stream.seek(header)
        stream.write(with_checksums(cards, total, summed=summed))


@dataclass(frozen=True)
class _Rewriting:
    """Puts old rows and new columns together."""

    selection: Selection
    fields: tuple[NewField, ...]

    @property
    def table(self) -> Table:
        """The table as it is."""
        return self.selection.table

    def write_before(self, source: Source, stream: IO[bytes]) -> int:
        """Write everything before the table; return where the table begins."""
        if not self.selection.slim:
            _copy(source, stream, 0, self.table.hdu.header.offset)
            return self.table.hdu.header.offset
        primary = read_hdus(source)[0]
        header = source.read(0, primary.data_offset).tobytes() if not primary.data_bytes else empty_primary()
        stream.write(header)
        return len(header)

    @cached_property
    def row(self) -> np.dtype[Any]:
        """The new row: what stays of the old one as it is, then the new fields, unaligned."""
        old = [(f"old{i}", f"V{size}") for i, (_, size) in enumerate(self.selection.runs)]
        return np.dtype([*old, *((str(i), field.stored) for i, field in enumerate(self.fields))])

    def write_rows(self, source: Source, descriptor: int, place: int, rows: range, new: NewValues) -> OnesSum:
        """Write rows of a table that begins at `place`; return their part of its sum."""
        width, at_once = self.table.row_bytes, max(1, BLOCK_BYTES // self.row.itemsize)
        values = [f.encode(new[f.column.name]) for f in self.fields]
        old = np.empty(min(at_once, len(rows)), self.selection.old_row)
        block = np.empty(min(at_once, len(rows)), self.row)
        begin = rows.start * self.row.itemsize
        total = OnesSum(begin)
        for start in range(0, len(rows), at_once):
            n = min(at_once, len(rows) - start)
            source.fill(old[:n].view(np.uint8), self.table.hdu.data_offset + rows[start] * width)
            for name in self.selection.old_row.names or ():
                block[name][:n] = old[name][:n]
            for i, encoded in enumerate(values):
                block[str(i)][:n] = encoded[start : start + n]
            written = block[:n].view(np.uint8)
            total.add(written)
            _write_at(descriptor, written.data, place + begin + start * self.row.itemsize)
        return total

    def write_behind(self, source: Source, stream: IO[bytes], place: int, total: OnesSum) -> None:
        """Write the heap, which the checksum includes, the padding, and everything after the table."""
        hdu, rows_bytes = self.table.hdu, self.table.n_rows * self.row.itemsize
        stream.seek(place + rows_bytes)
        rows_end = hdu.data_offset + self.table.n_rows * self.table.row_bytes
        heap_end = hdu.data_offset + hdu.data_bytes if self.selection.keeps_heap else rows_end
        heap = OnesSum(rows_bytes)
        _copy(source, stream, rows_end, heap_end, heap)
        total.include(heap)
        stream.write(bytes(padding(rows_bytes + heap_end - rows_end)))
        if not self.selection.slim:
            _copy(source, stream, min(hdu.end, source.size), source.size)


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[range, pa.RecordBatch]]:
    """Yield each batch with the numbers of its rows."""
    first = 0
    for batch in batches:
        yield range(first, first + batch.num_rows), batch
        first += batch.num_rows


def _write_at(descriptor: int, data: memoryview, place: int) -> None:
    while data:
        n = os.pwrite(descriptor, data, place)
        data, place = data[n:], place + n


def _copy(source: Source, stream: IO[bytes], start: int, stop: int, total: OnesSum | None = None) -> None:
    for piece in source.pieces(start, stop):
        if total is not None:
            total.add(piece)
        stream.write(piece.data)


@contextmanager
def _sink(temporary: Path, *, zipped: bool) -> Iterator[IO[bytes]]:
    """Open the file to be written; what is to be gzipped is so when it is finished, as the header comes last."""
    if not zipped:
        with temporary.open("wb") as stream:
            yield stream
        return
    with tempfile.TemporaryFile(dir=temporary.parent) as plain:
        yield plain
        plain.seek(0)
        # Without a name and a time in the header of gzip, equal content gives equal bytes.
        with (
            temporary.open("wb") as stream,
            gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed)
