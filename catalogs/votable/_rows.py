"""The rows of a VOTable's table, which stay in the file and are read a piece at a time.

A FITS table inside the document gives its rows as BINARY would have them.
"""

from __future__ import annotations

import binascii
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from astropy.io.votable.tree import Field

from catalogs.errors import DamagedFileError, FormatError
from catalogs.fits.columns import FitsColumn, Table, table_of
from catalogs.fits.header import read_hdus
from catalogs.fits.source import MAX_INFLATED, Source, Unnamed
from catalogs.votable._binary import (
    Array,
    Cells,
    Lists,
    arrow_cells,
    decoded,
    decoded_lists,
    decoded_texts,
    is_list,
    is_text,
    stored_bits,
    stored_type,
    stream_bytes,
)
from catalogs.votable._document import LONGEST_ROW, Data

__all__ = ["BinaryRows", "FitsRows", "Piece", "Rows"]

# The rows of a VOTable's table, which stay in the file and are read a piece at a time: of BINARY and its like.

LENGTH = struct.Struct(">I")
LENGTH_BYTES = LENGTH.size


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one table, its fields counted from 0; by itself none."""

    table_fields: tuple[Field, ...]
    are_text: ClassVar[bool] = False
    """Whether they are words, as in TABLEDATA."""

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return 0

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Cells]]:  # noqa: ARG002
        """Yield the values of those fields, some rows at a time."""
        yield from ()

    def arrow(
        self, fields: Sequence[int], blocks: Iterable[Sequence[Cells]] | None = None
    ) -> Iterator[list[pa.Array]]:
        """Yield the values of those fields as Arrow, some rows at a time: those in the blocks, if they are given."""
        for block in self.blocks(fields) if blocks is None else blocks:
            yield [arrow_cells(self.table_fields[f], cells) for f, cells in zip(fields, block, strict=True)]

    def unfit_texts(self) -> Mapping[int, tuple[bool, int]]:
        """Return the fields whose texts may not fit in BINARY2: whether all are ASCII, and how long the longest is."""
        return {}


@dataclass(frozen=True)
class Run:
    """Cells that follow each other: of one size together, each field with its type, or one with a length of its own."""

    fields: tuple[int, ...]
    record: np.dtype[Any] | None
    bits: int = 8
    """Of each item of that length."""

    @property
    def size(self) -> int:
        """Bytes of cells of one size."""
        return 0 if self.record is None else self.record.itemsize


@dataclass(frozen=True, eq=False)
class Piece:
    """Whole rows, side by side in `size` bytes; `bounds` (n, cells, 2) are where those of any length begin and end."""

    data: bytes
    runs: tuple[Run, ...]
    n_rows: int
    size: int
    bounds: Array | None = None

    def cells(self, number: int) -> Any:
        """Return the cells of a run: records (n,), or the bytes of each cell."""
        run = self.runs[number]
        if self.bounds is None:
            return np.frombuffer(self.data, run.record, self.n_rows)
        if run.record is None:
            begins, ends = self.bounds[:, number // 2].T.tolist()
            return [self.data[begin:end] for begin, end in zip(begins, ends, strict=True)]
        # Behind such a cell there stands the next run; the first begins where the row before it ends.
        begins = self.bounds[:, number // 2 - 1, 1] if number else self.row_starts()
        places = begins[:, None] + np.arange(run.size)
        return np.frombuffer(self.data, np.uint8)[places].view(run.record).reshape(self.n_rows)

    def lengths(self, number: int) -> Array:
        """Return the lengths (n,) of the cells of a run."""
        if self.bounds is None:
            return np.zeros(0, np.int64)
        places = self.bounds[:, number // 2, :1] - LENGTH_BYTES + np.arange(LENGTH_BYTES)
        return np.frombuffer(self.data, np.uint8)[places].view(">u4").reshape(-1).astype(np.int64)

    def row_starts(self) -> Array:
        """Return where the rows begin (n,)."""
        if self.bounds is None:
            return np.arange(self.n_rows) * self.runs[0].size
        return np.concatenate([[0], self.bounds[:-1, -1, 1] + self.runs[-1].size])


@dataclass(frozen=True, eq=False)
class BinaryRows(Rows):
    """Rows in the base64 of BINARY or BINARY2; `DamagedFileError` where they are no such."""

    data: Data

    @cached_property
    def n_rows(self) -> int:
        """How many there are, after a pass over all of them."""
        return sum(piece.n_rows for piece in self.cut())

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Cells]]:
        """Yield the values of those fields, as many rows at a time as a piece of the file holds."""
        run_of = {f: i for i, run in enumerate(self.runs) for f in run.fields}
        for piece in self.cut():
            gone = None
            if self.mask_bytes:
                bits = np.unpackbits(piece.cells(0)["mask"], axis=1, count=len(self.table_fields))
                gone = bits.astype(bool)
            cells = {i: piece.cells(i) for i in dict.fromkeys(run_of[f] for f in fields)}
            try:
                yield [self.column(piece, run_of[f], cells[run_of[f]], f, gone) for f in fields]
            except ValueError as error:
                raise self.damaged(str(error)) from error

    def column(self, piece: Piece, run: int, cells: Any, number: int, gone: Array | None) -> Cells:
        """Return the values of a field in some rows."""
        field = self.table_fields[number]
        # The null bit of a text is ignored, as astropy does: a text may be empty, and many writers set the bit then.
        nowhere = None if gone is None or is_text(field) else gone[:, number]
        if is_list(field):
            return decoded_lists(field, cells, piece.lengths(run), nowhere)
        if isinstance(cells, list):
            return decoded_texts(field, cells)
        return decoded(field, cells[str(number)], nowhere)

    @property
    def mask_bytes(self) -> int:
        """How many bytes in front of a row say which of its cells have no value."""
        return (len(self.table_fields) + 7) // 8 if self.data.serialisation == "BINARY2" else 0

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """How the cells of a row follow each other."""
        runs: list[Run] = []
        together: list[tuple[str, Any]] = [("mask", ("u1", (self.mask_bytes,)))]
        fields: list[int] = []
        for number, field in enumerate(self.table_fields):
            stored = stored_type(field)
            if stored is not None:
                together.append((str(number), stored))
                fields.append(number)
                continue
            runs += [Run(tuple(fields), np.dtype(together)), Run((number,), None, stored_bits(field))]
            together, fields = [], []
        return (*runs, Run(tuple(fields), np.dtype(together)))

    def pieces(self) -> Iterator[bytes]:
        """Yield the rows as they are stored; `binascii.Error` where they are no base64."""
        return stream_bytes(self.data)

    def cut(self) -> Iterator[Piece]:
        """Yield the whole rows in each piece of the file."""
        rest = b""
        find = self.records if len(self.runs) == 1 else self.with_lengths
        try:
            for piece in self.pieces():
                rest += piece
                whole_rows = find(rest)
                if whole_rows.n_rows:
                    yield whole_rows
                rest = rest[whole_rows.size :]
                if len(rest) > LONGEST_ROW:
                    raise self.damaged(f"a row has more than {LONGEST_ROW >> 20} MB")
        except binascii.Error as error:
            raise self.damaged(str(error)) from error
        if rest:
            raise self.damaged(f"the data end {len(rest)} bytes after the last whole row")

    def records(self, data: bytes) -> Piece:
        """Return the whole rows in some bytes, where all have one size."""
        size = self.runs[0].size
        if not size:
            raise self.damaged("its rows have no bytes")
        n = len(data) // size
        return Piece(data, self.runs, n, n * size)

    def with_lengths(self, data: bytes) -> Piece:
        """Return the whole rows in some bytes, where cells have lengths of their own."""
        # Each such cell, with what stands in front of it since the last one.
        plan = [(fixed.size, cell.bits) for fixed, cell in zip(self.runs[::2], self.runs[1::2], strict=False)]
        behind, last = self.runs[-1].size, len(data)
        bounds: list[int] = []
        row_at = n = 0
        begin = 0
        while True:
            at, row_bounds = row_at, []
            for skip, bits in plan:
                at += skip
                begin = at + LENGTH_BYTES
                if begin > last:
                    break
                at = begin + (LENGTH.unpack_from(data, at)[0] * bits + 7) // 8
                row_bounds += [begin, at]
            at += behind
            if begin > last or at > last:
                break
            bounds += row_bounds
            n, row_at = n + 1, at
        return Piece(data, self.runs, n, row_at, np.array(bounds, np.int64).reshape(n, len(plan), 2))

    def damaged(self, what: str) -> DamagedFileError:
        """Return the error for rows that cannot be read."""
        return DamagedFileError(
            f"{self.data.path} is damaged: {what}; expected rows of its {len(self.table_fields)} fields in "
            f"{self.data.serialisation}: fetch it again"
        )


# The rows of a VOTable that are a FITS binary table inside the document: each as BINARY would have it.
#
# Columns of one size, neither scaled nor on a heap, are stored as BINARY stores the fields that describe them.
# https://www.ivoa.net/documents/VOTable/20250116/, section 5.3

CODES = MappingProxyType(
    {
        "boolean": "L",
        "bit": "X",
        "unsignedByte": "B",
        "short": "I",
        "int": "J",
        "long": "K",
        "char": "A",
        "float": "E",
        "double": "D",
        "floatComplex": "C",
        "doubleComplex": "M",
    }
)
"""The TFORM of a field's datatype."""


