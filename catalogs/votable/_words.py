"""What the words in the cells of TABLEDATA mean, whole columns at once.

It is what astropy takes them for, which calls Python for each of them; but an empty cell is missing in any edition of
the standard (astropy makes it 0 in integers before 1.3), and what astropy would clip to a type's range, or cut off or
add to a vector, is refused.
https://www.ivoa.net/documents/VOTable/20250116/, section 5.1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from astropy.io.votable.tree import Field

from catalogs.votable._columns import Array, Cells, Lists, is_list, is_null, is_text, memory_type

__all__ = ["cells_of"]

TRUTHS = dict.fromkeys(("T", "TRUE", "1"), 1) | dict.fromkeys(("F", "FALSE", "0"), 0)
TRUTHS |= dict.fromkeys(("?", "", "\0"), -1)
BITS = {"1": 1, "0": 0, "": -1}
"""1 is true, 0 is false, and -1 neither."""


def cells_of(field: Field, words: Sequence[str]) -> Cells:
    """Return the values of cells; ValueError where they do not fit their field."""
    if is_text(field):
        return np.array([None, *words], object)[1:]
    memory = memory_type(field)
    if is_list(field) or memory.shape or memory.kind == "c":
        return arrays(field, words, memory)
    values, mask = items(field, words, memory)
    return np.ma.MaskedArray(values, mask)


def arrays(field: Field, words: Sequence[str], memory: np.dtype[Any]) -> Cells:
    """Return arrays of one shape, or lists of such; complex numbers are words as arrays are."""
    size = math.prod(memory.shape) * (2 if memory.base.kind == "c" else 1)
    gone = np.array([not word or (memory.kind == "c" and word.lower() == "nan") for word in words], bool)
    present = [word for word, missing in zip(words, gone.tolist(), strict=True) if not missing]
    parts = [elements(field, word) for word in present]
    for word, part in zip(present, parts, strict=True):
        if len(part) % size if is_list(field) else len(part) != size:
            raise ValueError(no_value(field, word))
    values, mask = items(field, list(chain.from_iterable(parts)), memory)
    values, mask = values.reshape(-1, *memory.shape), mask.reshape(-1, *memory.shape)
    if memory.base.kind in "iu" and field.values.null is None and mask.any():
        raise ValueError(
            f"an array in '{field.name or field.ID}' has too few elements, and the field defines no null "
            "value to fill them"
        )
    if not is_list(field):
        shape = (len(words), *memory.shape)
        whole, nowhere = np.zeros(shape, memory.base), np.ones(shape, bool)
        whole[~gone], nowhere[~gone] = values, mask
        return np.ma.MaskedArray(whole, nowhere)
    lengths = np.zeros(len(words), np.int64)
    lengths[~gone] = [len(part) // size for part in parts]
    # As astropy has it: of complex numbers an empty list is none, of all others it is a list of no elements.
    return Lists(np.ma.MaskedArray(values, mask), lengths, gone & (memory.base.kind == "c"))


def elements(field: Field, word: str) -> list[str]:
    """Return the words of an array: between blanks, or commas, which the standard does not know but writers do."""
    parts = word.replace(",", " ").split()
    return list("".join(parts)) if field.datatype == "bit" else parts


def items(field: Field, words: Sequence[str], memory: np.dtype[Any]) -> tuple[Array, Array]:
    """Return numbers or truth values, one a word (two if complex), and which are missing."""
    if memory.base.kind == "b":
        return truths(field, words)
    if memory.base.kind in "iu":
        return integers(field, words, memory.base)
    null = field.values.null
    with np.errstate(over="ignore"):  # beyond the largest float is infinity
        if memory.base.kind == "c":
            values = reals(words, math.nan).view(np.complex128).astype(memory.base)
        else:
            values = reals(words, math.nan if null is None else null).astype(memory.base)
    return values, is_null(field, values)


def reals(words: Sequence[str], blank: float) -> Array:
    """Return words as float64; those that are no numbers (IRSA writes `null`) as the blank."""
    try:
        return np.array([float(word) if word else blank for word in words], np.float64)
    except ValueError:
        return np.array([real(word, blank) for word in words], np.float64)


def real(word: str, blank: float) -> float:
    """Return a word as a number, or the blank."""
    try:
        return float(word)
    except ValueError:
        return blank


def integers(field: Field, words: Sequence[str], memory: np.dtype[Any]) -> tuple[Array, Array]:
    """Return words as integers, and which are missing."""
    null = field.values.null
    blank = 0 if null is None else int(null)
    try:
        values = np.array([int(word) if word else blank for word in words], np.int64)
    except (ValueError, OverflowError):
        words = ["" if word.lower() == "nan" else word for word in words]
        values = np.array([integer(field, word) if word else blank for word in words], np.int64)
    limits = np.iinfo(memory)
    outside = np.flatnonzero((values < limits.min) | (values > limits.max))
    if outside.size:
        raise ValueError(no_value(field, words[int(outside[0])]))
    mask = np.array([not word for word in words], bool)
    return values.astype(memory), mask if null is None else mask | (values == null)


def truths(field: Field, words: Sequence[str]) -> tuple[Array, Array]:
    """Return words as truth values, and which are missing."""
    known = BITS if field.datatype == "bit" else TRUTHS
    codes = {word: known.get(word.upper()) for word in set(words)}
    if wrong := [word for word, code in codes.items() if code is None]:
        raise ValueError(no_value(field, min(wrong)))
    values = np.array([codes[word] for word in words], np.int8)
    return values == 1, values < 0


def integer(field: Field, word: str) -> int:
    """Return a word as an integer, which may be hexadecimal."""
    try:
        value = int(word, 0) if word[:2] in {"0x", "0X"} else int(word)
        return int(np.int64(value))
    except (ValueError, OverflowError):
        raise ValueError(no_value(field, word)) from None


def no_value(field: Field, word: str) -> str:
    """Return what is wrong with a word."""
    return f"'{word[:80]}' in '{field.name or field.ID}' is not of datatype {field.datatype}" + (
        f" with arraysize {field.arraysize}" if field.arraysize else ""
    )
