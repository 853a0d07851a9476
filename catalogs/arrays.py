"""Values in Arrow and NumPy: the types that columns have in common, their conversion, and texts as whole columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from catalogs.errors import ColumnNotFoundError, ExpressionError, nearest

# From Arrow columns to the NumPy arrays that expressions are evaluated on, missing values included.  Missing numbers
# are NaN and missing text is ''.  Integers without nulls stay integers, so that 64-bit identifiers compare exactly;
# with nulls they become float64, or a masked array where float64 would round.  Text loses trailing blanks, which FITS
# and those who convert from it pad with.

Array = np.ndarray[Any, Any]
Floats = NDArray[np.float64]
NO_VALUES = np.dtype("V1")
"""The type of a column of nulls only: missing numbers or missing text, as it is used."""
EXACT_INTEGER = 2**53
"""float64 holds every integer up to this magnitude, and above it rounds."""
STRINGS = frozenset(t.id for t in (pa.string(), pa.large_string(), pa.string_view()))
TEXTS = STRINGS | {t.id for t in (pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view())}


def batch_values(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Array]:
    """Return the named columns of a batch as arrays."""
    known = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in (names := tuple(names)):
        if name not in known:
            raise ColumnNotFoundError(
                f"the column '{name}' was not read, expected one of those that were; {nearest(name, list(known))}"
            )
    return {name: column_values(known[name], name=name) for name in names}


def column_values(column: pa.Array | pa.ChunkedArray, *, name: str = "") -> Array:
    """Return a column as an array, (n,), or (n, k, ...) for vectors; `name` is for messages."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_fixed_size_list(column.type) or pt.is_list(column.type) or pt.is_large_list(column.type):
        return vectors(column, name)
    if is_text(column.type):
        return texts(column)
    return scalars(column, name)


def value_type(datatype: pa.DataType) -> pa.DataType:
    """Return the type that a column's values are read as: those of a dictionary, and of views the plain one."""
    while pt.is_dictionary(datatype):
        datatype = datatype.value_type
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(datatype, datatype)


def is_string(datatype: pa.DataType) -> bool:
    """Say whether a type is text of any layout, bytes left out."""
    return datatype.id in STRINGS


def is_text(datatype: pa.DataType) -> bool:
    """Say whether a type holds text; bytes are text, since that is how FITS strings reach Parquet."""
    return datatype.id in TEXTS


def is_real(datatype: pa.DataType) -> bool:
    """Say whether a type holds numbers with fractions; databases write them as decimals too."""
    return pt.is_floating(datatype) or (pt.is_decimal(datatype) and datatype.scale > 0)


def list_shape(datatype: pa.DataType) -> tuple[int, ...]:
    """Return the sizes of vectors within vectors, () of a single value."""
    if not pt.is_fixed_size_list(datatype):
        return ()
    return (datatype.list_size, *list_shape(datatype.value_type))


def scalars(column: pa.Array, name: str) -> Array:
    """Return one number, boolean or time a row."""
    datatype = column.type
    if pt.is_decimal(datatype):  # as databases write numbers: int64 where they are whole and in its range
        try:
            column = column.cast(pa.int64() if datatype.scale <= 0 else pa.float64())
        except pa.ArrowInvalid:
            column = column.cast(pa.float64())
        datatype = column.type
    if pt.is_null(datatype):
        return np.zeros(len(column), NO_VALUES)
    if pt.is_integer(datatype) and column.null_count:
        gone = column.is_null().to_numpy(zero_copy_only=False)
        return with_missing(column.fill_null(0).to_numpy(zero_copy_only=False), gone)
    if pt.is_boolean(datatype) and column.null_count:
        data = pc.fill_null(column, fill_value=False).to_numpy(zero_copy_only=False)
        return np.ma.MaskedArray(data, mask=column.is_null().to_numpy(zero_copy_only=False))
    if pt.is_primitive(datatype):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    raise ExpressionError(
        f"the column '{name}' holds {datatype}; expected numbers, text or vectors; name another"
    )


