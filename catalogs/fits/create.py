"""A new FITS file of one binary table, from Arrow batches: streamed, with checksums, whole or not at all."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.arrays import decoded, is_string, is_text
from catalogs.catalog.catalog import Column, Computed, is_provenance
from catalogs.errors import CatalogError
from catalogs.files import atomic_path
from catalogs.fits.columns import MAX_FIELDS, MAX_ROW, PLAIN, SHIFTED, STORED
from catalogs.fits.header import OnesSum
from catalogs.fits.rewrite import NewField, blank_checksums, with_checksums
from catalogs.metadata.astropy_header import (
    SERIALIZED,
    EcsvHeaderError,
    has_formats,
    read_columns,
    read_items,
    remove_entries,
    with_items,
)
from catalogs.metadata.fits_cards import (
    HISTORY,
    PROSE,
    empty_primary,
    integer_card,
    long_string_cards,
    padding,
    text_cards,
    value_cards,
    verbatim_cards,
    without_provenance,
)

# FITS has no nulls but in integers, no nested types, no times, and text of one width in ASCII.

Stored = npt.NDArray[Any]

INTEGERS = {PLAIN[code]: (code, 0) for code in "BIJK"} | {t: key for key, t in SHIFTED.items()}
"""Arrow type: TFORM code, TZERO."""

FLOATS = {pa.float16(): ("E", 0), pa.float32(): ("E", 0), pa.float64(): ("D", 0)}
WIDER = {pa.uint8(): pa.int16(), pa.int8(): pa.int16(), pa.int16(): pa.int32(), pa.uint16(): pa.int32()}
WIDER |= {pa.int32(): pa.int64(), pa.uint32(): pa.int64()}


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
    if not is_text(array.type):
        return array
    return array.cast(pa.string() if is_string(array.type) else pa.binary())


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


def ascii_text(array: pa.Array) -> pa.Array:
    """Return text or bytes as ASCII, other characters escaped with a backslash."""
    text = decoded(array).cast(pa.string())
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:
        return text
    escaped = (v and v.encode("ascii", "backslashreplace").decode() for v in text.to_pylist())
    return pa.array(escaped, pa.string())


BLOCK_BYTES = 1 << 20
SMALL_HEAP = 2**31 - 1
"""Bytes of a heap in which 32-bit descriptors find their way."""


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
                conversion = (
                    f"{datatype.extension_name} is written as the type in which Arrow stores it, {inner}"
                )
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
        return cls(
            column, column.name, element, column.shape if stated else tuple(shape), variable, conversion
        )

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
        lost = [self.conversion] if self.conversion else []
        if self.element in FLOATS and self.nulls:
            lost.append("nulls become NaN")
        if self.is_text and self.nulls:
            lost.append("nulls become empty text")
        if self.variable and self.null_cells:
            lost.append("null lists become empty ones")
        if self.escaped:
            lost.append("characters beyond ASCII are written as backslash escapes")
        if self.is_text and self.blanks:
            lost.append("spaces at the end of text are lost")
        return lost

    @property
    def heap_bytes(self) -> int:
        """Bytes in the heap."""
        return self.elements * self.stored_element.itemsize if self.variable else 0

    def stored(self, descriptor: str) -> np.dtype[Any]:
        """Return the type of the column's part of a row."""
        if self.variable:
            return np.dtype((">i4" if descriptor == "P" else ">i8", (2,)))
        return np.dtype((self.stored_element, self.shape)) if self.shape else self.stored_element

    def cards(self, n: int, descriptor: str) -> Iterator[bytes]:
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
        for keyword, text in (("TUCD", self.column.ucd), ("TCOMM", self.column.description)):
            if text:
                yield from text_cards(f"{keyword}{n}", text)

    def encode(self, array: pa.Array) -> tuple[Stored, Stored | None]:
        """Return the elements as they are stored, in the cells' shape, or else with the cells' counts."""
        stored, counts = self._encoded(simple(self.raw_elements(array), self.element)), self.counts(array)
        if counts is not None:
            return stored, np.asarray(counts.to_numpy(zero_copy_only=False), np.int64)
        return stored.reshape(len(array), *self.shape), None

    def _encoded(self, values: pa.Array) -> Stored:
        if self.is_text:
            return encoded_text(values.fill_null(""), self.width)
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


def encoded_text(values: pa.Array, width: int) -> Stored:
    """Return texts in ASCII, padded with NUL."""
    padded = pc.ascii_rpad(values, width, padding="\0")
    return np.frombuffer(padded.buffers()[2] or b"", f"S{width}", len(padded))


