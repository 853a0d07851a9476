"""The rows of a table of a VOTable: in memory, as astropy read them, or still in the file, read a piece at a time."""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from astropy.io.votable.tree import Field

from catalogs.astropy_arrow import arrow_array
from catalogs.errors import DamagedFileError
from catalogs.votable_binary import decoded, decoded_texts, is_text, stored_type, text_unit
from catalogs.votable_stream import Stream

__all__ = ["BinaryRows", "MemoryRows", "Rows", "can_be_streamed"]

Array = np.ndarray[Any, Any]

BLOCK_ROWS = 16_384
LONGEST_ROW = 1 << 26
"""Bytes beyond which the length of a cell is not believed."""
LENGTH = struct.Struct(">I")
LENGTH_BYTES = LENGTH.size


class Rows(Protocol):
    """The rows of one table, its fields counted from 0."""

    @property
    def n_rows(self) -> int:
        """How many there are."""
        ...

    def datatype(self, field: int) -> pa.DataType:
        """Return the type of a field in `arrow`."""
        ...

    def arrow(self, fields: Sequence[int]) -> Iterator[list[pa.Array]]:
        """Yield the values of those fields, some rows at a time."""
        ...

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Array]]:
        """Yield the values of those fields as astropy has them, some rows at a time."""
        ...


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows as astropy has them: a masked array of records."""

    array: Array

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return len(self.array)

    def datatype(self, field: int) -> pa.DataType:
        """Return the type of a field in `arrow`, which may depend on its values."""
        return arrow_array(self.column(field)).type

    def arrow(self, fields: Sequence[int]) -> Iterator[list[pa.Array]]:
        """Yield the values of those fields, all at once."""
        yield [arrow_array(self.column(field)) for field in fields]

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Array]]:
        """Yield the values of those fields, some rows at a time."""
        columns = [self.column(field) for field in fields]
        for start in range(0, self.n_rows, BLOCK_ROWS):
            yield [column[start : start + BLOCK_ROWS] for column in columns]

    def column(self, field: int) -> Array:
        """Return all values of a field."""
        return self.array[self.array.dtype.names[field]]


def can_be_streamed(fields: Sequence[Field]) -> bool:
    """Say whether cells are numbers, arrays of one size, or texts: types of others depend on all of the values."""
    stored = [stored_type(f) for f in fields]
    if not fields or not all(s is not None or is_text(f) for s, f in zip(stored, fields, strict=True)):
        return False
    return all(s is None or s.itemsize for s in stored)


@dataclass(frozen=True)
class Run:
    """Cells that follow each other: of one size together, each field with its type, or one text of its own length."""

    fields: tuple[int, ...]
    record: np.dtype[Any] | None
    unit: int = 1

    @property
    def size(self) -> int:
        """Bytes of cells of one size."""
        return 0 if self.record is None else self.record.itemsize


@dataclass(frozen=True, eq=False)
class Piece:
    """Whole rows, side by side in `size` bytes; `bounds` (n, texts, 2) are where their texts begin and end."""

    data: bytes
    runs: tuple[Run, ...]
    n_rows: int
    size: int
    bounds: Array | None = None

    def cells(self, number: int) -> Any:
        """Return the cells of a run: records (n,), or the bytes of each text."""
        run = self.runs[number]
        if self.bounds is None:
            return np.frombuffer(self.data, run.record, self.n_rows)
        if run.record is None:
            begins, ends = self.bounds[:, number // 2].T.tolist()
            return [self.data[begin:end] for begin, end in zip(begins, ends, strict=True)]
        # Behind a text there stands the next run; the first begins where the row before it ends.
        begins = self.bounds[:, number // 2 - 1, 1] if number else self.row_starts()
        places = begins[:, None] + np.arange(run.size)
        return np.frombuffer(self.data, np.uint8)[places].view(run.record).reshape(self.n_rows)

    def row_starts(self) -> Array:
        """Return where the rows begin (n,)."""
        if self.bounds is None:
            return np.arange(self.n_rows) * self.runs[0].size
        return np.concatenate([[0], self.bounds[:-1, -1, 1] + self.runs[-1].size])


@dataclass(frozen=True, eq=False)
class BinaryRows:
    """Rows in the base64 of BINARY or BINARY2; `DamagedFileError` where they are no such."""

    stream: Stream
    table_fields: tuple[Field, ...]

    @cached_property
    def n_rows(self) -> int:
        """How many there are, after a pass over all of them."""
        return sum(piece.n_rows for piece in self.cut())

    def datatype(self, field: int) -> pa.DataType:
        """Return the type of a field in `arrow`."""
        return arrow_array(np.ma.zeros(0, self.table_fields[field].converter.format)).type

    def arrow(self, fields: Sequence[int]) -> Iterator[list[pa.Array]]:
        """Yield the values of those fields, as many rows at a time as a piece of the file holds."""
        for block in self.blocks(fields):
            yield [arrow_array(column) for column in block]

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Array]]:
        """Yield the values of those fields as astropy would have them."""
        run_of = {f: i for i, run in enumerate(self.runs) for f in run.fields}
        for piece in self.cut():
            gone = None
            if self.mask_bytes:
                gone = np.unpackbits(piece.cells(0)["mask"], axis=1, count=len(self.table_fields)).astype(
                    bool
                )
            cells = {i: piece.cells(i) for i in dict.fromkeys(run_of[f] for f in fields)}
            try:
                yield [self.column(cells[run_of[f]], f, gone) for f in fields]
            except ValueError as error:
                raise self.damaged(str(error)) from error

    def column(self, cells: Any, number: int, gone: Array | None) -> Array:
        """Return the values of a field in some rows."""
        field = self.table_fields[number]
        if isinstance(cells, list):
            texts = np.array([None, *decoded_texts(field, cells)], object)[1:]
            memory = np.dtype(field.converter.format)
            return np.ma.MaskedArray(texts.astype(memory), np.zeros(len(texts), bool))
        # The bit of a text is not heeded (by astropy neither): it may be empty, and many writers set it then.
        return decoded(field, cells[str(number)], None if gone is None or is_text(field) else gone[:, number])

    @property
    def mask_bytes(self) -> int:
        """How many bytes in front of a row say which of its cells have no value."""
        return (len(self.table_fields) + 7) // 8 if self.stream.serialisation == "BINARY2" else 0

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
            runs += [Run(tuple(fields), np.dtype(together)), Run((number,), None, text_unit(field))]
            together, fields = [], []
        return (*runs, Run(tuple(fields), np.dtype(together)))

    def cut(self) -> Iterator[Piece]:
        """Yield the whole rows in each piece of the file."""
        rest = b""
        find = self.records if len(self.runs) == 1 else self.texts
        try:
            for piece in self.stream.pieces():
                rest += piece
                found = find(rest)
                if found.n_rows:
                    yield found
                rest = rest[found.size :]
                if len(rest) > LONGEST_ROW:
                    raise self.damaged(f"a row has more than {LONGEST_ROW >> 20} MB")
        except binascii.Error as error:
            raise self.damaged(str(error)) from error
        if rest:
            raise self.damaged(f"the data end {len(rest)} bytes after the last whole row")

    def records(self, data: bytes) -> Piece:
        """Return the whole rows in some bytes, where all have one size."""
        size = self.runs[0].size
        n = len(data) // size
        return Piece(data, self.runs, n, n * size)

    def texts(self, data: bytes) -> Piece:
        """Return the whole rows in some bytes, where texts have lengths of their own."""
        # Each text, with what stands in front of it since the last one.
        plan = [(fixed.size, text.unit) for fixed, text in zip(self.runs[::2], self.runs[1::2], strict=False)]
        behind, last = self.runs[-1].size, len(data)
        bounds: list[int] = []
        row_at = n = 0
        begin = 0
        while True:
            at, found = row_at, []
            for skip, unit in plan:
                at += skip
                begin = at + LENGTH_BYTES
                if begin > last:
                    break
                at = begin + LENGTH.unpack_from(data, at)[0] * unit
                found += [begin, at]
            at += behind
            if begin > last or at > last:
                break
            bounds += found
            n, row_at = n + 1, at
        return Piece(data, self.runs, n, row_at, np.array(bounds, np.int64).reshape(n, len(plan), 2))

    def damaged(self, what: str) -> DamagedFileError:
        """Return the error for rows that cannot be read."""
        return DamagedFileError(
            f"{self.stream.path} is damaged: {what}; expected rows of its {len(self.table_fields)} fields in "
            f"{self.stream.serialisation}: fetch it again"
        )
