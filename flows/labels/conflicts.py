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
MOST_KNOWN = 10_000
"""Objects of several classes whose names are looked for: the first of them in the catalogue are named."""


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
    pieces: Iterable[tuple[NDArray[np.uint64], NDArray[np.integer]]],
    classes: Sequence[str],
    names: Iterable[Array],
) -> RepeatedNames:
    """Return the names that have rows of several classes: the columns `names` are read for those that are shown.

    `pieces` are hashes of names and class indices of rows, (n,) each; all rows of a name are in one piece.
    """
    n, known = 0, dict[int, tuple[str, ...]]()
    for hashes, target in pieces:
        order = np.lexsort((target, hashes))
        name, index = hashes[order], target[order]
        differ = (name[1:] == name[:-1]) & (index[1:] != index[:-1]) & (name[1:] != 0)
        repeated = np.unique(name[1:][differ])
        n += len(repeated)
        some = repeated[: MOST_KNOWN - len(known)]
        rows = zip(np.searchsorted(name, some), np.searchsorted(name, some, side="right"), strict=True)
        for one, (first, last) in zip(some.tolist(), rows, strict=True):
            known[one] = tuple(classes[k] for k in np.unique(index[first:last]).tolist())
    looked_for = np.array(sorted(known), dtype=np.uint64)
    shown: dict[str, tuple[str, ...]] = {}
    for texts in (label_texts(column) for column in names if known):
        mine = name_hashes(texts)
        for i in np.flatnonzero(np.isin(mine, looked_for)).tolist():
            if texts[i] not in shown:
                shown[texts[i]] = known[int(mine[i])]
            if len(shown) == min(SHOWN, len(known)):
                return RepeatedNames(n, shown)
    return RepeatedNames(n, shown)


def conflict_words(repeated: int, repeating: Mapping[str, tuple[str, ...]]) -> str:
    """Return what a report says of them."""
    shown = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in repeating.items())
    return f"{repeated:,} identifiers have rows of several classes, which were kept: {shown}."