def with_missing(values: Array, gone: Array) -> Array:
    """Return numbers with some missing: as NaN, or masked where they are integers that float64 would round."""
    data, gone = np.ma.getdata(values), gone | np.ma.getmaskarray(values)
    whole = data.dtype.kind in "iu" and data.size > 0
    if whole and max(abs(int(data.min())), abs(int(data.max()))) > EXACT_INTEGER:
        return np.ma.MaskedArray(data, mask=gone)
    return np.where(gone, np.nan, data if data.dtype.kind == "f" else data.astype(np.float64))


def texts(column: pa.Array) -> Array:
    """Return text as objects, nulls as ''."""
    trimmed = pc.utf8_rtrim(decoded(column).fill_null(""), characters=" \0")
    return np.asarray(trimmed.to_numpy(zero_copy_only=False), dtype=object)


def floats(column: pa.Array | npt.ArrayLike) -> NDArray[np.float64]:
    """Return the numbers of a column of Arrow or NumPy, (n,) or (n, k), in double precision, NaN where missing.

    A column of nulls only is missing throughout; times of Arrow count their units.
    """
    if isinstance(column, pa.Array):
        if pt.is_temporal(column.type):
            column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
        column = column_values(column)
    values: Array = np.ma.asanyarray(column)
    if values.dtype == NO_VALUES:
        return np.full(values.shape, np.nan)
    with np.errstate(invalid="ignore"):  # a signalling NaN, as damaged bytes may hold, is a NaN
        return np.asarray(np.ma.filled(values.astype(np.float64, copy=False), np.nan))


def plain(column: pa.Array, padding: str = " ") -> pa.Array:
    """Return texts without padding at their ends; bytes as text, nulls as ''."""
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    text = decoded(column) if is_text(column.type) else column
    return pc.ascii_rtrim(text.cast(pa.string()).fill_null(""), characters=padding)


def decoded(column: pa.Array) -> pa.Array:
    """Return text of any layout as plain text; of bytes each UTF-8, or Latin-1 where it is no UTF-8."""
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        return column
    try:
        return column.cast(pa.large_binary()).cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        words = (text_of(b) if isinstance(b, bytes) else b for b in column.to_pylist())
        return pa.array(words, pa.large_string())


def text_of(data: bytes) -> str:
    """Return bytes as text: UTF-8, or Latin-1 where they are no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def vectors(column: pa.Array, name: str) -> Array:
    """Return vectors as rows; a null vector is NaN throughout, and '' for text."""
    lengths = pc.list_value_length(column).drop_null().unique().to_pylist()
    if len(lengths) > 1:
        raise ExpressionError(
            f"the column '{name}' holds lists of {min(lengths)} to {max(lengths)} elements; expected vectors "
            "of one length: name another column, or give all lists the same length"
        )
    size = lengths[0] if lengths else max(getattr(column.type, "list_size", 0), 0)
    elements = column_values(column.flatten(), name=name)  # leaves out those of null lists
    elements = elements.reshape(-1, size, *elements.shape[1:])
    if not column.null_count:
        return elements
    present = column.is_valid().to_numpy(zero_copy_only=False)
    text = elements.dtype.kind == "O"
    whole = np.full((len(column), *elements.shape[1:]), "" if text else np.nan, object if text else float)
    whole[present] = np.ma.filled(elements.astype(float), np.nan) if not text else elements
    return whole


# One type for a column that several files write with different ones: the narrowest that holds all their values.
#
# Whole numbers beside wider ones, floats or decimals, text of any layout, times of any unit, and lists, structures and
# maps of such, by Arrow.  What would mean something else (text for numbers, local times for UTC) has no common type.

DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""How many decimal digits integers of so many bits have."""


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that both are read as, or None.

    Where no type holds all values of both, as of int64 and double, the result is that of the values that occur:
    casts to it have to be safe ones, which fail rather than round.
    """
    if one.equals(other):
        return one
    if is_text(one) and is_text(other):
        # Text if either is, else bytes: those of the other then have to be text too.
        large = any(pt.is_large_string(t) or pt.is_large_binary(t) for t in (one, other))
        if is_string(one) or is_string(other):
            return pa.large_string() if large else pa.string()
        return pa.large_binary() if large else pa.binary()
    if pt.is_decimal(one) or pt.is_decimal(other):
        if pt.is_floating(one) or pt.is_floating(other):
            return None
        # Arrow's own decimal of both would have too few digits.
        one, other = (pa.decimal128(DIGITS[t.bit_width], 0) if pt.is_integer(t) else t for t in (one, other))
    try:
        fields = [pa.schema([pa.field("", datatype)]) for datatype in (one, other)]
        return pa.unify_schemas(fields, promote_options="permissive").types[0]
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None


# NumPy's texts as numbers: whole columns are turned into bytes or Arrow at once, not text by text.

ASCII = 127
"""The last code point that is one byte."""


def code_points(texts: npt.NDArray[np.str_]) -> npt.NDArray[np.uint32]:
    """Return the code points (n, longest) of texts (n,), 0 behind their ends."""
    native = np.ascontiguousarray(texts, texts.dtype.newbyteorder("="))
    return native.view(np.uint32).reshape(len(texts), native.itemsize // 4)


def text_array(texts: npt.NDArray[np.str_]) -> pa.Array:
    """Return texts (n,) as an Arrow array of strings; 25 times as fast as Arrow's own way where they are ASCII."""
    codes = code_points(texts)
    if codes.max(initial=0) > ASCII:
        return pa.array(texts.astype(object), pa.string())
    padded: npt.NDArray[Any] = codes.astype(np.uint8)
    width = pa.binary(padded.shape[1])
    fixed = pa.FixedSizeBinaryArray.from_buffers(width, len(padded), [None, pa.py_buffer(padded)])
    return pc.ascii_rtrim(fixed.cast(pa.binary()).cast(pa.string()), characters="\0")


