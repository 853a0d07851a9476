"""The different texts of a column, without NumPy's texts of one width, of which a long one takes its room in each row.

Shapes: n rows, k different texts.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LONGEST_TEXT", "shortened", "stripped_texts", "unique_texts"]

Array = np.ndarray[Any, Any]

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


def stripped_texts(values: Array) -> list[str]:
    """Return texts (n,) without the blanks around them."""
    return [str(v).strip() for v in np.ma.getdata(values).tolist()]


def shortened(values: Array) -> Array:
    """Return texts (n,) with the long ones cut; those that differ still do, by a digest of the whole at their end."""
    texts = values.tolist()
    if max(map(len, texts), default=0) <= LONGEST_TEXT:
        return values
    short = np.empty(len(texts), dtype=object)
    short[:] = [text if len(text) <= LONGEST_TEXT else _cut(text) for text in texts]
    return short


def _cut(text: str) -> str:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: LONGEST_TEXT - len(digest) - 3]}...{digest}"
