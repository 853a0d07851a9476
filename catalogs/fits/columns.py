"""Columns of a FITS binary table: from TFORMn to a place in the row, and from stored elements to an Arrow array."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.arrays import decoded, number_of
from catalogs.catalog.catalog import Column
from catalogs.errors import CatalogError, FormatError
from catalogs.fits.header import Bytes, Hdu, Source

# FITS Standard 4.0, section 7.3.  Integers that TZERO makes unsigned (or bytes signed) are exact integers of
# that type; any other scaling gives float64.  A complex number is a list of two: real part, imaginary part.

STORED = {
    "L": np.dtype("u1"), "X": np.dtype("u1"), "B": np.dtype("u1"), "A": np.dtype("S1"),
    "I": np.dtype(">i2"), "J": np.dtype(">i4"), "K": np.dtype(">i8"),
    "E": np.dtype(">f4"), "D": np.dtype(">f8"), "C": np.dtype(">c8"), "M": np.dtype(">c16"),
    "P": np.dtype((">i4", (2,))), "Q": np.dtype((">i8", (2,))),
}  # fmt: skip
"""How one element of each code is stored; X is eight to the byte, P and Q are (count, place in the heap)."""

PLAIN = {
    "L": pa.bool_(), "X": pa.bool_(), "B": pa.uint8(), "I": pa.int16(), "J": pa.int32(), "K": pa.int64(),
    "A": pa.string(), "E": pa.float32(), "D": pa.float64(),
    "C": pa.list_(pa.float32(), 2), "M": pa.list_(pa.float64(), 2),
}  # fmt: skip

SHIFTED = {
    ("B", -(2**7)): pa.int8(),
    ("I", 2**15): pa.uint16(),
    ("J", 2**31): pa.uint32(),
    ("K", 2**63): pa.uint64(),
}
"""Code and TZERO of the integers that only have their sign bit turned."""

HEAP_CODES = "PQ"
MAX_FIELDS = 999
MAX_ROW = 2**31 - 1
"""Bytes a row, and elements a cell: what NumPy and Arrow can address."""

TFORM = re.compile(r"\s*(\d*)([LXBIJKAEDCMPQ])(.*)", re.IGNORECASE)
HEAP_FORM = re.compile(r"([LXBIJKAEDCM])\s*(?:\(.*)?", re.IGNORECASE)
TDIM = re.compile(r"\s*\(\s*(\d+(?:\s*,\s*\d+)*)\s*\)\s*")
BOILERPLATE = re.compile(r"(label for )?(field|column)\s*#?\d*", re.IGNORECASE)
"""Comments that say nothing, such as CFITSIO's 'label for field 1'."""


@dataclass(frozen=True)
class FitsColumn:
    """One column: where its bytes are in the row, and what they mean.

    `code` is that of the elements, which for a column of variable length (`heap` "P" or "Q") are in the heap.
    `repeat` counts the elements of a cell: bits for X, texts of `width` bytes for A.
    """

    name: str
    code: str
    repeat: int
    offset: int
    n_bytes: int
    heap: str = ""
    width: int = 0
    shape: tuple[int, ...] = ()
    null: int | None = None
    scale: float = 1.0
    zero: float = 0.0
    unit: str | None = None
    ucd: str | None = None
    description: str | None = None

    @property
    def is_shifted(self) -> bool:
        """Whether TZERO only makes the integer unsigned, or the byte signed."""
        return self.scale == 1 and (self.code, self.zero) in SHIFTED

    @property
    def is_scaled(self) -> bool:
        """Whether the stored numbers are to be multiplied and added to."""
        return (self.scale, self.zero) != (1, 0) and not self.is_shifted and self.code in "BIJKEDCM"

    @property
    def element(self) -> pa.DataType:
        """The Arrow type of one element."""
        if self.is_shifted:
            return SHIFTED[self.code, int(self.zero)]
        if self.is_scaled:
            return pa.list_(pa.float64(), 2) if self.code in "CM" else pa.float64()
        return PLAIN[self.code]

    @property
    def datatype(self) -> pa.DataType:
        """The Arrow type of one cell."""
        if self.heap:
            return self.element if self.code == "A" else pa.list_(self.element)
        # Without elements it is a list of any length: of fixed ones of size 0 Arrow reads no Parquet that it writes.
        return pa.list_(self.element, self.repeat or -1) if self.shape else self.element

    @property
    def column(self) -> Column:
        """The column in the words of all formats; `null` is a value as read, not as stored."""
        null = None if self.null is None or self.is_scaled else self.null + int(self.zero)
        return Column(self.name, self.datatype, self.unit, self.ucd, self.description, null, self.shape)