# The words that a column's name is made of, however a survey joins them: `raMean`, `PLUG_RA`, `R.A. (deg)`.

JOINT = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")


def name_words(name: str) -> list[str]:
    """Return the words of a name, in small letters: 'gMeanPSFMag' is g, mean, psfmag."""
    return [word.lower() for word in JOINT.split(name) if word]


# Numbers that are written as text, with texts among them that say why a number is missing: '-', 'N/A', '>23.1'.
# Shapes: n rows.

LIMITS = (">", "<")
"""As a mark, every text that begins with it: limits are written so, each with its own number."""


def holds_text(values: Array) -> bool:
    """Say whether a column is one of texts."""
    return values.dtype.kind in "OSUT"


def words_of(values: Array) -> Array:
    """Return texts (n,) without the blanks around them."""
    return np.array([*(str(v).strip() for v in values.tolist()), None], dtype=object)[:-1]


def is_mark(words: Array, mark: str) -> NDArray[np.bool_]:
    """Return which words (n,) are a mark: equal to it, or a limit that it is the sign of."""
    sign = mark.strip()
    if sign in LIMITS:
        return np.array([word.startswith(sign) for word in words.tolist()], dtype=bool)
    return np.asarray(words == sign, dtype=bool)


def number_of(word: str) -> float | None:
    """Return the number that a word holds, None where it holds none: 752_301 is a name, though Python reads it."""
    try:
        return None if "_" in word else float(word)
    except ValueError:
        return None


def numbers_of(words: Array) -> NDArray[np.float64]:
    """Return the numbers (n,) that words hold, NaN where they hold none."""
    return np.array([number_of(word) for word in words.tolist()], np.float64)


def numbers_or_texts(words: Array, there: NDArray[np.bool_]) -> Array:
    """Return numbers (n,), NaN where none is `there`; the words, '' there, where any is no number.

    Where none is there at all, none can say which of the two they are.
    """
    if not there.any():
        return np.zeros(len(words), NO_VALUES)
    found = [number_of(word) for word in words[there].tolist()]
    if None in found:
        return np.where(there, words, "")
    numbers = np.full(len(words), np.nan)
    numbers[there] = found
    return numbers


# The different texts of a column, without NumPy's texts of one width, of which a long one takes its room in each row.
# Shapes: n rows, k different texts.

LONGEST_TEXT = 256
"""Characters of a text beyond which a sample holds its beginning and a digest of all of it."""


