"""Which table is meant of a file that holds several, as FITS files and VOTables may."""

from __future__ import annotations

from collections.abc import Iterable

from flows.features.reader import target_reader, training_reader
from flows.features.split import split_columns
from flows.inputs.table_choice import TableChoice
from flows.specification.specification import Specification

__all__ = ["target_table", "training_table"]


def training_table(specification: Specification) -> TableChoice:
    """Return which table the labelled rows are in."""
    reader = training_reader(specification, split_by=split_columns(specification))
    return TableChoice(specification.catalog.table, reader.names)


def target_table(specification: Specification, features: Iterable[str]) -> TableChoice:
    """Return which table is classified with those features: as a rule one like the labelled one."""
    columns = target_reader(specification, features).read
    return TableChoice(specification.target.table, columns, usual=specification.catalog.table)
