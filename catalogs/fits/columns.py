"""Columns of a FITS binary table: from TFORMn and its companions to a place in the row and an Arrow type.

FITS Standard 4.0, section 7.3.  Integers that TZERO makes unsigned (or bytes signed) are exact integers of
that type; any other scaling gives float64.  A complex number is a list of two: real part, imaginary part.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import Column
from catalogs.errors import DamagedFileError, FormatError
from catalogs.fits.header import Hdu, Header

__all__ = ["MAX_FIELDS", "MAX_ROW", "STORED", "FitsColumn", "Table", "column_of", "table_of"]

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
        return pa.list_(self.element, self.repeat) if self.shape else self.element

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


def table_of(hdu: Hdu) -> Table:
    """Return the table that a header describes; `DamagedFileError` where it contradicts itself."""
    header = hdu.header
    n_axes, n_groups, bits = header.integer("NAXIS"), header.integer("GCOUNT", 1), header.value("BITPIX")
    if (n_axes, n_groups, bits) != (2, 1, 8):
        raise DamagedFileError(
            f"{header.where}: NAXIS, GCOUNT and BITPIX are {n_axes}, {n_groups}, {bits}; expected 2, 1, 8 "
            "for a table; get another copy"
        )
    row_bytes, n_rows = header.integer("NAXIS1"), header.integer("NAXIS2")
    columns = _columns(header, row_bytes)
    if row_bytes > MAX_ROW or (n_rows and not row_bytes):
        raise FormatError(
            f"{header.where}: got {n_rows:,} rows of {row_bytes:,} bytes, expected 1 to {MAX_ROW:,} bytes in "
            "each row; convert it with the program that wrote it, or get another copy"
        )
    main = n_rows * row_bytes
    heap = header.integer("THEAP", main) if main < hdu.data_bytes else main
    if not main <= heap <= hdu.data_bytes:
        raise DamagedFileError(
            f"{header.where}: THEAP puts the heap at byte {heap:,} of the data; expected a byte from "
            f"{main:,}, where the rows end, to {hdu.data_bytes:,}; get another copy"
        )
    return Table(hdu, columns, n_rows, row_bytes, heap - main)


def _columns(header: Header, row_bytes: int) -> tuple[FitsColumn, ...]:
    n_fields = header.integer("TFIELDS")
    if n_fields > MAX_FIELDS:
        raise DamagedFileError(
            f"{header.where}: TFIELDS is {n_fields:,}, expected at most {MAX_FIELDS}; get another copy"
        )
    columns: list[FitsColumn] = []
    offset = 0
    for n in range(1, n_fields + 1):
        columns.append(column_of(header, n, offset))
        offset += columns[-1].n_bytes
    if offset != row_bytes:
        raise DamagedFileError(
            f"{header.where}: the {n_fields} columns take {offset:,} bytes a row by their TFORMn, but "
            f"NAXIS1 says {row_bytes:,}; the header is damaged: get another copy"
        )
    return tuple(columns)


def column_of(header: Header, n: int, offset: int, *, keyword: str = "TFORM") -> FitsColumn:
    """Return the n-th column, of the form that a keyword gives it, at a place in the row."""
    form = header.text(f"{keyword}{n}") or ""
    parts = TFORM.fullmatch(form)
    if not parts:
        raise DamagedFileError(
            f"{header.where}: {keyword}{n} is {form!r}, expected a number and a letter, as in '1E'; get another copy"
        )
    repeat, code, rest = int(parts[1] or 1), parts[2].upper(), parts[3]
    if repeat > MAX_ROW:
        raise DamagedFileError(
            f"{header.where}: {keyword}{n} is {form!r}, expected at most {MAX_ROW:,} elements in a cell; get "
            "another copy"
        )
    n_bytes = (repeat + 7) // 8 if code == "X" else repeat * STORED[code].itemsize
    heap, width = "", 0
    shape: tuple[int, ...] = () if repeat == 1 else (repeat,)
    if code in HEAP_CODES:
        heap, code, shape = code, _heap_code(header, n, form, rest, repeat), ()
    elif code == "A":
        width, shape = _texts(header, n, repeat, rest)
        repeat = math.prod(shape)
    else:
        shape = _shape(header, n, repeat) or shape
    null, scale, zero = (
        _number(header, f"TNULL{n}"),
        _number(header, f"TSCAL{n}"),
        _number(header, f"TZERO{n}"),
    )
    return FitsColumn(
        name=header.text(f"TTYPE{n}") or f"col{n}",
        code=code,
        repeat=repeat,
        offset=offset,
        n_bytes=n_bytes,
        heap=heap,
        width=width,
        shape=shape,
        null=null if isinstance(null, int) and code in "BIJK" else None,
        scale=1.0 if scale is None else scale,
        zero=0.0 if zero is None else zero,
        unit=header.text(f"TUNIT{n}"),
        ucd=header.text(f"TUCD{n}"),
        description=header.text(f"TCOMM{n}") or _useful(header.comment(f"TTYPE{n}")),
    )


def _heap_code(header: Header, n: int, form: str, rest: str, repeat: int) -> str:
    parts = HEAP_FORM.fullmatch(rest.strip())
    if not parts or repeat > 1:
        raise DamagedFileError(
            f"{header.where}: TFORM{n} is {form!r}, expected a form such as '1PE(10)' or '0QD'; get another copy"
        )
    return parts[1].upper()


def _texts(header: Header, n: int, n_bytes: int, rest: str) -> tuple[int, tuple[int, ...]]:
    """Return the width of a text and the shape of the texts in a cell: by TDIM, else by rAw, else one."""
    dimensions = _dimensions(header, n)
    if len(dimensions) > 1 and math.prod(dimensions) <= n_bytes:
        return dimensions[-1], dimensions[:-1]
    if rest.strip().isdigit() and 0 < int(rest) < n_bytes:
        return int(rest), (n_bytes // int(rest),)
    return n_bytes, ()


def _shape(header: Header, n: int, repeat: int) -> tuple[int, ...]:
    """Return the shape by TDIM, in C order; none where it does not fit the count."""
    shape = _dimensions(header, n)
    return shape if shape != (1,) and math.prod(shape) == repeat else ()


def _dimensions(header: Header, n: int) -> tuple[int, ...]:
    parts = TDIM.fullmatch(header.text(f"TDIM{n}") or "")
    return tuple(int(d) for d in reversed(parts[1].split(","))) if parts else ()


def _number(header: Header, keyword: str) -> int | float | None:
    value = header.value(keyword)
    return None if isinstance(value, bool | str) else value


def _useful(comment: str) -> str | None:
    """Return the comment if it is informative: CFITSIO's 'label for field 1' is not."""
    return None if BOILERPLATE.fullmatch(comment) else comment or None