def unique_texts(values: Array) -> tuple[list[str], NDArray[np.intp], NDArray[np.intp]]:
    """Return the different texts (k,) in order, the place (n,) of each row's text among them, and their counts (k,).

    As `numpy.unique` of texts, in memory that grows with the texts' total length.
    """
    met: dict[str, int] = {}
    codes = np.fromiter(
        (met.setdefault(str(v), len(met)) for v in np.ma.getdata(values).tolist()), np.intp, len(values)
    )
    texts = sorted(met)
    place = np.empty(len(texts), dtype=np.intp)
    place[[met[text] for text in texts]] = np.arange(len(texts))
    inverse = place[codes]
    return texts, inverse, np.bincount(inverse, minlength=len(texts))


def shortened(values: Array) -> Array:
    """Return texts (n,) with the long ones cut; those that differ still do, by a digest of the whole at their end."""
    texts = values.tolist()
    if max(map(len, texts), default=0) <= LONGEST_TEXT:
        return values
    short = np.array([*texts, None], dtype=object)[:-1]
    for i, text in enumerate(texts):
        if len(text) > LONGEST_TEXT:
            digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
            short[i] = f"{text[: LONGEST_TEXT - len(digest) - 3]}...{digest}"
    return short


# How many different values, and how many repeated ones, in bounded memory.  Each value is hashed; only hashes below a
# threshold are kept, and the threshold halves whenever there are too many.  Equal values have equal hashes, so the
# kept hashes are a random sample of the *values*, each with its full count: repeats are found even if the rows are
# far apart (Gibbons 2001, "distinct sampling", VLDB).

CAPACITY = 16_384
"""Most hashes that are kept."""
FULL = 2**64 - 1
"""Largest hash."""


def hashed(values: Array) -> Array:
    """Return 64-bit hashes (n,) of numbers or texts, the same on every machine.

    Numbers are mixed as SplitMix64 does (Steele et al. 2014, doi:10.1145/2660193.2660195); texts word by word.
    """
    if values.dtype.kind in "OU":
        encoded = [str(value).encode("utf-8", "surrogatepass") for value in values.tolist()]
        length = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return _hashed_bytes(b"".join(encoded), np.cumsum(length) - length, length)
    plain = values.astype(np.float64) + 0.0 if values.dtype.kind == "f" else values  # -0.0 is 0.0
    if plain.dtype.kind in "mM":
        plain = plain.astype(np.int64)
    return mixed(plain.view(np.uint64) if plain.dtype.itemsize == 8 else plain.astype(np.uint64))


def mixed(x: Array) -> Array:
    """Return a hash (n,) of 64-bit numbers: the last steps of SplitMix64 (doi:10.1145/2660193.2660195)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def hashed_strings(column: pa.Array) -> Array:
    """Return the hashes (n,) of a column of strings without nulls, the same as `hashed` gives their texts."""
    column = column.cast(pa.large_string())
    _, places, data = column.buffers()
    ends = np.frombuffer(places, np.int64)[column.offset : column.offset + len(column) + 1]
    text = b"" if data is None else memoryview(data)[int(ends[0]) : int(ends[-1])]
    return _hashed_bytes(text, ends[:-1] - ends[0], np.diff(ends))


def _hashed_bytes(text: bytes | memoryview, start: Array, length: Array) -> Array:
    """Return the hashes (n,) of texts in UTF-8: of their words of eight bytes, and of their length."""
    data = np.concatenate([np.frombuffer(text, np.uint8), np.zeros(8, np.uint8)])
    words = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))  # that begin at each byte
    total = mixed(length.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    for at in range(0, int(length.max(initial=0)), 8):
        rows = np.flatnonzero(length > at)
        word = words[start[rows] + at].astype(np.uint64)
        spare = np.maximum(8 - (length[rows] - at), 0).astype(np.uint64) * np.uint64(8)
        total[rows] = mixed(total[rows] * np.uint64(0x9E3779B97F4A7C15) ^ (word << spare >> spare))
    return total


def row_hashes(columns: Iterable[Array]) -> Array:
    """Return 64-bit hashes (n,) of rows, from the hashes (n,) of their values in each column."""
    total: Array = np.zeros(1, dtype=np.uint64)  # of each row, from the first column on
    for each in columns:
        # The factor is odd, so that no bit is lost; equal columns in another order are other rows.
        total = (total * np.uint64(0x9E3779B97F4A7C15) + each) ^ (total >> np.uint64(29))
    return hashed(total)


def given_identifiers(names: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column of identifiers without the rows that have none: null, NaN, '' or '--'."""
    names = names.cast(value_type(names.type))
    if pt.is_floating(names.type):
        names = names.filter(pc.is_finite(names))
    elif pt.is_string(names.type) or pt.is_large_string(names.type):
        names = names.filter(pc.invert(pc.is_in(names, pa.array(["", "--"], names.type))))
    return names.drop_null()


