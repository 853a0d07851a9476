"""Which table is meant of a file that holds several, as FITS files and VOTables may."""

from __future__ import annotations

from catalogs.table_choice import TableChoice
from flows.features.reader import FeatureReader, training_reader
from flows.features.split import split_columns
from flows.specification.specification import Specification

__all__ = ["target_table", "training_table"]


def training_table(specification: Specification) -> TableChoice:
    """Return which table the labelled rows are in."""
    reader = training_reader(specification, split_by=split_columns(specification))
    return TableChoice(specification.catalog.table, reader.names)


def target_table(specification: Specification, reader: FeatureReader) -> TableChoice:
    """Return which table a reader of the target reads: as a rule one like the labelled one."""
    return TableChoice(specification.target.table, reader.read, usual=specification.catalog.table)
