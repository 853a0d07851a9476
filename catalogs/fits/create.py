"""A new FITS file of one binary table, from Arrow batches: streamed, with checksums, atomic."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalogs.catalog.catalog import Column
from catalogs.catalog.computing import Computed
from catalogs.errors import CatalogError
from catalogs.files.atomic import atomic_path
from catalogs.fits._checksum import OnesSum
from catalogs.fits.columns import MAX_FIELDS, MAX_ROW
from catalogs.fits.rewrite import NewField, blank_checksums, with_checksums
from catalogs.fits.values import CellKind, Survey, elements_of
from catalogs.metadata.fits_cards import empty_primary, integer_card, long_string_cards, padding, text_cards

__all__ = ["FitsField", "create"]

BLOCK_BYTES = 1 << 20
LONG_TEXT = 256
"""Bytes of a text beyond which texts are copied one by one."""
SMALL_HEAP = 2**31 - 1
"""Bytes of a heap in which 32-bit descriptors find their way."""

Stored = npt.NDArray[Any]


@dataclass(frozen=True)
class FitsField:
    """An old column as FITS stores it, under a name that FITS can hold."""

    column: Column
    name: str
    kind: CellKind
    survey: Survey

    @property
    def heap_bytes(self) -> int:
        """Bytes in the heap."""
        return self.survey.elements * self.kind.stored.itemsize if self.kind.variable else 0

    def stored(self, descriptor: str) -> np.dtype[Any]:
        """Return the type of the column's part of a row."""
        if self.kind.variable:
            return np.dtype((">i4" if descriptor == "P" else ">i8", (2,)))
        return np.dtype((self.kind.stored, self.kind.shape)) if self.kind.shape else self.kind.stored

    def cards(self, n: int, descriptor: str) -> Iterator[bytes]:
        """Yield the cards of the column as the n-th."""
        kind = self.kind
        yield from text_cards(f"TTYPE{n}", self.name)
        if kind.variable:
            form = f"1{descriptor}{kind.code}({self.survey.longest})"
        else:
            form = f"{kind.repeat * (kind.width or 1)}{kind.code}"
        yield from text_cards(f"TFORM{n}", form)
        if self.column.unit:
            yield from text_cards(f"TUNIT{n}", self.column.unit)
        if kind.null is not None:
            yield integer_card(f"TNULL{n}", kind.null - kind.zero)
        if kind.zero:
            yield integer_card(f"TZERO{n}", kind.zero)
        dimensions = [*kind.shape, *([kind.width] if kind.is_text and kind.shape else [])]
        if len(dimensions) > 1:
            yield from text_cards(f"TDIM{n}", f"({','.join(map(str, reversed(dimensions)))})")
        for keyword, text in (("TUCD", self.column.ucd), ("TCOMM", self.column.description)):
            if text:
                yield from text_cards(f"{keyword}{n}", text)

    def encode(self, array: pa.Array) -> tuple[Stored, Stored | None]:
        """Return the elements as they are stored, in the cells' shape, or else with the cells' counts."""
        values, counts = elements_of(array, self.kind)
        stored = encoded(values, self.kind)
        if counts is not None:
            return stored, np.asarray(counts.to_numpy(zero_copy_only=False), np.int64)
        return stored.reshape(len(array), *self.kind.shape), None


def encoded(values: pa.Array, kind: CellKind) -> Stored:
    """Return elements as they are stored."""
    if kind.is_text:
        return encoded_text(values.fill_null(""), kind.width)
    if kind.code == "L":
        truth = values.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 -- the value
        present = values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(present, np.where(truth, ord("T"), ord("F")), 0).astype(np.uint8)
    filled = values.fill_null(kind.null or 0) if kind.is_integer else values.fill_null(float("nan"))
    numbers = filled.to_numpy(zero_copy_only=False)
    if kind.zero:
        # Subtracting the top bit means inverting it: this is exact where arithmetic would overflow.
        unsigned = numbers.view(f"u{numbers.itemsize}")
        top = unsigned.dtype.type(1 << (8 * numbers.itemsize - 1))
        numbers = np.bitwise_xor(unsigned, top).view(f"{'u' if kind.code == 'B' else 'i'}{numbers.itemsize}")
    return np.asarray(numbers.astype(kind.stored))