@dataclass(frozen=True)
class Table:
    """A binary table: its columns and the places of its rows and heap."""

    hdu: Hdu
    columns: tuple[FitsColumn, ...]
    n_rows: int
    row_bytes: int
    heap_gap: int

    @cached_property
    def heap_offset(self) -> int:
        """Where in the file the heap begins."""
        return self.hdu.data_offset + self.n_rows * self.row_bytes + self.heap_gap

    @cached_property
    def heap_bytes(self) -> int:
        """Bytes in the heap."""
        return self.hdu.data_offset + self.hdu.data_bytes - self.heap_offset


def table_of(header: Hdu) -> Table:
    """Return the table that a header describes; `DamagedFileError` where it contradicts itself."""
    n_axes, n_groups, bits = header.integer("NAXIS"), header.integer("GCOUNT", 1), header.value("BITPIX")
    if (n_axes, n_groups, bits) != (2, 1, 8):
        raise header.damaged(f"NAXIS, GCOUNT and BITPIX are {n_axes}, {n_groups}, {bits}; expected 2, 1, 8")
    row_bytes, n_rows = header.integer("NAXIS1"), header.integer("NAXIS2")
    n_fields = header.integer("TFIELDS")
    if n_fields > MAX_FIELDS:
        raise header.damaged(f"TFIELDS is {n_fields:,}, expected at most {MAX_FIELDS}")
    columns, offset = columns_of(header, n_fields)
    if offset != row_bytes:
        raise header.damaged(
            f"the {n_fields} columns take {offset:,} bytes a row by their TFORMn, but NAXIS1 says {row_bytes:,}; "
            "the header is damaged"
        )
    if row_bytes > MAX_ROW or (n_rows and not row_bytes):
        raise FormatError(
            f"{header.where}: got {n_rows:,} rows of {row_bytes:,} bytes, expected 1 to {MAX_ROW:,} bytes in "
            "each row; convert it with the program that wrote it, or get another copy"
        )
    main = n_rows * row_bytes
    heap = header.integer("THEAP", main) if main < header.data_bytes else main
    if not main <= heap <= header.data_bytes:
        raise header.damaged(
            f"THEAP puts the heap at byte {heap:,} of the data; expected {main:,}, where the rows end, to "
            f"{header.data_bytes:,}"
        )
    return Table(header, tuple(columns), n_rows, row_bytes, heap - main)


def columns_of(header: Hdu, n_fields: int, *, keyword: str = "TFORM") -> tuple[list[FitsColumn], int]:
    """Return the columns, of the forms that a keyword gives them, and the bytes of a row."""
    columns: list[FitsColumn] = []
    offset = 0
    for n in range(1, n_fields + 1):
        columns.append(column_of(header, n, offset, keyword=keyword))
        offset += columns[-1].n_bytes
    return columns, offset


