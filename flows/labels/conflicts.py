"""Objects of which several labelled rows are of different classes, found by hashes of their names.

Their rows stay: they may be several observations, or two objects whose names were rounded to one.
Shapes: N labelled rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.distinct import hashed
from flows.labels.reader import label_texts

__all__ = ["RepeatedNames", "conflict_words", "name_hashes", "repeated_in_conflict"]

Array = np.ndarray[Any, Any]
SHOWN = 20
"""Objects that are named."""


@dataclass(frozen=True)
class RepeatedNames:
    """How many names have rows of several classes, and the classes of some of them by name."""

    n: int
    classes: Mapping[str, tuple[str, ...]]


def name_hashes(names: Array) -> NDArray[np.uint64]:
    """Return a hash (N,) of each object's name, 0 where it has none."""
    texts = label_texts(names)
    return np.where(texts == "", np.uint64(0), hashed(texts))


def repeated_in_conflict(
    hashes: NDArray[np.uint64],
    target: NDArray[np.intp],
    classes: Sequence[str],
    names: Iterable[Array],
) -> RepeatedNames:
    """Return the names that have rows of several classes: the columns `names` are read for those that are shown."""
    order = np.lexsort((target, hashes))
    name, index = hashes[order], target[order]
    differ = (name[1:] == name[:-1]) & (index[1:] != index[:-1]) & (name[1:] != 0)
    repeated = np.unique(name[1:][differ])
    shown: dict[str, tuple[str, ...]] = {}
    for texts in (label_texts(column) for column in names if repeated.size):
        mine = name_hashes(texts)
        for i in np.flatnonzero(np.isin(mine, repeated)).tolist():
            if texts[i] not in shown:
                shown[texts[i]] = tuple(classes[k] for k in np.unique(target[hashes == mine[i]]).tolist())
            if len(shown) == min(SHOWN, len(repeated)):
                return RepeatedNames(len(repeated), shown)
    return RepeatedNames(len(repeated), shown)


def conflict_words(repeated: int, repeating: Mapping[str, tuple[str, ...]]) -> str:
    """Return what a report says of them."""
    shown = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in repeating.items())
    return f"{repeated:,} identifiers have rows of several classes, which were kept: {shown}."