class Layout:
    """The columns of a new table, the old ones first."""

    def __init__(self, old: Sequence[FitsField], new: Sequence[NewField], n_rows: int) -> None:
        self.old, self.new, self.n_rows = old, new, n_rows
        self.heap_bytes = sum(field.heap_bytes for field in old)
        self.descriptor = "P" if self.heap_bytes <= SMALL_HEAP else "Q"  # Q where 32 bits do not do
        fields: list[Any] = [(f"old{i}", f.stored(self.descriptor)) for i, f in enumerate(old)]
        self.row = np.dtype([*fields, *((f"new{i}", f.stored) for i, f in enumerate(new))])  # unaligned

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
        heap.seek(0)
        while piece := heap.read(BLOCK_BYTES):
            total.add(np.frombuffer(piece, np.uint8))
            stream.write(piece)
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
        if counts is not None:  # the elements go to the end of the heap, and the row says where
            places = heap.tell() + (np.cumsum(counts) - counts) * values.itemsize
            heap.write(np.ascontiguousarray(values).view(np.uint8).data)
            values = np.stack([counts, np.where(counts > 0, places, 0)], axis=1)
        columns[f"old{i}"] = values
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


# The rest, and what makes times and coordinates of columns again, stands in COMMENT cards the way astropy writes them.

BEGIN = "--BEGIN-ASTROPY-SERIALIZED-COLUMNS--"
END = "--END-ASTROPY-SERIALIZED-COLUMNS--"
LOGARITHMIC = "astropy.units.function."
PIECE = 70
"""Characters of a line of YAML on a card; a backslash behind them says that it goes on."""

PROSE_KEYS = {"comments": "COMMENT", HISTORY: HISTORY}
KEYWORD = re.compile(r"[A-Z0-9_-]{1,8}")
STRUCTURAL = re.compile(
    r"SIMPLE|EXTEND|XTENSION|BITPIX|NAXIS\d*|PCOUNT|GCOUNT|TFIELDS|THEAP|END|EXTNAME|CHECKSUM|DATASUM|COMMENT|CONTINUE"
    r"|HISTORY|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO|DISP|BCOL|DIM|CTYP|CUNI|CRPX|CRVL|CDLT|RPOS|UCD|COMM)\d+"
)
"""Keywords that describe the file that the table came from, and not the one that is written."""


def meta_cards(
    text: str, names: Collection[str], replaced: Collection[str], tell: Callable[[str], object]
) -> list[bytes]:
    """Return the cards of what YAML says of a table of which the columns `names` are written.

    Tells what is left out; of columns that others have `replaced` there is nothing to tell.
    """
    try:
        columns, items = read_columns(text), read_items(text)
    except EcsvHeaderError:
        tell("astropy's YAML metadata of the table is left out, since it cannot be read")
        return []
    carded = [(item, item_cards(*item[:2])) for item in items]
    cards = [card for _, own_cards in carded for card in own_cards or ()]
    rest = [item for item, own_cards in carded if own_cards is None]
    gone = {c.name for c in columns} - {*names}
    # Units of magnitudes are not FITS', and written as units astropy could not make its columns of them again.
    lost = gone - {*replaced} or any(LOGARITHMIC in line for _, _, lines in rest for line in lines)
    if lost and any(key == SERIALIZED for key, _, _ in rest):
        rest = [item for item in rest if item[0] != SERIALIZED]
        tell(
            "the metadata by which astropy restores times, coordinates, magnitudes and similar columns is left out"
        )
    formats, has_meta = has_formats(text)
    if lacking := [name for name in formats if name in names]:
        tell(f"the display format of {', '.join(lacking)} (`format`) is left out")
    if rest or has_meta:
        if all(key != SERIALIZED for key, _, _ in rest):
            rest.append((SERIALIZED, {}, (f"- {SERIALIZED}: {{}}",)))
        lines = [BEGIN]
        for line in with_items(remove_entries(text, gone) if gone else text, rest).split("\n"):
            pieces = [line[i : i + PIECE] for i in range(0, max(1, len(line)), PIECE)]
            lines += [*(f"{piece}\\" for piece in pieces[:-1]), pieces[-1]]
        cards += verbatim_cards("COMMENT", [*lines, END])
    return cards


def item_cards(key: str, value: Any) -> Sequence[bytes] | None:
    """Return the cards that say what a key of the metadata does, None where cards cannot.

    Our provenance is said elsewhere.
    """
    if is_provenance(key):
        return ()
    if key in PROSE_KEYS and isinstance(value, list):
        lines = without_provenance({HISTORY: value}).get(HISTORY, ())
        as_they_are = all(
            isinstance(line, str) and line.isascii() and line.isprintable() and len(line) <= PROSE
            for line in lines
        )
        return verbatim_cards(PROSE_KEYS[key], lines) if as_they_are else None
    if KEYWORD.fullmatch(key) and not STRUCTURAL.fullmatch(key) and is_plain(value):
        return value_cards(key, value)
    return None


def is_plain(value: Any) -> bool:
    """Say whether a card holds a value as it is."""
    if isinstance(value, str):
        return value.isascii() and value.isprintable() and value == value.rstrip()
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
