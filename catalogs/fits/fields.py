"""Columns as a FITS table that we write stores them: old ones of any Arrow type, and new ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.arrays import ASCII, code_points, decoded, is_string, is_text
from catalogs.catalog.catalog import Column
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, brief
from catalogs.fits.columns import PLAIN, SHIFTED, STORED
from catalogs.metadata.fits_cards import integer_card, text_cards

# FITS has no nulls but in integers, no nested types, no times, and text of one width in ASCII.

Stored = npt.NDArray[Any]

INTEGERS = {PLAIN[code]: (code, 0) for code in "BIJK"} | {t: key for key, t in SHIFTED.items()}
"""Arrow type: TFORM code, TZERO."""

FLOATS = {pa.float16(): ("E", 0), pa.float32(): ("E", 0), pa.float64(): ("D", 0)}
WIDER = {pa.uint8(): pa.int16(), pa.int8(): pa.int16(), pa.int16(): pa.int32(), pa.uint16(): pa.int32()}
WIDER |= {pa.int32(): pa.int64(), pa.uint32(): pa.int64()}

CODES = {pa.bool_(): ("L", 0), **INTEGERS, **FLOATS, pa.string(): ("A", 0)}
DISPLAYS = {"L": "", "B": "I3", "I": "I6", "J": "I11", "K": "I20", "E": "G13.6", "D": "G22.15", "A": ""}
"""TDISP of what new columns are stored as."""


def plain_type(datatype: pa.DataType) -> pa.DataType:
    """Return the type of the values behind dictionaries and extensions."""
    while pt.is_dictionary(datatype) or isinstance(datatype, pa.BaseExtensionType):
        datatype = datatype.value_type if pt.is_dictionary(datatype) else datatype.storage_type
    return datatype


def flattened(array: pa.Array) -> pa.Array:
    """Return the elements of lists of fixed size, those of null lists as nulls."""
    values = array.flatten()
    if not array.null_count:
        return values
    size = array.type.list_size
    valid = np.repeat(array.is_valid().to_numpy(zero_copy_only=False), size)
    places = np.cumsum(valid) - 1
    return values.take(pa.array(np.where(valid, places, 0), mask=~valid)) if size else values


def storage(array: pa.Array) -> pa.Array:
    """Return the values behind dictionaries and extensions, texts and bytes of any kind as the plain kind."""
    while isinstance(array, pa.ExtensionArray) or pt.is_dictionary(array.type):
        array = array.storage if isinstance(array, pa.ExtensionArray) else array.dictionary_decode()
    text = pa.string() if is_string(array.type) else pa.binary()
    return array.cast(text) if is_text(array.type) else array


def simple(array: pa.Array, element: pa.DataType) -> pa.Array:
    """Return elements as a type that FITS has; text as ASCII."""
    if not pt.is_string(element):
        return array.cast(element)
    if pt.is_nested(array.type):
        cells = (None if v is None else json.dumps(v, default=str) for v in array.to_pylist())
        return pa.array(cells, pa.string())
    if pt.is_temporal(array.type):
        return pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)
    return ascii_text(array)


LONGEST_NAME = 68
"""Characters of a name, each quote counted twice, that fit into one card: of longer ones astropy reads no table."""


def ascii_text(array: pa.Array) -> pa.Array:
    """Return text or bytes as ASCII, other characters, and NUL before its end, escaped with a backslash."""
    text = decoded(array).cast(pa.string())
    cut = pc.match_substring_regex(text, r"\x00[^\x00]")  # to readers, a text ends at its first NUL
    if pc.all(pc.and_not(pc.string_is_ascii(text), cut)).as_py() is not False:
        return text
    escaped = (
        v and v.rstrip("\0").replace("\0", "\\x00").encode("ascii", "backslashreplace").decode()
        for v in text.to_pylist()
    )
    return pa.array(escaped, pa.string())


@dataclass
class FitsField:
    """An old column as FITS stores it, under a name that FITS can hold.

    Its cells are elements of a type, one, in a fixed `shape`, or of `variable` number.  `null` stands for a null
    integer, and `conversion` says what becomes of a type unknown to FITS.  A pass over the values finds what has to be
    declared first: the width of text in bytes, nulls, and the sizes of the heap.
    """

    column: Column
    name: str
    element: pa.DataType
    shape: tuple[int, ...] = ()
    variable: bool = False
    conversion: str = ""
    null: int | None = None
    nulls: int = 0
    null_cells: int = 0
    width: int = 0
    escaped: bool = False
    blanks: bool = False
    low: int | None = None
    high: int | None = None
    elements: int = 0
    longest: int = 0
    display: str = ""

    @classmethod
    def of_new(cls, column: NewColumn) -> FitsField:
        """Return what a new column becomes."""
        about = Column(column.name, column.datatype, column.unit, column.ucd, column.description)
        field = cls(about, column.name, column.datatype)
        field.width = (column.width or 0) if field.is_text else 0
        if field.is_text and not column.width:
            raise CatalogError(
                f"'{column.name}' is text of unknown width, which FITS has to know; give NewColumn(width=...)"
            )
        if len(column.name) > LONGEST_NAME:
            raise CatalogError(
                f"got the new column '{column.name}', expected a name of {LONGEST_NAME} characters at most for FITS; "
                "choose a shorter name of the class, or a shorter prefix, or write Parquet"
            )
        if field.element not in CODES:
            known = ", ".join(str(t) for t in CODES)
            raise CatalogError(f"'{column.name}' is {column.datatype}; FITS columns are added as {known}")
        # Astropy reads signed bytes as floats, which it cannot show as integers.
        field.display = "" if column.datatype == pa.int8() else DISPLAYS[field.code]
        return field

    @classmethod
    def of(cls, column: Column) -> FitsField:
        """Return what cells of the column's Arrow type become; of vectors in the column's shape, if it fits."""
        datatype, shape = column.datatype, []
        inner = plain_type(datatype)
        while pt.is_fixed_size_list(inner):
            shape.append(inner.list_size)
            inner = plain_type(inner.value_type)
        variable = not shape and (pt.is_list(inner) or pt.is_large_list(inner))
        if variable:
            inner = plain_type(inner.value_type)
        element, conversion = inner, ""
        if inner in INTEGERS or inner in FLOATS or pt.is_boolean(inner):
            if isinstance(datatype, pa.BaseExtensionType):
                conversion = f"{datatype.extension_name} is written as Arrow stores it, {inner}"
        elif pt.is_duration(inner):
            element, conversion = pa.int64(), f"durations are written as whole numbers, in {inner.unit}"
        elif pt.is_decimal(inner):
            element, conversion = pa.float64(), "decimal numbers are rounded to float64"
        elif variable or (shape and not is_text(inner)) or pt.is_nested(inner):
            element, shape, variable = pa.string(), [], False
            conversion = f"{datatype} is written as JSON text"
        else:
            element = pa.string()
            if not is_text(inner):
                times = "times are written as ISO 8601 text"
                conversion = times if pt.is_temporal(inner) else f"{inner} is written as text"
        stated = column.shape and math.prod(column.shape) == math.prod(shape)
        shape = [*column.shape] if stated else shape
        return cls(column, column.name, element, tuple(shape), variable, conversion)

    @property
    def is_text(self) -> bool:
        """Whether the elements are text."""
        return bool(pt.is_string(self.element))

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers."""
        return self.element in INTEGERS

    @property
    def code(self) -> str:
        """The TFORM code of an element."""
        return CODES[self.element][0]

    @property
    def zero(self) -> int:
        """TZERO, which makes integers unsigned and bytes signed."""
        return INTEGERS.get(self.element, ("", 0))[1]

    @property
    def stored_element(self) -> np.dtype[Any]:
        """How an element is stored."""
        return np.dtype(f"S{self.width}") if self.is_text else STORED[self.code]

    def raw_elements(self, array: pa.Array) -> pa.Array:
        """Return the elements of all cells, one after another, as they are."""
        array = storage(array)
        if self.variable:
            return storage(array.flatten())
        while self.shape and pt.is_fixed_size_list(array.type):
            array = storage(flattened(array))
        return array

    def counts(self, array: pa.Array) -> pa.Array | None:
        """Return how many elements each cell has where that varies, else None."""
        return pc.list_value_length(storage(array)).fill_null(0) if self.variable else None

    def add(self, array: pa.Array) -> None:
        """Take the cells of a batch into account."""
        raw, counts = self.raw_elements(array), self.counts(array)
        values = simple(raw, self.element)
        self.nulls += values.null_count
        self.null_cells += array.null_count
        self.elements += len(values)
        if counts is not None and len(counts):
            self.longest = max(self.longest, pc.max(counts).as_py())
        if self.is_text:
            self.width = max(self.width, pc.max(pc.binary_length(values)).as_py() or 0)
            if is_text(raw.type):  # escapes make texts longer
                before, after = (pc.sum(pc.binary_length(texts)).as_py() or 0 for texts in (raw, values))
                self.escaped |= before != after
            self.blanks |= bool(pc.any(pc.match_substring_regex(values, r"[ \x00]$")).as_py())
        elif self.is_integer and len(values) > values.null_count:
            low, high = pc.min_max(values).as_py().values()
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def settle(self) -> None:
        """Choose the width of text, and an integer for nulls that no value has, if need be a wider one."""
        if self.is_text:
            self.width = max(1, self.width)
        if not self.is_integer or not self.nulls:
            return
        bits, low, high = self.element.bit_width, self.low, self.high
        signed = pt.is_signed_integer(self.element)
        least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        for null in (self.column.null, *((least, most) if signed else (most, least))):
            free = low is None or high is None or (null is not None and not low <= null <= high)
            if null is not None and least <= null <= most and free:
                self.null = null
                return
        if self.element not in WIDER:
            raise CatalogError(
                "every 64-bit integer that could mark nulls is a value of the column, expected one that is free; "
                "remove the nulls"
            )
        self.element = WIDER[self.element]
        self.settle()

    def losses(self) -> list[str]:
        """Return what of the column does not survive."""
        lost = {
            self.conversion: self.conversion,
            "nulls become NaN": self.element in FLOATS and self.nulls,
            "nulls become empty text": self.is_text and self.nulls,
            "null lists become empty ones": self.variable and self.null_cells,
            "characters beyond ASCII are written as backslash escapes": self.escaped,
            "spaces at the end of text are lost": self.is_text and self.blanks,
        }
        return [what for what, is_lost in lost.items() if is_lost]

    @property
    def heap_bytes(self) -> int:
        """Bytes in the heap."""
        return self.elements * self.stored_element.itemsize if self.variable else 0

    def stored(self, descriptor: str = "") -> np.dtype[Any]:
        """Return the type of the column's part of a row."""
        if self.variable:
            return np.dtype((">i4" if descriptor == "P" else ">i8", (2,)))
        return np.dtype((self.stored_element, self.shape)) if self.shape else self.stored_element

    def cards(self, n: int, descriptor: str = "") -> Iterator[bytes]:
        """Yield the cards of the column as the n-th."""
        yield from text_cards(f"TTYPE{n}", self.name)
        form = f"{math.prod(self.shape) * (self.width or 1)}{self.code}"
        if self.variable:
            form = f"1{descriptor}{self.code}({self.longest})"
        yield from text_cards(f"TFORM{n}", form)
        if self.column.unit:
            yield from text_cards(f"TUNIT{n}", self.column.unit)
        if self.null is not None:
            yield integer_card(f"TNULL{n}", self.null - self.zero)
        if self.zero:
            yield integer_card(f"TZERO{n}", self.zero)
        dimensions = [*self.shape, *([self.width] if self.is_text and self.shape else [])]
        if len(dimensions) > 1:
            yield from text_cards(f"TDIM{n}", f"({','.join(map(str, reversed(dimensions)))})")
        said = {"TDISP": self.display, "TUCD": self.column.ucd, "TCOMM": self.column.description}
        for keyword, text in said.items():
            if text:
                yield from text_cards(f"{keyword}{n}", text)

    def encode(self, array: pa.Array) -> tuple[Stored, Stored | None]:
        """Return the elements as they are stored, in the cells' shape, or else with the cells' counts."""
        stored, counts = self._encoded(simple(self.raw_elements(array), self.element)), self.counts(array)
        if counts is not None:
            return stored, np.asarray(counts.to_numpy(zero_copy_only=False), np.int64)
        return stored.reshape(len(array), *self.shape), None

    def encode_new(self, values: Stored) -> Stored:
        """Return values of a new column as they are stored."""
        if not self.is_text:
            return self._encoded(pa.array(values))
        if values.dtype.kind != "U":
            words = [str(v) for v in values.tolist()]
            self.require_fit(words)  # NumPy would reserve the space of the longest text for each
            values = np.array(words, np.str_)
        codes = code_points(values)
        if codes[:, self.width :].any() or (codes > ASCII).any():
            self.require_fit(values.tolist())
        narrow = np.zeros((len(values), self.width), np.uint8)
        narrow[:, : codes.shape[1]] = codes[:, : self.width]
        return narrow.view(self.stored_element).reshape(-1)

    def require_fit(self, words: Sequence[str]) -> None:
        """Raise CatalogError where a text is longer than was promised, or not ASCII."""
        if word := next((w for w in words if len(w) > self.width or not w.isascii()), ""):
            raise CatalogError(
                f"'{self.name}' got the text {brief(word)!r}, expected at most {self.width} characters, all ASCII, for "
                "FITS: state the width of the longest text, rename the class, or write another format"
            )

    def _encoded(self, values: pa.Array) -> Stored:
        if self.is_text:  # in ASCII, padded with NUL
            padded = pc.ascii_rpad(values.fill_null(""), self.width, padding="\0")
            return np.frombuffer(padded.buffers()[2] or b"", f"S{self.width}", len(padded))
        if self.code == "L":
            truth = values.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 -- the value
            present = values.is_valid().to_numpy(zero_copy_only=False)
            return np.where(present, np.where(truth, ord("T"), ord("F")), 0).astype(np.uint8)
        filled = values.fill_null(self.null or 0) if self.is_integer else values.fill_null(float("nan"))
        numbers = filled.to_numpy(zero_copy_only=False)
        if self.zero:
            # Subtracting the top bit means inverting it: this is exact where arithmetic would overflow.
            unsigned = numbers.view(f"u{numbers.itemsize}")
            top = unsigned.dtype.type(1 << (8 * numbers.itemsize - 1))
            sign = "u" if self.code == "B" else "i"
            numbers = np.bitwise_xor(unsigned, top).view(f"{sign}{numbers.itemsize}")
        return np.asarray(numbers.astype(self.stored_element))
