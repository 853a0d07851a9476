"""From Arrow columns to the cells of a FITS table: which form they take, and what is lost.

FITS has no nulls but in integers, no nested types, no times, and text of one width in ASCII.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.arrays.values import is_string, is_text
from catalogs.errors import CatalogError

__all__ = ["CellKind", "Survey", "elements_of", "fits_names", "kind_of", "losses", "settled"]

Stored = npt.NDArray[Any]

INTEGERS = {
    pa.uint8(): ("B", 0),
    pa.int8(): ("B", -(2**7)),
    pa.int16(): ("I", 0),
    pa.uint16(): ("I", 2**15),
    pa.int32(): ("J", 0),
    pa.uint32(): ("J", 2**31),
    pa.int64(): ("K", 0),
    pa.uint64(): ("K", 2**63),
}
"""Arrow type: TFORM code, TZERO."""

FLOATS = {pa.float16(): ("E", 0), pa.float32(): ("E", 0), pa.float64(): ("D", 0)}
STORED = {"L": "u1", "B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8"}
WIDER = {pa.uint8(): pa.int16(), pa.int8(): pa.int16(), pa.int16(): pa.int32(), pa.uint16(): pa.int32()}
WIDER |= {pa.int32(): pa.int64(), pa.uint32(): pa.int64()}


@dataclass(frozen=True)
class CellKind:
    """What the cells of a column become: elements of a type, one, in a fixed shape, or of `variable` number.

    Text is of `width` bytes; `null` stands for a null integer; `conversion` says what becomes of a type
    unknown to FITS.
    """

    element: pa.DataType
    shape: tuple[int, ...] = ()
    variable: bool = False
    width: int = 0
    null: int | None = None
    conversion: str = ""

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
        known = INTEGERS | FLOATS | {pa.bool_(): ("L", 0), pa.string(): ("A", 0)}
        return known[self.element][0]

    @property
    def zero(self) -> int:
        """TZERO, which makes integers unsigned and bytes signed."""
        return INTEGERS.get(self.element, ("", 0))[1]

    @property
    def stored(self) -> np.dtype[Any]:
        """How an element is stored."""
        return np.dtype(f"S{self.width}" if self.is_text else STORED[self.code])

    def shaped(self, shape: tuple[int, ...]) -> CellKind:
        """Return the kind in another shape of as many elements; itself, where the numbers differ."""
        return replace(self, shape=shape) if shape and math.prod(shape) == self.repeat else self

    @property
    def repeat(self) -> int:
        """Elements of a cell in a fixed shape."""
        return math.prod(self.shape)


def kind_of(datatype: pa.DataType) -> CellKind:
    """Return what cells of an Arrow type become; text has no width yet."""
    shape: list[int] = []
    inner = plain_type(datatype)
    while pt.is_fixed_size_list(inner):
        shape.append(inner.list_size)
        inner = plain_type(inner.value_type)
    variable = not shape and (pt.is_list(inner) or pt.is_large_list(inner))
    if variable:
        inner = plain_type(inner.value_type)
    if inner in INTEGERS or inner in FLOATS or pt.is_boolean(inner):
        extension = isinstance(datatype, pa.BaseExtensionType)
        conversion = (
            f"{datatype.extension_name} is written as the type in which Arrow stores it, {inner}"
            if extension
            else ""
        )
        return CellKind(inner, tuple(shape), variable, conversion=conversion)
    if pt.is_duration(inner):
        conversion = f"durations are written as whole numbers, in {inner.unit}"
        return CellKind(pa.int64(), tuple(shape), variable, conversion=conversion)
    if pt.is_decimal(inner):
        return CellKind(
            pa.float64(), tuple(shape), variable, conversion="decimal numbers are rounded to float64"
        )
    if variable or (shape and not is_text(inner)) or pt.is_nested(inner):
        return CellKind(pa.string(), conversion=f"{datatype} is written as JSON text")
    conversion = (
        ""
        if is_text(inner)
        else "times are written as ISO 8601 text"
        if pt.is_temporal(inner)
        else f"{inner} is written as text"
    )
    return CellKind(pa.string(), tuple(shape), conversion=conversion)


def fits_names(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """Return names as FITS can hold them: ASCII, and `col3` for the third column if it has none.

    Other new names than those `taken` are made.
    """
    others = {*names, *taken}
    stored = []
    for number, name in enumerate(names, 1):
        text = "".join(c if c.isprintable() else " " for c in name)
        text = text.encode("ascii", "backslashreplace").decode().rstrip()
        if not text.strip():
            text = f"col{number}"
        while text != name and text in others:
            text += "_"
        others.add(text)
        stored.append(text)
    return stored


def plain_type(datatype: pa.DataType) -> pa.DataType:
    """Return the type of the values behind dictionaries and extensions."""
    while pt.is_dictionary(datatype) or isinstance(datatype, pa.BaseExtensionType):
        datatype = datatype.value_type if pt.is_dictionary(datatype) else datatype.storage_type
    return datatype


def elements_of(array: pa.Array, kind: CellKind) -> tuple[pa.Array, pa.Array | None]:
    """Return the elements of all cells one after another and, of a variable number, how many each cell has."""
    counts = pc.list_value_length(storage(array)).fill_null(0) if kind.variable else None
    return simple(raw_elements(array, kind), kind), counts


def raw_elements(array: pa.Array, kind: CellKind) -> pa.Array:
    """Return the elements of all cells as they are."""
    array = storage(array)
    if kind.variable:
        return storage(array.flatten())
    while kind.shape and pt.is_fixed_size_list(array.type):
        array = storage(flattened(array))
    return array


def flattened(array: pa.Array) -> pa.Array:
    """Return the elements of lists of fixed size, those of null lists as nulls."""
    values = array.flatten()
    if not array.null_count:
        return values
    size, valid = (
        array.type.list_size,
        np.repeat(array.is_valid().to_numpy(zero_copy_only=False), array.type.list_size),
    )
    places = np.cumsum(valid) - 1
    return values.take(pa.array(np.where(valid, places, 0), mask=~valid)) if size else values


def storage(array: pa.Array) -> pa.Array:
    """Return the values behind dictionaries and extensions, texts and bytes of any kind as the plain kind."""
    while isinstance(array, pa.ExtensionArray) or pt.is_dictionary(array.type):
        array = array.storage if isinstance(array, pa.ExtensionArray) else array.dictionary_decode()
    if not is_text(array.type):
        return array
    return array.cast(pa.string() if is_string(array.type) else pa.binary())


def simple(array: pa.Array, kind: CellKind) -> pa.Array:
    """Return the elements as the kind's type; text as ASCII."""
    if not kind.is_text:
        return array.cast(kind.element)
    if pt.is_nested(array.type):
        cells = (None if v is None else json.dumps(v, default=str) for v in array.to_pylist())
        return pa.array(cells, pa.string())
    if pt.is_temporal(array.type):
        return pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)
    return ascii_text(array)