def column_of(header: Hdu, n: int, offset: int, *, keyword: str) -> FitsColumn:
    """Return the n-th column, of the form that a keyword gives it, at a place in the row."""
    form = header.text(f"{keyword}{n}") or ""
    parts = TFORM.fullmatch(form)
    if not parts:
        raise header.damaged(f"{keyword}{n} is {form!r}, expected a number and a letter, as in '1E'")
    repeat, code, rest = int(parts[1] or 1), parts[2].upper(), parts[3]
    if repeat > MAX_ROW:
        raise header.damaged(f"{keyword}{n} is {form!r}, expected at most {MAX_ROW:,} elements in a cell")
    n_bytes = (repeat + 7) // 8 if code == "X" else repeat * STORED[code].itemsize
    heap, width = "", 0
    shape: tuple[int, ...] = () if repeat == 1 else (repeat,)
    if code in HEAP_CODES:
        inner = HEAP_FORM.fullmatch(rest.strip())
        if not inner or repeat > 1:
            raise header.damaged(f"TFORM{n} is {form!r}, expected a form such as '1PE(10)' or '0QD'")
        heap, code, shape = code, inner[1].upper(), ()
    elif code == "A":
        width, shape = _texts(header, n, repeat, rest)
        repeat = math.prod(shape)
    else:
        dimensions = _dimensions(header, n)  # in C order
        if dimensions != (1,) and math.prod(dimensions) == repeat:
            shape = dimensions
    null = _number(header, f"TNULL{n}") if code in "BIJK" else None
    null = int(null) if isinstance(null, float) and null.is_integer() else null
    comment = header.comment(f"TTYPE{n}")
    return FitsColumn(
        name=header.text(f"TTYPE{n}") or f"col{n}",
        code=code,
        repeat=repeat,
        offset=offset,
        n_bytes=n_bytes,
        heap=heap,
        width=width,
        shape=shape,
        null=null if isinstance(null, int) else None,
        scale=_scaling(header, f"TSCAL{n}", 1.0),
        zero=_scaling(header, f"TZERO{n}", 0.0),
        unit=header.text(f"TUNIT{n}"),
        ucd=header.text(f"TUCD{n}"),
        description=header.text(f"TCOMM{n}") or ("" if BOILERPLATE.fullmatch(comment) else comment) or None,
    )


