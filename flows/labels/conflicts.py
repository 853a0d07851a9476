"""Objects of which several labelled rows are of different classes, found by hashes of their names.

Their rows stay: they may be several observations, or two objects whose names were rounded to one.
Shapes: N labelled rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.arrays.texts import hashed
from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from flows.inputs.pieces import Piece, Workers
from flows.labels.reader import label_texts

__all__ = ["NameSearch", "RepeatedNames", "conflict_words", "name_hashes", "repeated_in_conflict"]

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


@dataclass(frozen=True, eq=False)
class NameSearch:
    """Looks in the column of names for the first names that have one of the `hashes`: as many as are shown.

    They are found in the order of the rows, and come with their hashes.
    """

    column: str
    hashes: NDArray[np.uint64]

    def __call__(self, piece: Piece) -> dict[str, int]:
        """Return the first names of a piece."""
        return self._first(piece.partition.batches([self.column]))

    def through(self, catalogs: Sequence[Catalog], workers: Workers | None) -> dict[str, int]:
        """Return the first names of catalogues; `workers` look for them in pieces, until there are enough."""
        if workers is None:
            return self._first(batch for catalog in catalogs for batch in catalog.batches([self.column]))
        found: dict[str, int] = {}
        with closing(workers.in_order(self)) as pieces:
            for _, some in pieces:
                found = dict(islice((found | some).items(), self._most))
                if len(found) == self._most:
                    break
        return found

    def _first(self, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
        found: dict[str, int] = {}
        for batch in batches:
            texts = label_texts(batch_values(batch, [self.column])[self.column])
            mine = name_hashes(texts)
            for i in np.flatnonzero(np.isin(mine, self.hashes)).tolist():
                found[texts[i]] = int(mine[i])
                if len(found) == self._most:
                    return found
        return found

    @property
    def _most(self) -> int:
        return min(SHOWN, len(self.hashes))


def name_hashes(names: Array) -> NDArray[np.uint64]:
    """Return a hash (N,) of each object's name, 0 where it has none."""
    texts = label_texts(names)
    return np.where(texts == "", np.uint64(0), hashed(texts))


def repeated_in_conflict(
    pieces: Iterable[tuple[NDArray[np.uint64], NDArray[np.integer]]],
    classes: Sequence[str],
    search: Callable[[NDArray[np.uint64]], Mapping[str, int]],
) -> RepeatedNames:
    """Return the names that have rows of several classes, some of them by name.

    `pieces` are hashes of names and class indices of rows, (n,) each; all rows of a name are in one piece.  `search` is
    asked only where there are such names: it returns the first names that have one of these hashes.
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
    found = search(np.array(sorted(known), dtype=np.uint64)) if known else {}
    return RepeatedNames(n, {name: known[its_hash] for name, its_hash in found.items()})


def conflict_words(repeated: int, repeating: Mapping[str, tuple[str, ...]]) -> str:
    """Return what a report says of them."""
    shown = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in repeating.items())
    return f"{repeated:,} identifiers have rows of several classes, which were kept: {shown}."
