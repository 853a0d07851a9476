"""The classes of a training whose specification lists none: each label is one, met in a pass over the labels alone.

So names that columns cannot hold beside each other are refused before any other work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Catalog
from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import NameClashError
from flows.errors import TrainingError
from flows.features.reader import FeatureReader, label_columns_reader
from flows.features.split import position_unit
from flows.features.units import in_units_of_the_first
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
) -> LabelReader:
    """Return the classes that the specification lists, or those met; `TrainingError` where two clash as columns."""
    label = specification.label
    if label.classes or label.votes:
        return LabelReader.of(label, Counter())
    general, own = (
        label_columns_reader(specification),
        replace(source),
    )  # its counts are of the rows, once each
    for catalog in catalogs:
        general.check(catalog)
    seen: Counter[str] = Counter()
    for catalog, batch in first_batches(catalogs, general, limit):
        reader = in_units_of_the_first(general, catalog, catalogs[0])
        unit = position_unit(specification, catalog)
        selected = reader.select(batch)
        n_labels = len(seen)
        seen.update(own.texts(reader.values(batch), unit)[selected].tolist())
        if len(seen) > n_labels:
            check_names(specification, LabelReader.of(label, seen).classes)
    return LabelReader.of(label, seen)


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
) -> Iterable[tuple[Catalog, pa.RecordBatch]]:
    """Yield what a reader reads of catalogues, of so many rows at most."""
    left = limit
    for catalog in catalogs:
        for batch in catalog.batches(reader.read, min(BATCH_ROWS, left or BATCH_ROWS)):
            yield catalog, batch if left is None else batch.slice(0, left)
            if left is not None:
                left -= batch.num_rows
                if left <= 0:
                    return
