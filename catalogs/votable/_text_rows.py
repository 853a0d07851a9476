"""Rows as TABLEDATA: the words of cells, whole columns at once, from which `words` makes the same values.

It is what STILTS and TOPCAT need where a field is one bit: they cannot read it from BINARY or BINARY2.
https://www.ivoa.net/documents/VOTable/20250116/, section 5.1
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

import numpy as np
from astropy.io.votable.tree import Field

from catalogs.votable._columns import Array, Cells, Lists, is_text

__all__ = ["is_one_bit", "text_rows"]

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
        return float_words(data)
    return filled(map(str, data.tolist()), mask if field.values.null is None else None, "")


def float_words(data: Array) -> list[str]:
    """Return the shortest words that are the same floats; what is masked is NaN or the null value, and stays that."""
    parts = data.view(data.real.dtype) if data.dtype.kind == "c" else data
    return [INFINITIES.get(word, word) for word in parts.astype(np.str_).tolist()]


def filled(words: Iterable[str], mask: Array | None, blank: str) -> list[str]:
    """Return the words, blanks where they are masked."""
    if mask is None or not mask.any():
        return list(words)
    return [blank if gone else word for word, gone in zip(words, mask.tolist(), strict=True)]
