"""Objects of which several labelled rows are of different classes, found by hashes of their names.

Their rows stay: they may be several observations, or two objects whose names were rounded to one.
Shapes: N labelled rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.distinct import hashed
from flows.labels.reader import label_texts

__all__ = ["name_hashes", "repeated_in_conflict", "told_in_words"]

Array = np.ndarray[Any, Any]
SHOWN = 20
"""Objects that are named."""


def name_hashes(names: Array) -> NDArray[np.uint64]:
    """Return a hash (N,) of each object's name, 0 where it has none."""
    texts = label_texts(names)
    return np.where(texts == "", np.uint64(0), hashed(texts))


def repeated_in_conflict(
    hashes: NDArray[np.uint64],
    target: NDArray[np.intp],
    classes: Sequence[str],
    names: Iterable[Array],
) -> dict[str, Any]:
    """Return how many names have rows of several classes, and which some of them are: `names` is read for those."""
    order = np.lexsort((target, hashes))
    name, index = hashes[order], target[order]
    differ = (name[1:] == name[:-1]) & (index[1:] != index[:-1]) & (name[1:] != 0)
    found = np.unique(name[1:][differ])
    shown: dict[str, list[str]] = {}
    for texts in (label_texts(column) for column in names if found.size):
        mine = name_hashes(texts)
        for i in np.flatnonzero(np.isin(mine, found)).tolist():
            if texts[i] not in shown:
                shown[texts[i]] = [classes[k] for k in np.unique(target[hashes == mine[i]]).tolist()]
            if len(shown) == min(SHOWN, len(found)):
                return {"repeated": len(found), "repeating": shown}
    return {"repeated": len(found), "repeating": shown}


def told_in_words(repeated: int, repeating: dict[str, list[str]]) -> str:
    """Return what a report says of them."""
    shown = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in repeating.items())
    return f"{repeated:,} identifiers have rows of several classes, which were kept: {shown}."
