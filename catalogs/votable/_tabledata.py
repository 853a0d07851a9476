"""The rows of TABLEDATA: read a piece at a time by astropy's parser of XML, and written.

What the words in the cells mean is worked out for whole columns at once, and the words of values likewise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, ClassVar
from xml.sax.saxutils import escape

import numpy as np
from astropy.io.votable.tree import Field
from astropy.utils.xml.iterparser import get_xml_iterator

from catalogs.errors import DamagedFileError
from catalogs.votable._document import Data
from catalogs.votable._rows import (
    Array,
    Cells,
    Lists,
    Rows,
    is_list,
    is_null,
    is_text,
    memory_bytes,
    memory_type,
    stored_type,
    text_size,
)

# What the words in the cells of TABLEDATA mean, whole columns at once.
#
# It is what astropy takes them for, which calls Python for each of them; but an empty cell is missing in any edition of
# the standard (astropy makes it 0 in integers before 1.3), and what astropy would clip to a type's range, or cut off or
# add to a vector, is refused.
# https://www.ivoa.net/documents/VOTable/20250116/, section 5.1

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


# Rows as TABLEDATA: the words of cells, whole columns at once, from which `words` makes the same values.
#
# It is what STILTS and TOPCAT need where a field is one bit: they cannot read it from BINARY or BINARY2.
# https://www.ivoa.net/documents/VOTable/20250116/, section 5.1

INFINITIES = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
"""NumPy's words for floats, and the standard's."""


def is_one_bit(field: Field) -> bool:
    """Say whether the cells of a field are single bits."""
    return bool(field.datatype == "bit" and not field.arraysize)


def text_rows(fields: Sequence[Field], columns: Sequence[Cells]) -> bytes:
    """Return rows as TABLEDATA; `columns` are the cells (n, ...) of each field."""
    words = [cell_words(field, column) for field, column in zip(fields, columns, strict=True)]
    return "".join(
        f"<TR>{''.join(f'<TD>{word}</TD>' for word in row)}</TR>\n" for row in zip(*words, strict=True)
    ).encode()


def cell_words(field: Field, column: Cells) -> list[str]:
    """Return the word of each cell."""
    if isinstance(column, Lists):
        size = math.prod(column.values.shape[1:]) * (2 if column.values.dtype.kind == "c" else 1)
        ends = (np.concatenate([[0], np.cumsum(column.lengths)]) * size).tolist()
        words = element_words(field, column.values)
        cells = [" ".join(words[begin:end]) for begin, end in pairwise(ends)]
        return ["" if gone else cell for cell, gone in zip(cells, column.gone.tolist(), strict=True)]
    if is_text(field):
        texts = (w.decode("ascii") if isinstance(w, bytes) else w for w in np.ma.getdata(column).tolist())
        return [escape(text or "") for text in texts]
    if column.ndim == 1 and column.dtype.kind != "c":
        return element_words(field, column)
    return array_words(field, column)


def array_words(field: Field, column: Array) -> list[str]:
    """Return the words of arrays of one shape, or of complex numbers; those that were left out are empty."""
    n, words = len(column), element_words(field, column)
    each = len(words) // max(1, n)
    data, mask = (part(column).reshape(n, -1) for part in (np.ma.getdata, np.ma.getmaskarray))
    left_out = np.asarray(mask.all(axis=1) & ~data.astype(bool).any(axis=1))
    cells = (" ".join(words[i * each : (i + 1) * each]) for i in range(n))
    return filled(cells, left_out, "")


def element_words(field: Field, values: Array) -> list[str]:
    """Return the words of numbers or truth values, one after another; two of each complex number."""
    data, mask = np.ma.getdata(values).reshape(-1), np.ma.getmaskarray(values).reshape(-1)
    if data.dtype.kind == "b":
        true, false, unknown = ("1", "0", "") if field.datatype == "bit" else ("T", "F", "?")
        return filled([true if value else false for value in data.tolist()], mask, unknown)
    if data.dtype.kind in "fc":
        # What is masked is NaN or the null value, and stays that.
        parts = data.view(data.real.dtype) if data.dtype.kind == "c" else data
        return [INFINITIES.get(word, word) for word in parts.astype(np.str_).tolist()]
    return filled(map(str, data.tolist()), mask if field.values.null is None else None, "")


def filled(words: Iterable[str], mask: Array | None, blank: str) -> list[str]:
    """Return the words, blanks where they are masked."""
    if mask is None or not mask.any():
        return list(words)
    return [blank if gone else word for word, gone in zip(words, mask.tolist(), strict=True)]


# The rows of TABLEDATA, read a piece at a time by astropy's parser of XML.

BLOCK_BYTES = 1 << 14
"""As many as the parser asks for; with more of them it takes several times as long, waiting for memory."""
PIECE_BYTES = 1 << 22
"""Of XML, and of arrays, that are held at a time."""


@dataclass(frozen=True, eq=False)
class TextRows(Rows):
    """Rows in TABLEDATA; `DamagedFileError` where they are no such."""

    data: Data
    are_text: ClassVar[bool] = True

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return self.data.n_rows

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Cells]]:
        """Yield the values of those fields, as many rows at a time as a piece of the file holds."""
        width = len(self.table_fields)
        for words in self.pieces():
            try:
                yield [cells_of(self.table_fields[f], words[f::width]) for f in fields]
            except ValueError as error:
                raise self.damaged(str(error)) from error

    def pieces(self) -> Iterator[list[str]]:
        """Yield the text of cells, row by row, of some rows at a time."""
        most = self.data.width * max(1, PIECE_BYTES // sum(map(memory_bytes, self.table_fields)))
        left = self.data.width * self.n_rows
        words: list[str] = []
        source = Feed(self.data)
        try:
            with get_xml_iterator(source.read) as elements:
                for begins, tag, content, _ in elements if left else ():
                    if begins:
                        if tag == "TD" and "encoding" in content:
                            raise self.damaged(f"a cell has the encoding {content['encoding']}")
                    elif tag == "TD":
                        words.append(content)
                    elif tag == "TR" and (source.n_bytes > PIECE_BYTES or len(words) >= min(most, left)):
                        yield words
                        left -= len(words)
                        if left <= 0:
                            break
                        words, source.n_bytes = [], 0
        except (ValueError, RuntimeError) as error:
            raise self.damaged(str(error)) from error
        if left:
            raise self.damaged(f"the limits of {left} cells are unclear")

    def unfit_texts(self) -> Mapping[int, tuple[bool, int]]:
        """Return what the texts need that are not ASCII or that their fields may have no room for."""
        fixed = {i for i, f in enumerate(self.table_fields) if is_text(f) and stored_type(f) is not None}
        if self.data.ascii and not fixed:
            return {}
        needs = {i: (True, 0) for i, f in enumerate(self.table_fields) if is_text(f)}
        width = len(self.table_fields)
        for words in self.pieces():
            for i, (all_ascii, longest) in needs.items():
                several = set(words[i::width])
                needs[i] = (
                    all_ascii and all(map(str.isascii, several)),
                    max(longest, *map(text_size, several)),
                )
        return needs

    def damaged(self, what: str) -> DamagedFileError:
        """Return the error for rows that cannot be read."""
        return DamagedFileError(
            f"{self.data.path} is damaged: {what}; expected rows of {len(self.table_fields)} cells of text, "
            "each as its FIELD describes; fetch it again"
        )


class Feed:
    """A document of TABLEDATA alone, from which a parser reads."""

    def __init__(self, data: Data) -> None:
        self.blocks = data.blocks(BLOCK_BYTES)
        self.n_bytes = 0

    def read(self, _size: int) -> bytes:
        """Return the next bytes, more than are asked for: of less the parser thinks that they are the last."""
        block = next(self.blocks, b"")
        self.n_bytes += len(block)
        return block