def ascii_text(array: pa.Array) -> pa.Array:
    """Return text or bytes as ASCII, other characters escaped with a backslash."""
    try:
        text = array.cast(pa.string())
    except pa.ArrowInvalid:
        text = pa.array([None if v is None else v.decode("latin-1") for v in array.to_pylist()], pa.string())
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:
        return text
    escaped = (v and v.encode("ascii", "backslashreplace").decode() for v in text.to_pylist())
    return pa.array(escaped, pa.string())


def total_length(array: pa.Array) -> int:
    """Return the bytes of all texts, which escapes make more."""
    return pc.sum(pc.binary_length(array)).as_py() or 0


@dataclass
class Survey:
    """What a pass over a column has found: without it neither widths nor nulls can be declared."""

    nulls: int = 0
    null_cells: int = 0
    width: int = 0
    escaped: bool = False
    blanks: bool = False
    low: int | None = None
    high: int | None = None
    elements: int = 0
    longest: int = 0

    def add(self, array: pa.Array, kind: CellKind) -> None:
        """Take the cells of a batch into account."""
        raw, (values, counts) = raw_elements(array, kind), elements_of(array, kind)
        self.nulls += values.null_count
        self.null_cells += array.null_count
        self.elements += len(values)
        if counts is not None and len(counts):
            self.longest = max(self.longest, pc.max(counts).as_py())
        if kind.is_text:
            self.width = max(self.width, pc.max(pc.binary_length(values)).as_py() or 0)
            self.escaped |= is_text(raw.type) and total_length(raw) != total_length(values)
            self.blanks |= bool(pc.any(pc.match_substring_regex(values, r"[ \x00]$")).as_py())
        elif kind.is_integer and len(values) > values.null_count:
            low, high = pc.min_max(values).as_py().values()
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)


def settled(kind: CellKind, survey: Survey, null: int | None = None) -> CellKind:
    """Return the kind with the width of text, and with an integer for nulls that no value has, if need be wider."""
    if kind.is_text:
        return replace(kind, width=max(1, survey.width))
    if not kind.is_integer or not survey.nulls:
        return kind
    low, high = survey.low, survey.high
    bits = kind.element.bit_width
    signed = pt.is_signed_integer(kind.element)
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    wanted = [n for n in (null, least if signed else most, most if signed else least) if n is not None]
    for candidate in wanted:
        if least <= candidate <= most and (low is None or high is None or not low <= candidate <= high):
            return replace(kind, null=candidate)
    wider = WIDER.get(kind.element)
    if wider is None:
        raise CatalogError(
            "every 64-bit integer that could mark nulls is a value of the column, expected one that is free; "
            "remove the nulls"
        )
    return settled(replace(kind, element=wider), survey, null)


def losses(kind: CellKind, survey: Survey) -> list[str]:
    """Return what of a column does not survive."""
    lost = [kind.conversion] if kind.conversion else []
    if kind.element in FLOATS and survey.nulls:
        lost.append("nulls become NaN")
    if kind.is_text and survey.nulls:
        lost.append("nulls become empty text")
    if kind.variable and survey.null_cells:
        lost.append("null lists become empty ones")
    if survey.escaped:
        lost.append("characters beyond ASCII are written as backslash escapes")
    if kind.is_text and survey.blanks:
        lost.append("spaces at the end of text are lost")
    return lost