def encoded_text(values: pa.Array, width: int) -> Stored:
    """Return texts padded with NUL; bytes of short ones are scattered all at once."""
    raw = values.cast(pa.binary())
    offsets = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset : raw.offset + len(raw) + 1].astype(
        np.int64
    )
    out = np.zeros((len(raw), width), np.uint8)
    lengths = np.diff(offsets)
    data = np.frombuffer(raw.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    if width > LONG_TEXT:  # the places of all characters would take sixteen times the texts
        for row, start, length in zip(out, offsets - offsets[0], lengths, strict=False):
            row[:length] = data[start : start + length]
        return out.view(f"S{width}").reshape(-1)
    starts = np.arange(len(raw), dtype=np.int64) * width - (offsets[:-1] - offsets[0])
    out.reshape(-1)[np.repeat(starts, lengths) + np.arange(len(data))] = data
    return out.view(f"S{width}").reshape(-1)


@dataclass(frozen=True)
class Layout:
    """The columns of a new table, the old ones first."""

    old: tuple[FitsField, ...]
    new: tuple[NewField, ...]
    n_rows: int

    @property
    def heap_bytes(self) -> int:
        """Bytes in the heap."""
        return sum(field.heap_bytes for field in self.old)

    @property
    def descriptor(self) -> str:
        """The code of descriptors of variable length: Q where 32 bits do not do."""
        return "P" if self.heap_bytes <= SMALL_HEAP else "Q"

    @cached_property
    def row(self) -> np.dtype[Any]:
        """A row, unaligned."""
        fields: list[Any] = [(f"old{i}", f.stored(self.descriptor)) for i, f in enumerate(self.old)]
        return np.dtype([*fields, *((f"new{i}", f.stored) for i, f in enumerate(self.new))])

    def cards(self, name: str, remarks: Sequence[bytes], *, summed: bool) -> list[bytes]:
        """Return the cards of the header, the checksums still blank."""
        n_fields, width = len(self.old) + len(self.new), self.row.itemsize
        if n_fields > MAX_FIELDS or width > MAX_ROW:
            raise CatalogError(
                f"got {n_fields} columns and {width:,} bytes in each row, expected at most {MAX_FIELDS} and "
                f"{MAX_ROW:,}, which FITS allows; ask for a slim copy, or for Parquet"
            )
        counts = {"BITPIX": 8, "NAXIS": 2, "NAXIS1": width, "NAXIS2": self.n_rows, "PCOUNT": self.heap_bytes}
        counts |= {"GCOUNT": 1, "TFIELDS": n_fields}
        cards = [*text_cards("XTENSION", "BINTABLE"), *(integer_card(k, v) for k, v in counts.items())]
        for n, field in enumerate(self.old, 1):
            cards += field.cards(n, self.descriptor)
        for n, new in enumerate(self.new, 1 + len(self.old)):
            cards += new.cards(n)
        cards += [*text_cards("EXTNAME", name), *remarks]
        return blank_checksums([*cards, *long_string_cards(cards, cards)], summed=summed)


def create(
    out: Path,
    layout: Layout,
    computed: Iterable[Computed],
    *,
    name: str,
    remarks: Sequence[bytes],
    summed: bool = True,
) -> None:
    """Write the table of that name: whole, or not at all; without `summed`, with checksums that match no data."""
    cards, total = layout.cards(name, remarks, summed=summed), OnesSum()
    start = len(empty_primary())
    with (
        atomic_path(out) as temporary,
        temporary.open("wb") as stream,
        tempfile.TemporaryFile(dir=out.parent) as heap,
    ):
        stream.write(empty_primary())
        stream.write(with_checksums(cards, total, summed=summed))
        for batch, new in computed:
            write_rows(stream, heap, total, layout, batch, new)
        copy_heap(heap, stream, total)
        stream.write(bytes(padding(layout.n_rows * layout.row.itemsize + layout.heap_bytes)))
        stream.seek(start)
        stream.write(with_checksums(cards, total, summed=summed))


def write_rows(
    stream: IO[bytes], heap: IO[bytes], total: OnesSum, layout: Layout, batch: pa.RecordBatch, new: Any
) -> None:
    """Write the rows of a batch, and what they have in the heap."""
    columns: dict[str, Stored] = {}
    for i, field in enumerate(layout.old):
        values, counts = field.encode(batch.column(field.column.name))
        columns[f"old{i}"] = values if counts is None else descriptors(heap, values, counts)
    columns |= {f"new{i}": f.encode(new[f.column.name]) for i, f in enumerate(layout.new)}
    at_once = max(1, BLOCK_BYTES // layout.row.itemsize)
    block = np.empty(min(at_once, batch.num_rows), layout.row)
    for start in range(0, batch.num_rows, at_once):
        n = min(at_once, batch.num_rows - start)
        for key, cells in columns.items():
            block[key][:n] = cells[start : start + n]
        written = block[:n].view(np.uint8)
        total.add(written)
        stream.write(written.data)


def descriptors(heap: IO[bytes], values: Stored, counts: Stored) -> Stored:
    """Put elements at the end of the heap; return the counts and places of the cells."""
    places = heap.tell() + (np.cumsum(counts) - counts) * values.itemsize
    heap.write(np.ascontiguousarray(values).view(np.uint8).data)
    return np.stack([counts, np.where(counts > 0, places, 0)], axis=1)


def copy_heap(heap: IO[bytes], stream: IO[bytes], total: OnesSum) -> None:
    """Write the heap behind the rows."""
    heap.seek(0)
    while piece := heap.read(BLOCK_BYTES):
        total.add(np.frombuffer(piece, np.uint8))
        stream.write(piece)
