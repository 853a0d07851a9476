"""The class of each row: labels as they are found, and labels that contradict each other."""

from __future__ import annotations

from collections import Counter
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
from catalogs.catalog.catalog import BATCH_ROWS, Catalog
from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import NameClashError
from catalogs.sky.positions import PositionUnit
from flows.errors import TrainingError
from flows.features.reader import FeatureReader, in_units_of_the_first, label_columns_reader
from flows.features.split import position_unit
from flows.inputs.opening import Piece, Workers
from flows.labels.reader import Conflicts, LabelReader, label_texts
from flows.labels.source import LabelSource
from flows.specification.specification import Specification

Array = np.ndarray[Any, Any]
SHOWN = 20
"""Objects that are named."""
MOST_KNOWN = 10_000
"""Objects of several classes whose names are looked for: the first of them in the catalogue are named."""


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
) -> Conflicts:
    """Return the names that have rows of several classes, some of them by name.

    The rows stay: they may be several observations, or two objects whose names were rounded to one.

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
    return Conflicts(n, {name: known[its_hash] for name, its_hash in found.items()})


RARE = 20
"""Rows below which a class may have none that is held out: the other classes' judge the model."""


def label_reader(
    specification: Specification,
    catalogs: Sequence[Catalog],
    source: LabelSource,
    *,
    limit: int | None = None,
    workers: Workers | None = None,
) -> LabelReader:
    """Return the classes that the specification lists, or those met; `TrainingError` where two clash as columns.

    Those met come of a pass over the labels alone, so that names that clash are refused before any other work.
    """
    label = specification.label
    if label.classes or label.votes:
        return LabelReader.of(label, Counter())
    work = LabelCount.of(specification, catalogs, source)
    if workers is None:
        return LabelReader.of(label, work.count(first_batches(catalogs, work.general, limit)))
    seen: Counter[str] = Counter()
    for _, found in workers.in_order(work):
        n_labels = len(seen)
        seen.update(found)
        if len(seen) > n_labels:
            check_names(specification, LabelReader.of(label, seen).classes)
    return LabelReader.of(label, seen)


@dataclass(frozen=True, eq=False)
class LabelCount:
    """Counts the labels of the selected rows; `readers` and `units` are those of each catalogue."""

    specification: Specification
    source: LabelSource
    general: FeatureReader
    readers: tuple[FeatureReader, ...]
    units: tuple[PositionUnit, ...]

    @classmethod
    def of(cls, specification: Specification, catalogs: Sequence[Catalog], source: LabelSource) -> LabelCount:
        """Return the work for catalogues, which have the columns that it reads."""
        general = label_columns_reader(specification)
        for catalog in catalogs:
            general.check(catalog)
        readers = (in_units_of_the_first(general, catalog, catalogs[0]) for catalog in catalogs)
        units = (position_unit(specification, catalog) for catalog in catalogs)
        return cls(specification, source, general, tuple(readers), tuple(units))

    def __call__(self, piece: Piece) -> Counter[str]:
        """Return how often each label is met in a piece."""
        return self.count((piece.catalog, b) for b in piece.partition.batches(self.general.read, BATCH_ROWS))

    def count(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> Counter[str]:
        """Return how often each label is met, in the order of the rows; `TrainingError` where two clash as columns.

        A batch comes with the number of its catalogue.
        """
        own = self.source.counting()  # the counts of `source` are of the rows, once each
        seen: Counter[str] = Counter()
        for number, batch in batches:
            reader, n_labels = self.readers[number], len(seen)
            texts = own.texts(reader.values(batch), self.units[number])
            seen.update(texts[reader.select(batch)].tolist())
            if len(seen) > n_labels:
                check_names(self.specification, LabelReader.of(self.specification.label, seen).classes)
        return seen


def check_names(specification: Specification, classes: Sequence[str]) -> None:
    """Raise `TrainingError` where columns of classes would have one name."""
    output = specification.output
    if len(classes) < 2:
        return
    try:
        specification.check_sets(len(classes))
    except ValueError as error:
        raise TrainingError(str(error)) from error
    try:
        standard_columns(classes, output.prefix, columns=output.columns)
    except NameClashError as error:
        raise TrainingError(
            f"label.column: {error}; to join classes that differ only in upper and lower case, set "
            "case_sensitive = false under [label]"
        ) from error


def first_batches(
    catalogs: Iterable[Catalog], reader: FeatureReader, limit: int | None
) -> Iterable[tuple[int, pa.RecordBatch]]:
    """Yield what a reader reads of catalogues, of so many rows at most: batches with the catalogues' numbers."""
    left = limit
    for number, catalog in enumerate(catalogs):
        for batch in catalog.batches(reader.read, min(BATCH_ROWS, left or BATCH_ROWS)):
            yield number, batch if left is None else batch.slice(0, left)
            if left is not None:
                left -= batch.num_rows
                if left <= 0:
                    return
