"""An annotated copy of a FITS file by raw passthrough: what is not understood survives, for nothing is.

All bytes before the table, a new header, each row's old bytes and its new ones, heap, padding, and all bytes
behind are written in one pass, in the memory of a few batches; the checksums add up on the way.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from catalogs.annotations import NewColumn, Provenance, check_names
from catalogs.atomic import atomic_path
from catalogs.catalog import Compute, Partition, Progress
from catalogs.computing import CheckedCompute, Computed, NewValues, computed_batches
from catalogs.fits_cards import empty_primary
from catalogs.fits_checksum import OnesSum
from catalogs.fits_columns import Table
from catalogs.fits_header import padding, read_hdus
from catalogs.fits_rewrite import NewField, annotated_cards, with_checksums
from catalogs.fits_selection import Selection
from catalogs.fits_source import Source, is_gzipped

__all__ = ["Annotation", "write_annotated"]

BLOCK_BYTES = 1 << 20
"""Bytes of rows put together at a time: they stay in the processor's cache until they are written."""

GZIP_LEVEL = 4


@dataclass(frozen=True)
class Annotation:
    """What to add to which columns of which table."""

    selection: Selection
    source: Callable[[], AbstractContextManager[Source]]
    columns: Sequence[NewColumn]
    compute: Compute
    read: Sequence[str]
    provenance: Provenance


def write_annotated(
    partition: Partition, what: Annotation, out: Path, *, rows: int, threads: int, progress: Progress | None
) -> None:
    """Write the annotated copy to `out`; the copy of a gzipped file is gzipped too."""
    check_names((c.name for c in what.selection.columns), what.columns)
    rewriting = _Rewriting(what.selection, tuple(NewField.of(c) for c in what.columns))
    cards = annotated_cards(what.selection, rewriting.fields, what.provenance)
    compute = CheckedCompute(tuple(what.columns), what.compute)
    computed = computed_batches(partition, what.read, compute, rows, threads)
    zipped = is_gzipped(partition.path)
    with (
        what.source() as source,
        atomic_path(out) as temporary,
        _sink(temporary, zipped=zipped) as stream,
        closing(computed),
    ):
        rewriting.write(source, stream, cards, _reported(computed, progress))


@dataclass(frozen=True)
class _Rewriting:
    """Puts old rows and new columns together."""

    selection: Selection
    fields: tuple[NewField, ...]

    @property
    def table(self) -> Table:
        """The table as it is."""
        return self.selection.table

    def write(
        self, source: Source, stream: IO[bytes], cards: Sequence[bytes], computed: Iterable[Computed]
    ) -> None:
        """Write everything, the header twice: its checksums are known when the data have gone by."""
        hdu, total = self.table.hdu, OnesSum()
        start = self._write_before(source, stream)
        stream.write(with_checksums(cards, total))
        done = 0
        for batch, new in computed:
            self._write_rows(source, stream, total, range(done, done + batch.num_rows), new)
            done += batch.num_rows
        rows_end = self.table.n_rows * self.table.row_bytes
        rest = hdu.data_bytes - rows_end if self.selection.keeps_heap else 0
        _copy(source, stream, hdu.data_offset + rows_end, hdu.data_offset + rows_end + rest, total)
        stream.write(bytes(padding(done * self.row.itemsize + rest)))
        if not self.selection.slim:
            _copy(source, stream, min(hdu.end, source.size), source.size)
        stream.seek(start)
        stream.write(with_checksums(cards, total))

    def _write_before(self, source: Source, stream: IO[bytes]) -> int:
        """Write what stands before the table; return where the table begins."""
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

    def _write_rows(
        self, source: Source, stream: IO[bytes], total: OnesSum, rows: range, new: NewValues
    ) -> None:
        width, at_once = self.table.row_bytes, max(1, BLOCK_BYTES // self.row.itemsize)
        values = [f.encode(new[f.column.name]) for f in self.fields]
        old = np.empty(min(at_once, len(rows)), self.selection.old_row)
        block = np.empty(min(at_once, len(rows)), self.row)
        for start in range(0, len(rows), at_once):
            n = min(at_once, len(rows) - start)
            source.fill(old[:n].view(np.uint8), self.table.hdu.data_offset + rows[start] * width)
            for name in self.selection.old_row.names or ():
                block[name][:n] = old[name][:n]
            for i, encoded in enumerate(values):
                block[str(i)][:n] = encoded[start : start + n]
            written = block[:n].view(np.uint8)
            total.add(written)
            stream.write(written.data)


def _copy(source: Source, stream: IO[bytes], start: int, stop: int, total: OnesSum | None = None) -> None:
    for piece in source.pieces(start, stop):
        if total is not None:
            total.add(piece)
        stream.write(piece.data)


def _reported(computed: Iterable[Computed], progress: Progress | None) -> Iterator[Computed]:
    """Report the rows of a batch when the next is asked for, for then they are written."""
    for batch, new in computed:
        yield batch, new
        if progress is not None:
            progress(batch.num_rows)


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
        # Without a name and a time inside, the same content is the same bytes.
        with (
            temporary.open("wb") as stream,
            gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed)