def hashed_identifiers(column: pa.Array) -> Array:
    """Return the hashes (n,) of identifiers, the same whatever the width of the numbers; padding does not count."""
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        return hashed_strings(pc.ascii_rtrim(column.fill_null(""), characters=" \0"))
    values = column_values(column)
    if values.dtype.kind in "iub" and not np.ma.isMaskedArray(values):
        return hashed(values.astype(np.int64))
    return hashed(np.ma.filled(values, 0) if values.dtype.kind != "O" else values)


def distinct(hashes: Array) -> Array:
    """Return the different ones of hashes (n,), sorted: a sort takes a tenth of the time of NumPy's table of hashes."""
    ordered = np.sort(hashes)
    return np.asarray(ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]])


class DistinctCounter:
    """Counts different values; exact up to `capacity` of them, within about one percent beyond."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.halvings = 0
        self.n = 0
        self._kept: Array = np.empty(0, dtype=np.uint64)
        self._counts: Array = np.empty(0, dtype=np.int64)

    def add(self, values: Array) -> Array:
        """Count values (n,), none of which is missing; return their hashes (n,)."""
        self.n += len(values)
        hashes = hashed(values)
        self.add_hashes(hashes)
        return hashes

    def add_hashes(self, hashes: Array) -> None:
        """Count values by their hashes."""
        below = hashes[hashes <= FULL >> self.halvings]
        distinct, inverse = np.unique(np.concatenate([self._kept, below]), return_inverse=True)
        weight = np.concatenate([self._counts, np.ones(len(below), dtype=np.int64)])
        counts = np.bincount(inverse.ravel(), weights=weight, minlength=len(distinct)).astype(np.int64)
        while len(distinct) > self.capacity:
            self.halvings += 1
            keep = distinct <= FULL >> self.halvings
            distinct, counts = distinct[keep], counts[keep]
        self._kept, self._counts = distinct, counts

    @property
    def estimate(self) -> int:
        """Number of different values."""
        return len(self._kept) << self.halvings

    @property
    def repeated(self) -> int:
        """Number of rows in excess of one for each value."""
        return int((self._counts - 1).sum()) << self.halvings


def plain_texts(values: NDArray[Any]) -> NDArray[Any]:
    """Return values as texts (n,), '' where missing: 1 and 1.0 are '1', and blanks at the ends go."""
    if values.dtype.kind == "f":
        # -0.0 is 0 too.
        texts = [
            "" if np.isnan(v) else f"{v + 0.0:.0f}" if v.is_integer() else repr(v) for v in values.tolist()
        ]
        return np.array(texts, dtype=object)
    if values.dtype == NO_VALUES:
        return np.full(len(values), "", dtype=object)
    gone = np.ma.getmaskarray(values)
    texts = [str(v).strip() for v in np.ma.getdata(values).tolist()]
    return np.where(gone, "", np.array(texts, dtype=object))


def differing(copy: pa.Array, source: pa.Array) -> NDArray[np.bool_]:
    """Return which rows (n,) of two columns differ, in any bit of a value or in what is null."""
    if len(copy) == len(source) and copy.type != source.type:
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            source = source.cast(copy.type)
    if len(copy) != len(source) or copy.type != source.type:
        return np.ones(len(copy), bool)
    if pt.is_floating(copy.type):  # NaN too must have the same bits
        bits = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[copy.type.bit_width]
        copy, source = copy.view(bits), source.view(bits)
    if copy.equals(source):
        return np.zeros(len(copy), bool)
    if pt.is_nested(copy.type):
        pairs = zip(copy.to_pylist(), source.to_pylist(), strict=True)
        return np.array([repr(x) != repr(y) for x, y in pairs])
    nulls = np.asarray(copy.is_null()) != np.asarray(source.is_null())
    wrong = pc.fill_null(pc.not_equal(copy, source), False)  # noqa: FBT003  Arrow's own argument
    return np.asarray(wrong) | nulls
