"""What the operators and functions of the expression language do to arrays.

Arithmetic is done in float64, whatever the columns' types, so that 8-bit columns do not wrap around.
What has no finite value (log of 0, division by 0, overflow) is NaN, which is missing.  A comparison
with a missing value is False, `!=` included.  Integers compare as integers: identifiers never pass
through float.  Missing integers and booleans come as masked arrays where NaN could not stand for them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from catalogs.arrays.values import EXACT_INTEGER

__all__ = [
    "ARITHMETIC",
    "COMPARISON",
    "FUNCTIONS",
    "Array",
    "Function",
    "MisfitError",
    "Value",
    "bitwise",
    "compare",
    "finite",
    "is_text",
    "negate",
    "number",
    "truth",
]

Array = np.ndarray[Any, Any]
Value = Array | float | str
"""What a node evaluates to: an array of as many elements as rows, or a literal."""


class MisfitError(TypeError):
    """Values of a kind that an operator cannot use; the evaluation adds the place in the text."""


def is_text(value: Value) -> bool:
    """Say whether a value holds text: object arrays do, by the contract of `column_values`."""
    return isinstance(value, str) or (isinstance(value, np.ndarray) and value.dtype.kind in "OUST")


def number(value: Value) -> Array:
    """Return a value as float64, NaN where it is missing; `MisfitError` where it is no number."""
    if is_text(value):
        raise MisfitError("text where a number is expected")
    array = np.asanyarray(value)
    if array.dtype.kind == "V":
        return np.full(array.shape, np.nan)
    if array.dtype.kind not in "biuf":
        raise MisfitError(f"values of type {array.dtype} where a number is expected")
    if isinstance(array, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(array.astype(np.float64), np.nan))
    return array.astype(np.float64, copy=False)


def truth(value: Value) -> Array:
    """Return a value as booleans: numbers are true where neither 0 nor missing."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "b":
        return np.asarray(np.ma.filled(value, fill_value=False))
    values = number(value)
    return np.asarray((values != 0) & ~np.isnan(values))


def finite(values: Array) -> Array:
    """Return the values with all that is not finite made NaN."""
    bad = ~np.isfinite(values)
    return np.where(bad, np.nan, values) if bad.any() else values


ARITHMETIC: Mapping[str, Callable[[Array, Array], Array]] = MappingProxyType(
    {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power}
)

COMPARISON: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
)


def missing(value: Value) -> Array | bool:
    """Return where a number is missing."""
    if isinstance(value, np.ma.MaskedArray):
        return np.ma.getmaskarray(value) | missing(np.asarray(value.data))
    if isinstance(value, np.ndarray) and value.dtype.kind in "fV":
        return np.isnan(number(value))
    return False


def compare(symbol: str, left: Value, right: Value) -> Array:
    """Compare two numbers or two texts; False where either number is missing."""
    left, right = like(left, right), like(right, left)
    if is_text(left) != is_text(right):
        raise MisfitError("a comparison of text with a number")
    if is_text(left):
        return np.asarray(COMPARISON[symbol](left, right), dtype=bool)
    result = COMPARISON[symbol](exact(left), exact(right))
    return np.asarray(result, dtype=bool) & ~np.asarray(missing(left) | missing(right))


def like(value: Value, other: Value) -> Value:
    """Return a column of nulls only as text where it is compared with text, else as numbers."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "V":
        return value
    return np.full(value.shape, "") if is_text(other) else number(value)


def exact(value: Value) -> Any:
    """Return integers as they are and all else as float64, so that float32 does not round the literal."""
    if isinstance(value, np.ndarray):
        return np.asarray(np.ma.getdata(value)) if value.dtype.kind in "biu" else number(value)
    return value


def bitwise(symbol: str, left: Value, right: Value) -> Array:
    """Return `&` or `|`: of conditions, or of the bits of integers (missing stays missing)."""
    logical = {"&": np.logical_and, "|": np.logical_or}[symbol]
    kinds = {np.asarray(v).dtype.kind for v in (left, right)}
    if kinds == {"b"}:
        return np.asarray(logical(truth(left), truth(right)))
    if "b" in kinds:
        raise MisfitError(f"a condition '{symbol}' a number")
    gone = np.asarray(missing(left) | missing(right))
    bits = np.asarray({"&": np.bitwise_and, "|": np.bitwise_or}[symbol](integer(left), integer(right)))
    return np.where(gone, np.nan, bits.astype(np.float64)) if gone.any() else bits


def integer(value: Value) -> Array:
    """Return a value as int64, 0 where missing; `MisfitError` where it has a fraction."""
    if is_text(value):
        raise MisfitError("text where an integer is expected")
    array = np.asarray(np.ma.filled(value, 0)) if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    if array.dtype.kind in "iu":
        return array if array.dtype.kind == "u" and array.dtype.itemsize == 8 else array.astype(np.int64)
    # An integer column with nulls arrives as float64.
    whole = np.nan_to_num(number(value), nan=0.0)
    if np.any(whole != np.trunc(whole)) or np.any(np.abs(whole) > EXACT_INTEGER):
        raise MisfitError("a number with a fraction where an integer is expected")
    return whole.astype(np.int64)


def negate(value: Value) -> Array:
    """Return `~`: of a condition, or of the bits of integers."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "b":
        return ~truth(value)
    gone = np.asarray(missing(value))
    bits = ~integer(value)
    return np.where(gone, np.nan, bits.astype(np.float64)) if gone.any() else bits


@dataclass(frozen=True)
class Function:
    """A function of the language: how it is called, how many arguments it takes, what it does."""

    signature: str
    arity: int
    apply: Callable[..., Array]


def numeric(ufunc: Callable[..., Any]) -> Callable[..., Array]:
    """Return the function over float64 with what is not finite made NaN."""
    return lambda *values: finite(np.asarray(ufunc(*(number(v) for v in values))))


def choose(condition: Value, yes: Value, no: Value) -> Array:
    """Return `yes` where the condition holds, else `no`."""
    return np.where(truth(condition), number(yes), number(no))


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "abs": Function("abs(x)", 1, numeric(np.abs)),
        "sqrt": Function("sqrt(x)", 1, numeric(np.sqrt)),
        "log": Function("log(x), natural", 1, numeric(np.log)),
        "log10": Function("log10(x)", 1, numeric(np.log10)),
        "exp": Function("exp(x)", 1, numeric(np.exp)),
        "hypot": Function("hypot(x, y)", 2, numeric(np.hypot)),
        "arcsinh": Function("arcsinh(x)", 1, numeric(np.arcsinh)),
        "clip": Function("clip(x, low, high)", 3, numeric(np.clip)),
        "where": Function("where(condition, yes, no)", 3, choose),
        "isfinite": Function("isfinite(x)", 1, lambda x: np.isfinite(number(x))),
    }
)