@dataclass(frozen=True, eq=False)
class FitsRows(BinaryRows):
    """Rows of a FITS table in base64; the file in the document is decoded to one that has no name."""

    @cached_property
    def decoded_file(self) -> Source:
        """The FITS file."""
        done = 0
        with tempfile.TemporaryFile() as file:
            try:
                for piece in stream_bytes(self.data):
                    done += file.write(piece)
                    if done > MAX_INFLATED:
                        raise self.damaged(f"the FITS file in it has more than {MAX_INFLATED:,} bytes")
            except binascii.Error as error:
                raise self.damaged(str(error)) from error
            return Unnamed.of(file).source(self.data.path)

    @cached_property
    def table(self) -> Table:
        """The first table of the file, whose columns are the fields."""
        tables = [hdu for hdu in read_hdus(self.decoded_file) if hdu.is_bintable]
        if not tables:
            raise self.damaged("the FITS file in it has no table")
        table = table_of(tables[0])
        pairs = list(zip(self.table_fields, table.columns, strict=False))
        odd = [c.name for f, c in pairs if not same_storage(f, c)]
        if odd or len(self.table_fields) != len(table.columns):
            raise FormatError(
                f"{self.data.path} holds its data as FITS, "
                f"{f'with the columns {odd}' if odd else 'of other columns'}; expected the columns that its fields "
                "describe, without scaling and without variable length; convert it (topcat and stilts do)"
            )
        return table

    def pieces(self) -> Iterator[bytes]:
        """Yield the rows as they are stored."""
        begin = self.table.hdu.data_offset
        for piece in self.decoded_file.pieces(begin, begin + self.table.n_rows * self.table.row_bytes):
            yield piece.tobytes()

    def column(self, piece: Piece, run: int, cells: Any, number: int, gone: Array | None) -> Cells:
        """Return the values of a field in some rows; blanks fill up a text in FITS."""
        values = super().column(piece, run, cells, number, gone)
        if isinstance(values, Lists) or not is_text(self.table_fields[number]):
            return values
        words = [word.rstrip(" ") for word in values.tolist()]
        return np.array([None, *words], object)[1:]


def same_storage(field: Field, column: FitsColumn) -> bool:
    """Say whether the cells of a column are stored as BINARY stores those of a field."""
    stored = None if is_list(field) else stored_type(field)
    if stored is None or column.heap or column.is_scaled or column.is_shifted:
        return False
    lone_bit = field.datatype == "bit" and not field.arraysize  # BINARY has it in another place of the byte
    same_null = column.null is None or column.null == field.values.null
    return (
        CODES.get(field.datatype) == column.code
        and stored.itemsize == column.n_bytes
        and same_null
        and not lone_bit
    )
