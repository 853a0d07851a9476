"""Catalogues: tables in, tables out, streamed."""

from catalogs.catalog.catalog import Catalog, Column, Partition
from catalogs.catalog.new_columns import NewColumn, Provenance, standard_columns
from catalogs.errors import CatalogError
from catalogs.expressions.expression import parse
from catalogs.formats import open_catalog as open  # noqa: A004  the verb that users expect
from catalogs.memory.annotate_table import annotate_table
from catalogs.writing.annotate import annotate

__all__ = [
    "Catalog",
    "CatalogError",
    "Column",
    "NewColumn",
    "Partition",
    "Provenance",
    "annotate",
    "annotate_table",
    "open",
    "parse",
    "standard_columns",
]
