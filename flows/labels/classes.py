"""The classes of a training whose specification lists none: each label is one, met in a pass over the labels alone.

So names that columns cannot hold beside each other are refused before any other work.  Workers that read the rows make
this pass, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Catalog
from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import NameClashError
from catalogs.sky.positions import PositionUnit
from flows.errors import TrainingError
from flows.features.reader import FeatureReader, label_columns_reader
from flows.features.split import position_unit
from flows.features.units import in_units_of_the_first
from flows.inputs.pieces import Piece, Workers
from flows.labels.reader import LabelReader
from flows.labels.source import LabelSource
from flows.specification.specification import Specification

__all__ = ["RARE", "first_batches", "label_reader"]

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
    """Return the classes that the specification lists, or those met; `TrainingError` where two clash as columns."""
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