def _texts(header: Hdu, n: int, n_bytes: int, rest: str) -> tuple[int, tuple[int, ...]]:
    """Return the width of a text and the shape of the texts in a cell: by TDIM, else by rAw, else one."""
    dimensions = _dimensions(header, n)
    if len(dimensions) > 1 and math.prod(dimensions) <= n_bytes:
        return dimensions[-1], dimensions[:-1]
    if rest.strip().isdigit() and 0 < int(rest) < n_bytes:
        return int(rest), (n_bytes // int(rest),)
    return n_bytes, ()


def _dimensions(header: Hdu, n: int) -> tuple[int, ...]:
    parts = TDIM.fullmatch(header.text(f"TDIM{n}") or "")
    return tuple(int(d) for d in reversed(parts[1].split(","))) if parts else ()


def _number(header: Hdu, keyword: str) -> int | float | None:
    """Return a number, also one in quotes; None where the card is absent, or has another value."""
    value = header.value(keyword)
    if isinstance(value, str):
        with suppress(ValueError):
            return int(value)
        return number_of(value)
    return None if isinstance(value, bool) else value


def _scaling(header: Hdu, keyword: str, default: float) -> float:
    number = _number(header, keyword)
    if number is None and header.text(keyword):
        raise header.damaged(f"{keyword} is {header.text(keyword)!r}, expected a number")
    return default if number is None else number


# From the stored elements of a FITS column to an Arrow array: native, nulls apart, texts trimmed.

Stored = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

TRUE, FALSE, BLANK = ord("T"), ord("F"), ord(" ")


def field_type(column: FitsColumn) -> np.dtype[Any]:
    """Return the type of a cell as it is in the row; texts and bits are bytes."""
    if column.heap:
        return STORED[column.heap]
    if column.code in "AX":
        return np.dtype(("u1", (column.n_bytes,)))
    stored = STORED[column.code]
    return np.dtype((stored, (column.repeat,))) if column.shape else stored


def record_type(names: list[str], formats: list[Any], offsets: list[int], n_bytes: int) -> np.dtype[Any]:
    """Return the type of rows of so many bytes, of which some fields are looked at."""
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": n_bytes})


def cells(column: FitsColumn, stored: Stored) -> pa.Array:
    """Return the cells of a column of fixed length from n stored, native ones."""
    if column.code == "A":
        n_bytes = column.repeat * column.width
        cut = stored[:, :n_bytes].reshape(len(stored) * column.repeat, column.width)
        if cut.size:
            buffers = [None, pa.py_buffer(np.ascontiguousarray(cut))]
            flat = trimmed(pa.FixedSizeBinaryArray.from_buffers(pa.binary(column.width), len(cut), buffers))
        else:
            flat = pa.array([""] * len(cut), pa.string())
    elif column.code == "X":
        flat = array_of(bits(stored, column.repeat).reshape(-1), pa.bool_())
    else:
        flat = elements(column, stored.reshape(-1))
    return _lists(flat, column.datatype, len(stored)) if column.shape else flat


def elements(column: FitsColumn, stored: Stored) -> pa.Array:
    """Return numbers or truth values, scaled, from a row of stored ones in native byte order."""
    if column.code == "L":
        # Neither T nor F is a null: the Standard's is a zero byte, and some writers' a blank.
        return array_of(stored == TRUE, pa.bool_(), valid=(stored == TRUE) | (stored == FALSE))
    values = _scaled(column, stored)
    if column.code in "CM":
        parts = values.view(values.real.dtype)
        return _lists(array_of(parts, column.element.value_type), column.element, len(values))
    valid = None if column.null is None else stored != column.null
    return array_of(values, column.element, valid=valid)


def array_of(values: Stored, datatype: pa.DataType, *, valid: Stored | None = None) -> pa.Array:
    """Wrap the values without a copy; `pa.array` with a mask would import pandas, which takes a second."""
    bitmap = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(datatype, len(values), [bitmap, pa.py_buffer(data)])


def _lists(flat: pa.Array, datatype: pa.DataType, n: int) -> pa.Array:
    """Wrap as lists of fixed size, or as `n` empty ones."""
    places = [] if pt.is_fixed_size_list(datatype) else [pa.py_buffer(np.zeros(n + 1, np.int32))]
    return pa.Array.from_buffers(datatype, n, [None, *places], children=[flat])


def bits(stored: Bytes, n_bits: int) -> npt.NDArray[np.bool_]:
    """Return the first bits of each row of bytes, most significant first."""
    return np.unpackbits(stored, axis=1, count=n_bits).astype(np.bool_)


def trimmed(raw: pa.Array) -> pa.Array:
    """Return texts up to the first NUL and without trailing blanks; not UTF-8 is taken for Latin-1."""
    text = pc.ascii_rtrim(decoded(raw).cast(pa.string()), " \0")
    data = text.buffers()[-1]
    if data is not None and not np.frombuffer(data, np.uint8).all():  # a NUL, also beyond what is used of it
        text = pc.ascii_rtrim(pc.replace_substring_regex(text, "(?s)\\x00.*", ""), " ")
    return text


def n_empty(rows: Bytes, texts: Sequence[FitsColumn]) -> Integers:
    """Return how many texts of each column are empty in stored rows, (n, bytes of a row).

    They are once they are `trimmed`: there is nothing but blanks up to the first NUL or to the end.
    """
    # Of each column, its first byte in every row.
    first = rows.T[np.array([c.offset for c in texts], np.intp)]
    n = np.count_nonzero(first == 0, axis=1)
    for k in np.flatnonzero((first == BLANK).any(axis=1)).tolist():
        text = rows[first[k] == BLANK, texts[k].offset :][:, : texts[k].width]
        end = text[np.arange(len(text)), np.argmin(text == BLANK, axis=1)]  # a blank where all are
        n[k] += np.count_nonzero((end == 0) | (end == BLANK))
    return n


def _scaled(column: FitsColumn, stored: Stored) -> Stored:
    if column.is_shifted:
        # Adding the top bit means inverting it: this is exact where arithmetic would overflow.
        unsigned = stored.view(f"u{stored.itemsize}")
        top = unsigned.dtype.type(1 << (8 * stored.itemsize - 1))
        turned: Stored = np.bitwise_xor(unsigned, top).view(column.element.to_pandas_dtype())
        return turned
    if column.is_scaled:
        wide: Stored = stored.astype(np.complex128 if column.code in "CM" else np.float64)
        return wide * float(column.scale) + float(column.zero)
    return stored


# Cells of variable length: descriptors in the rows, elements in the heap behind them.  FITS Standard 4.0, section
# 7.3.5.  Descriptors are checked against the size of the heap.

MAX_BATCH = 1 << 30
"""Bytes that the cells of one batch may take: descriptors may share a place, and so claim any size."""


def heap_cells(source: Source, table: Table, column: FitsColumn, descriptors: npt.NDArray[Any]) -> pa.Array:
    """Return the cells that n descriptors, (n, 2) of count and place, point to."""
    counts, places = descriptors.astype(np.int64).T
    sizes = (counts + 7) // 8 if column.code == "X" else counts * STORED[column.code].itemsize
    _check(table, column, counts, places, sizes)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    raw = _gather(source, table.heap_offset, places, sizes)
    if column.code == "A":
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
        return trimmed(pa.Array.from_buffers(pa.binary(), len(counts), buffers))
    if column.code == "X":
        whole = bits(raw.reshape(1, -1), raw.size * 8).reshape(-1)
        # The bits of all cells one after another: each cell began with a whole byte.
        shifts = np.repeat(8 * (np.cumsum(sizes) - sizes) - (np.cumsum(counts) - counts), counts)
        flat = array_of(whole[shifts + np.arange(len(shifts))], pa.bool_())
    else:
        stored = raw.view(STORED[column.code])
        flat = elements(column, stored.astype(stored.dtype.newbyteorder("=")))
    lists = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(column.datatype, len(counts), lists, children=[flat])


def _check(table: Table, column: FitsColumn, counts: Integers, places: Integers, sizes: Integers) -> None:
    # In this order no sum overflows: counts are checked against the heap's size before they are added.
    heap = table.heap_bytes
    bad = (counts < 0) | (sizes < 0) | (sizes > heap)
    bad |= (counts > 0) & ((places < 0) | (places > heap - sizes))
    if bad.any():
        i = int(np.argmax(bad))
        claim = f"a cell of '{column.name}' claims {counts[i]:,} elements at byte {places[i]:,}"
        raise table.hdu.damaged(f"{claim} of a heap of {heap:,} bytes; the file is damaged")
    total = float(sizes.sum(dtype=np.float64))
    if total > MAX_BATCH:
        raise CatalogError(
            f"{table.hdu.where}: {len(counts):,} cells of '{column.name}' take {total:.3g} bytes, more than "
            f"the {MAX_BATCH:,} of a batch; read fewer rows at a time"
        )


def _gather(source: Source, heap: int, places: Integers, sizes: Integers) -> Bytes:
    held = sizes > 0
    places, sizes = places[held], sizes[held]
    if not len(sizes):
        return np.empty(0, np.uint8)
    if np.array_equal(places[1:], places[:-1] + sizes[:-1]):  # as every writer leaves them
        return source.read(heap + int(places[0]), int(sizes.sum()))
    raw = np.empty(int(sizes.sum()), np.uint8)
    ends = np.cumsum(sizes)
    for place, size, end in zip(places.tolist(), sizes.tolist(), ends.tolist(), strict=True):
        source.fill(raw[end - size : end], heap + place)
    return raw
