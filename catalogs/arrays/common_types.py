"""One type for a column that several files write with different ones: the narrowest that holds all their values.

Whole numbers beside wider ones, floats or decimals, text of any layout, times of any unit, and lists, structures and
maps of such.  What would mean something else (text for numbers, local times for UTC) has no common type.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

from catalogs.arrays.values import is_string, is_text

__all__ = ["common_type"]

FLOATS = (pa.float16(), pa.float32(), pa.float64())
EXACT = {8: 0, 16: 1, 32: 2, 64: 2}
"""For integers of so many bits, the first of the floats that has them all; of 64 bits those below 2^53."""
DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""How many decimal digits integers of so many bits have."""
MOST_DIGITS = {pa.decimal128: 38, pa.decimal256: 76}
UNITS = ("s", "ms", "us", "ns")


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that both are read as, or None.

    Where no type holds all values of both, as of int64 and double, the result is that of the values that occur:
    casts to it have to be safe ones, which fail rather than round.
    """
    if one.equals(other) or pt.is_null(other):
        return one
    if pt.is_null(one):
        return other
    for kind, common in KINDS:
        if kind(one) and kind(other):
            return common(one, other)
    return None


def is_number(datatype: pa.DataType) -> bool:
    """Say whether values are numbers, decimals left out."""
    return bool(pt.is_integer(datatype) or pt.is_floating(datatype))


def is_exact(datatype: pa.DataType) -> bool:
    """Say whether values are decimals or whole numbers."""
    return bool(pt.is_decimal(datatype) or pt.is_integer(datatype))


def is_list(datatype: pa.DataType) -> bool:
    """Say whether values are lists or vectors."""
    return bool(pt.is_list(datatype) or pt.is_large_list(datatype) or pt.is_fixed_size_list(datatype))


def of_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the integer or float that holds both."""
    if pt.is_integer(one) and pt.is_integer(other):
        return of_integers(one, other)
    ranks = (EXACT[t.bit_width] if pt.is_integer(t) else FLOATS.index(t) for t in (one, other))
    return FLOATS[max(ranks)]


def of_integers(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the integer that holds both; of unsigned 64-bit ones beside signed, those below 2^63."""
    signed = [t for t in (one, other) if pt.is_signed_integer(t)]
    bits = max(one.bit_width, other.bit_width)
    if len(signed) == 1:
        unsigned = other if signed[0] is one else one
        bits = min(64, max(signed[0].bit_width, 2 * unsigned.bit_width))
    return pa.type_for_alias(f"{'int' if signed else 'uint'}{bits}")


def of_decimals(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the decimal with the digits of both before and behind the point."""
    places = [
        (t.precision - t.scale, t.scale) if pt.is_decimal(t) else (DIGITS[t.bit_width], 0)
        for t in (one, other)
    ]
    before, behind = (max(p) for p in zip(*places, strict=True))
    decimal = next((make for make, most in MOST_DIGITS.items() if before + behind <= most), None)
    return None if decimal is None else decimal(before + behind, behind)


def of_texts(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return text if either is, else bytes: the bytes of the other then have to be text too."""
    large = any(pt.is_large_string(t) or pt.is_large_binary(t) for t in (one, other))
    if is_string(one) or is_string(other):
        return pa.large_string() if large else pa.string()
    return pa.large_binary() if large else pa.binary()


def of_timestamps(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the finer unit, if both are of one time zone."""
    return pa.timestamp(finer(one, other), one.tz) if one.tz == other.tz else None


def of_times(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the times of a day in the finer unit."""
    unit = finer(one, other)
    return pa.time32(unit) if unit in UNITS[:2] else pa.time64(unit)


def finer(one: pa.DataType, other: pa.DataType) -> str:
    """Return the finer of two units of time."""
    return max(str(one.unit), str(other.unit), key=UNITS.index)


def of_lists(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return lists of both, as vectors if all are of one length."""
    value = common_type(one.value_type, other.value_type)
    if value is None:
        return None
    if pt.is_fixed_size_list(one) and pt.is_fixed_size_list(other) and one.list_size == other.list_size:
        return pa.list_(value, one.list_size)
    return pa.large_list(value) if pt.is_large_list(one) or pt.is_large_list(other) else pa.list_(value)


def of_structs(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the structure with the fields of both: one that is not there is null."""
    types = {field.name: field.type for field in one}
    if len(types) < one.num_fields or len({field.name for field in other}) < other.num_fields:
        return None
    for field in other:
        types[field.name] = common_type(types.get(field.name, pa.null()), field.type)
    return None if None in types.values() else pa.struct(list(types.items()))


def of_maps(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the map of keys and values of both."""
    key, item = common_type(one.key_type, other.key_type), common_type(one.item_type, other.item_type)
    return None if key is None or item is None else pa.map_(key, item)


KINDS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], pa.DataType | None]], ...
] = (
    (is_number, of_numbers),
    (is_exact, of_decimals),
    (is_text, of_texts),
    (pt.is_timestamp, of_timestamps),
    (pt.is_time, of_times),
    (pt.is_duration, lambda one, other: pa.duration(finer(one, other))),
    (pt.is_date, lambda *_: pa.date64()),
    (is_list, of_lists),
    (pt.is_struct, of_structs),
    (pt.is_map, of_maps),
)
"""What may be written for one another, and what holds both."""
